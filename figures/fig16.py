"""Figure 16: the attention of operator heads on the word of each operation.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

from typing import Annotated

import tyro

from figures import patterns
from figures.command import command
from figures.common import Options
from figures.exhibit import Chart, show

SAYS = "Heads that are operator heads in one operation at least, on one sentence with each word."


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    show(exhibits, options, options.formats)


def exhibits(options: Options) -> list[Chart]:
    """The patterns of a run. Raises RunError if there is no run."""
    return [
        patterns.chart(
            options,
            "words",
            name="fig16",
            title="Figure 16: operator heads on the word of each operation",
            look="Whether one head looks at the operation in whichever words it comes. In the "
            "paper the same heads look at plus, minus, times and divided by.",
            says=SAYS,
        )
    ]


if __name__ == "__main__":
    command(main, "fig16", __doc__)
