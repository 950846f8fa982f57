"""Peak memory of a training step, each method in a process of its own.

`python -m experiments.benchmark_fine_tuning.memory` is one such process.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import tyro

from experiments.benchmark.memory import in_process, resident
from experiments.benchmark.table import Cell, Table
from experiments.benchmark_fine_tuning.steps import METHODS, SHAPES, does_not_fit, tuner_of

PROCESS = "experiments.benchmark_fine_tuning.memory"


@dataclass(frozen=True)
class Job:
    """One measurement."""

    method: str
    size: str
    rows: int
    device: str
    dtype: str
    recompute: str = "no"


def memory_table(size: str, rows: int, device: str, dtypes: Sequence[str]) -> Table:
    """Bytes by method, dtype and gradient checkpointing; None where they are not known."""
    jobs = [
        Job(method, size, rows, device, dtype, recompute)
        for dtype in dtypes
        for recompute in ("no", "yes")
        for method in METHODS
    ]
    return Table([vars(job) | in_process(job, PROCESS) for job in jobs])


def measure(job: Job) -> dict[str, Cell]:
    """Two steps; the second, with the optimizer's state in place, is watched.

    `peak_bytes` is all of the process's growth since before the model was made (on a GPU what was
    allocated), `step_bytes` what the second step took beyond what stays between two steps.
    """
    torch.set_num_threads(1)
    device = torch.device(job.device)
    tuner_of(job.method, SHAPES["tiny"], job.device, job.dtype).gradients()  # loads libraries
    empty = resident(device, reset=True)
    shape = replace(SHAPES[job.size], n_pairs=job.rows)
    found: dict[str, Cell] = {"peak_bytes": None, "step_bytes": None, "state_bytes": None}
    try:
        tuner = tuner_of(job.method, shape, job.device, job.dtype, recompute=job.recompute == "yes")
        for _ in range(2):
            between = resident(device, reset=True)
            tuner.gradients()
            tuner.update()
        peak = resident(device)
    except torch.cuda.OutOfMemoryError:
        return found | {"remark": does_not_fit(device)}
    found["state_bytes"] = tuner.state_bytes
    if peak is None or between is None or empty is None:
        return found | {"remark": "not measured: needs Linux"}
    before = 0 if device.type == "cuda" else empty
    return found | {"peak_bytes": peak - before, "step_bytes": peak - between, "remark": ""}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one job and print it as JSON."""
    print(json.dumps(measure(tyro.cli(Job, args=arguments))))


if __name__ == "__main__":
    main()
