"""Table 1: full, precise, LoRA and random-head tuning; mathematics gained, generic ability lost.

Reads a run of `experiments/does_tuning_help`, without loading a model; prints the table and a
second one with every task, and writes both as HTML and their numbers as CSV.
"""

from pandas import DataFrame

from experiments.does_tuning_help import Criterion
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table
from figures.tuning import (
    EXPERIMENT,
    TableRow,
    model_name,
    paper_rows,
    row_numbers,
    rows_by_criterion,
    task_numbers,
    without_rate,
)
from figures.tuning_words import no_rate, notes, summary, task_notes, task_texts

TABLE_TITLES = {
    1: "Table 1: what tuning gains in mathematics and loses elsewhere",
    2: "Table 2: how many heads to tune",
    5: "Table 5: MLPs tuned beside the heads",
}
LOOKS = {
    1: "Whether tuning the key heads alone gains about what tuning everything gains in word "
    "problems, loses less in generic tasks, and trains more examples a second. The paper finds "
    "all three.",
    2: "How few heads are enough. In the paper 32 of LLaMA2-7B's 1024 gain what 64 do, and 8 most "
    "of it.",
    5: "Whether MLPs beside the heads gain more, and what they cost in generic tasks.",
}


def exhibits(options: TableOptions) -> list[Table]:
    """The table and every task of it. Raises RunError if it is missing."""
    return _tables(options, 1)


def table2(options: TableOptions) -> list[Table]:
    """Table 2: precise tuning with more and fewer heads, and MLPs beside them.

    Reads a run of `experiments/does_tuning_help --table 2`, without loading a model; prints the
    table and a second one with every task, and writes both as HTML and their numbers as CSV.

    Raises:
        RunError: it is missing.
    """
    return _tables(options, 2)


def table5(options: TableOptions) -> list[Table]:
    """Table 5: precise tuning with MLPs tuned beside the heads.

    Reads a run of `experiments/does_tuning_help --table 5`, without loading a model; prints the
    table and a second one with every task, and writes both as HTML and their numbers as CSV.

    Raises:
        RunError: it is missing.
    """
    return _tables(options, 5)


def _tables(options: TableOptions, table: int) -> list[Table]:
    run = chosen_run(options, EXPERIMENT)
    chosen = rows_by_criterion(run, table)
    rows: list[tuple[Criterion, TableRow]] = [
        (criterion, row) for criterion, of_one in chosen.items() for row in of_one
    ]
    paper = paper_rows(run, table)
    title = f"{TABLE_TITLES[table]}, {model_name(run)}"
    cells = [summary(row, criterion, paper.get(row.key)) for criterion, row in rows]
    cells += [
        no_rate(cells[0], key, criterion)
        for criterion in chosen
        for key in without_rate(run, table, criterion)
    ]
    return [
        Table(
            name=f"table{table}",
            title=title,
            look=LOOKS[table],
            notes=notes(run, chosen, table),
            runs=(run,),
            numbers=DataFrame(
                [row_numbers(row, criterion, paper.get(row.key)) for criterion, row in rows]
            ),
            cells=DataFrame(cells),
        ),
        Table(
            name=f"table{table}_tasks",
            title=f"{title}: every task",
            look="Which tasks the changes of the groups come from.",
            notes=task_notes(chosen["mathematics"], paper),
            runs=(run,),
            numbers=DataFrame(
                [line for criterion, row in rows for line in task_numbers(row, criterion)]
            ),
            cells=DataFrame(
                [task_texts(row, criterion, paper.get(row.key)) for criterion, row in rows]
            ),
        ),
    ]
