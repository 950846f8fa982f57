"""Screening: compute exactly only the components that a cheap approximation ranks highest.

What such a choice misses is checked on components drawn at random from those that are left out.
Their exact effects bound the others: with 95% confidence, at most so many of them are stronger than
the strongest of those that were checked. This holds whatever the approximation is worth.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isnan
from typing import Any

from arith_lens.components import Component, Head
from arith_lens.effects import ComponentEffects

CONFIDENCE = 0.95
N_CHECKS = 20
"""The number of components that are checked."""


@dataclass(frozen=True)
class Screening:
    """Which components are computed exactly."""

    kept: tuple[Component, ...]
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
        return [*self.kept, *self.checked]

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

    def notes(self, effects: ComponentEffects) -> dict[str, Any]:
        """For the record of a computation: what was kept, and how much may be missed.

        Args:
            effects: the exact effects of all `components`.
        """
        exact = means_of(effects, self.checked)
        strongest = max(exact, key=lambda component: abs(exact[component]), default=None)
        return {
            "kept": [str(component) for component in self.kept],
            "checked": [str(component) for component in self.checked],
            "others": self.n_others,
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
