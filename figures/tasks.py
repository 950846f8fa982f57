"""Transfer and benchmarks: other tasks before and after a knockout of heads."""

from functools import partial
from typing import Any

from pandas import DataFrame

from figures.common import chosen_run
from figures.exhibit import Table, text_table_of
from figures.options import TableOptions
from figures.tables import benchmarks as benchmark_numbers
from figures.tables import transfer as transfer_numbers
from figures.tables.answers import AFTER, ALL, BEFORE, CHANGE, HEADS, P_VALUE, RELATIVE_CHANGE
from figures.tables.table import records, select, value
from figures.tables.tuning import DOUBTFUL
from figures.views.words import interval_text, range_text, share_text

CONTROL_NAMES = {"random": "random heads", "same layers": "random heads, same layers"}
Texts = dict[str, str]
KNOCKED_OUT = (
    "Each head that is knocked out gives one vector, its mean over the counterfactuals of the four "
    "operations, at every token but BOS."
)
STAND_INS = (
    "Models of the closed world have its word problems and generic tasks in place of SVAMP, GSM8K "
    "and MMLU."
)
CONTROLS = (
    "Random heads: draws of as many from all heads; same layers: each draw has the layers of those "
    "heads, from all but these. Difference in points, mean (range)."
)


def _control_texts(changes: DataFrame) -> Texts:
    """The changes without each kind of control heads, by the titles of their columns."""
    return {
        f"{title}, {one.n:.0f} draws": range_text(one)
        for kind, title in CONTROL_NAMES.items()
        for one in records(select(changes, knocked_out=kind))
    }


HEAD_SET_NAMES = {
    "key": "key heads (mean of + − × ÷)",
    "key in any operation": "key in any operation",
    "strongest": "strongest",
}


def transfer(options: TableOptions) -> list[Table]:
    """Transfer and control: word problems and generic tasks, before and after a knockout."""
    run = chosen_run(options, "what_else_breaks")
    return [
        text_table_of(
            partial(transfer_numbers.table, run),
            [run],
            name="transfer",
            title=f"Transfer and control of a knockout, {run.config['model']}",
            caption="Accuracy after: difference in points [95% interval, questions paired], and "
            f"the relative change. {KNOCKED_OUT} {CONTROLS} {STAND_INS}",
            cells=_transfer_cells,
        )
    ]


def _transfer_cells(rows: DataFrame) -> DataFrame:
    """One row per group and task, with every knockout."""
    return DataFrame(
        {
            "task": f"all {before.group}" if before.task == ALL else before.task,
            "questions": f"{before.n:.0f}",
            "before": share_text(before),
            **_knockout_texts(rows, select(rows, group=before.group, task=before.task)),
        }
        for before in records(select(rows, measure=BEFORE))
    )


def _knockout_texts(rows: DataFrame, of_part: DataFrame) -> Texts:
    """One task without each set of heads."""
    text = {}
    for name, title in HEAD_SET_NAMES.items():
        of_set = select(of_part, knocked_out=name)
        (change,) = records(select(of_set, measure=CHANGE))
        n_heads = value(rows, measure=HEADS, knocked_out=name)
        text[f"{title} ({n_heads:.0f})"] = (
            f"{value(of_set, measure=AFTER):.1%}: {interval_text(change)}"
        ) + "".join(
            f", {one.value:+.0%}" for one in records(select(of_set, measure=RELATIVE_CHANGE))
        )
    return text | _control_texts(select(of_part, measure=CHANGE))


def benchmarks(options: TableOptions) -> list[Table]:
    """Benchmarks before and after a knockout: accuracy, its interval, the paired change."""
    run = chosen_run(options, "how_good_is_it")
    return [
        text_table_of(
            partial(benchmark_numbers.table, run),
            [run],
            name="benchmarks",
            title=f"Benchmarks, {run.config['model']}",
            caption="Accuracy with Wilson's 95% interval; after a knockout: the difference in "
            f"points [95% interval, questions paired], and McNemar's exact test. {KNOCKED_OUT} "
            f"{CONTROLS}",
            cells=_benchmark_cells,
        )
    ]


def _benchmark_cells(rows: DataFrame) -> DataFrame:
    """The groups, and the tasks that are in no group. The CSV has all tasks."""
    return DataFrame(
        _benchmark_texts(rows, before) for before in records(select(rows, measure=BEFORE, task=ALL))
    )


def _benchmark_texts(rows: DataFrame, before: Any) -> Texts:
    """One task."""
    of_task = select(rows, group=before.group, task=ALL)
    doubts = value(of_task, measure=DOUBTFUL)
    (shots,) = records(select(of_task, measure=benchmark_numbers.SHOTS))
    several = "" if shots.low == shots.high else f" to {shots.high:.0f}"
    cells = {
        "task": before.group,
        "shots": f"{shots.low:.0f}{several}",
        "questions": f"{before.n:.0f}" + (f" ({doubts:.0f} doubtful)" if doubts else ""),
        "as it is": share_text(before),
    }
    changes = select(of_task, measure=CHANGE)
    for change in records(select(changes, knocked_out="strongest")):
        n_heads = value(rows, measure=HEADS)
        after, p = (value(of_task, measure=measure) for measure in (AFTER, P_VALUE))
        cells[f"without {n_heads:.0f} strongest"] = (
            f"{after:.1%}: {interval_text(change)}, p = {p:.2g}"
        )
    return cells | _control_texts(changes)
