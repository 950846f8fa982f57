"""The settings that experiments share, and what follows from them: model, prompts, engine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal, TypeAlias

import torch

import arith_lens as al
from arith_lens.model import empty_model
from arith_lens.operations import FOUR, OPERATIONS, OperationName
from arith_lens.path_patching import UnsupportedTrunk
from arith_lens.path_patching.trunk import trunk_of
from arith_lens.problems import check_operands
from arith_lens.runs import Run
from experiments.exits import exit_on_user_error
from experiments.results import MAP, POOLED_MAP

BEFORE_FILTER = "; of all prompts: those that the model answers wrongly are left out later"
"""What a dry run says: without weights, nobody knows which prompts the model answers right."""

Engine: TypeAlias = Literal["auto", "sweep", "hooks"]
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16"] | None
Metric: TypeAlias = Literal["relative_logit", "logit", "logprob", "probability"]
Keep: TypeAlias = Literal["correct", "all"]
Operation: TypeAlias = OperationName


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how it is loaded."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


@dataclass(frozen=True)
class PooledSample(ModelSettings):
    """Prompts of the four operations together."""

    n: int | None = None
    """Distinct reference prompts per operation, before the filter; all if not given."""
    seed: int = 0
    """Of the sampling, and of what is drawn at random."""


@dataclass(frozen=True)
class Sample(PooledSample):
    """Prompts of each operation."""

    operations: tuple[Operation, ...] = FOUR
    """The calculations to look at."""


def loaded_model(config: Any, *, weights: bool = True) -> al.HookedModel:
    """The model that a configuration names, in its dtype, on its device.

    Args:
        weights: False: as `empty_model` makes it, for a dry run.
    """
    dtype = None if config.dtype is None else getattr(torch, config.dtype)
    load = al.load_model if weights else empty_model
    with exit_on_user_error():
        _check_sample(config)
        return load(config.model, dtype=dtype, device=config.device)


def _check_sample(config: Any) -> None:
    """Refuse a sample that cannot be drawn, before a model is loaded. Raises ValueError."""
    operations = getattr(config, "operations", FOUR)
    if not operations or len({*operations}) < len(operations):
        raise ValueError(
            f"expected operations, each of them once, found {' '.join(operations) or 'none'}; "
            f"name some of {', '.join(OPERATIONS)}, or leave --operations out"
        )
    if (operands := getattr(config, "operands", None)) is not None:
        check_operands(range(operands[0], operands[1] + 1))


def fitting_engine(model: al.HookedModel, paths: str = "via_mlps") -> str:
    """`"sweep"` where it can compute this; else `"hooks"`, and a sentence that says why."""
    if paths == "total":
        return "hooks"
    try:
        trunk_of(model)
    except UnsupportedTrunk as error:
        reason = str(error).partition(", found ")[2].partition("; use ")[0]
        print(
            f"The fast sweep does not fit this model: {reason}. The slower engine computes the "
            "same by one forward for each component; the bar shows the time that is left."
        )
        return "hooks"
    return "sweep"


def samples(
    model: al.HookedModel,
    config: Sample,
    operations: Iterable[str] | None = None,
    *,
    keep: str = "correct",
) -> Iterator[tuple[str, al.PromptPairs]]:
    """Each operation's name and pairs."""
    for operation in config.operations if operations is None else operations:
        with exit_on_user_error():
            pairs = al.sample_pairs(model, operation, n=config.n, seed=config.seed, keep=keep)
        yield operation, pairs


def pooled_samples(
    model: al.HookedModel, *, n: int | None = None, seed: int = 0, keep: str = "correct"
) -> dict[str, al.PromptPairs]:
    """The pairs of each of the paper's four operations, by name."""
    return {name: al.sample_pairs(model, name, n=n, seed=seed, keep=keep) for name in FOUR}


def pooled(pairs: dict[str, al.PromptPairs]) -> al.PromptPairs:
    """The pairs of all operations together; each has nine templates, so each weighs the same."""
    return reduce(add, pairs.values())


def operation_maps(
    run: Run, model: al.HookedModel, pairs: dict[str, al.PromptPairs]
) -> dict[str, al.ComponentEffects]:
    """The effects of every head and MLP on the pairs of each operation, by name.

    They are the maps of Figure 2: whichever experiment needs one first computes it.
    """
    engine = fitting_engine(model)
    return {
        name: al.path_patch(model, some, run=run, name=MAP.name(name), engine=engine)
        for name, some in pairs.items()
    }


def pooled_map(
    run: Run, model: al.HookedModel, pairs: dict[str, al.PromptPairs]
) -> al.ComponentEffects:
    """The effects on the pairs of all operations together, saved as `effects`."""
    maps = operation_maps(run, model, pairs)
    together = reduce(add, maps.values())
    POOLED_MAP.save(run, together, pairs=pooled(pairs))
    return together


def strongest_heads(effects: al.ComponentEffects, k: int) -> tuple[al.Head, ...]:
    """The k heads with the most negative mean effect."""
    return tuple(head for head in effects.heads.top(k) if isinstance(head, al.Head))
