"""The predictions for a pretrained model, each with its measured outcome.

Reads runs of several experiments of one model (`REQUIRED`, `OPTIONAL`), and prints a table. Each
prediction has a condition on a number (docs/gemma.md). It holds if the number's whole 95% interval
over problems meets the condition, and does not hold if none of it does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from pandas import DataFrame

from arith_lens.operations import OPERATIONS
from arith_lens.runs import Run, RunError, load_run
from experiments import results
from experiments.finding import RESULTS, NotComputed, RunSettings
from experiments.other_prompts import MIN_PAIRS, counts
from figures.common import FREE, command_for_run, has_tables_alone, run_with
from figures.exhibit import Settings, Table, text_table_of
from figures.tables import predictions as numbers
from figures.tables.agreement import COUNTERFACTUALS, loaded
from figures.tables.table import QuestionTable, Row, records, select

REQUIRED = ("which_counterfactual", "do_they_suffice", "where_do_they_look")
OPTIONAL = ("are_they_specific", "what_do_mlps_add", "does_tuning_help")
"""Without a run of these, the outcomes that need it are left out, and the table says so."""
WORD_PROBLEMS = ("do_word_problems_use_them", "which_word_problems")
"""Experiments with word problems: the closed world's, and published ones. The first is used that
has a run."""


@dataclass(frozen=True)
class PredictionOptions:
    """Which runs to show, and where the files go."""

    model: str = "reference"
    """Show the runs of this model."""
    run: tuple[Path, ...] = ()
    """Show these run folders, each for its experiment; the others are looked for beside them."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = RESULTS
    """The folder of all runs."""
    settings: tyro.conf.Suppress[RunSettings] = FREE
    """The settings of the runs that are not named."""

    def chosen(self, experiment: str) -> Run:
        """The run of an experiment. Raises RunError as `chosen_run`."""
        named = [load_run(path) for path in self.run]
        for run in named:
            if run.experiment == experiment:
                return run
        model = str(named[0].config["model"]) if named else self.model
        root = named[0].path.parents[1] if named else self.root
        return run_with(self.settings, experiment, model, root)


def exhibits(options: PredictionOptions) -> list[Table]:
    """The outcomes of a model's runs. Raises RunError if a run of `REQUIRED` is missing."""
    required = [*map(options.chosen, REQUIRED)]
    if any(map(has_tables_alone, required)):
        raise NotComputed(
            "expected runs, whose settings decide these outcomes, found their tables alone",
            command_for_run(required[0]),
        )
    others = {name: _run_or_reason(options, name) for name in OPTIONAL}
    stories = [_run_or_reason(options, name) for name in WORD_PROBLEMS]
    with_stories = next((run for run in stories if isinstance(run, Run)), None)
    missing = [f"Not measured: {run}" for run in others.values() if not isinstance(run, Run)]
    missing += [skipped(with_stories)] if with_stories else [f"Not measured: {stories[-1]}"]
    available = {name: run for name, run in others.items() if isinstance(run, Run)}
    model = str(required[0].config["model"])
    return [
        text_table_of(
            lambda: QuestionTable.of(
                "predictions", model, _outcomes(required, available, with_stories)
            ),
            [*required, *available.values(), *([with_stories] if with_stories else [])],
            name="predictions",
            title=f"Predictions and outcomes, {model}",
            caption=lambda _: (
                "The predictions of the study of Gemma 3 270M, with its thresholds, on this model. "
                "They were written for that study; much was already known of the shipped models."
            ),
            notes=lambda rows, config: [*notes(rows, config), *filter(None, missing)],
            cells=cells,
        )
    ]


def _outcomes(
    required: Sequence[Run], optional: Mapping[str, Run], with_stories: Run | None
) -> Iterator[Row]:
    """The rows of all predictions, as far as there are runs."""
    maps_run, sufficiency_run, looks = required
    yield from numbers.right_rows(maps_run)
    passing = [name for name in maps_run.config["operations"] if numbers.passes(maps_run, name)]
    maps = loaded(maps_run, COUNTERFACTUALS, passing)

    def of(run: Run) -> list[str]:
        return [name for name in passing if name in run.config["operations"]]

    knockouts, probes, trainings = map(optional.get, OPTIONAL)
    yield from numbers.few_heads(sufficiency_run, of(sufficiency_run))
    yield from numbers.shared(maps)
    yield from numbers.middle_layers(maps)
    yield from numbers.readers(looks, of(looks))
    if knockouts:
        yield from numbers.late_mlps(knockouts, of(knockouts))
    yield from numbers.norm_parts(maps)
    if knockouts:
        yield from numbers.specific(knockouts, of(knockouts))
    if probes:
        yield from numbers.written_outcomes(probes, of(probes))
    if with_stories:
        yield from numbers.word_problem_outcomes(with_stories, looks, passing)
    if trainings:
        yield from numbers.tuning_outcomes(trainings)


def _run_or_reason(options: PredictionOptions, experiment: str) -> Run | str:
    """The run of an experiment; without one, the reason and the command that makes it."""
    try:
        return options.chosen(experiment)
    except RunError as error:
        return str(error)


def skipped(run: Run) -> str:
    """Why there is no outcome for word problems; "" if there is one."""
    if results.MAP.is_in(run, "word_problems"):
        return ""
    numbers = {name: counts(run, name) for name in run.config["datasets"]}
    parts = [
        f"{name} {n} pairs, {right} right, {usable} of these not after the counterfactual"
        for name, (n, right, usable) in numbers.items()
    ]
    return f"P8 is skipped, since it needs {MIN_PAIRS} pairs: {'; '.join(parts)}."


def cells(rows: DataFrame) -> DataFrame:
    """The rows for a reader."""
    return DataFrame(_cells(one) for one in records(rows) if one.prediction)


def _cells(one: Any) -> dict[str, str]:
    of = [OPERATIONS[name].sign if name in OPERATIONS else name for name in one.of.split(", ")]
    estimate, low, high = map(_value_text, (one.value, one.low, one.high))
    return {
        "prediction": one.prediction,
        "of": " ".join(of),
        "quantity": one.measure,
        "measured": f"{estimate} [{low}, {high}]" if one.spread else estimate,
        "holds if": one.condition,
        "verdict": one.verdict,
    }


def _value_text(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def notes(rows: DataFrame, config: Settings) -> list[str]:
    """How the numbers were made, and which operations take part."""
    examples = f"{config.get('shots', 0)} examples, {config.get('exemplar_sets', 1)} sets"
    right = ", ".join(
        f"{one.of} {one.value:.0%}" + " (does not take part)" * (one.verdict == numbers.LEFT_OUT)
        for one in records(select(rows, measure=numbers.RIGHT))
    )
    return [
        f"Model: {config['model']}; {examples}; {config['metric']}. P2, P3 and P5 rest on the "
        "counterfactual with other operands (P2 also on another operator), P1 and P4 on the "
        "paper's, with a symbol without meaning.",
        f"Answered right: {right}. An operation takes part with {numbers.LEAST_RIGHT:.0%} and "
        f"{numbers.LEAST_PROBLEMS} problems.",
        "Brackets: 95% intervals over problems and sets of examples.",
    ]
