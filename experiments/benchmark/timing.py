"""Seconds by the clock and of the processor, in rounds that weigh on all methods alike."""

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

import torch
from torch import Tensor

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Medians of a method's rounds, and what it computed."""

    seconds: float
    cpu: float
    """Processor time of all threads: other work on the machine disturbs it less than the clock."""
    rounds: int
    result: Tensor
    spreads: tuple[float, float] = (0.0, 0.0)
    """Between the quartiles of the rounds, as a share of the median: of the clock, of `cpu`."""

    def spent(self, device: torch.device) -> float:
        """What ratios and exponents are of: processor time, or the clock where a GPU works."""
        return self.cpu if device.type == "cpu" else self.seconds

    def spread(self, device: torch.device) -> float:
        """Of what `spent` is the median of."""
        return self.spreads[device.type == "cpu"]


def timed(
    methods: Mapping[Name, Callable[[], Tensor]],
    *,
    repeats: int,
    budget: int | float,
    device: torch.device,
) -> dict[Name, Timing]:
    """Run every method once a round, until it has run `repeats` times or for `budget` seconds.

    A method's first run warms it up and does not count, unless it alone used up the budget.
    """
    runs: dict[Name, list[tuple[float, float]]] = {name: [] for name in methods}
    results: dict[Name, Tensor] = {}
    for _ in range(1 + repeats):
        for name, compute in methods.items():
            if not runs[name] or sum(seconds for seconds, _ in runs[name]) < budget:
                results[name], *spent = once(compute, device)
                runs[name].append((spent[0], spent[1]))
    return {name: _medians(runs[name], results[name]) for name in methods}


def once(compute: Callable[[], Tensor], device: torch.device) -> tuple[Tensor, float, float]:
    """The result, seconds by the clock, and seconds of the processor."""
    finish(device)
    start, busy = time.perf_counter(), time.process_time()
    result = compute()
    finish(device)
    return result, time.perf_counter() - start, time.process_time() - busy


def finish(device: torch.device) -> None:
    """Wait for what a GPU was given: its calls return before they are done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _medians(runs: list[tuple[float, float]], result: Tensor) -> Timing:
    counted = runs[1:] or runs
    clock, busy = zip(*counted, strict=True)
    spreads = _spread(clock), _spread(busy)
    return Timing(median(clock), median(busy), len(counted), result, spreads)


def _spread(values: tuple[float, ...]) -> float:
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / median(values)
