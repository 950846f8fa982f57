"""Where is the carry of a sum, and is it one direction?

Reads a run of `experiments carry`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.interchanges.controls import COMPLEMENT, SHUFFLED, SPAN, WRITE, WRITE_SPAN
from arith_lens.runs import Run
from figures.common import (
    ModelOptions,
    Options,
    chosen_run,
    chosen_runs,
    has_tables_alone,
    stored_rows,
)
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of
from figures.tables import carry as numbers
from figures.tables.carry import BORROW, FOLLOWS, MEAN, ONES, STEP, TENS, WHOLE
from figures.tables.table import (
    has,
    joined,
    keys_of,
    read_back,
    records,
    select,
    value,
)

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
    SPAN: ("random in the span", plotting.COLOURS["control"], "solid"),
    WRITE_SPAN: ("random, written", plotting.COLOURS["control"], "dot"),
    SHUFFLED: ("carry shuffled", plotting.DARK, "dash"),
}
"""The lines of the panel of the carry; that of the borrow has the first two and `COMPLEMENT`."""
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
    rows = _rows(run)
    is_drawn = has(rows, kind="interchange")  # else too few sums are right
    words = text_table_of(
        select(rows, kind="prediction") if is_drawn else rows,
        [run],
        name="carry-predictions",
        title=f"Predictions about carries, with their outcomes: {run.config['model']}",
        caption=lambda _: "Which predictions of docs/predictions.md fail.",
        notes=lambda *_: [
            f"In brackets: {INTERVALS}",
            "A prediction holds if the whole interval meets its condition.",
        ],
        cells=_outcomes,
    )
    if not is_drawn:
        return [words]
    chart = chart_of(
        rows,
        [run],
        name="carry",
        title="Where is the carry, and is it one direction?",
        caption=_caption,
        notes=_notes,
        draw=_draw,
        small_table=_tests,
    )
    return [chart, words]


def carry_directions(options: ModelOptions) -> list[Exhibit]:
    """The direction of the carry in several models, each at the layer that other problems chose.

    Reads the run of `experiments carry` of each model (or `--runs PATH PATH`); with
    `--root figures/gallery`, the shipped tables of the models.

    Raises:
        RunError: runs are missing; it has the command for each.
    """
    runs = chosen_runs(options, "carry")
    table = text_table_of(
        joined(map(_rows, runs)),
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


def _rows(run: Run) -> DataFrame:
    """The rows of a run as their CSV file has them; of a shipped table, those of the file."""
    return stored_rows([run], "carry") if has_tables_alone(run) else read_back(numbers.table(run))


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
            line[SHOWN_CONTROLS[one.space]] = _percent(one)
    for test, name in numbers.OF_TESTS.items():
        for one in records(select(table, test=test, space=MEAN, **keys)):
            line[name] = _percent(one)
    return line


def chosen_layer(table: DataFrame) -> int:
    """The layer at which the direction has the most, on the problems of the choice."""
    rows = select(table, kind="interchange", variable=ONES, test="choice", space=MEAN)
    return int(rows.loc[rows.value.idxmax(), "layer"])


def _percent(one: Any) -> str:
    value_text, low, high = (
        f"{100 * part:.0f}".replace("-0", "0") for part in (one.value, one.low, one.high)
    )
    return f"{value_text}% [{low}, {high}]"


def _caption(table: DataFrame) -> str:
    if not has(table, test="choice"):
        return "In which layers each carry reaches END."
    layer, last = chosen_layer(table), int(table.layer.max())
    keys = {"kind": "interchange", "variable": ONES}
    own = {one.space: one for one in records(select(table, test="layers", layer=layer, **keys))}
    sentences = [
        f"At layer {layer} of `{table.model.iloc[0]}`, one direction makes "
        f"{own[MEAN].value:.0%} of the answers follow the carry of another problem (the whole "
        f"stream {own[WHOLE].value:.0%}, everything but the direction "
        f"{own[COMPLEMENT].value:.0%}, the same fit with the carry shuffled "
        f"{_percent(own[SHUFFLED])})."
    ]
    if has(table, test="large_sums"):
        large = value(table, test="large_sums", space=MEAN, layer=layer, **keys)
        sentences.append(f"On sums from 110 it has {large:.0%}.")
    end = value(table, test="layers", space=MEAN, layer=last, **keys)
    sentences.append(
        f"At layer {last} it has {end:.0%}. A line is the share of answers that change by the "
        "carry alone when END takes that part of its state from another problem. Bands are 95% "
        "intervals over problems that were not fitted."
    )
    return " ".join(sentences)


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    notes = [
        f"Model: {settings['model']}; residual stream at END, at the exit of each layer; wording "
        f"{settings['template']}; sums below 100 of two numbers of two digits. The source differs "
        f"in the digits that decide the variable alone. Bands: {INTERVALS}",
        DEFINITION,
    ]
    if has(table, test="choice"):
        notes.append(
            f"Layer {chosen_layer(table)} was chosen on other problems. Step: the projection of "
            "each problem on the direction, by the sum of its ones: 0 is no carry, 1 a carry."
        )
    return notes


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    panels = [_staircase(table)]
    if has(table, kind="interchange", variable=ONES):
        panels.append(_direction(table, ONES, "Carry of the ones: one direction", [*SPACES]))
    if has(table, kind="step"):
        if has(table, kind="interchange", variable=BORROW):
            spaces = [WHOLE, MEAN, COMPLEMENT]
            panels.append(_direction(table, BORROW, "Borrow of the ones: one direction", spaces))
        panels.append(_step(table))
    return plotting.curve_panels(panels, x_title="layer", notes=notes, across=2, panel=(300, 150))


def _line(
    rows: DataFrame, x: str, style: tuple[str, str, str], factor: float = 100
) -> plotting.Line:
    name, colour, dash = style
    return plotting.Line(
        x=rows[x].to_numpy(),
        y=factor * rows.value.to_numpy(),
        low=factor * rows.low.to_numpy(),
        high=factor * rows.high.to_numpy(),
        name=name,
        colour=colour,
        dash=dash,
    )


def _staircase(table: DataFrame) -> plotting.CurvePanel:
    """The whole stream, for each variable."""
    rows = select(table, kind="interchange", test="layers", space=WHOLE)
    lines = [
        _line(select(rows, variable=variable), "layer", (*VARIABLES[variable], "solid"))
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
    lines = [
        _line(select(rows, space=space), "layer", SPACES[space])
        for space in spaces
        if has(rows, space=space)
    ]
    return plotting.CurvePanel(
        title=title, lines=tuple(lines), y_range=(0, 102), y_title=ANSWERS, x_title="layer"
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
        _line(select(rows, layer=one), "ones_sum", (f"layer {one}", shade, "solid"), 1)
        for one, shade in zip(layers, shades, strict=True)
    ]
    return plotting.CurvePanel(
        title="The step between 9 and 10",
        lines=tuple(lines),
        y_title="projection",
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
                line[name] = _percent(one)
        lines.append(line)
    return DataFrame(lines).fillna("")


def _outcomes(table: DataFrame) -> DataFrame:
    return DataFrame(list(_outcome_cells(table)))


def _outcome_cells(table: DataFrame) -> Iterator[dict[str, str]]:
    for one in records(select(table, kind="prediction")):
        yield {
            "prediction": one.prediction,
            "of": one.of,
            "measured": f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]".replace("-0.00", "0.00"),
            "holds if": one.condition,
            "verdict": one.verdict,
        }
