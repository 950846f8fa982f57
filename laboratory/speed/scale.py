"""Does path patching hold at seven billion parameters: time, matrix rate, memory?

Figure 2's work, four operations of as many pairs, on random weights of LLaMA2-7B's shape (or
another), in half precision. Prints planned and measured time, the share of the device's own rate of
matrix products, planned and measured memory, where a shard's time goes, and with --profile its
kernels; saves them in a run under results/speed_scale/. Nothing is downloaded.

On a GPU: python -m laboratory speed_scale --device cuda
On Linux MALLOC_MMAP_THRESHOLD_=65536 (`make bench-scale` sets it) returns freed memory at
once; else memory that glibc keeps counts as used.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import psutil
import torch
import tyro
from safetensors.torch import save_file
from torch import Tensor
from tqdm.auto import tqdm

from arith_lens import HookedModel, PromptPairs, load_model, path_patch
from arith_lens.path_patching import plan
from arith_lens.runs import Run
from laboratory.speed.measure import (
    GIB,
    SHAPES,
    Column,
    Shape,
    SpeedTable,
    Usage,
    any_tokenizer,
    machine_text,
    meanwhile,
    once,
    peak_beyond,
    print_and_save,
    random_llama,
    random_token_pairs,
    require_gpu,
    require_memory,
    resident,
    setting_of,
    timed,
    weights_bytes,
)
from laboratory.speed.rivals import sweep_flops
from laboratory.speed.tables import (
    PROPAGATE,
    READOUT,
    RECORD,
    products,
    products_flops,
    sweep_parts,
)

Size = Literal["tiny", "middle", "wide", "llama-7b", "llama-13b", "mistral-7b"]
WeightSource: TypeAlias = Literal["made", "disk", "offload"]
"""Made in memory; loaded from a checkpoint; loaded with all layers left on disk."""
METRIC = "logit"
"""A ratio to a logit of random weights would mean nothing; the work is the same."""
KERNELS = 20
"""Lines of a profile."""

PART_COLUMNS = {
    "one shard": Column("part"),
    "seconds": Column("seconds", ".3g"),
    "TFLOP": Column("flops", ",.3g", 1e-12),
    "of the matrix rate": Column("share", ".0%"),
}


@dataclass(frozen=True)
class ScaleConfig:
    """What to measure, and on what."""

    size: Size = "llama-7b"
    """The shape; the small ones are for a first try of the command."""
    n: int | None = None
    """Pairs per operation; 1000 on a GPU, 1 on a CPU."""
    operations: int = 4
    """How many times as many: the paper has four operations."""
    tokens: int = 16
    """Of a prompt."""
    device: str = "cpu"
    """Such as cuda."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of the weights."""
    place: WeightSource = "made"
    """Weights made in memory; loaded from a checkpoint on "disk"; or with "offload" kept on it."""
    threads: int = 0
    """0 leaves torch's choice."""
    profile: bool = False
    """Print in which kernels a shard's time goes, too."""

    @property
    def n_pairs(self) -> int:
        """All of them."""
        each = self.n or (1000 if self.device.startswith("cuda") else 1)
        return each * self.operations


@dataclass(frozen=True)
class Loaded:
    """A model in place, and what that took."""

    model: HookedModel
    weights_bytes: int
    peak_bytes: int | None
    """Of the process (on a GPU: of torch's allocations there) while loading, above what was
    resident before; None where the system does not tell."""


def speed_scale(
    config: Annotated[ScaleConfig, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Does path patching hold at seven billion parameters: time, matrix rate, memory?

    Args:
        config: what to measure; the same configuration again replaces what it measured before.
        root: where runs are saved, and a checkpoint of random weights (speed_scale/weights/).
        dry_run: print the plan, and stop; no weights are made.
    """
    shape = replace(SHAPES[config.size], n_pairs=config.n_pairs, n_tokens=config.tokens)
    if dry_run:
        print(*_announced(config, shape), sep="\n")
        return
    require_gpu(config.device)
    if config.place != "offload":
        needed, option = weights_bytes(config.size, config.dtype), f"--size {config.size}"
        cure = "take --place offload, or a smaller shape"
        require_memory(needed, _free(config.device), option, cure)
    if config.threads:
        torch.set_num_threads(config.threads)
    folder = root / "speed_scale" / "weights"
    print_and_save("speed_scale", config, root, partial(_measured, config, shape, folder))


def _measured(
    config: ScaleConfig, shape: Shape, folder: Path, run: Run, facts: dict[str, Any]
) -> Iterator[str]:
    usage = Usage.now()
    yield f"# {config.size}, {config.dtype} on {config.device}\n\n{machine_text(facts)}\n{shape}"
    loaded = load(
        config.size,
        config.place,
        device=config.device,
        dtype=config.dtype,
        folder=folder / f"{config.size}-{config.dtype}",
    )
    size, peak = loaded.weights_bytes, loaded.peak_bytes
    most = f"; at most {_gib(peak)} while loading, {peak / size:.2f} x the weights" if peak else ""
    yield f"\nweights: {_gib(size)}, {config.place}{most}"
    pairs = random_token_pairs(shape)
    done = patch_all(loaded.model, pairs)
    yield (
        f"path patching of {len(pairs)} pairs: {done.seconds:.1f} s, {done.flops / 1e12:.3g} "
        f"TFLOP, {done.seconds / len(pairs):.3g} s per pair\n"
        f"the device's matrix products: {done.rate / 1e12:.3g} TFLOP/s; the sweep reaches "
        f"{done.share:.0%} of that, its certificate included\n"
        f"memory beside the model: {_gib(done.peak_bytes)}, planned {_gib(done.planned_bytes)}; "
        f"{done.chunk_sizes} pairs at once"
    )
    shard = pairs[:64]
    table = parts_table(loaded.model, shard, done.rate)
    others = usage.others()
    run.save("parts", table, **facts, shape=shape, work=done, weights_bytes=size,
             load_peak_bytes=loaded.peak_bytes, others_cores=others)  # fmt: skip
    yield f"\n{table.markdown(PART_COLUMNS)}"
    yield f"\n{meanwhile(others)}"
    if config.profile:
        yield f"\n```\n{profile(loaded.model, shard)}\n```"


def _gib(size: int | None) -> str:
    return "not measured (needs Linux)" if size is None else f"{size / GIB:.2f} GiB"


def _announced(config: ScaleConfig, shape: Shape) -> Iterator[str]:
    """What would be run; no weights are made."""
    setting = setting_of(shape, "meta", getattr(torch, config.dtype))
    flops = sweep_flops(setting) / 1e12
    size = sum(weight.nbytes for weight in setting.raw.parameters())
    yield f"{config.size}: {shape}"
    yield f"weights: {_gib(size)} in {config.dtype}, {config.place} for {config.device}"
    yield f"{flops:.4g} TFLOP, {flops / shape.n_pairs:.3g} per pair"


def _free(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def load(size: str, place: WeightSource, *, device: str, dtype: str, folder: Path) -> Loaded:
    """Make or load the weights, and watch the memory meanwhile."""
    if place != "made" and not (folder / "config.json").exists():
        store(size, dtype, folder)
    where = torch.device(device)
    before = resident(where, reset=True)
    model = _loaded(size, place, device=device, dtype=getattr(torch, dtype), folder=folder)
    return Loaded(model, weights_bytes(size, dtype), peak_beyond(before, where))


def store(size: str, dtype: str, folder: Path) -> None:
    """Write a checkpoint a layer at a time, so that no more of it is ever in memory."""
    empty = random_llama(SHAPES[size], "meta", getattr(torch, dtype))
    files: dict[str, list[str]] = defaultdict(list)
    for name, _ in empty.named_parameters():
        layer = name.partition(".layers.")[2].partition(".")[0]
        files[f"part-{layer or name}.safetensors"].append(name)
    unfinished = folder.with_name(f"{folder.name}.partial")  # a broken-off one is written anew
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for file, names in tqdm(files.items(), desc=f"random weights in {folder}", unit="file"):
        sampled = {name: _sampled(empty.get_parameter(name), generator) for name in names}
        save_file(sampled, unfinished / file, metadata={"format": "pt"})
    weight_map = {name: file for file, names in files.items() for name in names}
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (unfinished / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    empty.config.save_pretrained(unfinished)
    any_tokenizer().save_pretrained(unfinished)
    unfinished.rename(folder)


def _sampled(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Ones for a norm's weights; matrices as Transformers begins with."""
    made = torch.ones_like(like, device="cpu")
    return made if like.ndim == 1 else made.normal_(0, 0.02, generator=generator)


def _loaded(
    size: str, place: WeightSource, *, device: str, dtype: torch.dtype, folder: Path
) -> HookedModel:
    if place == "made":
        return load_model((random_llama(SHAPES[size], device, dtype), any_tokenizer()))
    if place == "disk":
        return load_model(folder, dtype=dtype, device=device)
    names = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head")
    layers = (f"model.layers.{layer}" for layer in range(SHAPES[size].n_layers))
    places = dict.fromkeys(names, device) | dict.fromkeys(layers, "disk")
    return load_model(folder, dtype=dtype, device_map=places, offload_folder=folder / "offload")


@dataclass(frozen=True)
class PatchingCost:
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
def patch_all(model: HookedModel, pairs: PromptPairs, *, progress: bool = True) -> PatchingCost:
    """Patch every head and MLP of every pair, after one pair that warms everything up."""
    device = model.device
    rate = matrix_rate(device, model.dtype)
    path_patch(model, pairs[:1], metric=METRIC, certify=False, progress=False)
    planned, before = plan(model, pairs), resident(device, reset=True)
    effects = []

    def compute() -> Tensor:
        effects.append(path_patch(model, pairs, metric=METRIC, progress=progress))
        return effects[0].heads.per_pair

    _, seconds, _ = once(compute, device)
    peak_bytes = peak_beyond(before, device)
    return PatchingCost(
        seconds=seconds,
        flops=planned.flops,
        rate=(rate + matrix_rate(device, model.dtype)) / 2,
        peak_bytes=peak_bytes,
        planned_bytes=planned.peak_bytes,
        chunk_sizes=effects[0].computation["chunk_sizes"],
    )


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of large square matrix products."""
    multiply = products(device, dtype)
    (timing,) = timed({"": multiply}, repeats=5, budget=3, device=device).values()
    return products_flops(device) / timing.seconds


@torch.no_grad()
def parts_table(model: HookedModel, pairs: PromptPairs, rate: float) -> SpeedTable:
    """Where a shard's time goes; of each part, what its operations would take at `rate`."""
    cost = plan(model, pairs)
    flops = {RECORD: cost.recording_flops, PROPAGATE: cost.patching_flops, READOUT: 0}
    timings = timed(sweep_parts(model, pairs), repeats=3, budget=3, device=model.device)
    return SpeedTable(
        [
            {
                "part": part,
                "seconds": timing.seconds,
                "flops": flops[part],
                "share": flops[part] / rate / timing.seconds if flops[part] else None,
            }
            for part, timing in timings.items()
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
