"""How the laboratory measures: seconds, peak memory, and tables in the folder of a run."""

import ctypes
import gc
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch

import psutil
import torch
from torch import Tensor

from arith_lens.runs import installed, open_run

GIB = 2**30
PACKAGES = ("torch", "transformers", "transformer-lens", "nnsight", "numpy")
Name = TypeVar("Name", bound=Hashable)
Rows: TypeAlias = list[dict[str, Any]]
"""One row per measurement. None, or no cell, where nothing was measured."""


def machine(device: str) -> dict[str, Any]:
    """Date, processor or GPU, threads and versions: columns of every table."""
    versions = [f"{name} {installed(name)}" for name in PACKAGES if installed(name)]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": torch.cuda.get_device_name(device) if device != "cpu" else processor(),
        "threads": torch.get_num_threads(),
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
    }


def processor() -> str:
    """Its name as Linux tells it, or what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def require_gpu(device: str) -> None:
    """Exit with a message where the device is a GPU that this PyTorch cannot use."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(
            f"expected a GPU for --device {device}, found none that this PyTorch can use; "
            "install its CUDA build, or take --device cpu"
        )


def require_memory(needed: int, free: int, option: str, cure: str) -> None:
    """Exit with a message if the weights that an option names do not fit in memory."""
    if needed > free:
        sys.exit(
            f"expected memory for the weights of {option} ({needed / GIB:.0f} GiB), found "
            f"{free / GIB:.0f} GiB free; {cure}"
        )


@dataclass(frozen=True)
class Usage:
    """Seconds since some start: of the clock, of all busy cores, and of this process."""

    clock: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> "Usage":
        cores, own = psutil.cpu_times(), os.times()
        idle = cores.idle + getattr(cores, "iowait", 0.0)
        guests = getattr(cores, "guest", 0.0) + getattr(cores, "guest_nice", 0.0)  # counted twice
        return cls(time.perf_counter(), sum(cores) - idle - guests, sum(own[:4]))

    def others(self) -> float:
        """How many cores other processes kept busy since then, on average."""
        now = Usage.now()
        busy, own = now.busy - self.busy, now.own - self.own
        return max(0.0, busy - own) / max(now.clock - self.clock, 1e-9)


@dataclass(frozen=True)
class Timing:
    """Medians of a method's rounds, and what it computed."""

    seconds: float
    """By the clock."""
    cpu: float
    """Processor time of all threads: other work on the machine disturbs it less than the clock."""
    rounds: int
    result: Tensor

    def spent(self, device: torch.device) -> float:
        """What ratios and exponents are of: processor time, or the clock where a GPU works."""
        return self.cpu if device.type == "cpu" else self.seconds


def timed(
    methods: Mapping[Name, Callable[[], Tensor]],
    *,
    repeats: int,
    budget: int | float,
    device: torch.device,
) -> dict[Name, Timing]:
    """Run every method once per round, until it has run `repeats` times or for `budget` seconds.

    Rounds weigh on all methods alike. A method's first run warms it up and does not count, unless
    it alone used up the budget.
    """
    runs: dict[Name, list[tuple[float, float]]] = {name: [] for name in methods}
    results: dict[Name, Tensor] = {}
    for _ in range(1 + repeats):
        for name, compute in methods.items():
            if not runs[name] or sum(seconds for seconds, _ in runs[name]) < budget:
                finish(device)
                start, busy = time.perf_counter(), time.process_time()
                results[name] = compute()
                finish(device)
                runs[name].append((time.perf_counter() - start, time.process_time() - busy))
    counted = {name: rounds[1:] or rounds for name, rounds in runs.items()}
    medians = {name: [*map(median, zip(*some, strict=True))] for name, some in counted.items()}
    return {
        name: Timing(clock, busy, len(counted[name]), results[name])
        for name, (clock, busy) in medians.items()
    }


def beside(
    rival: Callable[[], Tensor], own: Callable[[], Tensor], **effort: Any
) -> dict[str, float | int]:
    """Processor time of a rival and of this package, and by how much their numbers differ.

    `effort` is that of `timed`.
    """
    timings = timed({"rival": rival, "own": own}, **effort)
    slow, fast = timings["rival"], timings["own"]
    return {
        "rival_seconds": slow.cpu,
        "cpu_seconds": fast.cpu,
        "ratio": slow.cpu / fast.cpu,
        "difference": float((slow.result - fast.result).abs().max()),
        "largest": float(slow.result.abs().max()),
        "rounds": fast.rounds,
    }


def finish(device: torch.device) -> None:
    """Wait for the work of a GPU: calls return before it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


SIDE = {"cpu": 1024, "cuda": 8192}
N_PRODUCTS = 12


def products(device: torch.device, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Multiplies large square matrices, `products_flops` operations per call."""
    square = torch.rand(3, *2 * [SIDE[device.type]], device=device).to(dtype)

    def multiply() -> Tensor:
        for _ in range(N_PRODUCTS):
            torch.mm(square[0], square[1], out=square[2])
        return square[2]

    return multiply


def products_flops(device: torch.device) -> int:
    """Of one call of `products`."""
    return N_PRODUCTS * 2 * SIDE[device.type] ** 3


def resident(device: torch.device, *, reset: bool = False) -> int | None:
    """The peak since the last reset, which makes it what is resident now; None if not known.

    On a CPU it is the peak of the process's resident memory (Linux), on a GPU what torch allocated.
    """
    finish(device)
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.max_memory_allocated(device)
    resetting, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not resetting.exists():
        return None
    if reset:
        gc.collect()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)  # glibc keeps what was freed
        resetting.write_text("5")  # resets the peak: proc(5), clear_refs
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def peak_beyond(before: int | None, device: torch.device) -> int | None:
    """The peak since the last reset above what was resident then; None where it is not known."""
    peak = resident(device)
    return None if peak is None or before is None else peak - before


MMAP_THRESHOLD = "65536"
"""Bytes from which glibc hands freed memory back at once; else holes in its heap count as used."""


def in_process(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    fresh = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, MALLOC_MMAP_THRESHOLD_=MMAP_THRESHOLD),
        ProcessPoolExecutor(1, mp_context=fresh) as process,
    ):
        try:
            return process.submit(measure, *arguments).result()
        except Exception as error:
            raise RuntimeError(f"memory of {arguments} could not be measured: {error}") from error


def print_and_save(
    experiment: str, config: Any, root: Path, sections: Iterable[tuple[str, str, Rows]]
) -> None:
    """Print each table as it is measured. The run's folder has it as CSV, and all in `report.md`.

    Args:
        experiment: the run's experiment.
        config: what is measured, with the device.
        root: the folder of all runs.
        sections: the table's name, what it is of, and its rows.
    """
    facts = machine(config.device)
    with open_run(experiment, config, root=root) as run:
        report = [f"# {experiment}: {config}\n\n{', '.join(map(str, facts.values()))}"]
        print(report[0], flush=True)
        usage = Usage.now()
        for name, title, rows in sections:
            others = usage.others()
            about = {**facts, "others_cores": others}
            frame([{**row, **about} for row in rows]).to_csv(run.path / f"{name}.csv", index=False)
            text = f"\n## {title}\n\nOther processes kept {others:.2f} cores busy meanwhile.\n"
            report.append(f"{text}\n{markdown(rows)}")
            print(report[-1], flush=True)
            usage = Usage.now()
        (run.path / "report.md").write_text("\n".join(report) + "\n", encoding="utf-8")
    print(f"saved in {run.path}")


def frame(rows: Rows) -> Any:
    """Rows as a DataFrame of plain values."""
    from pandas import DataFrame

    return DataFrame(rows, dtype=object)


def markdown(rows: Rows) -> str:
    """Rows as a table; numbers have four digits."""
    cells = frame(rows)
    return cells.where(cells.notna(), None).to_markdown(index=False, floatfmt=",.4g", missingval="")
