"""Where is the carry of a sum, and is it one direction?

Reads a run of `experiments carry`.
"""

from functools import partial
from math import nan
from typing import Any

from pandas import DataFrame

from arith_lens.interchanges.controls import COMPLEMENT, SHUFFLED, SPAN, WRITE, WRITE_SPAN
from figures.common import chosen_run, chosen_runs, rows_of
from figures.exhibit import Exhibit, chart_of, text_table_of
from figures.options import ModelOptions, Options
from figures.tables import carry as numbers
from figures.tables.carry import FOLLOWS, MEAN, ONES, STEP, WHOLE
from figures.tables.table import has, joined, keys_of, records, select
from figures.views import curves
from figures.views.curves import CurveChart, Series
from figures.views.words import percent_text

SHOWN_CONTROLS = {WHOLE: "whole stream", MEAN: "direction", COMPLEMENT: "everything but it",
                  SPAN: "random in the span", SHUFFLED: "carry shuffled",
                  WRITE: "written", WRITE_SPAN: "random, written"}  # fmt: skip
TITLE = "Where is the carry, and is it one direction?"
CAPTION = (
    "Above: at END, part of the stream is exchanged with another problem's; answers follow its "
    "carry if they change by the carry alone. Shuffled: of 30 directions fitted to shuffled "
    "carries, the one with most. Circles: the layer that other problems chose. Diamonds: fewer "
    "than 5 sums. Bands: 95% intervals."
)
DIRECTIONS_CAPTION = (
    "In brackets: 95% intervals over problems that were not fitted; of random controls the range "
    "of draws. Each layer was chosen on other problems. The direction is the difference of means "
    "with and without a carry. Random directions are of the eight largest of the differences, "
    "orthogonal to it. Written: the base's own state is moved along it, and no source is used."
)
CARRY_FROM = 10
"""The least sum of the ones digits that has a carry."""


def chosen_layer(rows: DataFrame) -> float:
    """The layer at which the direction has the most, on the problems of the choice; else NaN."""
    choice = select(rows, kind="interchange", variable=ONES, test="choice", space=MEAN)
    return float(choice.loc[choice.value.idxmax(), "layer"]) if len(choice) else nan


def _variable(rows: DataFrame) -> str:
    """The carry of the ones, if it was measured."""
    measured = keys_of(select(rows, kind="interchange", test="layers"), "variable")
    return ONES if ONES in measured else measured[0]


CHARTS = [
    CurveChart(
        {"kind": "interchange", "test": "layers", "variable": _variable},
        (
            Series({"space": WHOLE}, "whole stream", "control dot"),
            Series({"space": COMPLEMENT}, "all but this\ndirection", "control 10px,4px"),
            Series(
                {"space": SHUFFLED},
                "",
                "control",
                mark=lambda _, rows: chosen_layer(rows),
                mark_at="high",
                text="{high:.0%}",
                edge="carry shuffled,\nbest of 30",
            ),
            Series({"space": MEAN}, "one direction", mark=lambda _, rows: chosen_layer(rows)),
        ),
        columns="model",
        x="layer",
        x_title="layer",
        y_title="answers that follow the carry, %",
        title="{model}, n = {n}",
        heading="Answers that follow another problem's carry, sums below 100",
        y_range=(0, 104),
    ),
    CurveChart(
        {"kind": "step", "measure": STEP, "layer": chosen_layer},
        (Series({}, "", mark=lambda own, _: [*own.ones_sum[own.n < 5]], text=""),),
        columns="model",
        x="ones_sum",
        x_title=f"sum of the ones digits (carry from {CARRY_FROM})",
        y_title="0: no carry, 1: carry",
        title="{model}, layer {layer:.0f}, n ≤ {n} per sum",
        heading="The projection on that direction steps up",
        scale=1,
        guides=lambda _: (CARRY_FROM - 0.5,),
    ),
]


def exhibits(options: Options) -> list[Exhibit]:
    """The direction with its controls and its step; with few right sums, their shares."""
    run = chosen_run(options, "carry")
    rows = rows_of(run, "carry", numbers.table)
    words: Any = {"name": "carry", "title": TITLE, "caption": CAPTION}
    if not has(rows, kind="interchange"):
        return [text_table_of(rows, [run], cells=_right_sums, **words)]
    draw = partial(curves.draw, charts=CHARTS, panel=(320, 215), shared_y=True)
    return [chart_of(rows, [run], draw=draw, small_table=_tests, **words)]


def _right_sums(table: DataFrame) -> DataFrame:
    """The shares of right first digits, with and without a carry."""
    rows = records(select(table, kind="accuracy"))
    return DataFrame({"sums": one.what, one.measure: percent_text(one)} for one in rows)


def carry_directions(options: ModelOptions) -> list[Exhibit]:
    """The direction of the carry in several models, each at the layer that other problems chose."""
    runs = chosen_runs(options, "carry")
    rows = (rows_of(run, "carry", numbers.table) for run in runs)
    table = text_table_of(
        joined(rows),
        runs,
        name="carry_directions",
        title="Is the carry one direction, in each model?",
        caption=DIRECTIONS_CAPTION,
        cells=lambda rows: DataFrame(
            [_direction_cells(select(rows, model=model)) for model in keys_of(rows, "model")]
        ).fillna(""),
    )
    return [table]


def _direction_cells(table: DataFrame) -> dict[str, str]:
    """One line: the shares of the ones carry at the chosen layer of a model."""
    layer = chosen_layer(table)
    keys = {"kind": "interchange", "variable": ONES, "layer": layer}
    line = {"model": str(table.model.iloc[0]), "layer": f"{layer:.0f}"}
    for one in records(select(table, test="layers", **keys)):
        if one.space in SHOWN_CONTROLS:
            line[SHOWN_CONTROLS[one.space]] = percent_text(one)
    for test, name in numbers.OF_TESTS.items():
        for one in records(select(table, test=test, space=MEAN, **keys)):
            line[name] = percent_text(one)
    return line


def _tests(table: DataFrame) -> DataFrame:
    """One line for each test of the ones carry at the chosen layer, with its controls."""
    if not has(table, test="choice"):
        return DataFrame()
    layer = chosen_layer(table)
    own = select(table, kind="interchange", variable=ONES, layer=layer, measure=FOLLOWS)
    lines = []
    for test in keys_of(own, "test"):
        rows = select(own, test=test)
        line = {"test": test.replace("_", " "), "problems": int(rows.n.iloc[0])}
        for one in records(rows):
            name = "search" if one.space == "das" else SHOWN_CONTROLS.get(one.space)
            if name is not None:
                line[name] = percent_text(one)
        lines.append(line)
    return DataFrame(lines).fillna("")
