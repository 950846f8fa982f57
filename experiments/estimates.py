"""How long a plan takes on this machine: its operations at the measured rate of products."""

import time

import torch

import arith_lens as al

ROWS, REPEATS = 64, 3
SLOWEST_SHARE = 0.25
"""The share of that rate that path patching reaches on small models, whose products are short: 26%
on `reference` with one thread. On models of billions of weights it is most of it."""


def matrix_rate(model: al.HookedModel) -> float:
    """Operations a second of products of the size of the model's MLPs, on its device, in its dtype.

    The fastest of a few counts: the others had less of the machine. No weight is read.
    """
    options = {"device": model.device, "dtype": model.dtype}
    rows = torch.ones(ROWS, model.cfg.d_model, **options)
    matrix = torch.ones(model.cfg.d_model, model.cfg.d_mlp or 4 * model.cfg.d_model, **options)
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        float((rows @ matrix)[0, 0])  # reading one number waits for a GPU
        seconds.append(time.perf_counter() - started)
    return 2 * ROWS * matrix.numel() / min(seconds)


def time_text(flops: float, rate: float) -> str:
    """The time of so many operations, from the fastest to the slowest: `12 to 48 s here`."""
    fastest = flops / rate
    unit, size = next(
        (unit, size) for unit, size in (("h", 3600), ("min", 60), ("s", 0)) if fastest >= 2 * size
    )
    low, high = (seconds / (size or 1) for seconds in (fastest, fastest / SLOWEST_SHARE))
    low, high = (f"{part:.0f}" if part >= 10 else f"{part:.2g}" for part in (low, high))
    return f"{low} to {high} {unit} here"
