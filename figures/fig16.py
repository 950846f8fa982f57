"""Figure 16: the attention of operator heads on the word of each operation.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

import sys
from typing import Annotated

import tyro

from arith_lens.runs import RunError
from figures import patterns
from figures.common import Options

SAYS = "Heads that are operator heads in one operation at least, on one sentence with each word."


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        patterns.main(options, "fig16", "words", SAYS)
    except RunError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig16", description=__doc__)
