"""Table 1: full, precise, LoRA and random-head tuning; mathematics gained, generic ability lost.

Reads a run of `experiments/does_tuning_help`, without loading a model; prints the table and a
second one with every task, and writes both as HTML and their numbers as CSV.
"""

import sys
from typing import Annotated

import tyro
from pandas import DataFrame

from arith_lens.paper import paper_model
from arith_lens.runs import Run, RunError
from figures.common import TableOptions, chosen_run, stem_of, write_table
from figures.tuning import EXPERIMENT, chosen_rows, notes, paper_rows, summary, task_texts

TITLES = {
    1: "Table 1: what tuning gains in mathematics and loses elsewhere",
    2: "Table 2: how many heads to tune",
    5: "Table 5: MLPs tuned beside the heads",
}


def main(options: Annotated[TableOptions, tyro.conf.arg(name="")]) -> None:
    """Print and write."""
    print_table(options, 1)


def print_table(options: TableOptions, table: int) -> None:
    """One of the tables of tuning."""
    try:
        run = chosen_run(options, EXPERIMENT)
        rows = chosen_rows(run, table)
        paper = paper_rows(run, table)
        lines = [summary(run, row, paper.get(row.key)) for row in rows]
        every_task = DataFrame([task_texts(run, row) for row in rows])
    except RunError as error:
        sys.exit(str(error))
    shown, numbers = (DataFrame([line[i] for line in lines]) for i in (0, 1))
    title = f"{TITLES[table]}, {run.config['model']}"
    small = [*notes(run, rows, table), *_paper_note(run)]
    stem = stem_of(options, run, f"table{table}")
    write_table(stem, shown, numbers, title, small)
    tasks = stem.with_name(f"table{table}_tasks")
    write_table(tasks, every_task, every_task, f"{title}: every task", small[:1])


def _paper_note(run: Run) -> list[str]:
    """What the paper starts from, for its models."""
    paper = paper_model(run.config["model"])
    if paper is None or not paper.before:
        return []
    before = ", ".join(f"{name} {value:g}" for name, value in paper.before.items())
    return [f"The paper, {paper.name}, before tuning: {before}; its speeds are of eight A100."]


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.table1", description=__doc__)
