"""`knock_out` and `knockout_curve`: check the arguments, compute, and return one outcome per pair.

`knockout_hooks` knocks components out on any text, also while the model generates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.activations import Positions
from arith_lens.components import Activations, Component, Components, Head, Mlp, NamedHook, Neuron
from arith_lens.hooks import Edit, ablate_heads, ablate_mlps, ablate_neurons
from arith_lens.knockout.curves import KnockoutCurve, KnockoutCurves
from arith_lens.knockout.engine import SHARD, checked_components, engine_of, tensor_digest
from arith_lens.knockout.means import (
    POSITIONS,
    aligned_groups,
    default_means,
    given_vectors,
    hook_names,
)
from arith_lens.knockout.outcomes import Outcomes
from arith_lens.knockout.settings import Knockout, KnockoutOptions
from arith_lens.model import HookedLike
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs, check_kinds
from arith_lens.runs import ResultSlot, Run


def knock_out(
    model: HookedLike,
    pairs: PromptPairs,
    components: Components,
    *,
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> Outcomes:
    """What the model answers to the reference prompts without `components` (paper, section 4.2).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        components: heads, MLPs and neurons, in any mixture; none of them gives the baseline.
        ablation: what replaces their output. `"mean"`: its mean over counterfactual prompts (the
            paper's, and the default). `"zero"`. `"resample"`: the output on the counterfactual of
            another aligned pair, drawn with `seed`. `"counterfactual"`: the output on the pair's
            own counterfactual. With these two, `answers_other` of the outcomes says where the
            answer becomes that of the counterfactual.
        positions: `"all"` (the default): every token but BOS and padding; `"end"`: END alone.
        means: over which tokens of the counterfactuals a mean is taken, which is where it is put.
            `"template"`: one mean per template and position (None: this for pairs with templates).
            `"role"`: one mean for END, one for each role that the pairs know, and one for all
            other tokens (None: this for other pairs). `"all_tokens"`: one mean over all tokens,
            put at END too. Or vectors by hook name, as `counterfactual_means` gives of other pairs.
        seed: the seed of `"resample"`.
        progress: whether to show a progress bar.

    Returns:
        The outcomes, per pair; `before` is the accuracy of the untouched model on these pairs.

    Raises:
        TypeError, IndexError: a value is not a component, the model does not have it, or an option
            does not exist.
        ValueError: ablation, positions or means are not valid, vectors are means over other
            positions, a component is given twice, or there is no aligned pair to draw from.
        KeyError: the given means lack a layer.
        FloatingPointError: the logits are NaN or infinite.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> outcomes = al.knock_out(model, pairs, ["5.5", "4.3"], progress=False)
        >>> outcomes.before                        # sampled pairs are answered right
        1.0
    """
    refuse_unknown_options(knock_out, options, Knockout)
    knockout = value_object(Knockout, options)
    check_kinds(model, pairs)
    chosen = checked_components(model, components)
    engine = engine_of(model, pairs, chosen, knockout)
    before, values = engine([frozenset(), frozenset(chosen)], progress=progress).unbind(1)
    return Outcomes(
        **_measured(values, pairs),
        correct_before=before[0].bool(),
        components=chosen,
        means=engine.replacements.kind,
        counterfactual_answer=engine.other_answers,
        **knockout.question,
    )


def knockout_curve(
    model: HookedLike,
    pairs: PromptPairs,
    order: Components,
    *,
    ks: Iterable[int] | None = None,
    run: Run | None = None,
    name: str = "knockout_curve",
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> KnockoutCurve:
    """The outcomes with the first k components of `order` knocked out, for each k of `ks` and 0.

    Below the first layer in which they differ, all k are computed as one (paper, Figure 3).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        order: the components, the first one first.
        ks: the numbers of components to knock out; None: every number up to the whole order.
        ablation, positions, means, seed: as in `knock_out`.
        run: an open run (`open_run`), which stores shards when they are finished, and then the
            result as KnockoutCurves with the one curve `order`. What is stored is not computed
            again.
        name: the name of the result in the run.
        progress: whether to show a progress bar.

    Raises:
        ValueError: a k beyond the order; or as in `knock_out`.
        TypeError, IndexError, KeyError, FloatingPointError: as `knock_out`.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> curve = al.knockout_curve(model, pairs, ["5.5", "4.3", "6.0"], ks=[0, 3])
        >>> curve.ks
        (0, 3)
    """
    refuse_unknown_options(knockout_curve, options, Knockout)
    check_kinds(model, pairs)
    chosen = checked_components(model, order)
    curves = knockout_curves(
        model,
        pairs,
        {"order": chosen},
        ks=range(1, len(chosen) + 1) if ks is None else ks,
        run=run,
        name=name,
        progress=progress,
        **options,
    )
    return curves["order"]


def knockout_curves(
    model: HookedLike,
    pairs: PromptPairs,
    orders: Mapping[str, Components],
    *,
    ks: Iterable[int] | Mapping[str, Iterable[int]],
    run: Run | None = None,
    name: str = "knockout_curves",
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> KnockoutCurves:
    """A `knockout_curve` for each of several orders, such as effect and random orders, at once.

    What the orders have in common, the baseline and the means, is computed once; each curve's
    `n_forwards` is that of all of them together. `run` and `name` as there.

    Args:
        orders: components by the order's name.
        ks: of all orders, or by the order's name.
        ablation, positions, means, seed: as in `knock_out`.
    """
    refuse_unknown_options(knockout_curves, options, Knockout)
    knockout = value_object(Knockout, options)
    check_kinds(model, pairs)
    shared = None if isinstance(ks, Mapping) else _checked_ks(ks)
    counts = {name: shared or _checked_ks(ks[name]) for name in orders}  # pyright: ignore
    checked = {label: checked_components(model, order) for label, order in orders.items()}
    for label, order in checked.items():
        if counts[label][-1] > len(order):
            raise ValueError(
                f"expected ks up to the {len(order)} components of {label}, found "
                f"{counts[label][-1]}; give a longer order, or smaller ks"
            )
    slot = knockout_slot(
        run,
        name,
        model,
        pairs,
        knockout,
        method="knockout_curves",
        orders={label: [*map(str, order)] for label, order in checked.items()},
        ks=shared or counts,
    )
    if (arrays := slot.stored(progress=progress)) is not None:
        return KnockoutCurves.from_arrays(arrays)
    used = sorted(
        {one for label, order in checked.items() for one in order[: counts[label][-1]]}, key=str
    )
    engine = engine_of(model, pairs, used, knockout)
    variants = [frozenset(order[:k]) for label, order in checked.items() for k in counts[label]]
    values = engine(variants, slot=slot, progress=progress)
    cost = engine.forwards(variants)
    parts = values.split([len(of_order) for of_order in counts.values()], dim=1)
    settings = knockout.question | {"means": engine.replacements.kind}
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
    knockout: Knockout,
    **question: Any,
) -> ResultSlot:
    """The slot of a result that is made of knockouts."""
    if run is None:
        return ResultSlot(None, name, {}, pairs)
    vectors: Any = knockout.means
    if vectors is None and knockout.ablation == "mean" and pairs.template is None:
        vectors = default_means(pairs)
    if isinstance(vectors, Mapping):
        vectors = {hook: tensor_digest(vector) for hook, vector in vectors.items()}
    details = knockout.question | {
        "means": vectors,
        "seed": knockout.seed,
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
    return KnockoutCurve(**_measured(values, pairs), ks=tuple(ks), order=tuple(order), **settings)


def _checked_ks(ks: Iterable[Any]) -> tuple[int, ...]:
    counts = list(ks)
    if not all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in counts):
        raise ValueError(f"expected ks to count components from 0, found {counts}")
    return tuple(sorted({0, *counts}))


def _measured(values: Float[Tensor, "what *variant pair"], pairs: PromptPairs) -> dict[str, Any]:
    """The fields of outcomes that an engine's values and the pairs are."""
    return {
        "correct": values[0].bool(),
        "probability": values[1].float(),
        "top": values[2:].long().movedim(0, -1),
        "computed": pairs.computed,
        **pairs.units,
    }


TOKENS_NAME = "embed.hook_in"


@dataclass(eq=False)
class BosWatch:
    """A hook that stores the positions of BOS in the running forward, for the other hooks.

    It is the only hook of this package with a state, which lasts for one forward. Positions differ
    from batch to batch, and a step of a generation with a cache has the new token only.
    """

    bos: int | None
    spared: Bool[Tensor, "batch pos"] | None = field(default=None, repr=False)
    is_tokenwise: ClassVar[bool] = True

    def __call__(self, tokens: Int[Tensor, "batch pos"], hook: Any = None) -> None:
        self.spared = tokens == (-1 if self.bos is None else self.bos)


@dataclass(frozen=True, eq=False)
class ExceptBos:
    """An edit at every position except those of BOS, which `watch` has stored."""

    edit: Edit
    watch: BosWatch

    @property
    def is_tokenwise(self) -> bool:
        """As `Edit.is_tokenwise`."""
        return self.edit.is_tokenwise

    def __repr__(self) -> str:
        """Without tensors, like `Edit`."""
        return f"ExceptBos({self.edit})"

    def __call__(
        self, activation: Float[Tensor, "batch pos *rest"], hook: Any = None
    ) -> Float[Tensor, "batch pos *rest"]:
        spared = self.watch.spared
        if spared is None or spared.shape != activation.shape[:2]:
            raise ValueError(
                f"expected {TOKENS_NAME} to see the tokens of this forward "
                f"{list(activation.shape[:2])}, found "
                f"{'none' if spared is None else list(spared.shape)}; pass the whole list of "
                "knockout_hooks, and run from tokens, not from embeddings"
            )
        where = spared.to(activation.device).reshape(*spared.shape, *[1] * (activation.ndim - 2))
        return torch.where(where, activation, self.edit(activation))


def knockout_hooks(
    model: HookedLike,
    components: Components,
    means: Activations | None = None,
    *,
    ablation: str = "mean",
    positions: str = "all",
) -> list[NamedHook]:
    """Hooks that knock out components on any text, batch and length, and during evaluation.

    They change what `knock_out` changes, with the same vectors or zero: every position but BOS.
    In each forward they find BOS by the tokenizer's id. They may change
    padding, which nothing reads. Under `generate` they act on every new token, with or without a
    cache. Always pass the whole list, because the first hook serves the others.

    Args:
        model: HookedModel or TransformerBridge.
        components: the heads, MLPs and neurons to knock out.
        means: one vector per component by hook name, for `"mean"`, from `counterfactual_means` with
            the same `positions`. In text that is aligned with nothing, `"all"` puts one mean over
            all tokens at every token, also at END.
        ablation: `"mean"` or `"zero"`.
        positions: `"all"`; or `"end"`: END of the prompt, for `hook_steps="prompt"` in `generate`.

    Raises:
        ValueError: `"resample"` or means with positions, which need aligned prompts (use
            `knock_out`); or means are missing.
        TypeError, IndexError, KeyError: as in `knock_out`.
    """
    chosen = checked_components(model, components)
    if ablation not in ("mean", "zero"):
        raise ValueError(
            f"expected ablation 'mean' or 'zero' for text that is aligned with nothing, found "
            f"{ablation!r}; knock_out resamples among aligned pairs"
        )
    check_choice("positions", positions, POSITIONS)
    if (means is None) == (ablation == "mean"):
        raise ValueError(
            f"expected means with ablation='mean' and with no other, found ablation={ablation!r} "
            f"and {'no ' if means is None else ''}means; counterfactual_means(model, pairs) gives "
            "them"
        )
    vectors = None if means is None else given_vectors(means, hook_names(chosen), positions)
    at: Positions = -1 if positions == "end" else None
    heads = [one for one in chosen if isinstance(one, Head)]
    mlps = [one for one in chosen if isinstance(one, Mlp)]
    shared: dict[str, Any] = {"ablation": ablation, "positions": at}
    neurons = [one for one in chosen if isinstance(one, Neuron)]
    hooks = ablate_heads(heads, vectors, **shared) + ablate_neurons(neurons, vectors, **shared)
    hooks += ablate_mlps(mlps, vectors, **shared)
    if positions == "end" or not hooks:
        return hooks
    watch = BosWatch(getattr(model.tokenizer, "bos_token_id", None))
    return [(TOKENS_NAME, watch), *((name, ExceptBos(edit, watch)) for name, edit in hooks)]  # pyright: ignore[reportArgumentType]
