"""Table 5: precise tuning with MLPs tuned beside the heads.

Reads a run of `experiments/does_tuning_help --table 5`, without loading a model; prints the table
and a second one with every task, and writes both as HTML and their numbers as CSV.
"""

from typing import Annotated

import tyro

from figures.common import TableOptions
from figures.table1 import print_table


def main(options: Annotated[TableOptions, tyro.conf.arg(name="")]) -> None:
    """Print and write."""
    print_table(options, 5)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.table5", description=__doc__)
