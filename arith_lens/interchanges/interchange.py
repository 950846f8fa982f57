"""`interchange`: exchange a subspace of a site between two runs, and read the answer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.components import Neuron
from arith_lens.effects import Effects
from arith_lens.interchanges.controls import (
    COMPLEMENT,
    CONTROLS,
    ELSEWHERE,
    RANDOM,
    SPAN,
    WRITE_SPAN,
    WRITES,
    FittedSite,
)
from arith_lens.interchanges.pairs import InterchangePairs, TooFewPairs
from arith_lens.interchanges.result import Interchange
from arith_lens.interchanges.runs import SiteRuns, role_columns, site_runs
from arith_lens.interchanges.sites import AnySite, Site, as_sites, check_sites
from arith_lens.interchanges.spaces import SPACES, FitData, swapped, without, written
from arith_lens.model import HookedLike, check_neurons
from arith_lens.options import check_choice
from arith_lens.pairs import NO_ANSWER, PromptPairs, check_pairs

BATCH = 64
"""The number of pairs that run together."""
WHOLE = "whole"


def interchange(
    model: HookedLike,
    pairs: InterchangePairs | PromptPairs,
    sites: Any,
    *,
    space: str | None = None,
    k: int = 1,
    controls: bool = True,
    draws: int = 30,
    seed: int = 0,
) -> Interchange:
    """Exchange a subspace of a site between two problems, and read the answer (not in the paper).

    The base problem runs, and at the site the part of the source's state in the subspace replaces
    its own: h + (h_source - h_base) Q Qᵀ. Everything after it is computed again. The subspace is
    fitted on one half of the pairs, and the answers are those of the other half.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: of `interchange_pairs`; or prompts of your own whose counterfactual has another
            answer than C. Then the whole site is exchanged in all of them, and C' is expected.
        sites: one or several: `Site(9)`, the residual stream at the exit of layer 9 at END;
            `Site(3, Role.OPERAND_A)`; a head (`Head(7, 2)`) or an MLP (`Mlp(9)`), its output at
            END; a neuron (`Neuron(9, 17)`), its activation at END, with `space="whole"`.
        space: `"whole"`; `"mean"`, the difference of the means of both values, one direction;
            `"pca"`, directions of the differences; `"das"`, directions that a gradient search
            finds. None: `"mean"`, and `"whole"` for prompts of your own.
        k: the number of directions.
        controls: whether to add the controls below.
        draws: how many times each control with a random part is drawn: shuffled fits, and random
            directions. `"das"` searches again in each shuffle.
        seed: of the search, the shuffles and random directions.

    Returns:
        Whether the answer was the expected one, [site space pair]. The spaces are `whole`, the one
        that was asked for, and its controls, all at the same site with the same pairs:
        `everything but` it; `largest variance (no values)`, the first principal components of the
        states; `random in the span` of the differences, orthogonal to it; `variable shuffled`, the
        same fit with permuted values; `of another site`, the directions of the first other site of
        this width (of the last one for the first); `random (cannot fail)`, random directions of the
        whole width. One direction of a variable with two values is also `written` without a source:
        h ± its mean change; and so are random ones of the span. Of random controls, the result has
        each draw (`Interchange.draws`).

    Raises:
        TooFewPairs: a half has one value of the variable alone, or no counterfactual has an answer
            of its own.
        TypeError: pairs of another kind.
        IndexError: the model does not have a site.
        ValueError: an unknown space; no draw; a subspace of a neuron, or an MLP that does not write
            its neurons times W_out; as many directions as classes less one, which could remember
            every answer; directions of several tokens together, or of a search before END; a mean
            of more than two values; values of the variable that no problem has.
        UnsupportedEndRuns: the model cannot be run at END alone.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> al.interchange(model, pairs, [al.Site(11)]).iia    # the last layer's stream: C' in all
        tensor([[1.]])
    """
    if isinstance(pairs, PromptPairs):
        if space not in (None, WHOLE):
            raise ValueError(
                f"expected space='whole' for prompts of your own, found {space!r}: a subspace is "
                "fitted to a variable, which interchange_pairs gives"
            )
        return _other_answers(model, pairs, sites)
    space = space or "mean"
    chosen = _checked(model, pairs, sites, space, k)
    if not isinstance(draws, int) or draws < 1:
        raise ValueError(f"expected draws of at least 1, found {draws!r}; give draws=30")
    with torch.no_grad():
        return _exchanged(model, pairs, chosen, _Wish(space, k, controls, draws, seed))


@torch.no_grad()
def _other_answers(model: HookedLike, pairs: PromptPairs, sites: Any) -> Interchange:
    """Exchange whole sites in pairs whose counterfactual has another answer, C'."""
    check_pairs(model, pairs, unequal=True)
    chosen = _checked_sites(model, sites)
    other = pairs.counterfactual_answer
    n_pairs = len(pairs)
    pairs = pairs[(other != NO_ANSWER) & (other != pairs.answer)]
    if not len(pairs):
        raise TooFewPairs(
            f"expected counterfactuals with another answer than C, found none in {n_pairs} "
            "pairs; give counterfactual_answer, or sample pairs with counterfactual='operands'"
        )
    parts = []
    runs = site_runs(model, pairs, chosen, batch_size=BATCH)
    for batch, of_sites in zip(pairs.batches(BATCH), runs, strict=True):
        answers = torch.cat([run.answers(run.source[None]) for run in of_sites])
        parts.append((answers == batch.counterfactual_answer).float())
    effects = Effects(
        torch.cat(parts, dim=-1)[:, None],
        ("site", "space"),
        metric="answers_other",
        labels={"site": tuple(map(str, chosen)), "space": (WHOLE,)},
        **pairs.units,
    )
    return Interchange(effects, {}, {"space": WHOLE, "n_test": len(pairs)})


@dataclass(frozen=True)
class _Wish:
    """What is exchanged at each site."""

    space: str
    k: int
    controls: bool
    draws: int
    seed: int


def _exchanged(
    model: HookedLike, pairs: InterchangePairs, sites: Sequence[AnySite], wish: _Wish
) -> Interchange:
    data, tested = pairs[pairs.fit], pairs[pairs.test]
    generator = torch.Generator().manual_seed(wish.seed)
    fitted = [
        FittedSite.of(
            FitData(runs, data.expected, data.pairs.answer, data.values),
            wish.space,
            wish.k,
            wish.draws * wish.controls,
            generator,
        )
        for runs in _recorded(model, data, sites)
    ]
    names = _spaces(wish, pairs)
    right = _answers(model, tested, sites, fitted, names)
    effects = Effects(
        torch.stack([_mean_of_draws(right[name]) for name in names], dim=1),
        ("site", "space"),
        metric="interchange_accuracy",
        labels={"site": tuple(map(str, sites)), "space": names},
        **tested.pairs.units,
    )
    bases = {
        str(site): one.basis
        for site, one in zip(sites, fitted, strict=True)
        if one.basis is not None
    }
    drawn = {name: torch.stack(right[name]) for name in RANDOM if name in names}
    drawn = {name: answers for name, answers in drawn.items() if answers.shape[1]}
    return Interchange(effects, bases, _computation(pairs, sites, fitted, wish), drawn)


def _checked_sites(model: HookedLike, sites: Any) -> tuple[AnySite, ...]:
    """The sites, which the model has."""
    chosen = as_sites(sites)
    check_sites(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    check_neurons(model, [site for site in chosen if isinstance(site, Neuron)])
    return chosen


def _checked(model: HookedLike, pairs: Any, sites: Any, space: str, k: int) -> tuple[AnySite, ...]:
    if not isinstance(pairs, InterchangePairs):
        raise TypeError(
            f"expected pairs of interchange_pairs, or PromptPairs, found {type(pairs).__name__}; "
            "give interchange_pairs(model, causal_model('addition', 'carry'))"
        )
    check_pairs(model, pairs.pairs)
    chosen = _checked_sites(model, sites)
    neurons = [site for site in chosen if isinstance(site, Neuron)]
    check_choice("space", space, SPACES)
    for half, name in ((pairs.fit, "fit"), (pairs.test, "test")):
        values = pairs.values[half].unique()
        if len(values) < 2:
            raise TooFewPairs(
                f"expected two values of {pairs.variable} or more in the half to {name}, found "
                f"{values.tolist()}; draw pairs with interchange_pairs, which balances them"
            )
    if space == WHOLE:
        return chosen
    if neurons:
        raise ValueError(
            f"expected space='whole' with neurons, found {space!r} and {neurons[0]}: a neuron is "
            "one number and has no subspace; exchange it as a whole"
        )
    _check_size(pairs, space, k)
    for site in chosen:
        if isinstance(site, Site) and not site.is_end:
            n_tokens = role_columns(pairs.pairs, site).shape[1]
            if n_tokens > 1 or space == "das":
                raise ValueError(
                    f"expected one token, and no search before END, found {site} with {n_tokens} "
                    f"tokens and space={space!r}; name one with Site(layer, role, token=-1) and "
                    "take 'mean' or 'pca', or exchange the 'whole' site"
                )
    return chosen


def _check_size(pairs: InterchangePairs, space: str, k: int) -> None:
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"expected k of at least 1 direction, found {k!r}; give k=1")
    n_values = len(pairs.values.unique())
    if space == "mean" and (k > 1 or n_values != 2):
        raise ValueError(
            f"expected k=1 and a variable of two values with space='mean', found k={k} and "
            f"{n_values} values of {pairs.variable}; take 'pca' or 'das'"
        )
    if k >= pairs.n_classes - 1:
        raise ValueError(
            f"expected k below {pairs.n_classes - 1}, found {k}: the problems have "
            f"{pairs.n_classes} classes of value and answer, and so many directions could remember "
            "each of them; give a smaller k"
        )


def _recorded(
    model: HookedLike, pairs: InterchangePairs, sites: Sequence[AnySite]
) -> list[tuple[SiteRuns, ...]]:
    """For each site, its batches."""
    batches = list(site_runs(model, pairs.pairs, sites, batch_size=BATCH))
    return list(zip(*batches, strict=True))


def _spaces(wish: _Wish, pairs: InterchangePairs) -> tuple[str, ...]:
    """The names of the spaces, in the order of the result."""
    if wish.space == WHOLE:
        return (WHOLE,)
    if not wish.controls:
        return (WHOLE, wish.space)
    binary = wish.k == 1 and pairs.values.unique().tolist() == [0, 1]
    return (WHOLE, wish.space, *CONTROLS, *(WRITES if binary else ()))


def _answers(
    model: HookedLike,
    pairs: InterchangePairs,
    sites: Sequence[AnySite],
    fitted: Sequence[FittedSite],
    names: Sequence[str],
) -> dict[str, list[Bool[Tensor, "draw pair"]]]:
    """By space, whether each draw gives the expected answer, at each site."""
    parts: dict[str, list[list[Tensor]]] = {name: [[] for _ in sites] for name in names}
    start = 0
    for batch in site_runs(model, pairs.pairs, sites, batch_size=BATCH):
        rows = slice(start, start + len(batch[0].base))
        start = rows.stop
        expected, value = pairs.expected[rows], pairs.values[rows, 0]
        for number, run in enumerate(batch):
            other = _other_basis(fitted, number)
            states = [_states(run, fitted[number], other, name, value) for name in names]
            right = run.answers(torch.cat(states)) == expected
            for name, part in zip(names, right.split([*map(len, states)]), strict=True):
                parts[name][number].append(part)
    return {
        name: [torch.cat(of_site, dim=1) for of_site in of_sites]
        for name, of_sites in parts.items()
    }


def _mean_of_draws(of_sites: Sequence[Bool[Tensor, "draw pair"]]) -> Float[Tensor, "site pair"]:
    """NaN at a site that has no draw."""
    return torch.stack([right.float().mean(0) for right in of_sites])


def _other_basis(fitted: Sequence[FittedSite], number: int) -> Tensor | None:
    """The basis of the first other site of the same width; for the first one, of the last."""
    own = fitted[number].basis
    if own is None:
        return None
    others = [
        one.basis
        for i, one in enumerate(fitted)
        if i != number and one.basis is not None and one.basis.shape == own.shape
    ]
    if not others:
        return None
    return others[-1] if number == 0 else others[0]


def _states(
    run: SiteRuns, fitted: FittedSite, other: Tensor | None, name: str, value: Tensor
) -> Float[Tensor, "draw pair width"]:
    """The site's values under one space or control, for each of its draws; none if it is absent."""
    base, source, basis = run.base, run.source, fitted.basis
    if name == WHOLE or basis is None:
        return source[None]
    value = value.to(base.device)
    bases = fitted.controls.get(SPAN if name == WRITE_SPAN else name, (basis,))
    if name == ELSEWHERE:
        bases = () if other is None else (other,)
    if name == COMPLEMENT:
        made = [without(base, source, basis)]
    elif name in WRITES:
        made = [written(base, one, fitted.length, value) for one in bases]
    else:
        made = [swapped(base, source, one) for one in bases]
    return torch.stack(made) if made else base.new_empty(0, *base.shape)


def _computation(
    pairs: InterchangePairs, sites: Sequence[AnySite], fitted: Sequence[FittedSite], wish: _Wish
) -> dict[str, Any]:
    return {
        "causal": pairs.causal.name,
        "operation": pairs.causal.operation,
        "variable": pairs.variable,
        "hold_out": pairs.hold_out,
        "sources": pairs.sources,
        **asdict(wish),
        "n_fit": int(pairs.fit.sum()),
        "n_test": int(pairs.test.sum()),
        "n_classes": pairs.n_classes,
        "base_rates": pairs.base_rates(),
        "lengths": {str(site): one.length for site, one in zip(sites, fitted, strict=True)},
    }
