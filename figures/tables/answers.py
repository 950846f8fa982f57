"""What the tables of answered questions share: accuracies, and changes of accuracy.

Their keys `group` and `task` say which questions: the whole of a group has the task "all".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import torch

from arith_lens.answers import AccuracyChange, Answers, OverSeeds, change_over_seeds
from arith_lens.effects import Effects
from arith_lens.knockout import Outcomes, drop
from arith_lens.knockout.outcomes import OutcomeChange
from figures.tables.number import PROBLEMS, QUESTIONS, Number, Unit
from figures.tables.resampled import NAN, resampled_number
from figures.tables.table import Key, Row, n_problems, row

BEFORE, AFTER = "accuracy before", "accuracy after"
CHANGE, RELATIVE_CHANGE = "change of accuracy", "relative change of accuracy"
CHANGE_BY_SEED, P_VALUE = "change of accuracy by seed", "p"
HEADS, PLACE = "heads", "place"
"""How many heads are knocked out, and the place of each in their list, from 1."""
CONTROLS = {"random": "random", "matched": "same layers"}
"""The orders of control heads, by their names in results."""
ALL = "all"


def accuracy_number(answers: Answers) -> Number:
    """The share of right answers, with Wilson's interval."""
    return Number(answers.accuracy, *answers.ci(), QUESTIONS, len(answers))


def change_number(
    change: OverSeeds,
    before: float | None = None,
    *,
    sampled: str = "seeds",
    units: str = "questions",
) -> Number:
    """A change of accuracy, mean over seeds or draws; with one of them, over the units alone.

    Args:
        before: the accuracy before, which says where the ends are cut; None: they are not.
        sampled: the word for its seeds.
        units: the word for its questions.
    """
    spread = f"95% over {sampled} and {units}" if len(change.per_seed) > 1 else f"95% over {units}"
    n, freedom = change.n_questions, change.freedom
    return _points(change.mean, change.ci(), spread, n, before, freedom)


def paired_number(change: AccuracyChange) -> Number:
    """A change of accuracy between two answers to each question."""
    n, before = change.n_questions, change.before
    return _points(change.difference, change.ci(), QUESTIONS, n, before)


def _points(
    value: float,
    ends: tuple[float, float],
    spread: str,
    n: int,
    before: float | None,
    freedom: float = inf,
) -> Number:
    """A change of accuracy, whose ends are cut where no answer or every answer is right."""
    possible = None if before is None else (-before, 1 - before)
    return Number(value, *ends, spread, n, "points", freedom=freedom, possible=possible)


def change_rows(change: OutcomeChange, n: int, **keys: Key) -> Iterator[Row]:
    """A change of accuracy by a knockout: in points, and as a share of the accuracy before.

    Args:
        n: the number of problems.
    """
    points = _points(change.absolute, change.absolute_ci, PROBLEMS, n, change.before)
    yield row(CHANGE, points, **keys)
    if change.before:
        relative = Number(change.relative, *change.relative_ci, PROBLEMS, n, "relative")
        yield row(RELATIVE_CHANGE, relative, **keys)


def change_over_draws(before: Outcomes, after: Sequence[Outcomes]) -> OverSeeds:
    """The change by a knockout, mean over draws of heads; its errors are of draws and problems."""
    changes = torch.stack([answers.correct.float() - before.correct.float() for answers in after])
    of_draws = Effects(changes, ("draw",), "change", **before.units)
    of_problems = Effects(changes.mean(0, keepdim=True), ("draw",), "change", **before.units)
    error = float(of_problems.stderr()[0])
    return OverSeeds(tuple(of_draws.mean().tolist()), error, n_problems(of_problems))


def resampled_change(before: Answers, after: Answers, unit: Unit) -> Number | None:
    """The change of accuracy; resamples draw the same questions.

    It is None without a question, and where no answer was right before and a share needs one.

    Args:
        before, after: answers to the same questions.
        unit: "points", or "relative" for a share of the accuracy before.
    """

    def change(right: np.ndarray) -> float:
        if unit == "points":
            return right[1] - right[0]
        return right[1] / right[0] - 1 if right[0] else NAN

    if not len(before):
        return None
    before.change_to(after)  # refuses other questions
    both = Effects(torch.stack([before.correct, after.correct]).float(), ("run",), "correct")
    number = resampled_number(change, both, unit=unit)
    return None if number is None else replace(number, spread=QUESTIONS)


def loss_row(before: Outcomes, after: Outcomes, **keys: Key) -> Row:
    """A change of accuracy as a share of the accuracy before, which is not 0."""
    n = n_problems(before.effects())
    rows = change_rows(drop(before, after).accuracy, n, **keys)
    return next(one for one in rows if one.measure == RELATIVE_CHANGE)


def control_rows(
    before: Outcomes, draws: Mapping[str, Sequence[Outcomes]], **keys: Key
) -> Iterator[Row]:
    """The mean change over the draws of each kind of control heads.

    The intervals are over draws and problems.
    """
    for kind, after in draws.items():
        number = change_number(change_over_draws(before, after), sampled="draws", units="problems")
        yield row(CHANGE, number, **keys, knocked_out=CONTROLS[kind], draws=len(after))


def gain(
    before: Answers | Sequence[Answers],
    after: Sequence[Answers],
    chosen: Callable[[Answers], list[bool]],
) -> OverSeeds | None:
    """The change of accuracy on the chosen questions, over seeds; None with fewer than two.

    Args:
        before: one model that all are compared with, or one model per seed; then only the seeds
            that both sides have are used
        after: one model per seed
        chosen: which questions count
    """
    first = before if isinstance(before, Answers) else before[0]
    inside = chosen(first)
    if sum(inside) < 2:
        return None
    if not isinstance(before, Answers):
        n = min(len(before), len(after))
        before, after = before[:n], after[:n]
    return change_over_seeds(before, after, inside)


def place_rows(names: Sequence[str], **keys: Key) -> list[Row]:
    """How many heads a set has, and the place of each."""
    rows = [row(HEADS, Number(len(names), unit="count"), **keys)]
    for place, name in enumerate(names, 1):
        rows.append(row(PLACE, Number(place, unit="count"), **keys, component=name))
    return rows
