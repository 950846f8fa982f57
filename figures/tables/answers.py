"""What the tables of answered questions share: accuracies, and changes of accuracy.

Their keys `group` and `task` say which questions: the whole of a group has the task "all".
"""

from collections.abc import Sequence

from arith_lens.answers import AccuracyChange, Answers, OverSeeds
from figures.tables.knockout import CHANGE as CHANGE
from figures.tables.knockout import CONTROLS as CONTROLS
from figures.tables.knockout import RELATIVE_CHANGE as RELATIVE_CHANGE
from figures.tables.number import QUESTIONS, SEEDS_AND_QUESTIONS, Number
from figures.tables.table import Key, Row, row

BEFORE, AFTER = "accuracy before", "accuracy after"
CHANGE_BY_SEED, P_VALUE = "change of accuracy by seed", "p"
HEADS, PLACE = "heads", "place"
"""How many heads are knocked out, and the place of each in their list, from 1."""
ALL = "all"


def accuracy_number(answers: Answers) -> Number:
    """The share of right answers, with Wilson's interval."""
    return Number(answers.accuracy, *answers.ci(), QUESTIONS, len(answers))


def change_number(change: OverSeeds, before: float) -> Number:
    """A change of accuracy, whose ends are cut where no answer or every answer is right.

    Args:
        change: the change; its interval is over questions alone if there is one seed.
        before: the accuracy before.
    """
    return Number(
        change.mean,
        *change.ci(),
        SEEDS_AND_QUESTIONS if len(change.per_seed) > 1 else QUESTIONS,
        change.n_questions,
        "points",
        freedom=change.freedom,
        possible=(-before, 1 - before),
    )


def paired_number(change: AccuracyChange) -> Number:
    """A change of accuracy between two answers to each question; ends as in `change_number`."""
    possible = (-change.before, 1 - change.before)
    spread, n = QUESTIONS, change.n_questions
    return Number(change.difference, *change.ci(), spread, n, "points", possible=possible)


def place_rows(names: Sequence[str], **keys: Key) -> list[Row]:
    """How many heads a set has, and the place of each."""
    rows = [row(HEADS, Number(len(names), unit="count"), **keys)]
    for place, name in enumerate(names, 1):
        rows.append(row(PLACE, Number(place, unit="count"), **keys, component=name))
    return rows
