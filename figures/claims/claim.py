"""What a claim is, what is measured for it, and its verdict (see `figures.verdicts`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from figures.claims.evidence import Evidence
from figures.verdicts import Finding, Judgement, Within, each_judgement, judge

if TYPE_CHECKING:
    from pandas import DataFrame


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
