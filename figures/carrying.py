"""Negative transfer: what a knockout of the tuned heads costs, before and after tuning.

Reads a run of `experiments/do_tuned_heads_carry_more.py`, without loading a model; prints the table
and writes it as HTML and its numbers as CSV.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pandas import DataFrame
from torch import Tensor

from arith_lens.answers import Answers, OverSeeds, over_seeds
from arith_lens.runs import Run
from experiments import results
from figures.command import command
from figures.common import TableOptions, chosen_run
from figures.exhibit import Table, command_for
from figures.tuning import groups, tasks

BEFORE = "before"


def exhibits(options: TableOptions) -> list[Table]:
    """The table of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "do_tuned_heads_carry_more")
    answers = answers_of(run)
    tasks = parts(answers["before"]["whole"])
    rows = [row(answers, chosen, part) for part, chosen in tasks.items()]
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
    """All answers, by model ("before" or a tuned one) and by knocked-out set of heads."""
    stored = results.CARRYING
    return {
        model: {heads: stored.load(run, model, heads) for heads in stored.labels(run, model, None)}
        for model in stored.labels(run, None, "whole")
    }


def parts(answers: Answers) -> dict[str, list[bool]]:
    """The questions of the two groups and of each task."""
    return {f"all {name}": inside for name, inside in groups(answers).items()} | tasks(answers)


def row(
    all_answers: Mapping[str, Mapping[str, Answers]], chosen: list[bool], part: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """One group or task: as text and as numbers."""
    answers = {
        model: {heads: model_answers.select(chosen) for heads, model_answers in sets.items()}
        for model, sets in all_answers.items()
    }
    before = {model: sets for model, sets in answers.items() if model == BEFORE}
    tuned = {model: sets for model, sets in answers.items() if model != BEFORE}
    lost_before, lost_after = (lost(models, "without") for models in (before, tuned))
    changes = {
        "before: without": over_seeds(lost_before),
        "tuned: without": over_seeds(lost_after),
        "more after tuning": over_seeds(lost_after - lost_before),
    }
    shares = {
        "before": answers[BEFORE]["whole"].accuracy,
        "tuned": sum(sets["whole"].accuracy for sets in tuned.values()) / len(tuned),
    }
    random_sets = [heads for heads in answers[BEFORE] if heads not in ("whole", "without")]
    randoms = {
        f"{when}: random": _mean_lost(models, random_sets)
        for when, models in (("before", before), ("tuned", tuned))
        if random_sets
    }
    text = {"task": part, "questions": str(sum(chosen))}
    text |= {name: f"{share:.1%}" for name, share in shares.items()}
    text |= {name: _change_text(change) for name, change in changes.items()}
    text |= {name: f"{100 * mean:+.1f}" for name, mean in randoms.items()}
    numbers: dict[str, Any] = {"task": part, "questions": sum(chosen), **shares}
    for name, change in changes.items():
        low, high = change.ci()
        numbers |= {name: change.mean, f"{name}, low": low, f"{name}, high": high}
    return text, numbers | randoms


def lost(
    models: Mapping[str, Mapping[str, Answers]], heads: str
) -> Float[Tensor, "model question"]:
    """1 if a question is right only with the knockout, -1 if it is right only without it."""
    return torch.stack(
        [sets[heads].correct.double() - sets["whole"].correct.double() for sets in models.values()]
    )


def _mean_lost(models: Mapping[str, Mapping[str, Answers]], random_sets: Sequence[str]) -> float:
    """The mean change over several knockouts."""
    return sum(float(lost(models, heads).mean()) for heads in random_sets) / len(random_sets)


def _change_text(change: OverSeeds) -> str:
    low, high = change.ci()
    return f"{100 * change.mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def notes(run: Run) -> list[str]:
    """How to read the table."""
    stored, controls = results.CARRYING, run.config["controls"]
    heads = ", ".join(stored.facts(run, BEFORE, "without")["heads"])
    n_seeds = len(stored.labels(run, None, "whole")) - 1
    return [
        f"Heads {heads}, those that precise tuning trained. Without: each replaced by one vector, "
        "its mean over the counterfactuals of the four operations in the model at hand, at every "
        "token but BOS. Changes in points of accuracy [95% interval, over questions and "
        f"{n_seeds} seeds of tuning].",
        "More after tuning: the change in the tuned models less that before."
        + (f" Random: mean over {controls} random sets of as many heads." if controls else ""),
    ]


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "carrying", __doc__)
