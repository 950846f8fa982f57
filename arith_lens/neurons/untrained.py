"""A model of the same architecture before training, as a null for what a trained one shows."""

import copy
from typing import Any

import torch

from arith_lens.model import HookedLike, HookedModel, load_model


def untrained_model(model: HookedLike, seed: int = 0) -> HookedModel:
    """A model with the configuration and the tokenizer of `model`, and fresh random weights.

    Returns:
        The model in float32, on the CPU or the device of `model`.
    """
    bridge: Any = getattr(model, "bridge", model)
    source = bridge.original_model
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = type(source)(copy.deepcopy(source.config))
    return load_model((fresh.float().eval(), model.tokenizer), device=model.cfg.device)
