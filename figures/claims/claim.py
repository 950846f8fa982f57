"""What a claim is, what is measured for it, and its verdict (see `figures.verdicts`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TypeAlias

from figures.claims.evidence import Evidence
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row
from figures.verdicts import Finding, Judgement, Within, each_judgement, judge


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
        """The verdict on the claim, by `judge`."""
        return self.set_judgement or judge(self.findings)


Measure: TypeAlias = Callable[[Evidence, Within], Measurement]
"""Measures a claim whose numbers have these bounds."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is measured."""

    key: str
    group: str
    """Of which group of claims it is."""
    lens: str
    """Under which counterfactual and metric its heads are chosen and its effects measured."""
    statement: str
    """One sentence, in our words."""
    short: str
    """The sentence in few words, for pictures."""
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
    measure: Measure

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
    def judged_findings(self) -> list[tuple[Finding, Judgement | None]]:
        """Each number with the verdict on it alone; None if it has no rule."""
        return [*zip(self.findings, each_judgement(self.findings), strict=True)]

    @property
    def measured(self) -> str:
        """The numbers with their 95% intervals and the note, as text; empty if not measured."""
        text = "; ".join(map(str, self.findings))
        return f"{text}. {self.note}" if self.note else text

    def rows(self) -> Iterator[Row]:
        """One row per number; a single row without a number if the claim was not measured.

        Keys: group, claim, lens, holds, number_holds (the verdict on the number alone), above,
        below, p_within, p_outside (before Holm's correction), note, why, command, runs.
        """
        claim = {"group": self.claim.group, "claim": self.claim.key, "lens": self.claim.lens}
        shared = claim | {"holds": self.judgement}
        last = {"note": self.note, "why": self.why, "command": self.command}
        last["runs"] = " ".join(map(str, self.runs))
        for finding, judgement in self.judged_findings:
            rule = finding.rule and {
                "number_holds": judgement,
                "above": finding.rule.above,
                "below": finding.rule.below,
                "p_within": finding.p_within,
                "p_outside": finding.p_outside,
            }
            yield Row(finding.label, finding.number, shared | (rule or {}) | last)
        if not self.findings:
            yield Row("", Number(nan), shared | last)


def verdict_table(model: str, verdicts: Sequence[Verdict]) -> QuestionTable:
    """The numbers of all verdicts, with the keys of `Verdict.rows`."""
    rows = (row for verdict in verdicts for row in verdict.rows())
    return QuestionTable.of("claims", model, rows)
