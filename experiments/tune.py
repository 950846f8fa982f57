"""Tune a model's chosen parts.

python -m experiments tune --data train.jsonl --heads 12.22 13.11 --output tuned
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

import arith_lens as al


@dataclass(frozen=True)
class TuneConfig:
    """What to tune, on which data, and how; the defaults are the paper's."""

    data: str
    """JSONL of objects with `prompt` and `answer`."""
    output: str
    """A folder for the delta or the checkpoint; a stopped tuning continues from it."""
    model: str = "reference"
    """`reference`, a directory or a hub id."""
    method: Literal["precise", "full", "lora", "random"] = "precise"
    heads: tuple[str, ...] = ()
    """Such as 12.22 13.11."""
    mlps: tuple[int, ...] = ()
    """Their layers."""
    learning_rate: float = 2e-5
    batch_size: int = 128
    """Of all processes together."""
    micro_batch: int | None = None
    """Examples at once on one device."""
    epochs: float = 2
    max_steps: int | None = None
    """Stop after so many steps, instead of after the epochs."""
    save_every: int = 100
    """Steps between checkpoints; 0: none."""
    log_every: int = 10
    bf16: bool = False
    gradient_checkpointing: bool = False
    seed: int = 0
    device: str | None = None


def tune(config: Annotated[TuneConfig, tyro.conf.arg(name="")], *, dry_run: bool = False) -> None:
    """Tune chosen heads and MLPs on your own prompts and answers, on one process or several.

        python -m experiments tune --data train.jsonl --heads 12.22 13.11 --output tuned
        accelerate launch --multi_gpu --num_processes 2 -m experiments tune --data train.jsonl ...

    The same settings give the same losses on any number of processes, within rounding.

    Args:
        config: what to tune.
        dry_run: print what would be done, and stop.
    """
    if dry_run:
        print(config)
        return
    if config.device == "cpu" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.set_num_threads(1)  # processes share the cores
    options = dict(vars(config))
    source, data = options.pop("model"), options.pop("data")
    heads = [al.Head.parse(head) for head in options.pop("heads")]
    mlps = [al.Mlp(layer) for layer in options.pop("mlps")]
    first = os.environ.get("RANK", "0") == "0"
    result = al.fine_tune(source, Path(data), heads=heads, mlps=mlps, progress=first, **options)
    if first:
        print(f"loss {result.losses[-1][1]:.4f} after {result.losses[-1][0]} steps")
        print(f"saved in {result.output}")
