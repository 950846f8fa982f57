"""Figure 2's work on a loaded model: timed, set against the device's own matrix rate, profiled."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from arith_lens import HookedModel, PromptPairs, path_patch
from arith_lens.components import every_head, every_mlp
from arith_lens.path_patching import plan
from arith_lens.path_patching.recording import record_end
from arith_lens.path_patching.sweep import Senders, sweep
from arith_lens.path_patching.trunk import trunk_of
from experiments.benchmark.floor import products, products_flops
from experiments.benchmark.memory import resident
from experiments.benchmark.table import Column, Table
from experiments.benchmark.timing import once, timed

RECORD, PROPAGATE, READ = "recording", "rows through the layers", "reading the logits"
METRIC = "logit"
"""A ratio to a logit of random weights would mean nothing; the work is the same."""
KERNELS = 20
"""Lines of a profile."""

PARTS = {
    "one shard": Column("part"),
    "seconds": Column("seconds", ".3g"),
    "TFLOP": Column("flops", ",.3g", 1e-12),
    "of the matrix rate": Column("share", ".0%"),
}


@dataclass(frozen=True)
class Work:
    """What path patching took."""

    seconds: float
    """By the clock, of all pairs, the certificate included."""
    flops: int
    rate: float
    """Matrix products a second in the weights' dtype, measured before and after; the mean."""
    peak_bytes: int | None
    """Above the loaded model; None where the system does not tell."""
    planned_bytes: int
    chunk_sizes: list[int]
    """Pairs that were swept at once."""

    @property
    def share(self) -> float:
        """Of the time that the operations would take at the matrix rate."""
        return self.flops / self.rate / self.seconds


@torch.no_grad()
def patched(model: HookedModel, pairs: PromptPairs, *, progress: bool = True) -> Work:
    """Patch every head and MLP of every pair, after one pair that warms everything up."""
    device = model.device
    before = matrix_rate(device, model.dtype)
    path_patch(model, pairs[:1], metric=METRIC, certify=False, progress=False)
    planned, base = plan(model, pairs), resident(device, reset=True)
    if device.type == "cuda":
        base = torch.cuda.memory_allocated(device)
    effects = []

    def compute() -> Tensor:
        effects.append(path_patch(model, pairs, metric=METRIC, progress=progress))
        return effects[0].heads.per_pair

    _, seconds, _ = once(compute, device)
    peak = resident(device)
    return Work(
        seconds=seconds,
        flops=planned.flops,
        rate=(before + matrix_rate(device, model.dtype)) / 2,
        peak_bytes=None if peak is None or base is None else peak - base,
        planned_bytes=planned.peak_bytes,
        chunk_sizes=effects[0].computation["chunk_sizes"],
    )


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of large square matrix products."""
    multiply = products(device, dtype)
    (timing,) = timed({"": multiply}, repeats=5, budget=3, device=device).values()
    return products_flops(device) / timing.seconds


@torch.no_grad()
def parts(model: HookedModel, pairs: PromptPairs, rate: float) -> Table:
    """Where a shard's time goes; of each part, what its operations would take at `rate`."""
    trunk, recording = trunk_of(model), record_end(model, pairs)
    cfg, cost = model.cfg, plan(model, pairs)
    senders = Senders.of(
        every_head(cfg.n_layers, cfg.n_heads) + every_mlp(cfg.n_layers), cfg.n_layers
    )
    rows = sweep(trunk, recording, senders)
    work: dict[str, tuple[Callable[[], Tensor], int]] = {
        RECORD: (lambda: record_end(model, pairs).z, cost.recording_flops),
        PROPAGATE: (lambda: sweep(trunk, recording, senders), cost.patching_flops),
        READ: (lambda: trunk.read(rows, pairs.answer).answer, 0),
    }
    timings = timed(
        {name: compute for name, (compute, _) in work.items()},
        repeats=3,
        budget=3,
        device=model.device,
    )
    return Table(
        [
            {
                "part": name,
                "seconds": timings[name].seconds,
                "flops": flops,
                "share": flops / rate / timings[name].seconds if flops else None,
            }
            for name, (_, flops) in work.items()
        ]
    )


@torch.no_grad()
def profile(model: HookedModel, pairs: PromptPairs) -> str:
    """The kernels in which a shard's time goes, most first, as torch's profiler prints them."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    activities = [ProfilerActivity.CPU]
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    with watch(activities=activities) as watched:
        path_patch(model, pairs, metric=METRIC, certify=False, progress=False)
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return watched.key_averages().table(sort_by=order, row_limit=KERNELS, max_name_column_width=40)
