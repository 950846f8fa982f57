"""`knock_out` and `knockout_curve`: check the question, compute it, hand back outcomes a pair."""

from collections.abc import Iterable, Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Component, Components
from arith_lens.knockout.curves import KnockoutCurve, KnockoutCurves
from arith_lens.knockout.engine import SHARD, checked_components, engine_of, tensor_digest
from arith_lens.knockout.means import Means, aligned_groups
from arith_lens.knockout.outcomes import Outcomes
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.runs import ResultSlot, Run


def knock_out(
    model: HookedLike,
    pairs: PromptPairs,
    components: Components,
    *,
    ablation: str = "mean",
    positions: str = "all",
    means: Means = None,
    seed: int = 0,
    progress: bool = True,
) -> Outcomes:
    """What the model answers to the reference prompts without `components` (paper, section 4.2).

    Args:
        components: heads and MLPs, in any mixture; none of them gives the baseline
        ablation: what stands in for their output: `"mean"`, over counterfactual prompts (the
            paper's), `"zero"`, or `"resample"`, the output on the counterfactual of another aligned
            pair, drawn with `seed`
        positions: `"all"`: every token but BOS and padding; `"end"`: END alone
        means: None: over these pairs' counterfactuals, a mean a template and position where they
            have templates, else one vector a component; `"template"` or `"vector"` says which; or
            vectors by hook name, as `counterfactual_means` gives of other pairs, for foreign text

    Raises:
        TypeError, IndexError: something that is no component, or none of this model
        ValueError: an ablation, positions or means that cannot be; a component given twice; no
            aligned pair to draw from
        KeyError: the given means lack a layer
        FloatingPointError: the logits are NaN or infinite
    """
    chosen = checked_components(model, components)
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions}
    engine = engine_of(model, pairs, chosen, means=means, seed=seed, **settings)
    (values,) = engine([frozenset(chosen)], progress=progress).unbind(1)
    return Outcomes(
        **_unpacked(values),
        components=chosen,
        means=engine.replacements.kind,
        **settings,
        **_of_pairs(pairs),
    )


def knockout_curve(
    model: HookedLike,
    pairs: PromptPairs,
    order: Components,
    *,
    ks: Iterable[int],
    ablation: str = "mean",
    positions: str = "all",
    means: Means = None,
    seed: int = 0,
    run: Run | None = None,
    name: str = "knockout_curve",
    progress: bool = True,
) -> KnockoutCurve:
    """The outcomes with the first k components of `order` knocked out, for each k of `ks` and 0.

    Below the first layer in which they differ, all k are computed as one (paper, Figure 3).
    Arguments and errors as `knock_out`; ValueError for a k beyond the order.

    Args:
        run: an open run (`open_run`), which keeps shards as they finish and then the result under
            `name`, as KnockoutCurves with the one curve `order`; what is there is not computed
            again
    """
    curves = knockout_curves(
        model,
        pairs,
        {"order": order},
        ks=ks,
        ablation=ablation,
        positions=positions,
        means=means,
        seed=seed,
        run=run,
        name=name,
        progress=progress,
    )
    return curves["order"]


def knockout_curves(
    model: HookedLike,
    pairs: PromptPairs,
    orders: Mapping[str, Components],
    *,
    ks: Iterable[int] | Mapping[str, Iterable[int]],
    ablation: str = "mean",
    positions: str = "all",
    means: Means = None,
    seed: int = 0,
    run: Run | None = None,
    name: str = "knockout_curves",
    progress: bool = True,
) -> KnockoutCurves:
    """A `knockout_curve` for each of several orders, such as effect and random orders, at once.

    What the orders have in common, the baseline and the means, is computed once; each curve's
    `n_forwards` is that of all of them together. `run` and `name` as there.

    Args:
        ks: of all orders, or by the order's name
    """
    shared = None if isinstance(ks, Mapping) else _checked_ks(ks)
    counts = {name: shared or _checked_ks(ks[name]) for name in orders}  # pyright: ignore
    checked = {label: checked_components(model, order) for label, order in orders.items()}
    for label, order in checked.items():
        if counts[label][-1] > len(order):
            raise ValueError(
                f"expected ks up to the {len(order)} components of {label}, found "
                f"{counts[label][-1]}; give a longer order, or smaller ks"
            )
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions}
    slot = knockout_slot(
        run,
        name,
        model,
        pairs,
        means,
        method="knockout_curves",
        orders={label: [*map(str, order)] for label, order in checked.items()},
        ks=shared or counts,
        seed=seed,
        **settings,
    )
    if (arrays := slot.stored(progress=progress)) is not None:
        return KnockoutCurves.from_arrays(arrays)
    used = sorted(
        {one for label, order in checked.items() for one in order[: counts[label][-1]]}, key=str
    )
    engine = engine_of(model, pairs, used, means=means, seed=seed, **settings)
    variants = [frozenset(order[:k]) for label, order in checked.items() for k in counts[label]]
    values = engine(variants, slot=slot, progress=progress)
    cost = engine.forwards(variants)
    parts = values.split([len(of_order) for of_order in counts.values()], dim=1)
    settings["means"] = engine.replacements.kind
    curves = KnockoutCurves(
        {
            label: knockout_curve_of(part, pairs, order, counts[label], n_forwards=cost, **settings)
            for (label, order), part in zip(checked.items(), parts, strict=True)
        }
    )
    return slot.save(curves)


def knockout_slot(
    run: Run | None,
    name: str,
    model: HookedLike,
    pairs: PromptPairs,
    means: Means,
    **question: Any,
) -> ResultSlot:
    """The slot of a result that is made of knockouts."""
    if run is None:
        return ResultSlot(None, name, {}, pairs)
    vectors: Any = means
    if isinstance(means, Mapping):
        vectors = {hook: tensor_digest(vector) for hook, vector in means.items()}
    details = {
        "means": vectors,
        "groups": tensor_digest(aligned_groups(pairs)),
        "shard_size": SHARD,
    }
    return ResultSlot.of(run, name, model, pairs, **details, **question)


def knockout_curve_of(
    values: Float[Tensor, "what k pair"],
    pairs: PromptPairs,
    order: Iterable[Component],
    ks: Iterable[int],
    **settings: Any,
) -> KnockoutCurve:
    """The curve that an engine's values are."""
    return KnockoutCurve(
        **_unpacked(values), ks=tuple(ks), order=tuple(order), **settings, **_of_pairs(pairs)
    )


def _checked_ks(ks: Iterable[Any]) -> tuple[int, ...]:
    counts = list(ks)
    if not all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in counts):
        raise ValueError(f"expected ks to count components from 0, found {counts}")
    return tuple(sorted({0, *counts}))


def _unpacked(values: Float[Tensor, "what *variant pair"]) -> dict[str, Tensor]:
    return {
        "correct": values[0].bool(),
        "probability": values[1].float(),
        "top": values[2:].long().movedim(0, -1),
    }


def _of_pairs(pairs: PromptPairs) -> dict[str, Any]:
    return {**pairs.units, "computed": pairs.computed}
