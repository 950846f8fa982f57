"""Random weights of a large shape, made on the spot, and what loading them takes.

`python -m experiments.benchmark_scale.weights` is a process that stores them as a checkpoint, so
that making them takes no memory of the process that loads and is measured.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
import tyro

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


@dataclass(frozen=True)
class Job:
    """A checkpoint to write."""

    size: str
    dtype: str
    folder: Path


def load(size: str, place: Place, *, device: str, dtype: str, folder: Path) -> Loaded:
    """Make or load the weights, and watch the memory meanwhile."""
    if place != "made" and not (folder / "config.json").exists():
        store(Job(size, dtype, folder))
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


def store(job: Job) -> None:
    """Write the checkpoint from a process of its own."""
    command = [sys.executable, "-m", "experiments.benchmark_scale.weights"]
    for name, value in vars(job).items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{job} could not be written: its process, which needs the memory of all weights once, "
            f"ended with {done.returncode}\n{done.stderr[-2000:]}"
        )


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


def main(job: Job) -> None:
    """Make and write."""
    partial = job.folder.with_name(f"{job.folder.name}.partial")  # a broken-off one is written anew
    random_llama(SHAPES[job.size], "cpu", getattr(torch, job.dtype)).save_pretrained(partial)
    any_tokenizer().save_pretrained(partial)
    partial.rename(job.folder)


if __name__ == "__main__":
    main(tyro.cli(Job))
