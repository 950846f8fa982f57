"""Where is the carry of a sum, and is it one direction?

Reads a run of `experiments carry`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.interchanges.controls import COMPLEMENT, SHUFFLED, SPAN, WRITE, WRITE_SPAN
from figures.common import (
    ModelOptions,
    Options,
    chosen_run,
    chosen_runs,
    rows_of,
)
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of, with_predictions
from figures.tables import carry as numbers
from figures.tables.carry import BORROW, FOLLOWS, MEAN, ONES, STEP, TENS, WHOLE
from figures.tables.table import (
    has,
    joined,
    keys_of,
    records,
    select,
    value,
)
from figures.views.lines import line
from figures.views.words import percent_text

VARIABLES = {
    TENS: ("carry of the tens", plotting.TEAL),
    ONES: ("carry of the ones", plotting.BLUE),
    BORROW: ("borrow (−)", plotting.DARK),
}
SPACES = {
    WHOLE: ("whole stream", plotting.BLUE, "solid"),
    MEAN: ("one direction", plotting.RED, "solid"),
    WRITE: ("written without a source", plotting.RED, "dot"),
    COMPLEMENT: ("everything but it", plotting.TEAL, "solid"),
    WRITE_SPAN: ("random, written", plotting.COLOURS["control"], "dot"),
    SHUFFLED: ("labels shuffled", plotting.DARK, "dash"),
}
"""The lines of the panel of the carry; that of the borrow has those that have a source."""
LABELS = {MEAN: "", SHUFFLED: "shuffled "}
"""The lines with a number at the chosen layer, and what is before it."""
SHOWN_CONTROLS = {WHOLE: "whole stream", MEAN: "direction", COMPLEMENT: "everything but it",
                  SPAN: "random in the span", SHUFFLED: "carry shuffled",
                  WRITE: "written", WRITE_SPAN: "random, written"}  # fmt: skip
INTERVALS = "95% intervals over problems that were not fitted."
DEFINITION = (
    "The direction is the difference of means with and without a carry, fitted on the other half "
    "of the problems. Random directions are of the eight largest of the differences, orthogonal to "
    "it. Written: the base's own state is moved along it, and no source is used."
)
ANSWERS = "answers that follow, %"
ACROSS = 2
N_STEPS = 3
"""The layers whose step is drawn, up to the chosen one."""
LEAST_SHARE = 0.1
"""Before this share of answers follows the direction, it holds no step to draw."""


def exhibits(options: Options) -> list[Exhibit]:
    """The predictions with their outcomes, and the staircase, the direction and the step.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "carry")
    rows = rows_of(run, "carry", numbers.table)
    is_drawn = has(rows, kind="interchange")  # else too few sums are right
    chart = partial(
        chart_of,
        rows,
        [run],
        name="carry",
        title="Where is the carry, and is it one direction?",
        caption=_caption,
        notes=_notes,
        draw=_draw,
        small_table=_tests,
    )
    return with_predictions(
        rows,
        run,
        chart if is_drawn else None,
        name="carry",
        about="carries",
        note=f"In brackets: {INTERVALS}",
    )


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
        caption=_directions_caption,
        notes=lambda *_: [
            f"In brackets: {INTERVALS} Each layer was chosen on other problems. {DEFINITION}"
        ],
        cells=lambda rows: DataFrame(
            [_direction_cells(select(rows, model=model)) for model in keys_of(rows, "model")]
        ).fillna(""),
    )
    return [table]


def _directions_caption(table: DataFrame) -> str:
    """In how many models the prediction of one direction holds."""
    verdicts = {
        model: {one.verdict for one in records(select(table, model=model, prediction="C2"))}
        for model in keys_of(table, "model")
    }
    holds = [model for model, own in verdicts.items() if own == {"holds here"}]
    return (
        f"In {len(holds)} of {len(verdicts)} models, one direction has .9 of the whole stream's "
        "share and everything but it at most 5%, both with their intervals."
    )


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
    """What the direction of the first model does, with its controls, and that of the others."""
    if not has(table, test="choice"):
        return "In which layers each carry reaches END."
    first, *others = (select(table, model=name) for name in keys_of(table, "model"))
    layer, own = chosen_layer(first), _at_chosen_layer(first, ONES)
    large = ""
    if has(first, test="large_sums"):
        keys = {"kind": "interchange", "variable": ONES, "test": "large_sums", "space": MEAN}
        large = f"; on sums from 110 it is {value(first, layer=layer, **keys):.0%}"
    further = (_in_short(one) for one in others)
    return (
        f"At layer {layer} of `{first.model.iloc[0]}`, one direction makes "
        f"{percent_text(own[MEAN])} of the answers follow the carry of another problem "
        f"(everything but it {own[COMPLEMENT].value:.0%}, the same fit with labels shuffled "
        f"{percent_text(own[SHUFFLED])}){large}{''.join(further)}. A line is the share of answers "
        "that change by the variable alone when END takes a part of its state from another "
        "problem: a, all of it; b, the carry's direction; c, the borrow's"
        f"{_borrow_in_short(first)}. In d, the projection on the carry's direction is 0 in the "
        "mean without a carry and 1 with one. Bands are 95% intervals over problems that were not "
        f"fitted (carry {own[MEAN].n:.0f})."
    )


def _borrow_in_short(table: DataFrame) -> str:
    """What the direction of the borrow does at the chosen layer, with its control; or nothing."""
    own = _at_chosen_layer(table, BORROW)
    if not own:
        return ""
    return (
        f" ({percent_text(own[MEAN])}, labels shuffled {percent_text(own[SHUFFLED])}, "
        f"{own[MEAN].n:.0f} problems)"
    )


def _in_short(table: DataFrame) -> str:
    """The layer of a further model, the direction's share there, and that of everything but it."""
    own = _at_chosen_layer(table, ONES)
    return (
        f"; in `{table.model.iloc[0]}` at layer {chosen_layer(table)} {percent_text(own[MEAN])} "
        f"(everything but it {own[COMPLEMENT].value:.0%})"
    )


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    notes = [
        f"Model: {settings['model']}; residual stream at END, at the exit of each layer; wording "
        f"{settings['template']}; sums below 100 of two numbers of two digits. The source differs "
        f"in the digits that decide the variable alone. Bands: {INTERVALS}",
        DEFINITION,
    ]
    if has(table, test="choice"):
        first = select(table, model=keys_of(table, "model")[0])
        notes.append(
            f"Layer {chosen_layer(first)} was chosen on other problems. Step: the projection of "
            "each problem on the direction, by the sum of its ones: 0 is no carry, 1 a carry."
        )
    return notes


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The staircase, the direction with its controls, and the step, of the first model."""
    table = select(table, model=keys_of(table, "model")[0])
    panels, headings = [_staircase(table)], [""]
    if has(table, kind="interchange", variable=ONES):
        panels.append(_direction(table, ONES, "Carry of the ones", [*SPACES]))
        headings = [f"Carry in {table.model.iloc[0]}: {_finding(table, ONES)}"]
    if has(table, kind="step"):
        if has(table, kind="interchange", variable=BORROW):
            spaces = [WHOLE, MEAN, COMPLEMENT, SHUFFLED]
            panels.append(_direction(table, BORROW, "Borrow of the ones", spaces))
            headings.append(f"Borrow: {_finding(table, BORROW)}")
        panels.append(_step(table))
    headings += [""] * (-(-len(panels) // ACROSS) - len(headings))
    return plotting.curve_panels(
        panels, x_title="layer", notes=notes, headings=headings, across=ACROSS, panel=(300, 150)
    )


def _at_chosen_layer(table: DataFrame, variable: str) -> dict[str, Any]:
    """The rows of one variable at the chosen layer, by what is exchanged; none without a choice."""
    if not has(table, test="choice"):
        return {}
    rows = select(table, kind="interchange", test="layers", variable=variable)
    return {one.space: one for one in records(select(rows, layer=chosen_layer(table)))}


def _finding(table: DataFrame, variable: str) -> str:
    """What the direction makes follow at the chosen layer, and what everything but it does."""
    own = _at_chosen_layer(table, variable)
    if MEAN not in own:
        return "the whole stream"
    return (
        f"one direction at layer {own[MEAN].layer:.0f} moves {own[MEAN].value:.0%} of the "
        f"answers, everything but it {own[COMPLEMENT].value:.0%}"
    )


def _staircase(table: DataFrame) -> plotting.CurvePanel:
    """The whole stream, for each variable."""
    rows = select(table, kind="interchange", test="layers", space=WHOLE)
    lines = [
        line(select(rows, variable=variable), *VARIABLES[variable], x="layer")
        for variable in keys_of(rows, "variable")
    ]
    return plotting.CurvePanel(
        title="Whole stream exchanged",
        lines=tuple(lines),
        y_title=ANSWERS,
        y_range=(0, 102),
        x_title="layer",
    )


def _direction(
    table: DataFrame, variable: str, title: str, spaces: Sequence[str]
) -> plotting.CurvePanel:
    """One variable: the direction and its controls."""
    rows = select(table, kind="interchange", test="layers", variable=variable)
    measured = [space for space in spaces if has(rows, space=space)]
    lines = [
        line(select(rows, space=space), name, colour, x="layer", dash=dash)
        for space in measured
        for name, colour, dash in [SPACES[space]]
    ]
    points = [
        plotting.Point(
            one.layer,
            f"{LABELS[space]}{one.value:.0%}" + f" at layer {one.layer:.0f}" * (space == MEAN),
            measured.index(space),
        )
        for space, one in _at_chosen_layer(table, variable).items()
        if space in LABELS
    ]
    return plotting.CurvePanel(
        title, tuple(lines), tuple(points), y_range=(0, 102), y_title=ANSWERS, x_title="layer"
    )


def _step(table: DataFrame) -> plotting.CurvePanel:
    """The projection by the ones' sum, at the chosen layer and before."""
    layer = chosen_layer(table)
    rows = select(table, kind="step", measure=STEP)
    keys = {"kind": "interchange", "variable": ONES, "test": "layers", "space": MEAN}
    layers = [
        one
        for one in range(layer - N_STEPS + 1, layer + 1)
        if has(rows, layer=one) and value(table, layer=one, **keys) >= LEAST_SHARE
    ]
    shades = ("#b9c9df", "#7fa3d1", plotting.BLUE)[-len(layers) :]
    lines = [
        line(select(rows, layer=one), f"layer {one}", shade, x="ones_sum", scale=1)
        for one, shade in zip(layers, shades, strict=True)
    ]
    return plotting.CurvePanel(
        title="The direction by the ones' sum",
        lines=tuple(lines),
        y_title="projection, 1: carry",
        x_title="sum of the ones digits",
        guides=((9.5, "carry from 10"),),
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
