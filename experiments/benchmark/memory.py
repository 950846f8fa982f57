"""Peak memory of each way, beyond the loaded model, each in a process of its own.

On a CPU it is the peak of the process's resident memory (Linux), on a GPU what torch allocated. A
way that runs the model once a sender needs the same for each, so that a few senders stand for all.

`python -m experiments.benchmark.memory` is one such process; `memory_table` starts them.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from arith_lens.path_patching import plan
from experiments.benchmark.rivals import RIVALS, Rival
from experiments.benchmark.shapes import SHAPES, Setting, setting_of
from experiments.benchmark.table import Cell, Table
from experiments.benchmark.timing import finish

WHOLE = 64
"""Pairs: as many as this package computes at once."""
FEW = 2
"""Heads, and MLPs, of the ways that run the model for each sender."""
NOTHING: dict[str, Cell] = {"peak_bytes": None, "model_bytes": None, "predicted_bytes": None}
PROCESS = "experiments.benchmark.memory"
GIVEN_BACK = "65536"
"""Bytes from which glibc hands freed memory back at once; else holes in its heap count as used."""
RESET_PEAK = "5"  # proc(5), clear_refs


@dataclass(frozen=True)
class Job:
    """One measurement: a way to patch, on which shape."""

    rival: str
    size: str
    n_pairs: int
    device: str
    dtype: str
    threads: int


def memory_table(size: str, *, n_pairs: int, device: str, dtype: str, threads: int) -> Table:
    """A row a way: bytes beyond the loaded model, and the model's own; None where not measured."""
    rows: list[dict[str, Cell]] = []
    for rival in RIVALS:
        job = Job(rival.name, size, n_pairs, device, dtype, threads)
        found = NOTHING if rival.missing else in_process(job)
        rows.append({"method": rival.name, **found, "remark": _remark(rival, found)})
    return Table(rows)


def _remark(rival: Rival, found: Mapping[str, Cell]) -> str:
    if rival.missing:
        return "not installed"
    return "not measured: needs Linux" if found["peak_bytes"] is None else ""


def in_process(job: Any, module: str = PROCESS) -> dict[str, Cell]:
    """Run `python -m module` with the job's fields as options, and read what it prints as JSON."""
    command = [sys.executable, "-m", module]
    for name, value in vars(job).items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": GIVEN_BACK}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"memory of {job} could not be measured:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(job: Job) -> dict[str, Cell]:
    """Load, run one pair so that everything is in place, then watch the whole."""
    if job.threads:
        torch.set_num_threads(job.threads)
    shape = replace(SHAPES[job.size], n_pairs=job.n_pairs)
    setting = setting_of(shape, job.device, getattr(torch, job.dtype))
    rival = next(rival for rival in RIVALS if rival.name == job.rival)
    senders = setting.senders
    if rival.forwards:
        senders = [*senders[:FEW], *senders[-FEW:]]  # heads and MLPs
    rival.compute(_of_one_pair(setting), senders)
    before = resident(setting.device, reset=True)
    rival.compute(setting, senders)
    peak = resident(setting.device)
    predicted = None
    if rival.engine is not None:
        predicted = plan(setting.model, setting.pairs, engine=rival.engine).peak_bytes
    weights = sum(weight.nbytes for weight in setting.raw.parameters())
    return {
        "peak_bytes": None if peak is None or before is None else peak - before,
        "model_bytes": weights,
        "predicted_bytes": predicted,
    }


def _of_one_pair(setting: Setting) -> Setting:
    return replace(
        setting,
        pairs=setting.pairs[:1],
        reference=setting.reference[:1],
        counterfactual=setting.counterfactual[:1],
        answer=setting.answer[:1],
    )


def resident(device: torch.device, *, reset: bool = False) -> int | None:
    """The peak since the last reset, which makes it what is resident now; None if not known."""
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
        resetting.write_text(RESET_PEAK)
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one job and print it as JSON."""
    print(json.dumps(measure(tyro.cli(Job, args=arguments))))


if __name__ == "__main__":
    main()
