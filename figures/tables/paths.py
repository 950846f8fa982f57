"""The table `paths`: on which paths the strongest heads change the answer.

Keys: operation; component, a head; part, which part of its total effect: what goes directly to the
logits, what MLPs add to it, both together (via MLPs), what later heads add, and the total.
"""

from collections.abc import Iterator
from dataclasses import replace

from arith_lens.effects import Effects
from arith_lens.runs import Run
from experiments import results
from figures.tables.effects import METRIC_UNITS
from figures.tables.number import Number, Unit
from figures.tables.table import QuestionTable, Row, interval_numbers, row

EFFECT, SHARE = "effect", "share of the total effect"
PARTS = ("direct", "MLPs add", "via MLPs", "heads add", "total")


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `which_paths`, the strongest heads first.

    Raises:
        RunError: the run is damaged.
    """
    unit = METRIC_UNITS[run.config["metric"]]
    operations = results.PATH_EFFECTS.labels(run, None, "total")
    rows = [one for name in operations for one in _operation_rows(run, name, unit)]
    return QuestionTable.of("paths", str(run.config["model"]), rows)


def _operation_rows(run: Run, operation: str, unit: Unit) -> Iterator[Row]:
    """Each part of each head's effect. The parts are differences within pairs."""
    direct, via_mlps, total = (
        results.PATH_EFFECTS.load(run, operation, paths).heads
        for paths in ("direct", "via_mlps", "total")
    )
    parts = (direct, _less(via_mlps, direct), via_mlps, _less(total, via_mlps), total)
    numbers = {name: interval_numbers(part, unit) for name, part in zip(PARTS, parts, strict=True)}
    n_heads = total.per_pair.shape[1]
    for head in total.top(total.per_pair[..., 0].numel()):
        at = head.layer * n_heads + head.index  # pyright: ignore[reportAttributeAccessIssue]
        of_total = numbers["total"][at].value
        for name in PARTS:
            keys = {"operation": operation, "component": str(head), "part": name}
            yield row(EFFECT, numbers[name][at], **keys)
            share = Number(numbers[name][at].value / of_total, unit="relative")
            yield row(SHARE, share, **keys)


def _less(a: Effects, b: Effects) -> Effects:
    return replace(a, per_pair=a.per_pair - b.per_pair)
