"""Fewer evaluations: compute exactly only some of the components, or only some of the pairs.

Screening computes only the components that a cheap approximation ranks highest. What such a choice
misses is checked on components drawn at random from those that are left out. Their exact effects
bound the others: with 95% confidence, at most so many of them are stronger than the strongest of
those that were checked. This holds whatever the approximation is worth.

Racing stops with a component when it is clear on which side of a line its mean effect is. Pairs are
taken in a random order and in rounds, each of which doubles the number of pairs. After each round
every component has an interval for its mean over *all* pairs. A component whose interval is on one
side of the line is settled, and gets no further pairs. Components that no round settles are
computed on all pairs. So a race answers what the full computation on these pairs would say, and
says nothing about other problems.

If the caller declares a bound on the effects, the intervals hold for all effects within it: with
95% confidence, those of all components hold together, at every time at which one may stop. Without
a bound they are Student's. Their level is shared out (Bonferroni) among all rounds and components,
but it is nominal. They miss what a few pairs do not show: rare strong effects. Nothing that sees
a part of the pairs can do better without a bound. `Race.notes` says which kind was used.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb, inf, isfinite, isnan
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import Component, Head
from arith_lens.effects import KEY, ComponentEffects
from arith_lens.path_patching.race_intervals import (
    Interval,
    betting_interval,
    student_interval,
)

CONFIDENCE = 0.95
N_CHECKS = 20
"""The number of components that are checked."""


@dataclass(frozen=True)
class Screening:
    """Which components are computed exactly."""

    strongest: tuple[Component, ...]
    """The strongest by the approximation, of either sign, the strongest first."""
    checked: tuple[Component, ...]
    """Drawn at random from the others."""
    n_others: int
    """The number of components that are not kept."""

    @classmethod
    def of(
        cls,
        approximate: ComponentEffects,
        components: Sequence[Component],
        keep: int,
        seed: int = 0,
    ) -> "Screening":
        """Choose among components by the size of their approximate mean effects.

        Args:
            approximate: from `attribute`, on these pairs or on others.
            components: the components that may be chosen.
            keep: how many are kept, at most.
            seed: of the choice of those that are checked.

        Raises:
            TypeError: `approximate` is not ComponentEffects.
            ValueError: `keep` is below one, or a component has no approximate effect.
        """
        if not isinstance(approximate, ComponentEffects):
            raise TypeError(
                f"expected screen= as approximate effects, found {approximate!r}; compute them "
                "first: screen=attribute(model, pairs, method='relp')"
            )
        if keep < 1:
            raise ValueError(f"expected to keep at least one component, found keep={keep}")
        means = means_of(approximate, components)
        unknown = [str(component) for component, mean in means.items() if isnan(mean)]
        if unknown:
            raise ValueError(
                f"expected approximate effects of all {len(components)} senders, found none of "
                f"{', '.join(unknown[:5])}; compute them with attribute on the same model"
            )
        ranked = sorted(components, key=lambda component: -abs(means[component]))
        others = ranked[keep:]
        checked = random.Random(seed).sample(others, min(N_CHECKS, len(others)))
        return cls(tuple(ranked[:keep]), tuple(checked), len(others))

    @property
    def components(self) -> list[Component]:
        """All that are computed exactly."""
        return [*self.strongest, *self.checked]

    @property
    def n_stronger(self) -> int:
        """At most so many of the others are stronger than all that were checked (95% confidence).

        If more were, a random choice would miss all of them with a probability below 5%.
        """
        n, m = self.n_others, len(self.checked)
        return next(
            count
            for count in range(n + 1)
            if count == n - m or comb(n - count - 1, m) <= (1 - CONFIDENCE) * comb(n, m)
        )

    def choice(self) -> dict[str, Any]:
        """What was chosen, as JSON. Two screenings of one choice have one record."""
        return {
            "kept": [str(component) for component in self.strongest],
            "checked": [str(component) for component in self.checked],
            "others": self.n_others,
        }

    def notes(self, effects: ComponentEffects) -> dict[str, Any]:
        """For the record of a computation: what was kept, and how much may be missed.

        Args:
            effects: the exact effects of all `components`.
        """
        exact = means_of(effects, self.checked)
        strongest = max(exact, key=lambda component: abs(exact[component]), default=None)
        return {
            **self.choice(),
            "strongest_checked": None if strongest is None else str(strongest),
            "strongest_checked_effect": None if strongest is None else exact[strongest],
            "at_most_stronger": self.n_stronger,
            "confidence": CONFIDENCE,
        }


def means_of(effects: ComponentEffects, components: Sequence[Component]) -> dict[Component, float]:
    """The mean effect of each component; NaN where the effects do not have it."""
    heads, mlps = effects.heads.mean(), effects.mlps.mean()

    def mean(component: Component) -> float:
        part, index = (
            (heads, (component.layer, component.index))
            if isinstance(component, Head)
            else (mlps, (component.layer,))
        )
        inside = all(i < size for i, size in zip(index, part.shape, strict=True))
        return float(part[index]) if inside else float("nan")

    return {component: mean(component) for component in components}


RACE_LEVEL = 0.999
"""The nominal probability that all intervals of a race without a bound are right. It is far above
the 95% that was aimed at, because effects are skewed."""
FIRST_ROUND = 16
"""The number of pairs of the first round, if there are at most half as many templates."""
GROWTH = 1.25
"""With a bound, each round has so many times as many pairs. More rounds make no interval wider."""

EffectMeasure = Callable[
    [Sequence[int], Int[Tensor, " chosen"], int], Float[Tensor, "component chosen"]
]
"""A function that computes the effects of some components on some pairs in a round."""


@dataclass(frozen=True)
class StoppingRule:
    """When a race stops with a component."""

    line: float | None = None
    """The effect that is compared with each mean."""
    k: int | None = None
    """The number of components with the most negative means; None if there is a line."""
    bound: float | None = None
    """The caller's word that no effect on any pair is larger than this, of either sign; None: no
    bound is known."""

    @classmethod
    def of(cls, until: str | float, metric: str, bound: float | None = None) -> "StoppingRule":
        """The rule of `path_patch(until=, bound=)`.

        Raises:
            ValueError: neither `"threshold"` nor `"top"` and a number nor a number; there is no
                threshold for this metric; or the bound is not a positive number.
        """
        if bound is not None and not (isfinite(bound) and bound > 0):
            raise ValueError(
                f"expected bound= as a positive number, the largest size that an effect on any "
                f"pair can have, found {bound}; leave it out if no bound is known"
            )
        if not isinstance(until, str):
            return cls(line=float(until), bound=bound)
        if until == "threshold" and metric in KEY:
            return cls(line=KEY[metric], bound=bound)
        if until == "threshold":
            raise ValueError(
                f"expected until= as a number, such as -0.1, for effects of the metric {metric!r}, "
                f"found 'threshold', which is the paper's {KEY['relative_logit']:.0%} of "
                "relative_logit"
            )
        if (match := re.fullmatch(r"top([1-9]\d*)", until)) is None:
            raise ValueError(
                f"expected until='threshold', 'top' and a number such as 'top10', or the line as a "
                f"number, found {until!r}"
            )
        return cls(k=int(match[1]), bound=bound)

    def settled(self, interval: Interval) -> Bool[Tensor, " component"]:
        """The components whose place is clear: beyond the line or not, among the top k or not."""
        low, high = interval
        if self.line is not None:
            return (high < self.line) | (low >= self.line)
        k = min(int(self.k or 0), len(low))
        above = (high[:, None] < low).sum(1)  # components that are certainly less negative
        below = (high < low[:, None]).sum(1)  # components that are certainly more negative
        return (above >= len(low) - k) | (below >= k)


@dataclass(frozen=True)
class Race:
    """The outcome of a race."""

    values: Float[Tensor, "component pair"]
    """The effects; NaN for pairs that a component did not need."""
    n_pairs: Int[Tensor, " component"]
    """The number of pairs that each component needed."""
    interval: Interval
    """Of the mean over all pairs, when the component stopped."""
    rounds: tuple[int, ...]
    """The number of pairs after each round."""
    bound: float | None = None
    """The bound that the intervals rest on; None: they are Student's, which guarantee nothing."""

    @property
    def beyond_bound(self) -> Bool[Tensor, " component"]:
        """The components with an effect that is larger than the bound."""
        return (self.values.abs() > (inf if self.bound is None else self.bound)).any(1)

    @property
    def evaluations(self) -> int:
        """The number of effects that were computed."""
        return int(self.n_pairs.sum())

    def notes(self, names: Sequence[str]) -> dict[str, Any]:
        """For the record of a computation. `names` are those of the components."""
        n_components, n_pairs = self.values.shape
        beyond = [
            name for name, is_beyond in zip(names, self.beyond_bound, strict=True) if is_beyond
        ]
        return {
            "level": RACE_LEVEL if self.bound is None else CONFIDENCE,
            "bound": self.bound,
            "guaranteed": self.bound is not None and not beyond,
            "valid_for": (
                "effects that are alike on most pairs; not for rare strong ones"
                if self.bound is None
                else f"effects of at most {self.bound:g} in size"
            ),
            "beyond_bound": beyond,
            "rounds": list(self.rounds),
            "evaluations": self.evaluations,
            "of": n_components * n_pairs,
            "pairs": dict(zip(names, self.n_pairs.tolist(), strict=True)),
            "intervals": dict(zip(names, self.interval.T.tolist(), strict=True)),
        }


def race(
    measure: EffectMeasure,
    n_components: int,
    strata: Int[Tensor, " pair"],
    rule: StoppingRule,
    *,
    seed: int = 0,
) -> Race:
    """Compute effects until the rule is settled for every component, or on all pairs.

    Args:
        measure: computes effects. It gets the numbers of components, the numbers of pairs, and the
            number of the round.
        n_components: how many there are.
        strata: the template of each pair, as a number.
        rule: when a component is settled.
        seed: of the order of the pairs.
    """
    n_all, bound = len(strata), rule.bound
    order, sizes = balanced_order(strata, seed), round_sizes(n_all, int(strata.max()) + 1)
    tail = (1 - RACE_LEVEL) / (2 * n_components * max(1, len(sizes) - 1))
    if bound is not None:
        order = torch.randperm(n_all, generator=torch.Generator().manual_seed(seed))
        sizes, tail = round_sizes(n_all, 1, GROWTH), (1 - CONFIDENCE) / (2 * n_components)
    values = torch.full((n_components, n_all), float("nan"))
    n_pairs = torch.zeros(n_components, dtype=torch.long)
    interval = torch.tensor([[-torch.inf], [torch.inf]]).repeat(1, n_components).double()
    racing = torch.arange(n_components)
    done, finished = 0, []
    for number, size in enumerate(sizes):
        new = order[done:size]
        values[racing[:, None], new] = measure(racing.tolist(), new, number).to(values)
        n_pairs[racing], done = size, size
        finished.append(size)
        known = (values[racing], order[:size], strata, tail)
        interval[:, racing] = (
            student_interval(*known) if bound is None else betting_interval(*known, bound)
        )
        racing = (~rule.settled(interval) & (n_pairs == size)).nonzero()[:, 0]
        if not len(racing):
            break
    return Race(values, n_pairs, interval, tuple(finished), bound)


def balanced_order(strata: Int[Tensor, " pair"], seed: int) -> Int[Tensor, " pair"]:
    """All pairs at random, such that each beginning has the templates in their shares."""
    rng = torch.Generator().manual_seed(seed)
    rank = torch.rand(len(strata), generator=rng)
    for stratum in strata.unique():
        inside = (strata == stratum).nonzero()[:, 0]
        ranks = torch.empty(len(inside))
        ranks[torch.randperm(len(inside), generator=rng)] = torch.arange(len(inside)).float()
        rank[inside] = (ranks + rank[inside]) / len(inside)
    return rank.argsort()


def round_sizes(n_pairs: int, n_strata: int, growth: float = 2.0) -> list[int]:
    """The number of pairs after each round: `growth` times as many as before, and at last all."""
    sizes = [max(FIRST_ROUND, 2 * n_strata)]
    while sizes[-1] < n_pairs:
        sizes.append(int(growth * sizes[-1]))
    return [*sizes[:-1], n_pairs]
