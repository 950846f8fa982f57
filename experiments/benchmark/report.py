"""What is printed of each table, and how the rivals are compared."""

from collections.abc import Iterable

from experiments.benchmark.rivals import Rival
from experiments.benchmark.shapes import Setting
from experiments.benchmark.table import Cell, Column, Table
from experiments.benchmark.timing import Timing

RIVALS = {
    "method": Column("method"),
    "seconds": Column("seconds", ".3g"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "ms a sender": Column("seconds_per_sender", ".3g", 1e3),
    "ratio": Column("ratio", ".1f"),
    "GFLOP": Column("flops", ",.4g", 1e-9),
    "largest difference": Column("difference", ".1e"),
    "": Column("remark"),
}
FLOOR = {
    "part of the sweep": Column("part"),
    "seconds": Column("seconds", ".4f"),
    "at best": Column("floor", ".4f"),
    "reached": Column("reached", ".0%"),
}
EXPONENTS = {
    "grows with": Column("factor"),
    "method": Column("method"),
    "exponent of time": Column("exponent", ".2f"),
    "standard error": Column("stderr", ".2f"),
    "of operations": Column("flops_exponent", ".2f"),
    "points": Column("points"),
}
POINTS = {
    "factor": Column("factor"),
    "value": Column("value"),
    "method": Column("method"),
    "seconds": Column("seconds", ".3g"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "GFLOP": Column("flops", ",.4g", 1e-9),
}
MEMORY = {
    "method": Column("method"),
    "MB beyond the model": Column("peak_bytes", ",.1f", 1e-6),
    "predicted by plan": Column("predicted_bytes", ",.1f", 1e-6),
    "": Column("remark"),
}
ALLOWED = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest difference of two ways to one logit, as a share of the largest logit."""


def compared(
    setting: Setting, rivals: Iterable[Rival], timings: dict[str, Timing], largest: int | float
) -> Table:
    """A row a rival; ratios and differences refer to the first.

    Args:
        timings: of those that ran.
        largest: the largest logit of an answer, unpatched.
    """
    first = next(iter(timings.values()))
    allowed = ALLOWED[str(setting.model.dtype).removeprefix("torch.")] * largest
    rows: list[dict[str, Cell]] = []
    for rival in rivals:
        row: dict[str, Cell] = {
            "method": rival.name,
            "flops": None if rival.flops is None else rival.flops(setting),
        }
        timing = timings.get(rival.name)
        if timing is None:
            measured = ("seconds", "cpu_seconds", "seconds_per_sender", "ratio", "difference")
            rows.append(row | dict.fromkeys(measured) | {"rounds": 0, "remark": "not installed"})
            continue
        apart = float((timing.result.cpu() - first.result.cpu()).abs().max())
        rows.append(
            row
            | {
                "seconds": timing.seconds,
                "cpu_seconds": timing.cpu,
                "seconds_per_sender": timing.seconds / len(setting.senders),
                "ratio": first.spent(setting.device) / timing.spent(setting.device),
                "difference": apart,
                "rounds": timing.rounds,
                "remark": "" if apart <= allowed else f"DISAGREES (allowed {allowed:.0e})",
            }
        )
    return Table(rows)
