"""Does path patching hold at seven billion parameters: time, matrix rate, memory?

Figure 2's work, four operations of as many pairs, on random weights of LLaMA2-7B's shape (or
another), in half precision. Nothing is downloaded.

On a GPU: python -m laboratory speed_scale --device cuda
On Linux MALLOC_MMAP_THRESHOLD_=65536 (`make bench-scale` sets it) returns freed memory at
once; else memory that glibc keeps counts as used.
"""

import json
import shutil
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
import torch
import tyro
from safetensors.torch import save_file
from tqdm.auto import tqdm

from arith_lens import HookedModel, PromptPairs, load_model, path_patch
from arith_lens.path_patching import plan
from laboratory.speed.measure import (
    GIB,
    Rows,
    finish,
    peak_beyond,
    print_and_save,
    products,
    products_flops,
    require_gpu,
    require_memory,
    resident,
    timed,
)
from laboratory.speed.path_patching import PROPAGATE, READOUT, RECORD, Sections, sweep_parts
from laboratory.speed.shapes import (
    SHAPES,
    Shape,
    any_tokenizer,
    random_llama,
    random_token_pairs,
    setting_of,
    weights_bytes,
)

Size = Literal["tiny", "middle", "wide", "llama-7b", "llama-13b", "mistral-7b"]
METRIC = "logit"
"""A ratio to a logit of random weights would mean nothing; the work is the same."""


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
    place: Literal["made", "offload"] = "made"
    """Weights made in memory, or with "offload" in a checkpoint, whose layers are left on disk."""
    threads: int = 0
    """0 leaves torch's choice."""

    @property
    def shape(self) -> Shape:
        """With as many pairs of as many tokens."""
        each = self.n or (1000 if self.device.startswith("cuda") else 1)
        n_pairs = each * self.operations
        return replace(SHAPES[self.size], n_pairs=n_pairs, n_tokens=self.tokens)


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
    if dry_run:
        shape, size = config.shape, weights_bytes(config.size, config.dtype)
        setting = setting_of(shape, "meta", getattr(torch, config.dtype))
        flops = plan(setting.model, setting.pairs).flops / 1e12
        print(f"{config.size}: {shape}")
        print(
            f"weights: {size / GIB:.2f} GiB in {config.dtype}, {config.place} for {config.device}"
        )
        print(f"{flops:.4g} TFLOP, {flops / shape.n_pairs:.3g} per pair")
        return
    require_gpu(config.device)
    if config.place != "offload":
        needed, option = weights_bytes(config.size, config.dtype), f"--size {config.size}"
        cure = "take --place offload, or a smaller shape"
        require_memory(needed, _free(config.device), option, cure)
    if config.threads:
        torch.set_num_threads(config.threads)
    folder = root / "speed_scale" / "weights" / f"{config.size}-{config.dtype}"
    print_and_save("speed_scale", config, root, measured(config, folder))


def measured(config: ScaleConfig, folder: Path) -> Sections:
    """The work, then the parts of one shard."""
    model = load(config, folder)
    pairs = random_token_pairs(config.shape)
    work = patch_all(model, pairs)
    weights = weights_bytes(config.size, config.dtype)
    about = {"size": config.size, "n_tokens": config.tokens, "weights_bytes": weights}
    yield (
        "work",
        f"{config.size}, {config.dtype} on {config.device}: {config.shape}",
        [about | work],
    )
    yield "parts", "Where a shard's time goes", part_rows(model, pairs[:64], work["rate"])


def _free(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def load(config: ScaleConfig, folder: Path) -> HookedModel:
    """Make the weights in memory, or load them from a checkpoint that is made where it lacks."""
    shape, dtype = SHAPES[config.size], getattr(torch, config.dtype)
    if config.place == "made":
        return load_model((random_llama(shape, config.device, dtype), any_tokenizer()))
    if not (folder / "config.json").exists():
        store(shape, dtype, folder)
    names = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head")
    layers = (f"model.layers.{layer}" for layer in range(shape.n_layers))
    places = dict.fromkeys(names, config.device) | dict.fromkeys(layers, "disk")
    return load_model(folder, dtype=dtype, device_map=places, offload_folder=folder / "offload")


def store(shape: Shape, dtype: torch.dtype, folder: Path) -> None:
    """Write a checkpoint a layer at a time, so that no more of it is ever in memory."""
    empty = random_llama(shape, "meta", dtype)
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


@torch.no_grad()
def patch_all(model: HookedModel, pairs: PromptPairs, *, progress: bool = True) -> dict[str, Any]:
    """Patch every head and MLP of every pair, after one pair that warms everything up.

    Seconds are by the clock, the certificate included; `rate` is of matrix products in the weights'
    dtype, before and after; `share` is of the time that the operations would take at this rate.
    """
    device = model.device
    rate = matrix_rate(device, model.dtype)
    path_patch(model, pairs[:1], metric=METRIC, certify=False, progress=False)
    planned, before = plan(model, pairs), resident(device, reset=True)
    finish(device)
    start = time.perf_counter()
    effects = path_patch(model, pairs, metric=METRIC, progress=progress)
    finish(device)
    seconds = time.perf_counter() - start
    peak_bytes = peak_beyond(before, device)
    rate = (rate + matrix_rate(device, model.dtype)) / 2
    return {
        "n_pairs": len(pairs),
        "seconds": seconds,
        "seconds_per_pair": seconds / len(pairs),
        "flops": planned.flops,
        "rate": rate,
        "share": planned.flops / rate / seconds,
        "peak_bytes": peak_bytes,
        "planned_bytes": planned.peak_bytes,
        "chunk_sizes": str(effects.computation["chunk_sizes"]),
    }


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of large square matrix products."""
    multiply = products(device, dtype)
    (timing,) = timed({"": multiply}, repeats=5, budget=3, device=device).values()
    return products_flops(device) / timing.seconds


@torch.no_grad()
def part_rows(model: HookedModel, pairs: PromptPairs, rate: float) -> Rows:
    """Where a shard's time goes; of each part, what its operations would take at `rate`."""
    cost = plan(model, pairs)
    flops = {RECORD: cost.recording_flops, PROPAGATE: cost.patching_flops, READOUT: 0}
    timings = timed(sweep_parts(model, pairs), repeats=3, budget=3, device=model.device)
    return [
        {
            "part": part,
            "seconds": timing.seconds,
            "flops": flops[part],
            "share": flops[part] / rate / timing.seconds if flops[part] else None,
        }
        for part, timing in timings.items()
    ]
