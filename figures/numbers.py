"""Is a number a line, a wave or a table? Swaps with controls, and values that were not fitted.

Reads a run of `experiments numbers`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from experiments.numbers import CUBIC, END, HELIX, LINE, OPERAND, WAVES_10
from figures.common import Options, chosen_run
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of
from figures.tables import numbers
from figures.tables.numbers import FOLLOWS
from figures.tables.table import QuestionTable, has, keys_of, records, select, value
from figures.views.lines import line

GREY = plotting.COLOURS["control"]
SPACES = {
    WHOLE: ("whole vector", plotting.BLUE, "solid"),
    CONTROLS["pca"]: ("PCA 3", plotting.TEAL, "solid"),
    OWN: ("helix 10 (3)", plotting.RED, "solid"),
    CONTROLS["polynomial"]: ("polynomial 3", plotting.DARK, "solid"),
    CONTROLS["labels"]: ("helix, labels permuted", plotting.RED, "dot"),
    CONTROLS["span"]: ("random 3 in the span", GREY, "dash"),
    CONTROLS["stream"]: ("random 3 of the stream", GREY, "dot"),
}
"""The lines of a panel of swaps."""
SHAPES = {
    LINE: ("line", plotting.DARK, "solid"),
    WAVES_10: ("waves 10", plotting.TEAL, "solid"),
    HELIX: ("helix 10", plotting.RED, "solid"),
    CUBIC: ("polynomial 3", plotting.BLUE, "solid"),
}
"""The lines of a panel of unseen values."""
COLUMNS = {
    UNSEEN: "unseen values",
    UNSEEN_LABELS: "labels permuted",
    OWN: "swap",
    WHOLE: "whole vector",
    CONTROLS["pca"]: "PCA",
    CONTROLS["labels"]: "swap, labels permuted",
    CONTROLS["span"]: "random in the span",
}
NOTE = "In brackets and bands: 95% intervals over problems that were not fitted."


def exhibits(options: Options) -> list[Exhibit]:
    """The predictions with their outcomes, and swaps and unseen values at END and at A's token.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "numbers")

    def rows() -> QuestionTable:
        return numbers.table(run)

    chart = chart_of(
        rows,
        [run],
        name="numbers",
        title=f"Is a number a line, a wave or a table? {run.config['model']}",
        caption=_caption,
        notes=_notes,
        draw=_draw,
        small_table=_tests,
    )
    words = text_table_of(
        rows,
        [run],
        name="numbers-predictions",
        title=f"Predictions about numbers, with their outcomes: {run.config['model']}",
        caption=lambda _: "Which predictions of docs/how_it_calculates.md fail.",
        notes=lambda *_: [NOTE, "A prediction holds if the whole interval meets its condition."],
        cells=lambda table: DataFrame(list(_outcomes(table))),
    )
    return [chart, words]


def _caption(table: DataFrame) -> str:
    rows = select(table, kind="swap", space=UNSEEN, variable="a")
    parts = []
    for place, words in ((OPERAND, "At A's token"), (END, "At END")):
        own = select(rows, place=place)
        if len(own):
            best = own.loc[own.value.idxmax()]
            whole = value(
                table, kind="swap", space=WHOLE, variable="a", place=place, layer=best.layer,
                shape=best["shape"],
            )  # fmt: skip
            parts.append(
                f"{words} the best shape answers {best.value:.0%} of unseen values "
                f"({best['shape']}, layer {best.layer:.0f}; whole vector {whole:.0%})."
            )
    return " ".join(parts)


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    return [
        f"Model: {settings['model']}; {settings['operation']} of one-digit numbers; A is "
        "exchanged, B stays; residual stream at the exit of each layer. " + NOTE,
        "Left: the source's A replaces the destination's inside a subspace of three directions. "
        "Right: one value is left out of the fit, and written into a problem by the shape alone.",
        "Random directions of the stream cannot fail. Permuted labels: the same fit, with the "
        "values in another order.",
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    panels = []
    for place, words in ((END, "END"), (OPERAND, "A's token")):
        rows = select(table, kind="swap", variable="a", place=place, measure=FOLLOWS)
        if not len(rows):
            continue
        helix = select(rows, shape=HELIX)
        panels.append(_panel(f"{words}: A is swapped", helix, "space", SPACES))
        unseen = _panel(f"{words}: unseen A", select(rows, space=UNSEEN), "shape", SHAPES)
        permuted = select(helix, space=UNSEEN_LABELS)
        null = line(permuted, "helix, labels permuted", plotting.RED, x="layer", dash="dot")
        lines = (*unseen.lines, null)
        panels.append(plotting.CurvePanel(unseen.title, lines, y_range=(0, 102)))
    return plotting.curve_panels(panels, x_title="layer", notes=notes, across=2, panel=(300, 240))


def _panel(
    title: str, rows: DataFrame, key: str, styles: dict[str, tuple[str, str, str]]
) -> plotting.CurvePanel:
    lines = tuple(
        line(select(rows, **{key: one}), name, colour, x="layer", dash=dash)
        for one, (name, colour, dash) in styles.items()
        if has(rows, **{key: one})
    )
    return plotting.CurvePanel(title, lines, y_title="answers that follow, %", y_range=(0, 102))


def _percent(one: Any) -> str:
    parts = (f"{100 * part:.0f}".replace("-0", "0") for part in (one.value, one.low, one.high))
    share, low, high = parts
    return f"{share}% [{low}, {high}]"


def _tests(table: DataFrame) -> DataFrame:
    """One line for each value, place, layer and shape; unseen values first."""
    rows = select(table, kind="swap")
    lines = []
    for variable in keys_of(rows, "variable"):
        for place in keys_of(select(rows, variable=variable), "place"):
            own = select(rows, variable=variable, place=place)
            for layer in keys_of(own, "layer"):
                for shape in keys_of(select(own, layer=layer), "shape"):
                    spaces = select(own, layer=layer, shape=shape)
                    named = {one.space: _percent(one) for one in records(spaces)}
                    at = f"{variable} at {'END' if place == END else 'its token'}"
                    start = {"number": at, "layer": f"{layer:.0f}", "shape": shape}
                    cells = {name: named.get(space, "") for space, name in COLUMNS.items()}
                    lines.append(start | cells)
    return DataFrame(lines)


def _outcomes(table: DataFrame) -> Iterator[dict[str, str]]:
    for one in records(select(table, kind="prediction")):
        ends = "" if one.low != one.low else f" [{one.low:.2f}, {one.high:.2f}]"
        yield {
            "prediction": one.prediction,
            "of": one.of,
            "measured": f"{one.value:.2f}{ends}".replace("-0.00", "0.00"),
            "holds if": one.condition,
            "verdict": one.verdict,
        }
