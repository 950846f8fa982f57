"""After tuning: does the gain hold on other questions, and which effects of heads have changed?"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

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
from figures.tables.table import keys_of, records, select
from figures.tuning import METHOD_NAMES, RATE_MARKS, rate_dots
from figures.views import maps
from figures.views.words import components_text

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
            partial(generalisation_numbers.table, run),
            [run],
            name="generalisation",
            title="Does the gain of tuning hold on questions that were not tuned on?",
            caption="A mark is the change of accuracy on one set of questions, bold those that "
            "were tuned on; in brackets the accuracy before tuning, and the number of problems. "
            "Lines: 95% intervals over problems and trainings, cut where none or all answers "
            "would be right.",
            draw=_draw_generalisation,
        )
    ]


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
    return plotting.dot_panels(
        columns,
        plotting.DotAxis((STEP * low, STEP * high), "change in points"),
        row=24,
        notes=notes,
    )


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
            partial(comparison.table, run),
            [run],
            name="before_after",
            title=f"What tuning changed: effects before and after, {run.config['model']}",
            caption="Maps before and after tuning, and the change within each pair, in which parts "
            "are outlined whose 95% interval has no zero and whose change is beyond 1% of the "
            "answer's logit: dark where they support the answer more. Dots: tuned heads. The four "
            "operations together; prompts that were answered right before.",
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
