"""Table 5: precise tuning with MLPs tuned beside the heads.

Reads a run of `experiments/does_tuning_help --table 5`, without loading a model; prints the table
and a second one with every task, and writes both as HTML and their numbers as CSV.
"""

from figures import table1
from figures.common import TableOptions
from figures.exhibit import Table, command_for


def exhibits(options: TableOptions) -> list[Table]:
    """The table and every task of it. Raises RunError if it is missing."""
    return table1.exhibits(options, 5)


main = command_for(exhibits)
