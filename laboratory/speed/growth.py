"""How time grows as one size of a model or its prompts grows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from laboratory.speed.measure import Rows, frame, timed
from laboratory.speed.shapes import Setting, Shape, setting_of

Values = Mapping[str, tuple[int, ...]]
FULL: tuple[Shape, Values] = (
    Shape(4, 512, 16, 1376, 1000, n_pairs=8, n_tokens=12),
    {
        "n_layers": (2, 4, 8, 16),
        "n_heads": (4, 8, 16, 32),
        "n_tokens": (8, 16, 32, 64),
        "n_pairs": (4, 8, 16, 32),
    },
)
QUICK: tuple[Shape, Values] = (
    Shape(2, 64, 4, 176, 100, n_pairs=4, n_tokens=8),
    {factor: tuple(value // 2 for value in some) for factor, some in FULL[1].items()},
)


def factors(base: Shape, values: Values) -> Iterator[tuple[dict[str, str | int], Shape]]:
    """Factor and value, and the shape; at fixed d_model, more heads are narrower ones."""
    for factor, some in values.items():
        for value in some:
            yield {"factor": factor, "value": value}, replace(base, **{factor: value})


def growth_rows(
    growth: tuple[Shape, Values],
    methods_of: Callable[[Setting], Mapping[str, Callable[[], Tensor]]],
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    **effort: Any,
) -> Rows:
    """One row per point and method: its time."""
    rows: Rows = []
    for where, shape in factors(*growth):
        setting = setting_of(shape, device, dtype)
        for name, timing in timed(methods_of(setting), device=setting.device, **effort).items():
            rows.append({**where, "method": name, "spent": timing.spent(setting.device)})
    return rows


def exponents(points: Rows) -> Rows:
    """One row per factor and method: the exponent of time, with its standard error.

    An exponent is the slope of log time over log factor, by least squares.
    """
    import numpy as np
    from scipy.stats import linregress

    rows: Rows = []
    for (factor, method), some in frame(points).groupby(["factor", "method"], sort=False):
        line: Any = linregress(*np.log(some[["value", "spent"]].astype(float)).T.to_numpy())
        slope = {"points": len(some), "exponent": line.slope, "stderr": line.stderr}
        rows.append({"factor": factor, "method": method, **slope})
    return rows
