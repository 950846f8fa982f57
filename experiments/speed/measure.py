"""How the laboratory measures: the machine, time, peak memory, and tables of the results."""

import ctypes
import gc
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from unittest.mock import patch

import psutil
import torch
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.runs import Run, open_run
from arith_lens.runs.manifest import installed

if TYPE_CHECKING:
    from pandas import DataFrame

GIB = 2**30
PACKAGES = ("torch", "transformers", "transformer-lens", "nnsight", "numpy")
Name = TypeVar("Name", bound=Hashable)


def machine(device: str) -> dict[str, Any]:
    """Processor, memory, GPU, versions, threads, date."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
    }


def machine_text(facts: dict[str, Any]) -> str:
    """The same in two lines."""
    versions = [f"{name} {number}" for name, number in facts["versions"].items() if number]
    gpu = f"{facts['gpu']}; " if facts["gpu"] else ""
    return (
        f"{facts['date']}; {gpu}{facts['processor']}, {facts['cores']} cores, "
        f"{facts['memory_bytes'] / GIB:.0f} GiB, {facts['threads']} threads;\n"
        f"Python {facts['python']}, {', '.join(versions)}"
    )


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
    """Run every method once per round, until it has run `repeats` times or for `budget` seconds.

    Rounds weigh on all methods alike. A method's first run warms it up and does not count, unless
    it alone used up the budget.
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
    """Wait for the work of a GPU: calls return before it is done."""
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


def beyond(peak: int | None, before: int | None) -> int | None:
    """A peak above what was resident before; None where either is not known."""
    return None if peak is None or before is None else peak - before


MMAP_THRESHOLD = "65536"
"""Bytes from which glibc hands freed memory back at once; else holes in its heap count as used."""

Cell: TypeAlias = str | int | float | None
"""None where nothing was measured."""


def in_process(job: Any) -> dict[str, Cell]:
    """Measure a job (a dataclass with `measure()`) in a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    fresh = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, MALLOC_MMAP_THRESHOLD_=MMAP_THRESHOLD),
        ProcessPoolExecutor(1, mp_context=fresh) as process,
    ):
        try:
            return process.submit(job.measure).result()
        except Exception as error:
            raise RuntimeError(f"memory of {job} could not be measured: {error}") from error


@dataclass(frozen=True)
class Column:
    """How a column is printed: its name in the rows, a format, and what numbers are times."""

    name: str
    form: str = ""
    scale: int | float = 1

    def written(self, value: Cell) -> str:
        """Nothing is written for None."""
        if value is None:
            return ""
        return format(value if isinstance(value, str) else self.scale * value, self.form)


@dataclass(frozen=True)
class SpeedTable:
    """Rows of text and numbers: stored in a run, and printed. A row may lack a column."""

    rows: Sequence[Mapping[str, Cell]]

    def to_arrays(self) -> Arrays:
        """The rows, in the header."""
        return Arrays({}, {"kind": "table", "rows": [*map(dict, self.rows)]})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "SpeedTable":
        """Read `to_arrays` back. Raises ValueError if the arrays are of another kind."""
        arrays.require("table")
        return cls(arrays.header["rows"])

    def to_dataframe(self) -> "DataFrame":
        """One row per measurement."""
        from pandas import DataFrame

        return DataFrame(list(self.rows), dtype=object)

    def markdown(self, columns: Mapping[str, Column]) -> str:
        """Some columns, by their headings."""
        from pandas import DataFrame

        cells = [
            {title: column.written(row.get(column.name)) for title, column in columns.items()}
            for row in self.rows
        ]
        printed = DataFrame(cells)
        return printed.to_markdown(index=False, disable_numparse=True, stralign=None)


def print_and_save(experiment: str, config: Any, root: Path, lines: Callable[[Run], Iterable[str]]
) -> None:  # fmt: skip
    """Open the run of a configuration, print each line as it is measured, and save the report."""
    with open_run(experiment, config, root=root) as run:
        report = []
        for line in lines(run):
            print(line, flush=True)
            report.append(line)
        (run.path / "report.md").write_text("\n".join(report) + "\n", encoding="utf-8")
    print(f"saved in {run.path}")
