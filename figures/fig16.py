"""Figure 16: the attention of operator heads on the word of each operation.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

from figures import patterns
from figures.command import command
from figures.common import Options
from figures.exhibit import Chart, command_for

SAYS = "Heads that are operator heads in one operation at least, on one sentence with each word."


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


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "fig16", __doc__)
