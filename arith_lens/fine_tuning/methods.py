"""Make a model ready for each method: what is trained, and how it becomes a plain model again."""

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning.pieces import (
    PROJECTIONS,
    Piece,
    decoder_layers,
    n_elements,
    pieces_of,
    read_pieces,
    scales_of,
    shape_of,
)
from arith_lens.fine_tuning.settings import Settings
from arith_lens.fine_tuning.sliced import SlicedLinear, merge_slices, slice_model


@dataclass(frozen=True)
class Prepared:
    """A model as it is trained.

    Attributes:
        model: what the Trainer is given
        finish: makes and returns the plain, tuned Hugging Face model
        first: the values of what precise and random train; empty for the others
        rates: factors of the learning rate by parameter name; 1 where none is given
        lora_rank: None but for LoRA
    """

    model: Any
    finish: Callable[[], Any]
    first: Mapping[Piece, Tensor] = field(default_factory=dict)
    rates: dict[str, float] | None = None
    lora_rank: int | None = None


def prepare(
    hf_model: Any, method: str, heads: Sequence[Head], mlps: Sequence[Mlp], settings: Settings
) -> Prepared:
    """Freeze and wrap `hf_model` in place, as the method asks."""
    if method == "full":
        hf_model.requires_grad_(True)
        return Prepared(hf_model, lambda: hf_model)
    if method == "lora":
        return _with_adapters(hf_model, heads, mlps, settings)
    pieces = pieces_of(hf_model, heads, mlps, kv=settings.kv)
    scales = scales_of(hf_model, pieces)
    first = read_pieces(hf_model, pieces)
    replaced = slice_model(hf_model, pieces, dtype=torch.float32)
    rates = {}
    for name in replaced:
        module = hf_model.get_submodule(name)
        if not isinstance(module, SlicedLinear):
            continue
        if settings.rescale == "gradient":
            module.scale = scales[f"{name}.weight"]
        elif settings.rescale == "learning_rate":
            rates |= {f"{name}.{part}": scales[f"{name}.weight"] for part in _LEAVES}

    def finish() -> Any:
        merge_slices(hf_model, replaced)
        return hf_model

    return Prepared(hf_model, finish, first, rates)


_LEAVES = ("weight_slice", "bias_slice")


def lora_rank(
    hf_model: Any, heads: Sequence[Head], mlps: Sequence[Mlp], *, kv: str = "group"
) -> int:
    """The rank whose number of parameters is nearest that of precise fine-tuning; at least 1."""
    wanted = n_elements(hf_model, pieces_of(hf_model, heads, mlps, kv=kv))
    return max(1, round(wanted / _per_rank(hf_model, with_mlps=bool(mlps))))


def _targets(hf_model: Any, *, with_mlps: bool) -> list[str]:
    """The attention's projections in every layer, and the MLPs' where precise trains some."""
    names: list[str] = [*PROJECTIONS]
    if with_mlps:
        layers, _ = decoder_layers(hf_model)
        names += [
            name
            for name, part in layers[0].mlp.named_modules()
            if isinstance(part, torch.nn.Linear)
        ]
    return names


def _per_rank(hf_model: Any, *, with_mlps: bool) -> int:
    """LoRA's parameters at rank 1."""
    layers, _ = decoder_layers(hf_model)
    targets = _targets(hf_model, with_mlps=with_mlps)
    return sum(
        part.in_features + part.out_features
        for name, part in layers.named_modules()
        if name.rpartition(".")[2] in targets and isinstance(part, torch.nn.Linear)
    )


def _with_adapters(
    hf_model: Any, heads: Sequence[Head], mlps: Sequence[Mlp], settings: Settings
) -> Prepared:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ImportError(
            "expected peft for method 'lora', found none; install arith-lens[tuning]"
        ) from error

    rank = settings.lora_rank
    if rank is None:
        if not heads and not mlps:
            raise ValueError(
                "expected lora_rank, or the heads and mlps of precise fine-tuning whose number of "
                "parameters LoRA shall have, found neither"
            )
        rank = lora_rank(hf_model, heads, mlps, kv=settings.kv)
    targets = _targets(hf_model, with_mlps=bool(mlps))
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM")
    with warnings.catch_warnings():  # peft asks by the older of two names
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        adapted = get_peft_model(hf_model, config)
    return Prepared(adapted, lambda: adapted.merge_and_unload(), lora_rank=rank)


def random_components(
    hf_model: Any, heads: Sequence[Head], mlps: Sequence[Mlp], seed: int
) -> tuple[list[Head], list[Mlp]]:
    """As many heads and MLPs, drawn outside the chosen ones, in any layer.

    Raises:
        ValueError: fewer are left than were chosen
    """
    shape = shape_of(hf_model)
    rng = random.Random(seed)
    every = [Head(layer, i) for layer in range(shape.n_layers) for i in range(shape.n_heads)]
    free = [head for head in every if head not in set(heads)]
    free_mlps = [Mlp(layer) for layer in range(shape.n_layers) if Mlp(layer) not in set(mlps)]
    if len(free) < len(heads) or len(free_mlps) < len(mlps):
        raise ValueError(
            f"expected as many components outside the chosen ones, found {len(free)} heads and "
            f"{len(free_mlps)} MLPs for {len(heads)} and {len(mlps)}; choose fewer"
        )
    return sorted(rng.sample(free, len(heads))), sorted(rng.sample(free_mlps, len(mlps)))
