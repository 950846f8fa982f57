"""What was measured on, and who else used it meanwhile."""

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

PACKAGES = ("torch", "transformers", "transformer-lens", "nnsight", "numpy")


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


def described(facts: dict[str, Any]) -> str:
    """The same in two lines."""
    versions = [f"{name} {number}" for name, number in facts["versions"].items() if number]
    gpu = f"{facts['gpu']}; " if facts["gpu"] else ""
    return (
        f"{facts['date']}; {gpu}{facts['processor']}, {facts['cores']} cores, "
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, {facts['threads']} threads;\n"
        f"Python {facts['python']}, {', '.join(versions)}"
    )


def processor() -> str:
    """Its name as Linux tells it, or what Python knows."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def installed(package: str) -> str | None:
    """A package's version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
