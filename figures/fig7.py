"""Figure 7: the attention of operand heads on formats that they were not found with.

Reads a run of `experiments/where_do_they_look.py` (the model's newest, or `--run PATH`) and
draws it without loading a model.
"""

import sys
from typing import Annotated

import tyro

from arith_lens.runs import RunError
from figures import patterns
from figures.common import Options

SAYS = "Operand heads of one operation at least, on formats that they were not found with."


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        patterns.main(options, "fig7", "formats", SAYS)
    except RunError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig7", description=__doc__)
