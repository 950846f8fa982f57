"""The table `stability`: how many heads do samples of problems have in common?

Keys: operation; set ("top 5": the five strongest heads, or "key"); compared, with what a sample is
compared ("rest": all problems that are not in it, "another": another sample of its size); size, how
many problems a sample has.
"""

from collections.abc import Iterator

from pandas import DataFrame

from arith_lens.effects import stability_of
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row, row

IN_COMMON = "heads in common"
STABLE_SHARE = 0.9
"""Sets that have this share in common count as the same."""
ENOUGH = f"problems until {STABLE_SHARE:.0%} in common"
"""The smallest size with this share in common with the rest; no row if no size has it."""


def table(run: Run, /, k: int, samples: int) -> QuestionTable:
    """The rows of a run of `which_heads`.

    Args:
        run: the run.
        k: how many heads the top set has.
        samples: samples of each size.

    Raises:
        RunError: the run is damaged.
        StabilityError: it has too few problems.
    """
    rows: list[Row] = []
    for operation in results.MAP.labels(run):
        heads = results.MAP.load(run, operation).heads
        rows += stability_rows(stability_of(heads, k=k, n_draws=samples), operation, samples)
    return QuestionTable.of("stability", str(run.config["model"]), rows)


def stability_rows(stability: DataFrame, operation: str, samples: int) -> Iterator[Row]:
    """The rows of one operation.

    Args:
        stability: of `stability_of`.
        operation: its name.
        samples: samples of each size.
    """
    spread, enough = f"10th to 90th percentile of {samples} samples", {}
    for one in stability.to_dict("records"):
        number = Number(one["mean"], one["low"], one["high"], spread, samples)
        keys = {"operation": operation, "set": one["set"], "compared": one["with"]}
        yield row(IN_COMMON, number, **keys, size=one["n"])
        if one["with"] == "rest" and one["mean"] >= STABLE_SHARE:
            enough[one["set"]] = min(enough.get(one["set"], one["n"]), one["n"])
    for name, size in enough.items():
        keys = {"operation": operation, "set": name, "compared": "rest"}
        yield row(ENOUGH, Number(size, unit="count"), **keys)
