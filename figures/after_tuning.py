"""After tuning: does the gain hold on other questions, and which effects of heads have changed?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.components import Head
from arith_lens.effects import BeforeAfter, Effects
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import Criterion, TuningMethod
from experiments.finding import NotComputed
from figures.common import Options, chosen_run, command_for_run
from figures.exhibit import Chart, chart_of
from figures.tables import generalisation as generalisation_numbers
from figures.tables.answers import ALL, BEFORE, CHANGE
from figures.tables.effects import MapStatistics, Statistics, map_rows
from figures.tables.table import QuestionTable, read_back, records, select
from figures.tables.tuning import TRAININGS
from figures.tuning import (
    METHOD_COLOURS,
    METHOD_NAMES,
    MOST_LOST_TEXT,
)
from figures.views import maps

CRITERION_NAMES: dict[Criterion, str] = {"mathematics": "best rate", "little_loss": "small loss"}
ACROSS = 4
STEP = 25.0
"""The y axis ends at multiples of so many points."""
FLOOR, CEILING = 0.05, 0.95
"""Below and above these accuracies before tuning, little can be lost or gained."""


def generalisation(options: Options) -> list[Chart]:
    """Does the gain of tuning hold on questions that were not tuned on?

    Reads a run of `experiments does_the_gain_hold` and draws it without loading a model: HTML
    that opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "does_the_gain_hold")
    return [
        chart_of(
            generalisation_numbers.table(run),
            [run],
            name="generalisation",
            title="Does the gain of tuning hold on questions that were not tuned on?",
            look=lambda _: (
                "The first panel has the families that were tuned on. A gain that holds is as "
                "high in the other panels. A bar below zero is an ability that tuning damages."
            ),
            notes=_generalisation_notes,
            draw=_draw_generalisation,
        )
    ]


def _draw_generalisation(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One panel per set; in each the two rates of every method."""
    changes = select(rows, measure=CHANGE, task=ALL)
    panels = [
        plotting.BarPanel(
            f"{plotting.plain(before.group)} ({before.value:.0%})",
            tuple(CRITERION_NAMES.values()),
            tuple(_bars(select(changes, group=before.group), method) for method in METHOD_NAMES),
            y_title="Change in points" * (index % ACROSS == 0),
        )
        for index, before in enumerate(records(select(rows, measure=BEFORE, task=ALL)))
    ]
    low, high = (100 * end / STEP for end in (changes.low.min(), changes.high.max()))
    return plotting.bar_panels(
        panels,
        y_range=(STEP * min(np.floor(low), -1.0), STEP * max(np.ceil(high), 1.0)),
        notes=notes,
        across=ACROSS,
        panel=(158, 190),
    )


def _bars(changes: DataFrame, method: TuningMethod) -> plotting.Bars:
    """A method's changes in points, one bar per purpose; NaN where it has no rate."""
    of_method = select(changes, method=method).set_index("chosen_for")
    numbers = 100 * of_method[["value", "low", "high"]].reindex([*CRITERION_NAMES])
    values, low, high = numbers.to_numpy().T
    return plotting.Bars(values, low, high, METHOD_NAMES[method], METHOD_COLOURS[method])


def _generalisation_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the figure, and where little can change."""
    sets = records(select(rows, measure=BEFORE, task=ALL))
    extremes = {
        "at the floor": [one.group for one in sets if one.value < FLOOR],
        "at the ceiling": [one.group for one in sets if one.value > CEILING],
    }
    sizes = ", ".join(f"{one.group} {one.n:.0f}" for one in sets)
    rates = {
        criterion: ", ".join(
            f"{METHOD_NAMES[one.method]} {one.rate:g} ({one.value:.0f} seeds)"
            for one in records(select(rows, measure=TRAININGS, chosen_for=criterion))
        )
        for criterion in CRITERION_NAMES
    }
    return [
        f"Model: {config['model']}. Change of accuracy after tuning, against the same problems "
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


N_LABELS = 6
CLEAR = 0.01
"""Only larger changes of relative effects are outlined: many smaller ones are certain too."""


@dataclass(frozen=True)
class TunedComparison:
    """One tuned model against the model as it was."""

    name: str
    both: BeforeAfter
    facts: results.TunedFacts
    computed: Bool[torch.Tensor, " pair"] | None

    @property
    def heads(self) -> list[Head]:
        """The tuned heads, as far as they are known."""
        return [Head.parse(name) for name in self.facts["components"] if "." in name]


def before_after(options: Options) -> list[Chart]:
    """What tuning changed: every head's and MLP's effect before it, after it, and the difference.

    Reads a run of `experiments what_tuning_changes` (by its settings, or `--run PATH`)
    and draws it without loading a model: one row of three maps per tuned model, on one scale.

    Raises:
        RunError: there is no run, or it has no tuned model.
    """
    run, stored = chosen_run(options, "what_tuning_changes"), results.TUNED_MAP
    models = [
        TunedComparison(
            name, stored.load(run, name), stored.facts(run, name), stored.computed(run, name)
        )
        for name in stored.labels(run)
    ]
    if not models:
        raise NotComputed(
            f"expected effects after tuning, found that {run.path} holds no tuned model",
            command_for_run(run),
        )
    reading = maps.Reading.of(run.config)
    notes = _comparison_notes(run, models, reading)
    headings = [
        f"{model.name}: {', '.join(model.facts['components'])} tuned"
        if model.facts["components"]
        else model.name
        for model in models
    ]
    tables = {model.name: model.both.to_dataframe() for model in models}
    return [
        Chart(
            name="before_after",
            title=f"What tuning changed: effects before and after, {run.config['model']}",
            look="Whether the clear changes stand at the tuned heads, which have dots, or "
            "elsewhere: then parts that were not touched do other work now.",
            notes=notes,
            runs=(run,),
            numbers=concat(tables, names=["tuned"]).reset_index("tuned"),
            figure=maps.draw(
                [panel for model in models for panel in _three_maps(model, reading)],
                reading,
                notes,
                headings=headings,
                across=3,
                span=232,
            ),
        )
    ]


def _three_maps(model: TunedComparison, reading: maps.Reading) -> list[plotting.Panel]:
    """Before, after, difference. Dots mark the tuned heads, outlines the clear changes."""
    both, panels = model.both, []
    for title, side in (("before", both.before), ("after", both.after), ("after − before", both)):
        heads, mlps = (Statistics.of(part, model.computed) for part in (side.heads, side.mlps))
        rows = map_rows(MapStatistics(heads, mlps), side.heads.metric)
        table = read_back(QuestionTable.of("before_after", model.name, rows))
        panel = maps.panel(table, reading, maps.title(title, ""), dots=model.heads)
        panels.append(panel)
    outlined = changes(both.heads, CLEAR if reading.relative else 0.0)
    return [*panels[:2], replace(panels[2], marks=tuple(outlined))]


def changes(difference: Effects, least: float) -> list[plotting.Mark]:
    """Heads with a mean change beyond `least` and an interval without zero, the largest first.

    An outline is dark where the effect fell, so that the head supports the answer more.
    """
    means, certain = difference.mean().numpy(), is_certain(difference)
    return maps.outlines(means, certain & (np.abs(means) > least), N_LABELS)


def is_certain(difference: Effects) -> Bool[np.ndarray, "layer head"]:
    """Where the 95% bootstrap interval of the mean change does not contain zero."""
    low, high = difference.ci().numpy()
    return (low > 0) | (high < 0)


def _comparison_notes(run: Run, models: list[TunedComparison], reading: maps.Reading) -> list[str]:
    """The small print: how to read the figure, and the data of each row."""
    clear = f", beyond {CLEAR:.0%} of the logit" if reading.relative else ""
    return [
        maps.map_note(reading),
        "Third column: the change within each pair; outlined where the 95% bootstrap interval of "
        f"its mean leaves out zero{clear}: dark where the component's effect fell (it supports "
        "the answer more), light where it rose. Dots: tuned heads.",
        *(f"{model.name}: {_summary(model)}." for model in models),
        f"{maps.data_note(run.config)[:-1]}; the four operations together. Right: before tuning.",
    ]


def _summary(model: TunedComparison) -> str:
    """One tuned model in words: its right answers, its logits, how much changed and where."""
    both = model.both
    before, after = (float(side.logit.mean()) for side in (both.before, both.after))
    means, certain = both.heads.mean().abs(), torch.as_tensor(is_certain(both.heads))
    total = f"{int(certain.sum())} of {certain.numel()} heads changed"
    if model.heads:
        tuned_share = sum(means[head.layer, head.index] for head in model.heads) / means.sum()
        total += f", the tuned ones by {float(tuned_share):.0%} of all change"
    return (
        f"{model.facts['still_right']:.1%} of prompts still answered right, mean logit of the "
        f"answer {before:.1f} before and {after:.1f} after; {total}"
    )
