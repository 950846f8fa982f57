"""What a claim is, the numbers that are measured for it, and the verdict on it.

The verdict has one rule in both directions. Each number with bounds is tested twice, one-sidedly at
5%: does it lie within its bounds, and does it lie outside them?

- "holds here": every number lies significantly within its bounds. Each is tested at 5% without a
  correction: this is an intersection-union test, and if one number is truly outside, its own test
  alone lets the claim pass in 5% of the cases at most (Berger, 1982).
- "does not hold here": at least one number lies significantly outside its bounds. Any of them can
  do so by chance, so that Holm's correction (1979) is made over the claim's numbers.
- "not decided": neither.

A verdict is about the model that was measured, and about no other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from figures.tables.number import Number

if TYPE_CHECKING:
    from pandas import DataFrame

    from figures.claims.evidence import Evidence

Judgement: TypeAlias = Literal["holds here", "does not hold here", "not decided", "not measured"]


TEST_LEVEL = 0.05
"""The level of each of the two tests."""


@dataclass(frozen=True)
class Within:
    """The bounds of a number if its claim holds; the number lies strictly between them."""

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
        from scipy.stats import t

        return float(t.sf(beyond / half * t.ppf(0.975, number.freedom), number.freedom))

    def __str__(self) -> str:
        return f"{self.label} {self.number}"


@dataclass(frozen=True)
class Measurement:
    """What was measured for a claim."""

    findings: tuple[Finding, ...]
    """At least one has a rule."""
    note: str = ""
    set_judgement: Judgement | None = None
    """The verdict, if the numbers alone do not decide it."""

    def __post_init__(self) -> None:
        if not any(finding.rule for finding in self.findings):
            raise ValueError("expected a number with a rule, found none; nothing would be decided")

    @property
    def judgement(self) -> Judgement:
        """The verdict on the claim, by the rule at the top of this file."""
        return self.set_judgement or judge(self.findings)


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


Measure: TypeAlias = "Callable[[Evidence, Within], Measurement]"
"""Measures a claim whose numbers have these bounds."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is measured."""

    key: str
    group: str
    """Of which group of claims it is."""
    statement: str
    """One sentence, in our words."""
    section: str
    """Where the paper makes the claim."""
    paper: str
    """The paper's value."""
    rule: str
    """Which number is compared with which threshold."""
    bounds: Within
    """The bounds of its numbers if it holds."""
    experiments: tuple[str, ...]
    """The experiments whose runs it reads."""
    measure: "Measure"

    @property
    def in_paper(self) -> str:
        """The paper's value, and where it is."""
        return f"{self.paper} ({self.section})"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for one model, and the numbers that decide it."""

    claim: Claim
    judgement: Judgement
    findings: tuple[Finding, ...] = ()
    """Empty if the claim was not measured."""
    note: str = ""
    """A sentence of the measurement, after its numbers."""
    why: str = ""
    """Why the claim was not measured; empty if it was."""
    command: str = ""
    """The command that would measure it; empty if it was measured."""
    runs: tuple[Path, ...] = ()
    """The folders of the runs that were read."""

    @property
    def text(self) -> str:
        """The verdict in words, with what it is limited to."""
        return f"{self.judgement} (in this model)"

    @property
    def judged_findings(self) -> list[tuple[Finding, Judgement | None]]:
        """Each number with the verdict on it alone; None if it has no rule."""
        return [*zip(self.findings, each_judgement(self.findings), strict=True)]

    @property
    def measured(self) -> str:
        """The numbers with their 95% intervals and the note, as text; empty if not measured."""
        text = "; ".join(map(str, self.findings))
        return f"{text}. {self.note}" if self.note else text

    def to_dataframe(self) -> "DataFrame":
        """One row per number; a single row without numbers if the claim was not measured.

        Columns: group, claim, holds, runs, of, value, low, high, unit, above, below, p_within,
        p_outside (before Holm's correction), number_holds (after it).
        """
        from pandas import DataFrame

        shared = {"group": self.claim.group, "claim": self.claim.key, "holds": self.judgement}
        shared["runs"] = " ".join(map(str, self.runs))
        rows = [
            {
                **shared,
                "of": n.label,
                "value": n.number.value,
                **dict(zip(("low", "high"), n.number.ends, strict=True)),
                "unit": n.number.unit,
                "above": n.rule.above if n.rule else None,
                "below": n.rule.below if n.rule else None,
                "p_within": n.p_within if n.rule else None,
                "p_outside": n.p_outside if n.rule else None,
                "number_holds": judgement,
            }
            for n, judgement in self.judged_findings
        ]
        return DataFrame(rows or [{**shared, "why": self.why, "command": self.command}])


def verdict_table(verdicts: Sequence[Verdict]) -> "DataFrame":
    """The numbers of all verdicts, with the columns of `Verdict.to_dataframe`."""
    from pandas import concat

    return concat([verdict.to_dataframe() for verdict in verdicts], ignore_index=True)
