"""What the tables of answered questions share: accuracies, and changes of accuracy.

Their keys `group` and `task` say which questions: the whole of a group has the task "all".
"""

from arith_lens.answers import AccuracyChange, Answers, OverSeeds
from figures.tables.number import QUESTIONS, SEEDS_AND_QUESTIONS, Number

BEFORE, AFTER = "accuracy before", "accuracy after"
CHANGE, CHANGE_BY_SEED = "change of accuracy", "change of accuracy by seed"
RELATIVE_CHANGE, P_VALUE = "relative change of accuracy", "p"
PLACE = "place"
"""The place of a named component, from 1, in the order in which it is listed."""
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
