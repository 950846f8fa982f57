"""The seven questions, the rules of their verdicts, and the sentences that say them.

A verdict compares a number with controls in which the claim is not true: `holds` if its whole 95%
interval is beyond every control (and beyond the controls' intervals, where they are other sets of
heads), `fails` if the number itself is not beyond them, `open` otherwise, and where
nothing could be measured.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

TASK = "Can the model do it?"
PARTS = "Which parts does the answer depend on?"
FEW = "Do few suffice?"
NEED = "Are they needed?"
READ = "What do they read?"
ORIGIN = "Where does the answer arise?"
LENS = "Does it depend on the lens?"
QUESTIONS = (TASK, PARTS, FEW, NEED, READ, ORIGIN, LENS)

HOLDS, FAILS, OPEN = "holds", "fails", "open"
COMPARED = "verdicts"
ENOUGH = 0.9
"""The share of right answers that heads must keep alone to suffice."""


@dataclass(frozen=True)
class Measure:
    """A number with its 95% interval, and the range of its controls."""

    value: float = nan
    low: float = nan
    high: float = nan
    control_low: float = nan
    control_high: float = nan
    n: int = 0
    """The number of problems that it was measured on."""
    control_least: float = nan
    control_most: float = nan
    """The lower end of the lowest control's interval, and the upper end of the highest one's."""


@dataclass(frozen=True)
class Verdict:
    """The answer to one question under one lens."""

    question: str
    lens: str
    """What was changed, measured or put in place of outputs."""
    verdict: str
    measure: Measure = Measure()
    reason: str = ""
    """Why nothing was measured; else empty."""


def _known(*numbers: float) -> list[float]:
    """The numbers that are no NaN."""
    return [number for number in numbers if not isnan(number)]


def above(measure: Measure) -> str:
    """Whether a number is larger than every control."""
    if isnan(measure.value) or isnan(measure.control_high):
        return OPEN
    if measure.low > max(_known(measure.control_high, measure.control_most)):
        return HOLDS
    return FAILS if measure.value <= measure.control_high else OPEN


def below(measure: Measure) -> str:
    """Whether a number is smaller than every control."""
    if isnan(measure.value) or isnan(measure.control_low):
        return OPEN
    if measure.high < min(_known(measure.control_low, measure.control_least)):
        return HOLDS
    return FAILS if measure.value >= measure.control_low else OPEN


def suffices(measure: Measure, reached: bool) -> str:
    """Whether heads alone give enough right answers, and more than every control.

    Args:
        measure: the share of right answers on the second half of the problems.
        reached: whether it was `ENOUGH` on the half on which the heads were chosen.
    """
    if measure.high < ENOUGH:
        return FAILS
    return above(measure) if reached else OPEN


def agreement(question: str, lenses: Sequence[Verdict]) -> Verdict:
    """Whether the verdicts on parts of the model are the same under every lens."""
    first: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for one in lenses:
        if one.question not in (PARTS, FEW, NEED) or one.reason:
            continue
        if one.question in first:
            others.append((first[one.question], one.verdict))
        first.setdefault(one.question, one.verdict)
    if not others:
        return Verdict(question, COMPARED, OPEN, reason="there is one lens alone")
    same = sum(own == other for own, other in others)
    opposite = any({own, other} == {HOLDS, FAILS} for own, other in others)
    verdict = HOLDS if opposite else FAILS if same == len(others) else OPEN
    return Verdict(question, COMPARED, verdict, Measure(same / len(others), n=len(others)))


_UNMEASURED = "This is open: {reason}."
_ONE = re.compile(r"1 (strongest of \d+(?: heads)?) (ha|keep)(ve)?")
_SENTENCES = {
    TASK: {
        HOLDS: "It answers {value} of the prompts; the most frequent answer and shuffled answers "
        "reach {control_high} at most.",
        FAILS: "No: it answers {value} of the prompts, and the most frequent answer or shuffled "
        "answers reach {control_high}. Nothing else was measured.",
        OPEN: "It answers {value} of the prompts; the most frequent answer or shuffled answers "
        "reach {control_high}: too few problems to tell. Nothing else was measured.",
    },
    PARTS: {
        HOLDS: "On few heads: the {few} strongest of {n_heads} have {value} of all heads' "
        "negative effects, other sets of heads and an untrained model {control_high} at most.",
        FAILS: "On no few heads: the {few} strongest of {n_heads} have {value} of all heads' "
        "negative effects, and a control has {control_high}.",
        OPEN: "The {few} strongest of {n_heads} heads have {value} of all heads' negative effects, "
        "and a control has {control_high}: too few problems to tell.",
    },
    FEW: {
        HOLDS: "Yes ({lens}): {size} of {n_heads} heads ({heads}) keep {value} of the right "
        "answers alone, other sets of this size {controls}.",
        FAILS: "No ({lens}): the {size} strongest of {n_heads} heads keep {value} of the right "
        "answers alone, other sets of this size {controls}.",
        OPEN: "The {size} strongest of {n_heads} heads keep {value} of the right answers alone "
        "({lens}), other sets of this size {controls}: too few problems to tell.",
    },
    NEED: {
        HOLDS: "Yes ({lens}): without these {size} heads {value} of the answers stay right, "
        "without other sets of this size {controls}.",
        FAILS: "No ({lens}): without these {size} heads {value} of the answers stay right, and "
        "without another set of this size {control_low}.",
        OPEN: "Without these {size} heads ({lens}) {value} of the answers stay right, without "
        "other sets of this size {controls}: too few problems to tell.",
    },
    READ: {
        HOLDS: "What the counterfactual changes: these heads have {value} of their attention "
        "(without the first token) on it, other heads of their layers {control_high} at most."
        "{reads}",
        FAILS: "Not more of what the counterfactual changes than others: they have {value} of "
        "their attention on it, and other heads of their layers up to {control_high}.{reads}",
        OPEN: "They have {value} of their attention on what the counterfactual changes, other "
        "heads of their layers up to {control_high}: too few problems to tell.{reads}",
    },
    ORIGIN: {
        HOLDS: "In one layer. With END's stream of another problem, {value} more answers become "
        "that problem's after {place} than before it; no other layer adds more than "
        "{control_high}.",
        FAILS: "In no single layer. With END's stream of another problem, {value} more answers "
        "become that problem's after {place} than before it; another layer adds {control_high}.",
        OPEN: "With END's stream of another problem, {value} more answers become that problem's "
        "after {place} than before it, another layer adds {control_high}: too few to tell.",
    },
    LENS: {
        HOLDS: "{same} of {n} verdicts on parts, sufficiency and need stay under other lenses; "
        "some become the opposite.{beyond}",
        FAILS: "All {n} verdicts on parts, sufficiency and need stay under other lenses.{beyond}",
        OPEN: "{same} of {n} verdicts on parts, sufficiency and need stay under other lenses; "
        "none becomes the opposite.{beyond}",
    },
}
"""By question and verdict; the sentences are filled in by `sentence`."""


def reading(rows: Iterable[Any]) -> str:
    """What each head of `Audit.readers` reads in words, where the interval excludes 0."""
    parts = [f"{row.head} reads {read_by(row)}" for row in rows if row.ci_high < 0]
    return f" By exact edges, {', '.join(parts)}." if parts else ""


def read_by(row: Any) -> str:
    """What a head reads, such as "B by its values", of a row of `Audit.readers`; a token without a
    role has its position, counted from 0."""
    named = {"operand a": "A", "operand b": "B"}
    tokens = f"token {row.reads}" if str(row.reads).isdigit() else named.get(row.reads, row.reads)
    return f"{tokens} by its {dict(q='queries', k='keys', v='values')[row.input]}"


def beyond(rows: Iterable[Verdict]) -> str:
    """What `agreement` does not count: how many verdicts are open, and what else a lens changes."""
    known = [one for one in rows if not one.reason]
    counted = [one.verdict for one in known if one.question in (PARTS, FEW, NEED)]
    n_open = counted.count(OPEN)
    parts = [f"Open: {n_open} of {len(counted)}"] if n_open else []
    own, *others = [one.verdict for one in known if one.question == ORIGIN] or [""]
    if n_other := sum(verdict != own for verdict in others):
        parts.append(f"“{ORIGIN}” changes under {n_other} of {len(others)}")
    lenses = [one.lens for one in known if (one.question, one.verdict) == (LENS, HOLDS)]
    if names := "; ".join(f"“{lens}”" for lens in lenses if lens != COMPARED):
        parts.append(f"Also changed: {names}".replace(" less ", "” against “"))
    return "".join(f" {part}." for part in parts)


def sentence(verdict: Verdict, **names: str | int) -> str:
    """A verdict in words.

    Args:
        verdict: the first one of its question.
        names: `few`, `n_heads`, `size`, `heads`, `place`, `reads` and `beyond`.
    """
    measure = verdict.measure
    if verdict.reason:
        return _UNMEASURED.format(reason=verdict.reason)
    value = f"{measure.value:.0%}"
    if not isnan(measure.low):
        value += f" [{100 * measure.low:.0f}, {100 * measure.high:.0f}]".replace("-", "−")
    ends = [f"{end:.0%}" for end in (measure.control_low, measure.control_high)]
    text = _SENTENCES[verdict.question][verdict.verdict].format(
        value=value,
        lens=verdict.lens,
        n=measure.n,
        same=f"{measure.value * measure.n:.0f}",
        controls=" to ".join(ends) if ends[0] != ends[1] else f"{ends[0]} each",
        control_low=ends[0],
        control_high=ends[1],
        **names,
    )
    text = _ONE.sub(r"\1 \2s", text).replace("these 1 heads", "this head")
    return text.replace("%", " points") if verdict.question == ORIGIN else text
