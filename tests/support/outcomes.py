"""What came of each prediction of docs/pretrained.md, by the rules that the page states.

All numbers are in the table of finished audits (`audit_table`). A condition holds if the whole 95%
interval meets it, fails if none of it does, and is open otherwise; a number without an interval
holds or fails. Where several numbers must meet it, it fails if one fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

from arith_lens.auditing.auditing import GAIN, MEANS, OTHERS
from arith_lens.auditing.verdicts import (
    FAILS,
    FEW,
    HOLDS,
    LENS,
    NEED,
    OPEN,
    ORIGIN,
    PARTS,
    READ,
    TASK,
)
from arith_lens.named_models import REFERENCE_MODELS
from arith_lens.operations import FOUR
from laboratory.audits import CAPITALS, EARLY, LOOKS, MEAN_LAYER

MISSING = "not computed"
SMOL, QWEN, GEMMA = "smollm2-135m", "qwen2.5-coder-0.5b-instruct-q4_k_m", "gemma-3-270m"
REFERENCE, MISTRAL = REFERENCE_MODELS
MODELS = (SMOL, QWEN, GEMMA, REFERENCE, MISTRAL)
ENOUGH = 0.8
"""The share of the second half that few heads must answer."""
EARLY_SHARE = 0.05
"""The share of the negative effect that early heads must not reach."""
NOT_MET = ("A2", "A6", "A7", "B2", "D1")
"""The predictions that their condition fails."""


@dataclass(frozen=True)
class Part:
    """A number that a condition is about."""

    audit: str
    numbers: str = ""
    met: str = MISSING
    """`holds`, `fails`, `open` or `not computed`."""


def at_least(row: Any, limit: float) -> str:
    """Whether a number is at least so large."""
    return _decided(row.low >= limit, row.high < limit)


def more(row: Any, limit: float) -> str:
    """Whether a number is larger."""
    return _decided(row.low > limit, row.high <= limit)


def less(row: Any, limit: float) -> str:
    """Whether a number is smaller."""
    return opposite(at_least(row, limit))


def _decided(holds: bool, fails: bool) -> str:
    return HOLDS if holds else FAILS if fails else OPEN


def opposite(outcome: str) -> str:
    """The outcome of the contrary condition."""
    return {HOLDS: FAILS, FAILS: HOLDS}.get(outcome, outcome)


def together(outcomes: Iterable[str]) -> str:
    """Whether all conditions hold."""
    all_of = {*outcomes}
    return next((one for one in (FAILS, MISSING, OPEN) if one in all_of), HOLDS)


def interval(row: Any) -> str:
    """A share with its interval, in percent."""
    return f"{row.value:.0%} [{100 * row.low:.0f}, {100 * row.high:.0f}]"


class Audits:
    """The table of finished audits, without those of tasks that a model cannot do."""

    def __init__(self, table: Any) -> None:
        rows = table[table.question == TASK]
        failed = rows[rows.verdict != HOLDS]
        self.left_out = [f"{row.model}, {row.task}" for row in failed.itertuples()]
        names = table.model + ", " + table.task
        self.table = table.assign(audit=names)[~names.isin(self.left_out)]

    def each(
        self, models: Sequence[str], tasks: Sequence[str], question: str, lens: str
    ) -> Iterator[tuple[str, Any]]:
        """The row of each model and task; None where it is not computed."""
        for model in models:
            for task in tasks:
                chosen = self.table[
                    (self.table.question == question)
                    & (self.table.lens == lens)
                    & (self.table.task == task)
                    & (self.table.model == model)
                ]
                name = f"{model}, {task}"
                if name not in self.left_out:
                    yield name, None if chosen.empty else next(chosen.itertuples())

    def parts(
        self,
        rule: Callable[[Any], str],
        question: str,
        lens: str,
        *,
        models: Sequence[str] = (SMOL,),
        tasks: Sequence[str] = FOUR[:1],
        words: Callable[[Any], str] = interval,
    ) -> list[Part]:
        """What a rule says of one row of each model and task."""
        return [
            Part(name) if row is None or isnan(row.value) else Part(name, words(row), rule(row))
            for name, row in self.each(models, tasks, question, lens)
        ]

    def few(self, model: str, *tasks: str) -> list[Part]:
        """Whether k is few, and these heads answer enough of the second half."""

        def rule(row: Any) -> str:
            reached = row.smallest <= len(row.strongest.split())
            return together([_decided(reached, not reached), at_least(row, ENOUGH)])

        def words(row: Any) -> str:
            return f"k = {row.smallest:.0f}; {interval(row)}"

        return self.parts(rule, FEW, MEANS, models=[model], tasks=tasks, words=words)

    def suffice(self, question: str, rule: Callable[[Any], str]) -> list[Part]:
        """What a rule says of all audits that find that few heads suffice."""
        every = self.table[(self.table.question == FEW) & (self.table.lens == MEANS)]
        enough = {*every[every.verdict == HOLDS].audit}
        tasks = [*FOUR, *(task for task in self.table.task.unique() if task not in FOUR)]
        parts = self.parts(rule, question, MEANS, models=MODELS, tasks=tasks)
        return [one for one in parts if one.audit in enough or _is_missing(one)]

    def strongest(self, task: str) -> set[str]:
        """SmolLM2's few strongest heads; none if the audit is not finished."""
        ((_, row),) = self.each([SMOL], [task], FEW, MEANS)
        return set() if row is None else {*row.strongest.split()}

    def shared(self, pairs: Iterable[tuple[str, str]], rule: Callable[[int], bool]) -> list[Part]:
        """How many of the strongest heads two tasks have in common."""
        parts = []
        for one, other in pairs:
            if {f"{SMOL}, {one}", f"{SMOL}, {other}"} & {*self.left_out}:
                continue
            own, others = self.strongest(one), self.strongest(other)
            n, name = len(own & others), f"{SMOL}, {one} and {other}"
            met = _decided(rule(n), not rule(n))
            parts.append(Part(name, f"{n} of {len(own)}", met) if own and others else Part(name))
        return parts


def _is_missing(part: Part) -> bool:
    """Whether the predictions ask for an audit that is not finished."""
    return part.met == MISSING and part.audit.endswith(FOUR)


def _by_the_last_mlp(row: Any) -> str:
    return together([_decided(row.mlp == "MLP 11", row.mlp != "MLP 11"), more(row, 0.5)])


def _after_the_second_head(row: Any) -> str:
    second = int(row.strongest.split()[1].partition(".")[0])
    return _decided(row.layer > second, row.layer <= second)


def _both_layers(row: Any) -> str:
    return f"layer {row.layer:.0f}, second head {row.strongest.split()[1]}"


def _in_the_middle(row: Any) -> str:
    return _decided(row.low >= 10 and row.high <= 20, row.high < 10 or row.low > 20)


def _layers(row: Any) -> str:
    return f"layer {row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"


def _look(audits: Audits) -> list[Part]:
    """Whether the strongest head looks at A most, and the second at B."""
    rows = [audits.parts(_above_controls, READ, lens) for lens in LOOKS]
    return [part for parts in rows for part in parts]


def _above_controls(row: Any) -> str:
    return more(row, row.control_high)


PREDICTIONS: dict[str, Callable[[Audits], list[Part]]] = {
    "A1": lambda a: a.few(SMOL, "addition"),
    "A2": lambda a: a.few(SMOL, "multiplication"),
    "A3": lambda a: a.few(SMOL, "subtraction"),
    "A4": lambda a: a.few(SMOL, "division"),
    "A5": lambda a: a.few(QWEN, "addition", "subtraction"),
    "A6": lambda a: a.few(GEMMA, "multiplication"),
    "A7": lambda a: [*a.few(REFERENCE, "addition"), *a.few(MISTRAL, "addition")],
    "A8": lambda a: a.suffice(FEW, _above_controls),
    "A9": lambda a: a.parts(lambda row: at_least(row, 0.8), FEW, "means at every token"),
    "A10": lambda a: a.parts(lambda row: at_least(row, 0.2), LENS, GAIN),
    "B1": lambda a: a.shared(combinations(FOUR, 2), lambda n: n > 6.5),
    "B2": lambda a: a.parts(_in_the_middle, PARTS, MEAN_LAYER, words=_layers),
    "B3": lambda a: a.parts(
        lambda row: less(row, EARLY_SHARE), PARTS, EARLY, models=MODELS, tasks=FOUR
    ),
    "C1": lambda a: a.parts(lambda row: less(row, 0.5), NEED, MEANS),
    "C2": lambda a: a.suffice(NEED, lambda row: less(row, row.control_low)),
    "D1": lambda a: a.parts(lambda row: more(row, 0.5), ORIGIN, "one MLP at END"),
    "D2": lambda a: a.parts(_by_the_last_mlp, ORIGIN, "one MLP at END", models=[REFERENCE]),
    "D3": lambda a: a.parts(
        _after_the_second_head, ORIGIN, "stream of END", tasks=FOUR, words=_both_layers
    ),
    "E1": lambda a: a.parts(_above_controls, READ, "attention of END", tasks=FOUR),
    "E2": _look,
    "F1": lambda a: a.parts(lambda row: less(row, 0.5), LENS, "heads under operator"),
    "F2": lambda a: a.parts(lambda row: at_least(row, 9 / 13), LENS, "heads by C's logit"),
    "F3": lambda a: a.parts(lambda row: less(row, 0.6), FEW, OTHERS),
    "G1": lambda a: a.few(SMOL, CAPITALS),
    "G2": lambda a: a.shared([("addition", CAPITALS)], lambda n: n <= 3),
}
"""By name, the numbers that a prediction is about."""


def decided(table: Any) -> list[tuple[str, str, str]]:
    """The name, the numbers and the outcome of each prediction.

    Args:
        table: the rows of finished audits.
    """
    audits, rows = Audits(table), []
    for name, parts_of in PREDICTIONS.items():
        parts = parts_of(audits)
        if name in NOT_MET:
            parts = [replace(part, met=opposite(part.met)) for part in parts]
        numbers = [f"{one.audit}: {one.numbers} ({one.met})" for one in parts if one.numbers]
        rows.append((name, "; ".join(numbers), together(part.met for part in parts)))
    return rows


def outcomes(csv: Path = Path("docs/studies/audits.csv")) -> None:
    """Decide each prediction of docs/pretrained.md, and print the table of outcomes.

    Args:
        csv: the rows of finished audits.
    """
    import pandas as pd

    table = pd.read_csv(csv)
    for row in decided(table):
        print("|", " | ".join(row), "|")
    print("left out:", "; ".join(Audits(table).left_out) or "none")
