"""The settings of a tuning, and what each method trains."""

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning.pieces import (
    Piece,
    SlicedLinear,
    layout_of,
    merge_slices,
    n_elements,
    pieces_of,
    read_pieces,
    scales_of,
    slice_model,
)
from arith_lens.options import check_choice

TUNING_METHODS = ("precise", "full", "lora", "random")
RESCALES = ("gradient", "learning_rate", None)


@dataclass(frozen=True)
class TuningSettings:
    """The settings of `fine_tune`, which are written into its result.

    The defaults are the paper's (section 5.3): AdamW at 2e-5, batches of 128, 2 epochs, warm-up
    over 2% of the steps, weight decay 0.1, gradients scaled by H/h. The paper names no schedule
    after the warm-up; "linear" falls to 0.
    """

    learning_rate: int | float = 2e-5
    batch_size: int = 128
    """The number of examples per step, over all processes and accumulated steps."""
    micro_batch: int | None = None
    """The number of examples on one device at once; None: the whole batch."""
    epochs: int | float = 2
    max_steps: int | None = None
    """The number of steps, and the length of the schedule; None: that of the epochs."""
    warmup: int | float = 0.02
    """The share of all steps."""
    weight_decay: int | float = 0.1
    max_grad_norm: int | float = 1.0
    """The norm at which gradients are clipped; 0: no clipping."""
    schedule: str = "linear"
    rescale: str | None = "gradient"
    kv: str = "group"
    seed: int = 0
    bf16: bool = False
    gradient_checkpointing: bool = False
    max_length: int | None = None
    """The largest number of tokens of a row; None: the model's context."""
    end_with_eos: bool = True
    """Whether the loss includes EOS after the answer, so that the model learns to end there."""
    lora_rank: int | None = None
    """None: the rank with as many parameters as precise tuning."""
    save_every: int = 100
    """The number of steps between checkpoints from which a tuning can continue; 0: none."""
    log_every: int = 10
    """The number of steps between logged losses."""
    attention: str = "sdpa"

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not valid."""
        if self.rescale is not None:
            check_choice("rescale (or None)", self.rescale, filter(None, RESCALES))
        for name in ("learning_rate", "batch_size", "epochs", "log_every", "max_steps"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"expected {name} above 0, found {value}")
        for name in ("weight_decay", "max_grad_norm", "save_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} of at least 0, found {getattr(self, name)}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"expected warmup as a share from 0 to below 1, found {self.warmup}")
        if self.micro_batch is not None and not 0 < self.micro_batch <= self.batch_size:
            raise ValueError(
                f"expected micro_batch from 1 to batch_size={self.batch_size}, found "
                f"{self.micro_batch}"
            )


@dataclass(frozen=True)
class Placement:
    """Where a tuning computes, and what it leaves."""

    checkpoint: bool = False
    """Whether a plain Hugging Face checkpoint is also written."""
    device: str | None = None
    """The device; None: the GPU if there is one."""


class TuningOptions(TypedDict, total=False):
    """The fields of `TuningSettings` and `Placement`, as keyword arguments."""

    learning_rate: int | float
    batch_size: int
    micro_batch: int | None
    epochs: int | float
    max_steps: int | None
    warmup: int | float
    weight_decay: int | float
    max_grad_norm: int | float
    schedule: str
    rescale: str | None
    kv: str
    seed: int
    bf16: bool
    gradient_checkpointing: bool
    max_length: int | None
    end_with_eos: bool
    lora_rank: int | None
    save_every: int
    log_every: int
    attention: str
    checkpoint: bool
    device: str | None


def check_method(method: str, heads: list[Any], mlps: list[Any]) -> None:
    """Raise ValueError if components are missing, or given to a method without components."""
    check_choice("a method", method, TUNING_METHODS)
    if method == "full" and (heads or mlps):
        raise ValueError(
            f"expected no heads and no mlps for method 'full', which trains all, found "
            f"{len(heads)} and {len(mlps)}; take method='precise' to train these alone"
        )
    if method in ("precise", "random") and not heads and not mlps:
        raise ValueError(
            f"expected heads or mlps for method {method!r}, found none; choose them by "
            "key_heads(path_patch(model, pairs).heads)"
        )


@dataclass(frozen=True)
class Prepared:
    """A model that is ready for training."""

    model: Any
    """The model for the Trainer."""
    finish: Callable[[], Any]
    """Returns the plain, tuned Hugging Face model after the training."""
    first: Mapping[Piece, Tensor] = field(default_factory=dict)
    """The first values of the slices that `precise` and `random` train; empty for other methods."""
    rates: dict[str, float] | None = None
    """Factors of the learning rate by parameter name; the default is 1."""
    lora_rank: int | None = None
    """LoRA's rank; None for other methods."""


def prepare(
    hf_model: Any, method: str, heads: Sequence[Head], mlps: Sequence[Mlp], settings: TuningSettings
) -> Prepared:
    """Freeze and wrap `hf_model` in place, as the method needs it."""
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
    """The rank with a number of parameters nearest to that of precise tuning; at least 1."""
    wanted = n_elements(hf_model, pieces_of(hf_model, heads, mlps, kv=kv))
    targets = _targets(hf_model, with_mlps=bool(mlps))
    per_rank = sum(
        part.in_features + part.out_features
        for name, part in layout_of(hf_model).layers.named_modules()
        if name.rpartition(".")[2] in targets and isinstance(part, torch.nn.Linear)
    )
    return max(1, round(wanted / per_rank))


def _targets(hf_model: Any, *, with_mlps: bool) -> list[str]:
    """The attention's projections in every layer, and the MLPs' if precise tuning trains MLPs."""
    layout = layout_of(hf_model)
    names = [*layout.projections, layout.output]
    if with_mlps:
        names += [
            name
            for name, part in layout.mlp(0)[1].named_modules()
            if isinstance(part, torch.nn.Linear)
        ]
    return names


def _with_adapters(
    hf_model: Any, heads: Sequence[Head], mlps: Sequence[Mlp], settings: TuningSettings
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
    """The same number of heads and MLPs, drawn from all others, in any layer.

    Raises:
        ValueError: there are too few others.
    """
    layout = layout_of(hf_model)
    rng = random.Random(seed)
    every = [Head(layer, i) for layer in range(layout.n_layers) for i in range(layout.n_heads)]
    free = [head for head in every if head not in set(heads)]
    free_mlps = [Mlp(layer) for layer in range(layout.n_layers) if Mlp(layer) not in set(mlps)]
    if len(free) < len(heads) or len(free_mlps) < len(mlps):
        raise ValueError(
            f"expected as many components outside the chosen ones, found {len(free)} heads and "
            f"{len(free_mlps)} MLPs for {len(heads)} and {len(mlps)}; choose fewer"
        )
    return sorted(rng.sample(free, len(heads))), sorted(rng.sample(free_mlps, len(mlps)))
