"""The one engine of verdicts: what numbers with intervals say of the rule of a claim.

`judge` has one rule in both directions. Each number with bounds is tested twice, one-sidedly at 5%:
does it lie within its bounds, and does it lie outside them?

- "holds here": every number lies significantly within its bounds. Each is tested at 5% without a
  correction: this is an intersection-union test, and if one number is truly outside, its own test
  alone lets the claim pass in 5% of the cases at most (Berger, 1982).
- "does not hold here": at least one number lies significantly outside its bounds. Any of them can
  do so by chance, so that Holm's correction (1979) is made over the claim's numbers.
- "not decided": neither.

A verdict is about the model that was measured, and about no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Literal, TypeAlias

import numpy as np

from figures.tables.number import Number

Judgement: TypeAlias = Literal["holds here", "does not hold here", "not decided", "not measured"]


TEST_LEVEL = 0.05
"""The level of each of the two tests."""


@dataclass(frozen=True)
class Within:
    """The bounds of a number if its claim holds; the number lies between them."""

    above: int | float = -inf
    below: int | float = inf

    @property
    def bounds(self) -> tuple[tuple[float, int], ...]:
        """The finite bounds, each with the side of it that is within: 1 above it, -1 below it."""
        sides = ((self.above, 1), (self.below, -1))
        return tuple((bound, side) for bound, side in sides if abs(bound) < inf)


@dataclass(frozen=True)
class Finding:
    """A number that a claim is about, and the bounds that it must be within."""

    label: str
    """What was measured, such as "addition"."""
    number: Number
    rule: Within | None = None
    """None: the number is reported, but decides nothing."""

    def __post_init__(self) -> None:
        if isnan(self.number.value):
            raise ValueError(
                f"expected a number for {self.label!r}, found NaN; a claim that cannot be measured "
                "raises NotMeasured"
            )

    @property
    def p_within(self) -> float:
        """The p-value of "it lies outside its bounds": a small one says that it lies within.

        With two bounds, the larger p-value counts, because it must be on the right side of both.
        """
        return max(self._p(bound, side, closed=False) for bound, side in self._bounds)

    @property
    def p_outside(self) -> float:
        """The p-value of "it lies within its bounds": a small one says that it lies outside.

        With two bounds, the smaller p-value counts, twice, because it can be beyond either.
        """
        bounds = self._bounds
        smallest = min(self._p(bound, -side, closed=True) for bound, side in bounds)
        return min(1.0, len(bounds) * smallest)

    @property
    def _bounds(self) -> tuple[tuple[float, int], ...]:
        assert self.rule is not None, f"{self.label!r} has no rule, so there is nothing to test"
        return self.rule.bounds

    def _p(self, bound: float, side: int, *, closed: bool) -> float:
        """The p-value of "it is not on this side of the bound" (1: above, -1: below).

        It is the share of resamples that are not on this side, and at least 1 / (n + 1). Without
        resamples, the half of the interval that is towards the bound gives the standard error. A
        number without an interval is exact.

        Args:
            bound, side: the side of the bound that is tested.
            closed: whether the bound itself belongs to this side.
        """
        number = self.number
        if number.resamples:
            beyond = side * (np.array(number.resamples) - bound)
            wrong = int((beyond < 0).sum() if closed else (beyond <= 0).sum())
            return (1 + wrong) / (1 + len(number.resamples))
        beyond = side * (number.value - bound)
        end = number.low if bound < number.value else number.high
        half = 0.0 if end is None else abs(number.value - end)
        if half == 0:
            return 0.0 if beyond > 0 or (closed and beyond == 0) else 1.0
        from scipy.special import stdtr, stdtrit

        return float(stdtr(number.freedom, -beyond / half * stdtrit(number.freedom, 0.975)))

    def __str__(self) -> str:
        return f"{self.label} {self.number}"


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's correction (1979): those of at most 5% are significant at 5%."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def each_judgement(findings: Iterable[Finding]) -> list[Judgement | None]:
    """The verdict on each of a claim's numbers; None for a number without a rule."""
    findings = list(findings)
    adjusted = iter(holm([finding.p_outside for finding in findings if finding.rule]))
    return [
        None
        if not finding.rule
        else "does not hold here"
        if next(adjusted) <= TEST_LEVEL
        else "holds here"
        if finding.p_within <= TEST_LEVEL
        else "not decided"
        for finding in findings
    ]


def judge(findings: Iterable[Finding]) -> Judgement:
    """The verdict that the numbers with a rule give together."""
    judgements = {*each_judgement(findings)} - {None}
    if "does not hold here" in judgements:
        return "does not hold here"
    return "holds here" if judgements == {"holds here"} else "not decided"
