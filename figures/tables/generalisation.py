"""The table `generalisation`: does the gain of tuning hold on questions that were not tuned on?

Keys: group, a set of questions; task ("all" for the whole set); method, chosen_for and rate, as in
the table `tuning`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from arith_lens.answers import Answers, change_over_seeds
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import Criterion, TuningMethod
from figures.tables.answers import ALL, BEFORE, CHANGE, change_number
from figures.tables.number import Number
from figures.tables.table import QuestionTable, Row, row
from figures.tables.tuning import MIN_QUESTIONS, TRAININGS


@dataclass(frozen=True)
class _Tuning:
    """The trainings of one method at one chosen rate."""

    keys: Mapping[str, str | float]
    answers: tuple[Answers, ...]
    """One result per seed."""


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `does_the_gain_hold`. Raises RunError if it is damaged."""
    before = results.GENERALISATION_ANSWERS.load(run, results.UNTUNED_ANSWERS.name())
    tunings, rows = _tunings(run), []
    for tuning in tunings:
        rows.append(row(TRAININGS, Number(len(tuning.answers), unit="count"), **tuning.keys))
    for (group, task), mask in _parts(before).items():
        rows += _change_rows(before, tunings, mask, group=group, task=task)
    return QuestionTable.of("generalisation", str(run.config["model"]), rows)


def _tunings(run: Run) -> list[_Tuning]:
    """The trainings of a run by purpose and method, in the order of the tables."""
    stored = results.GENERALISATION_ANSWERS
    labels = [name for name in stored.labels(run) if name != results.UNTUNED_ANSWERS.name()]
    facts = {name: stored.facts(run, name) for name in labels}
    tunings = []
    for criterion in get_args(Criterion):
        for method in get_args(TuningMethod):
            names = [
                name
                for name, of_one in facts.items()
                if of_one["method"] == method and criterion in of_one["chosen_for"]
            ]
            if names:
                rate = facts[names[0]]["rate"]
                keys = {"method": method, "chosen_for": criterion, "rate": rate}
                answers = tuple(stored.load(run, name) for name in names)
                tunings.append(_Tuning(keys, answers))
    return tunings


def _parts(answers: Answers) -> dict[tuple[str, str], list[bool]]:
    """The questions of each set and of each of its tasks, if there are enough."""
    sets = [task.split("/")[0] for task in answers.task]
    parts = {(name, ALL): [other == name for other in sets] for name in dict.fromkeys(sets)}
    for task in dict.fromkeys(answers.task):
        group, _, name = task.partition("/")
        if name:
            parts[group, name] = [other == task for other in answers.task]
    return {names: mask for names, mask in parts.items() if sum(mask) >= MIN_QUESTIONS}


def _change_rows(
    before: Answers, tunings: Sequence[_Tuning], mask: list[bool], **keys: str
) -> Iterator[Row]:
    share = before.select(mask).accuracy
    yield row(BEFORE, Number(share, n=sum(mask)), **keys)
    for tuning in tunings:
        change = change_over_seeds(before, tuning.answers, mask)
        yield row(CHANGE, change_number(change, share), **tuning.keys, **keys)
