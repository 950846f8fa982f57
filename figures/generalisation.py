"""Does the gain of tuning hold on questions that were not tuned on?

Reads a run of `experiments does_the_gain_hold` and draws it without loading a model: HTML that
opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as CSV.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.answers import Answers, change_over_seeds
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import Criterion, TuningMethod
from figures.common import Options, chosen_run
from figures.exhibit import Chart
from figures.tuning import METHOD_COLOURS, METHOD_NAMES, MIN_QUESTIONS, possible_ends
from figures.tuning_words import MOST_LOST_TEXT

CRITERION_NAMES: dict[Criterion, str] = {"mathematics": "best rate", "little_loss": "small loss"}
ACROSS = 4
STEP = 25.0
"""The y axis ends at multiples of so many points."""
FLOOR, CEILING = 0.05, 0.95
"""Below and above these accuracies before tuning, little can be lost or gained."""


@dataclass(frozen=True)
class Tuning:
    """The trainings of one method at one chosen rate."""

    criterion: Criterion
    """What the rate was chosen for."""
    method: TuningMethod
    rate: float
    answers: tuple[Answers, ...]
    """One result per seed."""


def exhibits(options: Options) -> list[Chart]:
    """The gains by set of questions. Raises RunError if there is no run."""
    run = chosen_run(options, "does_the_gain_hold")
    before = results.GENERALISATION_ANSWERS.load(run, results.UNTUNED_ANSWERS.name())
    tunings = tunings_of(run)
    return [
        Chart(
            name="generalisation",
            title="Does the gain of tuning hold on questions that were not tuned on?",
            look="The first panel has the families that were tuned on. A gain that holds is as "
            "high in the other panels. A bar below zero is an ability that tuning damages.",
            notes=notes(run, before, tunings),
            runs=(run,),
            numbers=DataFrame(records(before, tunings)),
            figure=draw(before, tunings, notes(run, before, tunings)),
        )
    ]


def tunings_of(run: Run) -> list[Tuning]:
    """The trainings of a run by purpose and method, in the order of the tables."""
    names = [
        name
        for name in results.GENERALISATION_ANSWERS.labels(run)
        if name != results.UNTUNED_ANSWERS.name()
    ]
    facts = {name: results.GENERALISATION_ANSWERS.facts(run, name) for name in names}
    return [
        Tuning(
            criterion,
            method,
            facts[chosen[0]]["rate"],
            tuple(results.GENERALISATION_ANSWERS.load(run, name) for name in chosen),
        )
        for criterion in CRITERION_NAMES
        for method in METHOD_NAMES
        if (
            chosen := [
                name
                for name in names
                if facts[name]["method"] == method and criterion in facts[name]["chosen_for"]
            ]
        )
    ]


def question_sets(answers: Answers) -> dict[str, list[bool]]:
    """The questions of each set, by name."""
    names = [task.split("/")[0] for task in answers.task]
    return {name: [name == set_name for set_name in names] for name in dict.fromkeys(names)}


def records(before: Answers, tunings: Sequence[Tuning]) -> Iterator[dict[str, Any]]:
    """One line per set or task, purpose and method; changes are shares, not points."""
    tasks = {
        task: [task == task_name for task_name in before.task]
        for task in dict.fromkeys(before.task)
    }
    for name, mask in {**question_sets(before), **tasks}.items():
        if sum(mask) < MIN_QUESTIONS:
            continue
        for tuning in tunings:
            change = change_over_seeds(before, tuning.answers, mask)
            low, high = change.ci()
            yield {
                "set": name.split("/")[0],
                "task": name.partition("/")[2] or "all",
                "problems": change.n_questions,
                "before": before.select(mask).accuracy,
                "chosen_for": tuning.criterion,
                "method": tuning.method,
                "rate": tuning.rate,
                "seeds": len(tuning.answers),
                "change": change.mean,
                "low": low,
                "high": high,
            }


def draw(before: Answers, tunings: Sequence[Tuning], small_print: Sequence[str]) -> plotting.Figure:
    """One panel per set; in each the two rates of every method."""
    panels = []
    for name, mask in question_sets(before).items():
        share = before.select(mask).accuracy
        title = f"{plotting.plain(name)} ({share:.0%})"
        series = tuple(_bars(before, tunings, method, mask) for method in METHOD_NAMES)
        y_title = "Change in points" * (len(panels) % ACROSS == 0)
        panels.append(
            plotting.BarPanel(title, tuple(CRITERION_NAMES.values()), series, y_title=y_title)
        )
    ends = [end for part in panels for bars in part.series for end in (bars.low, bars.high)]
    values = np.concatenate([end for end in ends if end is not None])
    low, high = np.floor(np.nanmin(values) / STEP), np.ceil(np.nanmax(values) / STEP)
    return plotting.bar_panels(
        panels,
        y_range=(STEP * min(float(low), -1.0), STEP * max(float(high), 1.0)),
        notes=small_print,
        across=ACROSS,
        panel=(158, 190),
    )


def _bars(
    before: Answers, tunings: Sequence[Tuning], method: TuningMethod, mask: list[bool]
) -> plotting.Bars:
    """A method's changes in points, one bar per purpose; NaN where it has no rate."""
    share, numbers = before.select(mask).accuracy, []
    for criterion in CRITERION_NAMES:
        of_method = [t for t in tunings if (t.criterion, t.method) == (criterion, method)]
        changes = [change_over_seeds(before, tuning.answers, mask) for tuning in of_method]
        numbers += [(c.mean, *possible_ends(c, share)) for c in changes] or [(np.nan,) * 3]
    values, low, high = 100 * np.array(numbers).T
    return plotting.Bars(values, low, high, METHOD_NAMES[method], METHOD_COLOURS[method])


def notes(run: Run, before: Answers, tunings: Sequence[Tuning]) -> list[str]:
    """How to read the figure, and where little can change."""
    shares = {name: before.select(mask).accuracy for name, mask in question_sets(before).items()}
    extremes = {
        "at the floor": [name for name, share in shares.items() if share < FLOOR],
        "at the ceiling": [name for name, share in shares.items() if share > CEILING],
    }
    sizes = ", ".join(f"{name} {sum(mask)}" for name, mask in question_sets(before).items())
    rates = {
        criterion: ", ".join(
            f"{METHOD_NAMES[t.method]} {t.rate:g} ({len(t.answers)} seeds)"
            for t in tunings
            if t.criterion == criterion
        )
        for criterion in CRITERION_NAMES
    }
    return [
        f"Model: {run.config['model']}. Change of accuracy after tuning, against the same problems "
        "before it; 95% intervals over problems and seeds. In brackets: accuracy before. Problems: "
        f"{sizes}, each once. Intervals are cut where none or all answers would be right.",
        *(
            f"Little can change where the model is {where}: {', '.join(names)}."
            for where, names in extremes.items()
            if names
        ),
        f"Best rate, the best for mathematics: {rates['mathematics']}.",
        f"Small loss, the best that loses {MOST_LOST_TEXT} on generic questions: "
        f"{rates['little_loss'] or 'none'}.",
    ]
