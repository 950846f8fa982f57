"""Negative transfer: what a knockout of the tuned heads costs, before and after tuning.

Reads a run of `experiments do_tuned_heads_carry_more`, without loading a model; prints the table
and writes it as HTML and its numbers as CSV.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from arith_lens.answers import Answers, OverSeeds, over_seeds
from arith_lens.runs import Run
from experiments import results
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table, command_for
from figures.transfer import CONTROL_NAMES
from figures.tuning import groups, tasks

UNTUNED, CONTROL_BASE = "before", "whole-for-controls"


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "do_tuned_heads_carry_more")
    answers = {
        model: {heads: by_part(of_heads) for heads, of_heads in sets.items()}
        for model, sets in answers_of(run).items()
    }
    rows = [row(answers, part) for part in answers[UNTUNED]["whole"]]
    cells, numbers = (DataFrame([line[i] for line in rows]) for i in (0, 1))
    return [
        Table(
            name="carrying",
            title=f"Do other abilities hang on the tuned heads? {run.config['model']}",
            look="Whether generic tasks lose more by the knockout after tuning than before: then "
            "tuning has put more than mathematics into these heads.",
            notes=notes(run),
            runs=(run,),
            numbers=numbers,
            cells=cells,
        )
    ]


def answers_of(run: Run) -> dict[str, dict[str, Answers]]:
    """All answers, by model ("before" or a tuned one) and by knocked-out set of heads.

    Beside them, the answers without a knockout to the questions that controls answer.
    """
    stored, answers = results.KNOCKOUT_ANSWERS, {}
    for model in stored.labels(run, None, "whole"):
        names = stored.labels(run, model, None)
        answers[model] = {heads: stored.load(run, model, heads) for heads in names}
        if any(name.startswith(tuple(CONTROL_NAMES)) for name in names):
            answers[model][CONTROL_BASE] = results.control_questions(run, answers[model]["whole"])
    return answers


def by_part(answers: Answers) -> dict[str, Answers]:
    """The answers of the two groups and of each task."""
    all_of = {f"all {name}": inside for name, inside in groups(answers).items()}
    return {name: answers.select(inside) for name, inside in (all_of | tasks(answers)).items()}


def row(
    all_answers: Mapping[str, Mapping[str, Mapping[str, Answers]]], part: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """One group or task: as text and as numbers."""
    answers = {
        model: {heads: of_heads[part] for heads, of_heads in sets.items()}
        for model, sets in all_answers.items()
    }
    n_questions = len(answers[UNTUNED]["whole"])
    before = {model: sets for model, sets in answers.items() if model == UNTUNED}
    tuned = {model: sets for model, sets in answers.items() if model != UNTUNED}
    lost_before, lost_after = (lost(models, "without") for models in (before, tuned))
    changes = {
        "before: without": over_seeds(lost_before),
        "tuned: without": over_seeds(lost_after),
        "more after tuning": over_seeds(lost_after - lost_before),
    }
    shares = {
        "before": answers[UNTUNED]["whole"].accuracy,
        "tuned": sum(sets["whole"].accuracy for sets in tuned.values()) / len(tuned),
    }
    controls = {
        f"{when}: {CONTROL_NAMES[kind]}": control_changes(models, kind)
        for kind in CONTROL_NAMES
        for when, models in (("before", before), ("tuned", tuned))
    }
    text = {"task": part, "questions": str(n_questions)}
    text |= {name: f"{share:.1%}" for name, share in shares.items()}
    text |= {name: _change_text(change) for name, change in changes.items()}
    for name, draws in controls.items():
        if draws:
            mean, low, high = (100 * of(draws) for of in (fmean, min, max))
            text[name] = f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
    numbers: dict[str, Any] = {"task": part, "questions": n_questions, **shares}
    for name, change in changes.items():
        low, high = change.ci()
        numbers |= {name: change.mean, f"{name}, low": low, f"{name}, high": high}
    for name, draws in controls.items():
        if draws:
            numbers |= {name: fmean(draws), f"{name}, low": min(draws), f"{name}, high": max(draws)}
    return text, numbers


def lost(
    models: Mapping[str, Mapping[str, Answers]], heads: str
) -> Float[Tensor, "model question"]:
    """1 if a question is right only with the knockout, -1 if it is right only without it."""
    return torch.stack(
        [sets[heads].correct.double() - sets["whole"].correct.double() for sets in models.values()]
    )


def control_changes(models: Mapping[str, Mapping[str, Answers]], kind: str) -> list[float]:
    """The change without each draw of control heads, a mean over the models.

    Of the answers before the knockout, those to the same questions count.
    """
    names = [name for name in next(iter(models.values())) if name.startswith(f"{kind}-")]
    return [
        fmean(sets[CONTROL_BASE].change_to(sets[name]).difference for sets in models.values())
        for name in names
    ]


def _change_text(change: OverSeeds) -> str:
    low, high = change.ci()
    return f"{100 * change.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def notes(run: Run) -> list[str]:
    """How to read the table."""
    stored, controls = results.KNOCKOUT_ANSWERS, run.config["controls"]
    heads = ", ".join(stored.facts(run, UNTUNED, "without")["heads"])
    n_seeds = len(stored.labels(run, None, "whole")) - 1
    return [
        f"Heads {heads}, those that precise tuning trained. Without: each replaced by one vector, "
        "its mean over the counterfactuals of the four operations in the model at hand, at every "
        "token but BOS. Changes in points of accuracy [95% interval, over questions and "
        f"{n_seeds} seeds of tuning].",
        "More after tuning: the change in the tuned models less that before."
        + f" Random heads: {controls} draws of as many from all heads; same layers: as many draws, "
        "each with the layers of the tuned heads, from all heads but these. Change in points, mean "
        f"(range), on {run.config.get('control_limit') or 'all'} questions of each task."
        * bool(controls),
    ]


main = command_for(exhibits)
