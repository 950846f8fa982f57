"""The numbers of an audit: each with its interval over problems, and the range of its controls."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.attention import attention_by_role
from arith_lens.auditing.verdicts import ENOUGH, Measure
from arith_lens.components import Head, every_head
from arith_lens.effects import Effects
from arith_lens.interchanges import Site, site_runs
from arith_lens.intervals import change_interval
from arith_lens.knockout import (
    KnockoutCurves,
    Outcomes,
    grow_greedily,
    knockout_curves,
    matched_order,
)
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means

FEW_SHARE, FEW_AT_LEAST = 0.05, 3
"""Few heads: this share of them, or this number in a small model."""
N_RESAMPLES, BATCH = 1000, 64
SET, RANDOM, LAYERS = "set", "random", "layers"
"""The heads in question, and how the names of their controls begin."""


@dataclass(frozen=True)
class Scale:
    """The heads of a model, and how controls are drawn."""

    n_layers: int
    n_heads: int
    seed: int
    draws: int

    @classmethod
    def of(cls, model: HookedLike, seed: int, draws: int) -> "Scale":
        """The heads of `model`."""
        return cls(int(model.cfg.n_layers), int(model.cfg.n_heads), seed, draws)

    @property
    def heads(self) -> list[Head]:
        """All heads."""
        return every_head(self.n_layers, self.n_heads)

    @property
    def few(self) -> int:
        """The largest number of heads that is few; never more than a half."""
        n = self.n_layers * self.n_heads
        return max(1, min(n // 2, max(FEW_AT_LEAST, int(FEW_SHARE * n))))

    def rows(self, heads: Sequence[Any]) -> list[int]:
        """Where heads are among all heads."""
        return [head.layer * self.n_heads + head.index for head in heads]

    def controls(self, heads: Sequence[Head], draws: int) -> dict[str, list[Head]]:
        """Sets of as many other heads: of any layers, and of the same (or the nearest) layers."""
        others = [head for head in self.heads if head not in {*heads}]
        sets: dict[str, list[Head]] = {}
        for draw in range(draws):
            rng = random.Random(f"{self.seed} {draw}")
            sets[f"{RANDOM}{draw}"] = rng.sample(others, len(heads))
            matched = matched_order(heads, self.n_layers, self.n_heads, 1000 * self.seed + draw)
            sets[f"{LAYERS}{draw}"] = matched
        return sets


def problems(pairs: PromptPairs | Effects) -> int:
    """How many problems the pairs ask."""
    return len({*(pairs.problem or ())})


def share(
    values: Float[Tensor, " pair"], pairs: PromptPairs, controls: Float[Tensor, "control pair"]
) -> Measure:
    """A share of pairs with Wilson's interval over problems, and the range of some controls."""
    of_all = torch.cat([values[None], controls])
    effects = Effects(of_all, ("measure",), "correct", **pairs.units)
    mean, (lows, highs) = effects.mean(), effects.ci(method="share")
    measure = Measure(float(mean[0]), float(lows[0]), float(highs[0]), n=problems(pairs))
    if not len(controls):
        return measure
    return replace(
        measure,
        control_low=float(mean[1:].min()),
        control_high=float(mean[1:].max()),
        control_least=float(lows[1:].min()),
        control_most=float(highs[1:].max()),
    )


def change(
    before: Float[Tensor, " pair"], after: Float[Tensor, " pair"], pairs: PromptPairs
) -> Measure:
    """A change of a share, problem by problem, with its interval; the control is no change."""
    both = Effects(torch.stack([before, after]), ("time",), "correct", **pairs.units)
    low, high = change_interval(both.sample(), level=0.95)
    return Measure(float(both.mean().diff()), low, high, 0.0, 0.0, problems(pairs))


def around(
    value: float, resampled: Float[Tensor, " resample"], most: float = 1.0
) -> tuple[float, float]:
    """A 95% interval of a number from 0 to `most`, as wide as resamples of the problems spread.

    It is centred on the number itself: resampled problems are noisier than problems, and noise of
    many heads makes the share of few of them smaller.
    """
    spread = resampled - resampled.nanmean()
    low, high = (value + spread.nanquantile(torch.tensor([0.025, 0.975]))).clamp(0, most).tolist()
    return low, high


def _range(controls: Sequence[float]) -> tuple[float, float]:
    known = [value for value in controls if value == value] or [float("nan")]
    return min(known), max(known)


def task(outcomes: Outcomes, pairs: PromptPairs, scale: Scale) -> Measure:
    """The accuracy; controls are the most frequent answer, and answers that are shuffled."""

    generator = torch.Generator().manual_seed(scale.seed)
    orders = [torch.randperm(len(pairs), generator=generator) for _ in range(scale.draws)]
    shuffled = [outcomes.top[:, 0] == pairs.answer[order] for order in orders]
    controls = torch.stack([pairs.answer == pairs.answer.mode().values, *shuffled])
    measure = share(outcomes.correct.float(), pairs, controls.float())
    # shuffles are draws of the chance itself, so that their range needs no interval
    return replace(measure, control_least=float("nan"), control_most=float("nan"))


def concentration(
    effects: Effects,
    first: Bool[Tensor, " pair"],
    scale: Scale,
    draws: int,
    more: Sequence[float] = (),
) -> Measure:
    """The share of all negative effects that the few strongest heads have.

    The heads are chosen on the first half, and the share is of the second. Controls are other sets
    of heads, and what `more` has.
    """
    chosen, second = effects.select(first).top(scale.few), effects.select(~first)
    if len(chosen) < scale.few:
        return Measure()
    means = resampled_means(second.sample(), slice(None), N_RESAMPLES, scale.seed).float()
    helpful, resampled = (-second.mean()).flatten().clamp(min=0), (-means).clamp(min=0)

    def of(heads: Sequence[Any]) -> Float[Tensor, " number"]:
        both = torch.cat([helpful[:, None], resampled], dim=1).nan_to_num(nan=0.0)
        return both[scale.rows(heads)].sum(0) / both.sum(0)

    shares = of(chosen)
    if not bool(shares[0].isfinite()):
        return Measure()
    low, high = around(float(shares[0]), shares[1:])
    others = [float(of(heads)[0]) for heads in scale.controls(chosen, draws).values()]  # pyright: ignore
    controls = _range([*others, *more])
    return Measure(float(shares[0]), low, high, *controls, problems(second))


@dataclass(frozen=True)
class Replacing:
    """What replaces the outputs of heads, and where."""

    name: str
    ablation: str
    positions: str
    draws: int
    """The number of control sets of either kind."""
    means: Mapping[str, Tensor] | None = None
    """The means, if they are not of the pairs' own counterfactuals."""


def curve_of_kept(
    model: HookedLike, pairs: PromptPairs, order: Sequence[Head], few: int, **storage: Any
) -> tuple[list[int], list[float]]:
    """The share of right answers with the first k heads kept at END, for several k up to all."""
    sizes = sorted(
        {*range(few + 1), *(round(few * 1.5**step) for step in range(1, 20)), len(order)}
    )
    sizes = [k for k in sizes if k <= len(order)]
    n = len(order)
    curves = knockout_curves(
        model,
        pairs,
        {"kept": [*order][::-1]},
        ks=[n - k for k in sizes],
        positions="end",
        **storage,
    )
    curve = curves["kept"]
    accuracy = dict(zip(curve.ks, curve.accuracy().tolist(), strict=True))
    return sizes, [accuracy[n - k] for k in sizes]


def grown(
    model: HookedLike, pairs: PromptPairs, order: Sequence[Head], few: int, **storage: Any
) -> list[Head]:
    """A few heads, one by one the one that raises p(C) most, all others giving means at END.

    It finds what the order by single effects misses: heads that replace one another, and heads
    whose output the counterfactual leaves as it is and the means do not. Candidates are the
    strongest heads by effect, and those whose own mean costs most p(C).
    """
    alone = {str(head).replace(".", "-"): [head] for head in order}
    curves = knockout_curves(model, pairs, alone, ks=[1], positions="end", **storage)  # pyright: ignore
    costs = {name: float(curves[name].mean_probability()[-1]) for name in alone}
    costly = sorted(order, key=lambda head: costs[str(head).replace(".", "-")])
    candidates = list(dict.fromkeys([*order[: 2 * few], *costly[:few]]))
    progress = bool(storage.get("progress"))
    chosen = grow_greedily(
        model,
        pairs,
        candidates,
        n=few,
        positions="end",
        progress=progress,  # pyright: ignore
    )
    return [head for head in chosen if isinstance(head, Head)]


def smallest_enough(sizes: Sequence[int], accuracy: Sequence[float]) -> int | None:
    """The smallest number of heads that gives enough right answers; None: no number does."""
    both = zip(sizes, accuracy, strict=True)
    return next((k for k, right in both if k and right >= ENOUGH), None)


def sets_replaced(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Sequence[Head],
    scale: Scale,
    how: Replacing,
    *,
    alone: bool,
    run: Run | None,
    progress: bool,
) -> tuple[Measure, Float[Tensor, " pair"]]:
    """The share of right answers with a set of heads kept alone, or without it; and which they are.

    Controls are the other sets of its size and, for sets that are kept, no head at all.
    """
    named = {SET: [*heads], **scale.controls(heads, how.draws)}
    if alone:
        named["none"] = []
    out: dict[str, Any] = {
        label: [head for head in scale.heads if (head not in {*chosen}) == alone]
        for label, chosen in named.items()
    }
    suffix = "" if how.means is None else "-others"
    curves: KnockoutCurves = knockout_curves(
        model,
        pairs,
        out,
        ks={label: [len(order)] for label, order in out.items()},
        ablation=how.ablation,
        positions=how.positions,
        means=how.means,
        seed=scale.seed,
        run=run,
        name=f"{'kept' if alone else 'without'}-{how.ablation}-{how.positions}{suffix}",
        progress=progress,
    )
    correct = {label: curves[label].correct[-1].float() for label in out}
    own = correct.pop(SET)
    return share(own, pairs, torch.stack([*correct.values()])), own


def attention_to_changes(
    model: HookedLike, pairs: PromptPairs, heads: Sequence[Head], scale: Scale
) -> Measure:
    """The share of attention that END gives to tokens that the counterfactual changes.

    The first token, which idle heads look at, does not count, unless it is changed. Controls are
    other heads of the same layers.
    """
    changed = (pairs.reference != pairs.counterfactual) & pairs.attention_mask
    first = pairs.position_mask(0) & ~changed
    groups = {"changed": changed, "first": first}
    looks = attention_by_role(model, pairs, scale.heads, groups=groups)
    values = looks.per_pair[:, :2].flatten(0, 1)
    sample = Effects(values, ("row",), looks.metric, **pairs.units).sample()
    means = resampled_means(sample, slice(None), N_RESAMPLES, scale.seed).float()
    both = torch.cat([looks.mean()[:, :2].flatten()[:, None], means], 1).unflatten(0, (-1, 2))
    ratio = both[:, 0] / (1 - both[:, 1]).clamp(min=1e-6)

    def of(chosen: Sequence[Head]) -> Float[Tensor, " number"]:
        return ratio[scale.rows(chosen)].mean(0)

    own = of(heads)
    low, high = around(float(own[0]), own[1:])
    sets = scale.controls(heads, scale.draws)
    others = [float(of(one)[0]) for label, one in sets.items() if label.startswith(LAYERS)]
    return Measure(float(own[0]), low, high, *_range(others), problems(pairs))


def rise(stream: Effects, first: Bool[Tensor, " pair"], pairs: PromptPairs) -> tuple[int, Measure]:
    """The layer in which END's stream gains most of the other answers, and how many it gains.

    Args:
        stream: whether the answer is the other problem's after each layer, [layer pair].
        first: the half of the pairs on which the layer is chosen.
        pairs: all pairs.
    """
    after = torch.cat([torch.zeros_like(stream.per_pair[:1]), stream.per_pair])
    steps = Effects(after.diff(dim=0), ("layer",), "answers C', change", **pairs.units)
    layer = int(steps.select(first).mean().argmax())
    gains = steps.select(~first).mean()
    others = [float(gain) for number, gain in enumerate(gains) if number != layer]
    measure = change(after[layer][~first], after[layer + 1][~first], pairs[~first])
    least, most = _range(others)
    return layer, replace(measure, control_low=least, control_high=most)


def other_prompts(
    pairs: PromptPairs, seed: int, *, same_problem: bool
) -> tuple[Int[Tensor, " row"], PromptPairs]:
    """Another of the prompts with the same answer and length in place of each counterfactual.

    Args:
        pairs: prompts that are answered right.
        seed: of which one, where there are several.
        same_problem: whether it asks the same problem, after other examples or in other words; else
            it asks another one, which is not the same tokens in another order, in the same words.

    Returns:
        The rows of `pairs` for which there is such a prompt, and these pairs.
    """
    tokens = pairs.reference.masked_fill(~pairs.attention_mask, -1)
    contents = tokens.sort(1).values.unique(dim=0, return_inverse=True)[1].tolist()
    wording = pairs.units["template"] or ("",) * len(pairs)
    alike, apart = (pairs.problem, pairs.cluster.tolist()) if same_problem else (wording, contents)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(
        zip(alike, pairs.answer.tolist(), pairs.lengths.tolist(), strict=True)
    ):
        groups.setdefault(key, []).append(row)
    donors: dict[int, int] = {}
    for rows in groups.values():
        random.Random(seed).shuffle(rows)
        for place, row in enumerate(rows):
            for other in rows[place + 1 :] + rows[:place]:
                is_same = pairs.problem[other] == pairs.problem[row]
                if apart[other] != apart[row] and is_same == same_problem:
                    donors[row] = other
                    break
    rows = torch.tensor(sorted(donors), dtype=torch.long)
    other = pairs[[donors[int(row)] for row in rows]]
    return rows, replace(
        pairs[rows],
        counterfactual=other.reference,
        counterfactual_text=other.reference_text,
        counterfactual_answer=other.answer,
        counterfactual_answer_text=other.answer_text,
    )


def unmoved(model: HookedLike, own: PromptPairs, same: PromptPairs, layer: int) -> Measure:
    """How many answers stay when END's stream after a layer is that of a problem with the same one.

    Args:
        model: the model.
        own: pairs whose counterfactual has another answer, which are the control.
        same: the same prompts, with a counterfactual that has the same answer.
        layer: the layer.
    """

    def stays(pairs: PromptPairs) -> Float[Tensor, " pair"]:
        batches = site_runs(model, pairs, [Site(layer)], batch_size=BATCH)
        answers = torch.cat([run.answers(run.source[None])[0] for (run,) in batches])
        return (answers == pairs.answer).float()

    return share(stays(same), own, stays(own)[None])


def strongest_writer(
    mlps: Effects, first: Bool[Tensor, " pair"], pairs: PromptPairs
) -> tuple[int, Measure]:
    """The MLP that alone makes most answers the other problem's, and how many; others control."""
    layer = int(mlps.select(first).mean().argmax())
    second = mlps.per_pair[:, ~first]
    others = torch.arange(len(second)) != layer
    return layer, share(second[layer], pairs[~first], second[others])


def overlap(own: Effects, other: Effects, scale: Scale) -> Measure:
    """How many of the few strongest heads are among those of another lens.

    The other lens's problems are resampled. The control is the same for the own lens: how many are
    the same although only the draw of problems differs.
    """
    top = {*own.top(scale.few)}

    def shares(effects: Effects) -> Float[Tensor, " resample"]:
        means = resampled_means(effects.sample(), slice(None), N_RESAMPLES // 5, scale.seed)
        strongest = means.nan_to_num(nan=float("inf")).argsort(0)[: scale.few]
        return torch.isin(strongest, torch.tensor(scale.rows([*top]))).float().mean(0)

    value = len(top & {*other.top(scale.few)}) / scale.few
    quantiles = torch.tensor([0.025, 0.975])
    low, high = shares(other).quantile(quantiles).tolist()
    control_low, control_high = shares(own).quantile(quantiles).tolist()
    ends = min(low, value), max(high, value), control_low, control_high
    return Measure(value, *ends, problems(other))


def strength(own: Effects, other: Effects, first: Bool[Tensor, " pair"], scale: Scale) -> Measure:
    """How strong the few strongest heads of another lens are; those of the own lens have 1.

    Each lens's heads are chosen on the first half of the same prompts.
    """

    def of(effects: Effects) -> Float[Tensor, " number"]:
        second = effects.select(~first)
        chosen = scale.rows(effects.select(first).top(scale.few))
        means = resampled_means(second.sample(), slice(None), N_RESAMPLES, scale.seed).float()
        return torch.cat([second.mean().flatten()[:, None], means], 1)[chosen].sum(0)

    ratio = of(other) / of(own)
    low, high = ratio[1:].nanquantile(torch.tensor([0.025, 0.975])).tolist()
    value, n = float(ratio[0]), problems(own.select(~first))
    return Measure(value, min(low, value), max(high, value), 1.0, 1.0, n)
