"""Seconds by the clock and of the processor, in rounds that weigh on all methods alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor


@dataclass(frozen=True)
class Timing:
    """Medians of a method's rounds, and what it computed."""

    seconds: float
    cpu: float
    """Processor time of all threads: other work on the machine disturbs it less than the clock."""
    rounds: int
    result: Tensor

    def spent(self, device: torch.device) -> float:
        """What ratios and exponents are of: processor time, or the clock where a GPU works."""
        return self.cpu if device.type == "cpu" else self.seconds


def timed(
    methods: Mapping[str, Callable[[], Tensor]],
    *,
    repeats: int,
    budget: int | float,
    device: torch.device,
) -> dict[str, Timing]:
    """Run every method once a round, until it has run `repeats` times or for `budget` seconds.

    A method's first run warms it up and does not count, unless it alone used up the budget.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    results: dict[str, Tensor] = {}
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
    seconds, cpu = (median(values) for values in zip(*counted, strict=True))
    return Timing(seconds, cpu, len(counted), result)
