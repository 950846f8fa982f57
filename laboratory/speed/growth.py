"""How time and operations grow as one size of a model or its prompts grows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from laboratory.speed.measure import Rows, frame, timed
from laboratory.speed.rivals import RAW, RIVALS, SWEEP
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
    {
        "n_layers": (1, 2, 4, 8),
        "n_heads": (2, 4, 8, 16),
        "n_tokens": (4, 8, 16, 32),
        "n_pairs": (2, 4, 8, 16),
    },
)
COMPARED_RIVALS = {rival.name: rival for rival in RIVALS if rival.name in (RAW, SWEEP)}


def factors(base: Shape, values: Values) -> Iterator[tuple[dict[str, str | int], Shape]]:
    """Factor and value, and the shape; at fixed d_model, more heads are narrower ones."""
    for factor, some in values.items():
        for value in some:
            yield {"factor": factor, "value": value}, replace(base, **{factor: value})


def growth_rows(
    growth: tuple[Shape, Values], device: str, dtype: torch.dtype, **effort: Any
) -> Rows:
    """One row per point and method: time, and the operations predicted."""
    rows: Rows = []
    for where, shape in factors(*growth):
        setting = setting_of(shape, device, dtype)
        methods = {
            name: partial(rival.compute, setting, setting.senders)
            for name, rival in COMPARED_RIVALS.items()
        }
        for name, timing in timed(methods, device=setting.device, **effort).items():
            spent = timing.spent(setting.device)
            rows.append({**where, "method": name, "spent": spent, "flops": _flops(name, setting)})
    return rows


def points_flops(growth: tuple[Shape, Values]) -> tuple[int, int]:
    """Operations of all methods at all points, once, and how many points there are."""
    settings = [setting_of(shape, "meta") for _, shape in factors(*growth)]
    return sum(_flops(name, at) for at in settings for name in COMPARED_RIVALS), len(settings)


def _flops(name: str, setting: Setting) -> int:
    flops = COMPARED_RIVALS[name].flops
    assert flops is not None
    return flops(setting)


def exponents(points: Rows) -> Rows:
    """One row per factor and method: the exponents of time, with standard errors, and of FLOPs.

    An exponent is the slope of log time over log factor, by least squares. Time that grows more
    slowly than operations has a fixed part, or runs larger matrices better.
    """
    import numpy as np
    from scipy.stats import linregress

    rows: Rows = []
    fit: Any = linregress
    for (factor, method), some in frame(points).groupby(["factor", "method"], sort=False):
        value, spent, flops = np.log(some[["value", "spent", "flops"]].astype(float)).T.to_numpy()
        time, work = fit(value, spent), fit(value, flops)
        slopes = {"exponent": time.slope, "stderr": time.stderr, "flops_exponent": work.slope}
        rows.append({"factor": factor, "method": method, "points": len(some), **slopes})
    return rows
