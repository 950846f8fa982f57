"""Do sets of components suffice? Each set is kept alone, and what they share is computed once."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Components
from arith_lens.effects import Effects
from arith_lens.knockout.circuits import (
    complement,
    components_among,
    metric_candidates,
    read_metric,
    with_other_answers,
)
from arith_lens.knockout.engine import checked_components, engine_of
from arith_lens.knockout.knock_out import knockout_slot
from arith_lens.knockout.settings import Knockout
from arith_lens.model import HookedLike
from arith_lens.pairs import NO_ANSWER, PromptPairs
from arith_lens.runs import Run

KEPT_MEASURES = ("correct", "answers_other")
"""The measures of `keep_each` beside its metric."""


def keep_each(
    model: HookedLike,
    pairs: PromptPairs,
    sets: Mapping[str, Components],
    *,
    metric: str = "digit_contrast",
    ablation: str = "counterfactual",
    positions: str = "all",
    run: Run | None = None,
    name: str = "kept",
    progress: bool = True,
) -> Effects:
    """What the model answers when all heads and MLPs but those of a set are replaced, for each set.

    It is `keep_only(among="all")` of each set, with a metric. Choose the sets on other problems
    than those of `pairs` (`halves`).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        sets: the heads and MLPs that stay as they are, by the name of the set.
        metric: as in `circuit_curve`.
        ablation, positions: as in `knock_out`; replacements are made with the seed 0.
        run: an open run, which keeps shards as they finish, and then the result as `name`.
        name: the name of the result in the run.
        progress: whether to show a progress bar.

    Returns:
        [measure set pair]: whether C is the likeliest token, whether C' is (NaN where there is no
        other answer), and the metric.

    Raises:
        ValueError: no set is given; a metric that is a share or needs a foil; or as in `knock_out`.
    """
    if not sets:
        raise ValueError("expected sets of components to keep, found none; name one at least")
    everything = components_among(model, "all")
    kept_sets = {label: checked_components(model, chosen) for label, chosen in sets.items()}
    tokens = metric_candidates(model, pairs, metric, None)
    knockout = Knockout(ablation=ablation, positions=positions)
    slot = knockout_slot(
        run,
        name,
        model,
        pairs,
        knockout,
        method="keep_each",
        sets={label: sorted(map(str, chosen)) for label, chosen in kept_sets.items()},
        metric=metric,
        candidates=tokens,
    )
    if (arrays := slot.stored(progress=progress)) is not None:
        return Effects.from_arrays(arrays)
    engine = engine_of(model, pairs, everything, knockout)
    variants = [frozenset(complement(model, chosen, "all")) for chosen in kept_sets.values()]
    answered = with_other_answers(engine, metric)
    read = partial(_read, metric=metric, pairs=answered, candidates=tokens)
    values = engine(variants, slot=slot, progress=progress, read=read).float()
    values[1, :, engine.other_answers == NO_ANSWER] = float("nan")
    labels = {"measure": (*KEPT_MEASURES, metric), "set": tuple(kept_sets)}
    return slot.save(Effects(values, ("measure", "set"), "kept", **pairs.units, labels=labels))


def _read(
    logits: Float[Tensor, "state pair d_vocab"],
    rows: Int[Tensor, " pair"],
    *,
    pairs: PromptPairs,
    **what: Any,
) -> Float[Tensor, "what=3 state pair"]:
    """Whether the answer is C, whether it is C', and the metric, on the CPU."""
    correct, value = read_metric(logits, rows, pairs=pairs, **what)
    other = logits.argmax(-1).cpu() == pairs.counterfactual_answer[rows]
    return torch.stack([correct, other.double(), value])
