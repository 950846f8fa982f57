"""What a claim is, the numbers that are measured for it, and the verdict on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pandas import DataFrame

    from figures.claims.evidence import Evidence

Group: TypeAlias = Literal[
    "heads", "sharing", "knockout", "attention", "probes", "tuning", "models"
]
Holds: TypeAlias = Literal["holds", "does not hold", "not decided", "not measured"]
Unit: TypeAlias = Literal["%", "points", "layers", "count", "ratio"]

_FORMATS: dict[Unit, tuple[float, str, str]] = {  # factor, format, what follows
    "%": (100, ".1f", "%"),
    "points": (100, "+.1f", " points"),
    "layers": (1, ".0f", ""),
    "count": (1, ".0f", ""),
    "ratio": (1, ".2f", ""),
}


@dataclass(frozen=True)
class Within:
    """The bounds of a number if its claim holds; the number lies strictly between them."""

    above: int | float = -inf
    below: int | float = inf

    def decide(self, value: int | float, low: float | None, high: float | None) -> Holds:
        """The verdict on a number and its 95% interval.

        If the interval contains a bound, the verdict is "not decided". Without an interval the
        number decides alone.
        """
        low, high = (value, value) if low is None or high is None else (low, high)
        if self.above < low and high < self.below:
            return "holds"
        return "does not hold" if high <= self.above or low >= self.below else "not decided"


@dataclass(frozen=True)
class Number:
    """One measured number. Shares and points are fractions: 0.05 is 5%."""

    of: str
    """What was measured, such as "addition"."""
    value: int | float
    low: float | None = None
    high: float | None = None
    """The ends of the 95% interval; None if it has none."""
    unit: Unit = "%"
    rule: Within | None = None
    """None: the number is reported, but decides nothing."""

    def __post_init__(self) -> None:
        if isnan(self.value):
            raise ValueError(
                f"expected a number for {self.of!r}, found NaN; a claim that cannot be measured "
                "raises NotMeasured"
            )

    @property
    def holds(self) -> Holds | None:
        """The verdict on this number alone; None if it has no rule."""
        return None if self.rule is None else self.rule.decide(self.value, self.low, self.high)

    def __str__(self) -> str:
        factor, form, after = _FORMATS[self.unit]
        text = f"{factor * self.value:{form}}{after}"
        if self.low is not None and self.high is not None:
            form = ".1f" if self.unit == "count" else form
            text += f" [{factor * self.low:{form}}, {factor * self.high:{form}}]"
        return f"{self.of} {text}"


@dataclass(frozen=True)
class Measurement:
    """What was measured for a claim."""

    numbers: tuple[Number, ...]
    """At least one has a rule."""
    note: str = ""
    decided: Holds | None = None
    """The verdict, if the numbers alone do not decide it."""

    def __post_init__(self) -> None:
        if not any(number.rule for number in self.numbers):
            raise ValueError("expected a number with a rule, found none; nothing would be decided")

    @property
    def holds(self) -> Holds:
        """ "holds" if every number with a rule does; "does not hold" if one does not."""
        if self.decided is not None:
            return self.decided
        decided = {number.holds for number in self.numbers}
        if "does not hold" in decided:
            return "does not hold"
        return "not decided" if "not decided" in decided else "holds"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is measured."""

    key: str
    group: Group
    statement: str
    """One sentence, in our words."""
    section: str
    """Where the paper makes the claim."""
    paper: str
    """The paper's value."""
    rule: str
    """Which number is compared with which threshold."""
    experiments: tuple[str, ...]
    """The experiments whose runs it reads."""
    measure: "Callable[[Evidence], Measurement]"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for one model, and the numbers that decide it."""

    claim: Claim
    holds: Holds
    numbers: tuple[Number, ...] = ()
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
    def measured(self) -> str:
        """The numbers with their 95% intervals and the note, as text; empty if not measured."""
        text = "; ".join(map(str, self.numbers))
        return f"{text}. {self.note}" if self.note else text

    def to_dataframe(self) -> "DataFrame":
        """One row per number; a single row without numbers if the claim was not measured.

        Columns: group, claim, holds, runs, of, value, low, high, unit, above, below, number_holds.
        """
        from pandas import DataFrame

        shared = {"group": self.claim.group, "claim": self.claim.key, "holds": self.holds}
        shared["runs"] = " ".join(map(str, self.runs))
        rows = [
            {
                **shared,
                **{name: getattr(n, name) for name in ("of", "value", "low", "high", "unit")},
                "above": n.rule.above if n.rule else None,
                "below": n.rule.below if n.rule else None,
                "number_holds": n.holds,
            }
            for n in self.numbers
        ]
        return DataFrame(rows or [{**shared, "why": self.why, "command": self.command}])


def verdict_table(verdicts: Sequence[Verdict]) -> "DataFrame":
    """The numbers of all verdicts, with the columns of `Verdict.to_dataframe`."""
    from pandas import concat

    return concat([verdict.to_dataframe() for verdict in verdicts], ignore_index=True)
