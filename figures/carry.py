"""Where is the carry of a sum, and is it one direction?

Reads a run of `experiments carry`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.interchanges.controls import COMPLEMENT, SHUFFLED, SPAN, WRITE, WRITE_SPAN
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from arith_lens.plotting.widths import is_narrow
from figures.common import chosen_run, chosen_runs, rows_of
from figures.exhibit import Exhibit, Settings, Words, chart_of, text_table_of
from figures.options import ModelOptions, Options
from figures.tables import carry as numbers
from figures.tables.carry import FOLLOWS, MEAN, ONES, STEP, WHOLE
from figures.tables.table import (
    has,
    joined,
    keys_of,
    records,
    select,
    value,
)
from figures.views.lines import line
from figures.views.words import percent_text, span_text

LINES = {
    WHOLE: ("whole state", plotting.GREY, "dot"),
    MEAN: ("one direction", COLOURS["chosen"], "solid"),
    COMPLEMENT: ("all else", COLOURS["control"], "solid"),
    SHUFFLED: ("shuffled fit", COLOURS["control"], "dash"),
}
"""What is exchanged: the name, the colour and the dash of its line."""
SHOWN_CONTROLS = {WHOLE: "whole stream", MEAN: "direction", COMPLEMENT: "everything but it",
                  SPAN: "random in the span", SHUFFLED: "carry shuffled",
                  WRITE: "written", WRITE_SPAN: "random, written"}  # fmt: skip
TITLE = "Where is the carry, and is it one direction?"
INTERVALS = (
    "95% intervals over problems that were not fitted; of random controls the range of draws."
)
DEFINITION = (
    "The direction is the difference of means with and without a carry, fitted on the other half "
    "of the problems. Random directions are of the eight largest of the differences, orthogonal to "
    "it. Written: the base's own state is moved along it, and no source is used."
)
CARRY_FROM = 10
"""The least sum of the ones digits that has a carry."""
STEEP = (CARRY_FROM - 2, CARRY_FROM + 1)
"""The sums of the ones digits between which the projection rises."""


def exhibits(options: Options) -> list[Exhibit]:
    """The direction with its controls and its step; of a model with few right sums, their shares.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "carry")
    rows = rows_of(run, "carry", numbers.table)
    words: Words = {"name": "carry", "title": TITLE, "caption": _caption, "notes": _notes}
    if has(rows, kind="interchange"):
        return [chart_of(rows, [run], draw=_draw, small_table=_tests, **words)]
    return [text_table_of(rows, [run], cells=_right_sums, **words)]  # too few sums are right


def _right_sums(table: DataFrame) -> DataFrame:
    """The shares of right first digits, with and without a carry."""
    rows = records(select(table, kind="accuracy"))
    return DataFrame({"sums": one.what, one.measure: percent_text(one)} for one in rows)


def carry_directions(options: ModelOptions) -> list[Exhibit]:
    """The direction of the carry in several models, each at the layer that other problems chose.

    Reads the run of `experiments carry` of each model (or `--runs PATH PATH`); with
    `--root figures/gallery`, the shipped tables of the models.

    Raises:
        RunError: runs are missing; it has the command for each.
    """
    runs = chosen_runs(options, "carry")
    rows = (rows_of(run, "carry", numbers.table) for run in runs)
    table = text_table_of(
        joined(rows),
        runs,
        name="carry_directions",
        title="Is the carry one direction, in each model?",
        caption=lambda _: (
            "Whether one direction has what the whole stream has, and everything but it nothing."
        ),
        notes=lambda *_: [
            f"In brackets: {INTERVALS} Each layer was chosen on other problems. {DEFINITION}"
        ],
        cells=lambda rows: DataFrame(
            [_direction_cells(select(rows, model=model)) for model in keys_of(rows, "model")]
        ).fillna(""),
    )
    return [table]


def _direction_cells(table: DataFrame) -> dict[str, str]:
    """One line: the shares of the ones carry at the chosen layer of a model."""
    layer = chosen_layer(table)
    keys = {"kind": "interchange", "variable": ONES, "layer": layer}
    line = {"model": str(table.model.iloc[0]), "layer": str(layer)}
    for one in records(select(table, test="layers", **keys)):
        if one.space in SHOWN_CONTROLS:
            line[SHOWN_CONTROLS[one.space]] = percent_text(one)
    for test, name in numbers.OF_TESTS.items():
        for one in records(select(table, test=test, space=MEAN, **keys)):
            line[name] = percent_text(one)
    return line


def chosen_layer(table: DataFrame) -> int:
    """The layer at which the direction has the most, on the problems of the choice."""
    rows = select(table, kind="interchange", variable=ONES, test="choice", space=MEAN)
    return int(rows.loc[rows.value.idxmax(), "layer"])


def _caption(table: DataFrame) -> str:
    """What the direction does in each model, with its controls."""
    models = [rows for rows in _models(table) if has(rows, test="choice")]
    if not models:
        return "In which layers each carry reaches END."
    texts, sums = [], []
    for rows in models:
        own, keys = _at_chosen_layer(rows), {"test": "large_sums", "space": MEAN}
        peak, layer = _peak(rows), chosen_layer(rows)
        more = f", {peak.high:.0%} at layer {peak.layer:.0f}" * (peak.layer != layer)
        texts.append(
            f"{percent_text(own[MEAN])} of `{rows.model.iloc[0]}`'s answers at layer {layer} (all "
            f"else {own[COMPLEMENT].value:.0%}, {_shuffles(own[SHUFFLED])}{more})"
        )
        if has(rows, **keys):
            sums.append(f"{value(rows, **keys, variable=ONES, layer=layer):.0%}")
    large = f"; on sums from 110 {' and '.join(sums)}" * bool(sums)
    return (
        f"One direction holds the carry: {' and '.join(texts)} follow it{large}. Above, the "
        "share of answers that change by the carry alone when END takes a part of another "
        "problem's state; below, the mean projection on the direction (0 without a carry, 1 with "
        "one). Bands are 95% intervals over n unfitted problems, or the range of shuffles."
    )


def _shuffles(one: Any) -> str:
    """`30 shuffled fits: median 6%, up to 87%`; of a single shuffle its share."""
    if one.spread.endswith("shuffles"):
        return f"{one.n:.0f} shuffled fits: median {one.value:.0%}, up to {one.high:.0%}"
    return f"one shuffled fit {one.value:.0%}"


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    return [
        "Residual stream at END, exit of each layer; two-digit numbers, sums below 100, wording "
        f"{settings['template']}; the other problem differs in its ones digits.",
        "The direction: difference of the means with and without a carry, fitted on other "
        "problems; in shuffled fits, on shuffled carries: median and range.",
    ]


def _models(table: DataFrame) -> list[DataFrame]:
    """The rows of each model."""
    return [select(table, model=model) for model in keys_of(table, "model")]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The direction with its controls above, and its step below; a column for each model.

    A column of paper has room for one model.
    """
    models = _models(table)[: 1 if is_narrow() else None]
    across = 1 if is_narrow() else max(len(models), 2)
    panels, findings = [*map(_direction, models)], [_finding(models)]
    if all(has(rows, kind="step") and has(rows, test="choice") for rows in models):
        bands = [rows[end].to_numpy() for rows in map(_steps, models) for end in ("low", "high")]
        panels += map(partial(_step, reach(bands)), models)
        findings.append(_step_finding(models))
    headings = findings[: -(-len(panels) // across)]
    return plotting.curve_panels(
        panels, x_title="", notes=notes, headings=headings, across=across, panel=(330, 160)
    )


def _at_chosen_layer(table: DataFrame) -> dict[str, Any]:
    """The rows of the ones carry at the chosen layer, by what is exchanged; none without one."""
    if not has(table, test="choice"):
        return {}
    keys = {"kind": "interchange", "test": "layers", "variable": ONES}
    rows = select(table, layer=chosen_layer(table), **keys)
    return {one.space: one for one in records(rows)}


def _peak(table: DataFrame) -> Any:
    """The row of the layer in which one of the shuffled fits has the most."""
    keys = {"kind": "interchange", "test": "layers", "variable": ONES, "space": SHUFFLED}
    rows = select(table, **keys)
    return max(records(rows), key=lambda one: one.high)


def _finding(models: Sequence[DataFrame]) -> str:
    """What the direction makes follow at the chosen layers, beside its controls."""
    every = [own for own in map(_at_chosen_layer, models) if own]
    if not every:
        return ""
    shares = {
        space: " and ".join(f"{own[space].value:.0%}" for own in every)
        for space in (MEAN, COMPLEMENT, SHUFFLED)
    }
    return (
        f"One direction has the carry at chosen layers: {shares[MEAN]} follow it, "
        f"{shares[COMPLEMENT]} all else, {shares[SHUFFLED]} median shuffles"
    )


def _direction(table: DataFrame) -> plotting.CurvePanel:
    """What is exchanged in each layer: the whole state, the direction, and its controls."""
    rows = select(table, kind="interchange", test="layers")
    measured, chosen = keys_of(rows, "variable"), _at_chosen_layer(table)
    rows = select(rows, variable=ONES if ONES in measured else measured[0])
    spaces = [space for space in LINES if has(rows, space=space)]
    inside = (WHOLE, MEAN) if chosen else ()
    lines = [
        replace(
            line(select(rows, space=space), name, colour, x="layer", dash=dash),
            label="" if space in inside else None,
        )
        for space in spaces
        for name, colour, dash in [LINES[space]]
    ]
    points = []
    for space in (MEAN, WHOLE, SHUFFLED) if chosen else ():
        one = chosen[space]
        text, at = f"{LINES[space][0]}: " * (space == MEAN) + f"{one.value:.0%}", one.layer
        if space == SHUFFLED:
            text = f"{one.value:.0%}, up to {one.high:.0%}"
        if space == WHOLE:
            text, at = LINES[space][0], (at + rows.layer.max()) / 2
        points.append(plotting.Point(at, text, spaces.index(space), space == WHOLE))
    arrives = f", chosen layer {chosen_layer(table)}" if chosen else ""
    return plotting.CurvePanel(
        f"{table.model.iloc[0]}{arrives}, n = {rows.n.max():.0f}",
        tuple(lines),
        tuple(points),
        y_range=(0, 120),
        y_title="follow the carry, %",
        x_title="layer",
    )


def _steps(table: DataFrame) -> DataFrame:
    """The mean projections on the direction at the chosen layer."""
    return select(table, kind="step", measure=STEP, layer=chosen_layer(table))


def _step_finding(models: Sequence[DataFrame]) -> str:
    """How far the projection rises over the two sums around the first one with a carry."""
    ends = [
        " and ".join(f"{value(rows, ones_sum=at):.2f}" for rows in map(_steps, models))
        for at in STEEP
    ]
    return (
        f"The projection on it rises steeply: {ends[0]} at a sum of {STEEP[0]}, {ends[1]} at "
        f"{STEEP[1]}"
    )


def _step(ends: tuple[float, float], table: DataFrame) -> plotting.CurvePanel:
    """The projection by the ones' sum, at the chosen layer; `ends` are those of the y axis."""
    rows = _steps(table)
    n = span_text(rows.n, ".0f")
    own = line(rows, "one direction", COLOURS["chosen"], x="ones_sum", scale=1, label="")
    beside = [
        plotting.Point(one.ones_sum, f"{one.value:.2f}")
        for one in records(rows)
        if STEEP[0] < one.ones_sum < STEEP[1]
    ]
    return plotting.CurvePanel(
        f"{table.model.iloc[0]}, layer {chosen_layer(table)}, n = {n} per sum",
        (own,),
        tuple(beside),
        y_title="0 no carry, 1 carry",
        x_title=f"sum of the ones digits (carry from {CARRY_FROM})",
        y_range=ends,
        guides=((CARRY_FROM - 0.5, ""),),
    )


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
