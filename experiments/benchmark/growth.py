"""How time grows with layers, heads, tokens and pairs: one factor at a time, exponents fitted.

An exponent is the slope of log time over log factor, by least squares. Beside it stands the slope
of the predicted operations over the same points: time that grows more slowly than operations has
a fixed part, or runs larger matrices better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from experiments.benchmark.rivals import RAW, RIVALS, SWEEP, Rival
from experiments.benchmark.shapes import Setting, Shape, setting_of
from experiments.benchmark.table import Cell, Table
from experiments.benchmark.timing import timed


@dataclass(frozen=True)
class Growth:
    """A shape, and the values that each of its sizes takes while the others stay."""

    base: Shape
    values: dict[str, tuple[int, ...]]

    def shapes(self) -> Iterator[tuple[str, int, Shape]]:
        """Factor, its value, the shape; at fixed d_model, more heads are narrower ones."""
        for factor, values in self.values.items():
            for value in values:
                yield factor, value, replace(self.base, **{factor: value})


FULL = Growth(
    Shape(4, 512, 16, 1376, 1000, n_pairs=8, n_tokens=12),
    {
        "n_layers": (2, 4, 8, 16),
        "n_heads": (4, 8, 16, 32),
        "n_tokens": (8, 16, 32, 64),
        "n_pairs": (4, 8, 16, 32),
    },
)
QUICK = Growth(
    Shape(2, 64, 4, 176, 100, n_pairs=4, n_tokens=8),
    {
        "n_layers": (1, 2, 4, 8),
        "n_heads": (2, 4, 8, 16),
        "n_tokens": (4, 8, 16, 32),
        "n_pairs": (2, 4, 8, 16),
    },
)
COMPARED = tuple(rival for rival in RIVALS if rival.name in (RAW, SWEEP))


def growth_table(
    growth: Growth, *, device: str, dtype: torch.dtype, repeats: int, budget: int | float
) -> Table:
    """A row a point and method: time, and the operations predicted."""
    rows: list[dict[str, Cell]] = []
    for factor, value, shape in growth.shapes():
        setting = setting_of(shape, device, dtype)
        methods = {rival.name: _bound(rival, setting) for rival in COMPARED}
        timings = timed(methods, repeats=repeats, budget=budget, device=setting.device)
        for rival in COMPARED:
            timing = timings[rival.name]
            rows.append(
                {
                    "factor": factor,
                    "value": value,
                    "method": rival.name,
                    "seconds": timing.seconds,
                    "cpu_seconds": timing.cpu,
                    "spent": timing.spent(setting.device),
                    "rounds": timing.rounds,
                    "flops": _flops(rival, setting),
                }
            )
    return Table(rows)


def points_flops(growth: Growth) -> tuple[int, int]:
    """Operations of all methods at all points, once, and how many points there are."""
    shapes = [shape for _, _, shape in growth.shapes()]
    settings = [setting_of(shape, "meta") for shape in shapes]
    return sum(_flops(rival, at) for at in settings for rival in COMPARED), len(shapes)


def _bound(rival: Rival, setting: Setting):
    return lambda: rival.compute(setting, setting.senders)


def _flops(rival: Rival, setting: Setting) -> int:
    assert rival.flops is not None
    return rival.flops(setting)


def exponents(growth: Table) -> Table:
    """A row a factor and method: the exponents of time, with its standard error, and of FLOPs."""
    series: dict[tuple[Cell, Cell], list[dict[str, Cell]]] = {}
    for row in growth.rows:
        series.setdefault((row["factor"], row["method"]), []).append(dict(row))
    return Table(
        [
            {"factor": factor, "method": method, **_slopes(points)}
            for (factor, method), points in series.items()
        ]
    )


def _slopes(points: Sequence[dict[str, Cell]]) -> dict[str, Cell]:
    from scipy.stats import linregress

    logs = {
        name: np.log([float(point[name] or np.nan) for point in points])
        for name in ("value", "spent", "flops")
    }
    time: Any = linregress(logs["value"], logs["spent"])
    work: Any = linregress(logs["value"], logs["flops"])
    return {
        "points": len(points),
        "exponent": float(time.slope),
        "stderr": float(time.stderr),
        "flops_exponent": float(work.slope),
    }
