"""After tuning: does the gain hold on other questions, and which effects of heads have changed?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.components import Head
from experiments import results
from experiments.finding import NotComputed
from figures.common import chosen_run, command_for_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import before_after as comparison
from figures.tables import generalisation as generalisation_numbers
from figures.tables.answers import ALL, BEFORE, CHANGE, PLACE
from figures.tables.effects import EFFECT, HELD
from figures.tables.table import keys_of, records, select, value
from figures.tables.tuning import TRAININGS
from figures.tuning import METHOD_NAMES, RATE_MARKS, rate_dots
from figures.views import maps
from figures.views.words import components_text, span_text

STEP = 25.0
"""The x axis ends at multiples of so many points."""


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
            lambda: generalisation_numbers.table(run),
            [run],
            name="generalisation",
            title="Does the gain of tuning hold on questions that were not tuned on?",
            caption=_generalisation_caption,
            notes=_generalisation_notes,
            draw=_draw_generalisation,
        )
    ]


def _generalisation_caption(rows: DataFrame) -> str:
    """What the best rate of each method changes on the tuned families, and elsewhere."""
    texts = "; ".join(f"{gain} points, {damaged} damaged" for gain, damaged in _findings(rows))
    n_others = select(rows, measure=BEFORE, task=ALL).group.nunique() - 1
    return (
        "At its best learning rate, a method changes the questions that it was tuned on and "
        f"damages some of {n_others} other sets: {texts}. A mark is the change of accuracy on one "
        "set of questions; the set's accuracy before tuning is in brackets. Lines are 95% "
        f"intervals over problems and {_seeds(rows)} trainings; a set is damaged if its whole "
        "interval is below 0."
    )


def _seeds(rows: DataFrame) -> str:
    """How many trainings of each method there are."""
    return span_text(select(rows, measure=TRAININGS).value, ".0f")


def _findings(rows: DataFrame) -> Iterator[tuple[str, int]]:
    """Each method's gain at its best rate, and how many other sets it damages.

    A set is damaged if the whole interval of its change is below 0.
    """
    changes = select(rows, measure=CHANGE, task=ALL, chosen_for="mathematics")
    for method in keys_of(changes, "method"):
        tuned_on, *others = records(select(changes, method=method))
        damaged = sum(one.high < 0 for one in others)
        yield f"{METHOD_NAMES[method]} {100 * tuned_on.value:+.0f}", damaged


def _draw_generalisation(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A panel for each method: sets of questions, with its change at each rate."""
    changes = select(rows, measure=CHANGE, task=ALL)
    sets = records(select(rows, measure=BEFORE, task=ALL))
    names, columns = tuple(f"{one.group} ({one.value:.0%} of {one.n:.0f})" for one in sets), []
    for method in keys_of(changes, "method"):
        of_method, series = select(changes, method=method), []
        for criterion in RATE_MARKS:
            by_set = select(of_method, chosen_for=criterion).set_index("group")
            series.append(rate_dots(criterion, by_set, [one.group for one in sets]))
        columns.append(plotting.DotPanel(METHOD_NAMES[method], names, tuple(series)))
    low, high = (100 * end / STEP for end in (changes.low.min(), changes.high.max()))
    low, high = np.floor(low), max(np.ceil(high), np.floor(low) + 1)
    texts = ", ".join(f"{gain} ({damaged})" for gain, damaged in _findings(rows))
    return plotting.dot_panels(
        columns,
        plotting.DotAxis((STEP * low, STEP * high), "change in points"),
        headings=[f"Points gained (other sets damaged, of {len(sets) - 1}): {texts}"],
        row=24,
        notes=notes,
    )


def _generalisation_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the figure."""
    return [
        f"Model: {config['model']}. In brackets: accuracy before tuning, and the number of "
        f"problems. Lines: 95% intervals over problems and {_seeds(rows)} seeds, cut where none or "
        "all answers would be right.",
    ]


N_LABELS = 6
CLEAR = 0.01
"""Only larger changes of relative effects are outlined: many smaller ones are certain too."""


def before_after(options: Options) -> list[Chart]:
    """What tuning changed: every head's and MLP's effect before it, after it, and the difference.

    Reads a run of `experiments what_tuning_changes` (by its settings, or `--run PATH`)
    and draws it without loading a model: one row of three maps per tuned model, on one scale.

    Raises:
        RunError: there is no run, or it has no tuned model.
    """
    run = chosen_run(options, "what_tuning_changes")
    if not results.TUNED_MAP.labels(run):
        raise NotComputed(
            f"expected effects after tuning, found that {run.path} holds no tuned model",
            command_for_run(run),
        )
    return [
        chart_of(
            lambda: comparison.table(run),
            [run],
            name="before_after",
            title=f"What tuning changed: effects before and after, {run.config['model']}",
            caption=lambda _: (
                "Whether the clear changes stand at the tuned heads, which have dots, or "
                "elsewhere: then parts that were not touched do other work now."
            ),
            notes=_comparison_notes,
            draw=partial(_draw_comparison, reading=maps.EffectScale.of(run.config)),
        )
    ]


def _draw_comparison(
    rows: DataFrame, notes: Sequence[str], *, reading: maps.EffectScale
) -> plotting.Figure:
    """One row of three maps per tuned model."""
    models = [(name, select(rows, tuned=name)) for name in keys_of(rows, "tuned")]
    low, high = (maps.hover_number(f"customdata[{i}]", reading) for i in (1, 2))
    return maps.draw(
        [panel for _, of_model in models for panel in _three_maps(of_model, reading)],
        reading,
        notes,
        headings=[
            f"{name}: {components} tuned" if (components := components_text(of_model)) else name
            for name, of_model in models
        ],
        across=3,
        size=200,
        hover=(*maps.templates(f"<br>95%: {low} to {high}", reading), maps.hover(reading)[-1]),
    )


def _three_maps(rows: DataFrame, reading: maps.EffectScale) -> list[plotting.Panel]:
    """Before, after, difference. Dots mark the tuned heads, outlines the clear changes."""
    tuned = [Head.parse(name) for name in select(rows, measure=PLACE).component if "." in name]
    titles = {
        comparison.BEFORE: "before",
        comparison.AFTER: "after",
        comparison.CHANGE: "after − before",
    }
    panels = []
    for side, title in titles.items():
        of_side = select(rows, side=side, measure=(EFFECT, HELD))
        heading = maps.title(title, "")
        panels.append(maps.panel(of_side, reading, heading, dots=tuned, n_labels=N_LABELS))
    of_change = select(rows, side=comparison.CHANGE, measure=EFFECT)
    outlined = changes(of_change, CLEAR if reading.relative else 0.0)
    return [*panels[:2], replace(panels[2], marks=tuple(outlined))]


def changes(effects: DataFrame, least: float) -> list[plotting.Mark]:
    """Heads with a mean change beyond `least` and an interval without zero, the largest first.

    An outline is dark where the effect fell, so that the head supports the answer more.

    Args:
        effects: the rows of the changes of effects.
        least: the smallest change that is outlined.
    """
    heads = DataFrame(effects[effects["index"].notna()])
    means, low, high = (maps.cells(heads, name) for name in ("value", "low", "high"))
    certain = (low > 0) | (high < 0)
    return maps.outlines(means, certain & (np.abs(means) > least), N_LABELS)


def _comparison_notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """The small print: how to read the figure, and the data of each row."""
    reading = maps.EffectScale.of(config)
    clear = f", beyond {CLEAR:.0%} of the logit" if reading.relative else ""
    return [
        maps.map_note(reading),
        "Third column: the change within each pair; outlined where the 95% bootstrap interval of "
        f"its mean leaves out zero{clear}: dark where the component's effect fell (it supports "
        "the answer more), light where it rose. Dots: tuned heads.",
        *(f"{name}: {_summary(select(rows, tuned=name))}." for name in keys_of(rows, "tuned")),
        f"{maps.data_note(config)[:-1]}; the four operations together. Right: before tuning.",
    ]


def _summary(rows: DataFrame) -> str:
    """One tuned model in words: its right answers, its logits, how much changed and where."""
    before, after = (
        value(rows, measure=comparison.LOGIT, side=side)
        for side in (comparison.BEFORE, comparison.AFTER)
    )
    changed, of, right = (
        value(rows, measure=measure)
        for measure in (comparison.CHANGED_HEADS, comparison.ALL_HEADS, comparison.STILL_RIGHT)
    )
    total = f"{changed:.0f} of {of:.0f} heads changed"
    for one in records(select(rows, measure=comparison.TUNED_SHARE)):
        total += f", the tuned ones by {one.value:.0%} of all change"
    return (
        f"{right:.1%} of prompts still answered right, mean logit of the answer {before:.1f} "
        f"before and {after:.1f} after; {total}"
    )
