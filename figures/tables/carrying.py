"""The table `carrying`: what a knockout of the tuned heads costs, before and after tuning.

Keys: group and task, as in the table `tuning`; tuned_model ("before tuning" or "tuned"; both for
their difference); knocked_out ("tuned heads", and the controls "random" and "same layers").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from arith_lens.answers import Answers, changes_by_question, over_seeds
from arith_lens.runs import Run
from experiments import results
from figures.tables.answers import CHANGE, CONTROLS, change_number, place_rows
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, Row, row
from figures.tables.tuning import TRAININGS, parts_of

ACCURACY, MORE = "accuracy", "change after tuning less change before"
BEFORE_TUNING, TUNED, TUNED_HEADS = "before tuning", "tuned", "tuned heads"
_UNTUNED, _CONTROL_BASE = "before", "whole-for-controls"
_AnswersByHeads = Mapping[str, Answers]
"""The answers of a model without each set of heads."""


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `do_tuned_heads_carry_more`. Raises RunError if it is damaged."""
    stored, answers = results.KNOCKOUT_ANSWERS, _answers_by_model(run)
    rows = place_rows(stored.facts(run, _UNTUNED, "without")["heads"], knocked_out=TUNED_HEADS)
    rows.append(row(TRAININGS, Number(len(answers) - 1, unit="count")))
    parts = {
        model: {heads: parts_of(of_heads) for heads, of_heads in sets.items()}
        for model, sets in answers.items()
    }
    for group, task in parts[_UNTUNED]["whole"]:
        of_part = {
            model: {
                heads: of_heads.select(parts[model][heads][group, task])
                for heads, of_heads in sets.items()
            }
            for model, sets in answers.items()
        }
        rows += _part_rows(of_part, group=group, task=task)
    return QuestionTable.of("carrying", str(run.config["model"]), rows)


def _answers_by_model(run: Run) -> dict[str, dict[str, Answers]]:
    """All answers, by model ("before" or a tuned one) and by knocked-out set of heads.

    Beside them, the answers without a knockout to the questions that controls answer.
    """
    stored, answers = results.KNOCKOUT_ANSWERS, {}
    for model in stored.labels(run, None, "whole"):
        names = stored.labels(run, model, None)
        answers[model] = {heads: stored.load(run, model, heads) for heads in names}
        if any(name.startswith(tuple(CONTROLS)) for name in names):
            answers[model][_CONTROL_BASE] = results.control_questions(run, answers[model]["whole"])
    return answers


def _part_rows(answers: Mapping[str, _AnswersByHeads], **keys: str) -> Iterator[Row]:
    """One group or task: accuracies, and their changes by each knockout."""
    before = [answers[_UNTUNED]]
    tuned = [sets for model, sets in answers.items() if model != _UNTUNED]
    whole = before[0]["whole"]
    accuracies = {
        BEFORE_TUNING: Number(whole.accuracy, n=len(whole)),
        TUNED: over_draws([sets["whole"].accuracy for sets in tuned], unit="share", what="seeds"),
    }
    lost = {}
    for name, models in ((BEFORE_TUNING, before), (TUNED, tuned)):
        of_model = {**keys, "tuned_model": name}
        yield row(ACCURACY, accuracies[name], **of_model)
        wholes, without = ([sets[heads] for sets in models] for heads in ("whole", "without"))
        lost[name] = changes_by_question(wholes, without)
        change = change_number(over_seeds(lost[name]), accuracies[name].value)
        yield row(CHANGE, change, **of_model, knocked_out=TUNED_HEADS)
        for kind, title in CONTROLS.items():
            if changes := _changes_without_controls(models, kind):
                number = over_draws(changes, unit="points")
                yield row(CHANGE, number, **of_model, knocked_out=title)
    more = over_seeds(lost[TUNED] - lost[BEFORE_TUNING])
    was, now = (accuracies[name].value for name in (BEFORE_TUNING, TUNED))
    possible = (-now - (1 - was), 1 - now + was)
    number = replace(change_number(more), possible=possible)
    yield row(MORE, number, **keys, knocked_out=TUNED_HEADS)


def _changes_without_controls(models: Sequence[_AnswersByHeads], kind: str) -> list[float]:
    """The change without each draw of control heads, a mean over the models.

    Of the answers before the knockout, those to the same questions count.
    """
    return [
        fmean(sets[_CONTROL_BASE].change_to(sets[name]).difference for sets in models)
        for name in models[0]
        if name.startswith(f"{kind}-")
    ]
