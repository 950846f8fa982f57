"""Tune a model's chosen parts.

python -m experiments tune --data train.jsonl --heads 12.22 13.11 --output tuned
"""

import os
from pathlib import Path

import torch

import arith_lens as al
from experiments.configs.tuning import TuneConfig


def tune(config: TuneConfig, *, dry_run: bool = False) -> None:
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
