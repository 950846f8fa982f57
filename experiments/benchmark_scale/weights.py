"""Random weights of a large shape, made on the spot, and what loading them takes."""

import json
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from safetensors.torch import save_file
from tqdm.auto import tqdm

from arith_lens import HookedModel, load_model
from experiments.benchmark.memory import resident
from experiments.benchmark.shapes import SHAPES, any_tokenizer, random_llama

Place: TypeAlias = Literal["made", "disk", "offload"]
"""Made in memory; loaded from a checkpoint; loaded with all layers left on disk."""


@dataclass(frozen=True)
class Loaded:
    """A model in place, and what that took."""

    model: HookedModel
    weights_bytes: int
    peak_bytes: int | None
    """Of the process (on a GPU: of torch's allocations there) while loading, above what was
    resident before; None where the system does not tell."""


def load(size: str, place: Place, *, device: str, dtype: str, folder: Path) -> Loaded:
    """Make or load the weights, and watch the memory meanwhile."""
    if place != "made" and not (folder / "config.json").exists():
        store(size, dtype, folder)
    where = torch.device(device)
    before = resident(where, reset=True)
    if where.type == "cuda":
        before = torch.cuda.memory_allocated(where)
    model = _loaded(size, place, device=device, dtype=getattr(torch, dtype), folder=folder)
    peak = resident(where)
    return Loaded(model, weights_bytes(size, dtype), _beyond(peak, before))


def weights_bytes(size: str, dtype: str) -> int:
    """What the weights of a shape take in a dtype."""
    weights = random_llama(SHAPES[size], "meta", getattr(torch, dtype)).parameters()
    return sum(weight.nbytes for weight in weights)


def store(size: str, dtype: str, folder: Path) -> None:
    """Write a checkpoint a layer at a time, so that no more of it is ever in memory."""
    empty = random_llama(SHAPES[size], "meta", getattr(torch, dtype))
    files: dict[str, list[str]] = defaultdict(list)
    for name, _ in empty.named_parameters():
        layer = name.partition(".layers.")[2].partition(".")[0]
        files[f"part-{layer or name}.safetensors"].append(name)
    partial = folder.with_name(f"{folder.name}.partial")  # a broken-off one is written anew
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for file, names in tqdm(files.items(), desc=f"random weights in {folder}", unit="file"):
        drawn = {name: _drawn(empty.get_parameter(name), generator) for name in names}
        save_file(drawn, partial / file, metadata={"format": "pt"})
    where = {name: file for file, names in files.items() for name in names}
    index = json.dumps({"metadata": {}, "weight_map": where})
    (partial / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    empty.config.save_pretrained(partial)
    any_tokenizer().save_pretrained(partial)
    partial.rename(folder)


def _drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Ones for a norm's weights; matrices as Transformers begins with."""
    made = torch.ones_like(like, device="cpu")
    return made if like.ndim == 1 else made.normal_(0, 0.02, generator=generator)


def _loaded(
    size: str, place: Place, *, device: str, dtype: torch.dtype, folder: Path
) -> HookedModel:
    if place == "made":
        return load_model((random_llama(SHAPES[size], device, dtype), any_tokenizer()))
    if place == "disk":
        return load_model(folder, dtype=dtype, device=device)
    names = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head")
    layers = (f"model.layers.{layer}" for layer in range(SHAPES[size].n_layers))
    places = dict.fromkeys(names, device) | dict.fromkeys(layers, "disk")
    return load_model(folder, dtype=dtype, device_map=places, offload_folder=folder / "offload")


def _beyond(peak: int | None, before: int | None) -> int | None:
    return None if peak is None or before is None else peak - before
