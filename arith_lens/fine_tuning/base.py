"""The plain Hugging Face model that is tuned: no bridge, the Trainer wants the model itself."""

import copy
from pathlib import Path
from typing import Any

import torch

from arith_lens.model.checkpoints import (
    find_checkpoint,
    is_wrapped,
    load_tokenizer,
    read_config,
    refuse_changed,
    refuse_quantised,
)
from arith_lens.model.verification import load_weights


def load_base(
    source: Any, *, dtype: str | None, device: str | None = None, attention: str = "sdpa"
) -> tuple[Any, Any, str]:
    """The model, its tokenizer and its name.

    Args:
        source: as `load_model` takes it; `(hf_model, tokenizer)` is copied, and stays as it is
        dtype: such as "float32"; None: a model in memory keeps its own

    Raises:
        as `find_checkpoint`; ValueError: a quantised model; TypeError: a loaded bridge
    """
    if hasattr(source, "bridge"):
        raise TypeError(
            "expected a source to load for training (a name, a directory, or (hf_model, "
            "tokenizer)), found a HookedModel; give what load_model was given"
        )
    if isinstance(source, tuple):
        hf_model, tokenizer = source
        name = Path(hf_model.config._name_or_path or type(hf_model).__name__).name
        refuse_quantised(hf_model.config, name)
        refuse_changed(hf_model, name)
        if is_wrapped(hf_model):
            raise ValueError(
                f"expected a plain Transformers model, found {name} wrapped by load_model, which "
                "works in place; load it again, or give load_model a copy.deepcopy of it"
            )
        hf_model = copy.deepcopy(hf_model)
        if dtype is not None:
            hf_model = hf_model.to(getattr(torch, dtype))
        return (hf_model if device is None else hf_model.to(device)), tokenizer, name
    from transformers import AutoModelForCausalLM

    checkpoint = find_checkpoint(source)
    config = read_config(checkpoint)
    hf_model: Any = load_weights(
        AutoModelForCausalLM,
        checkpoint.location,
        dtype=getattr(torch, dtype or "float32"),
        attn_implementation=attention,
    )
    name = checkpoint.name if checkpoint.name == source else checkpoint.location
    if device is not None:
        hf_model.to(device)
    return hf_model, load_tokenizer(checkpoint, config), name
