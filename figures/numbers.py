"""Is a number a line, a wave or a table? Swaps with controls, and values that were not fitted.

Reads a run of `experiments numbers`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from experiments.numbers import CUBIC, END, HELIX, LINE, MAIN, OPERAND, WAVES_10
from figures.common import Options, chosen_run, rows_of
from figures.exhibit import Exhibit, Settings, chart_of, with_predictions
from figures.tables import numbers
from figures.tables.numbers import FOLLOWS
from figures.tables.table import has, keys_of, records, select
from figures.views.lines import line
from figures.views.words import percent_text

GREY = plotting.COLOURS["control"]
SHAPES = {
    LINE: ("line", plotting.DARK),
    WAVES_10: ("waves 10", plotting.TEAL),
    HELIX: ("waves 10 + line", plotting.RED),
    CUBIC: ("polynomial 3", plotting.BLUE),
}
"""The name and the colour of each shape, in every panel."""
PERMUTED = ("the same, permuted", plotting.RED, "dot")
SPACES = {
    WHOLE: ("whole vector", plotting.PALE, "solid"),
    CONTROLS["pca"]: ("PCA 3", GREY, "solid"),
    CONTROLS["labels"]: PERMUTED,
    CONTROLS["span"]: ("random 3 in the span", GREY, "dash"),
}
"""What is swapped beside the shapes: controls are grey, those of a shape have its colour."""
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
    rows = rows_of(run, "numbers", numbers.table)
    is_drawn = not run.config.get("waves_alone")  # else one layer, and no unseen values
    chart = partial(
        chart_of,
        rows,
        [run],
        name="numbers",
        title="Is a number a line, a wave or a table?",
        caption=_caption,
        notes=_notes,
        draw=_draw,
        small_table=_tests,
    )
    return with_predictions(
        rows, run, chart if is_drawn else None, name="numbers", about="numbers", note=NOTE
    )


def _shown(table: DataFrame) -> DataFrame:
    """The rows of swaps of A: of the main subject, or of the first one if it is not there."""
    rows = select(table, kind="swap")
    subjects = keys_of(rows, "subject")
    subject = MAIN if MAIN in subjects else subjects[0]
    own = select(rows, subject=subject)
    return select(own, variable="a" if subject == MAIN else keys_of(own, "variable")[0])


def _caption(table: DataFrame) -> str:
    swaps = _shown(table)
    what = (
        "A line is the share of answers that follow another value, put in by a shape or a control."
    )
    if not has(swaps, space=UNSEEN):
        return what
    rows, parts = select(swaps, space=UNSEEN), []
    for model in keys_of(rows, "model"):
        own = select(rows, model=model)
        best = own.loc[own.value.idxmax()]
        place = "the operand's token" if best.place == OPERAND else "END"
        parts.append(f"{best.value:.0%} in `{model}` ({place}, layer {best.layer:.0f})")
    return (
        f"Of values that it was not fitted to, the best shape writes {' and '.join(parts)}. {what}"
    )


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    return [
        "One-digit sums in nine wordings; A is exchanged, B stays; residual stream at the exit of "
        "each layer. Bands: 95% intervals over problems that were not fitted.",
        "a, b: the source's A replaces the destination's inside the directions of a shape. Others: "
        "one value is left out of the fit, and written into a problem by the shape alone.",
        "Dotted red: waves 10 + line, fitted with the values in another order.",
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Swaps at END, then unseen values at END and at A's token; a column for each model."""
    rows = select(_shown(table), measure=FOLLOWS)
    models = keys_of(rows, "model")
    panels: list[plotting.CurvePanel | None] = []
    headings = []
    for heading, draw, place in ROWS:
        own = select(rows, place=place) if has(rows, place=place) else rows.iloc[:0]
        lines = [draw(select(own, model=model)) for model in models] if len(own) else []
        if any(lines):
            headings.append(heading)
            titles = map(plotting.plain, models)
            panels += [
                plotting.CurvePanel(title, part, y_range=(0, 102))
                for title, part in zip(titles, lines, strict=True)
            ]
    return plotting.curve_panels(
        panels,
        x_title="layer",
        unit="%",
        notes=notes,
        headings=headings,
        across=len(models),
        panel=(300, 205),
    )


def _swaps(rows: DataFrame) -> tuple[plotting.Line, ...]:
    """The swaps of each shape, and of the controls of the helix."""
    return (
        *_lines(select(rows, space=OWN), "shape", {key: (*SHAPES[key], "solid") for key in SHAPES}),
        *_lines(select(rows, shape=HELIX), "space", SPACES),
    )


def _unseen(rows: DataFrame) -> tuple[plotting.Line, ...]:
    """The unseen values of each shape, and those of permuted labels."""
    styles = {key: (*SHAPES[key], "solid") for key in SHAPES}
    permuted = select(rows, shape=HELIX)
    return (
        *_lines(select(rows, space=UNSEEN), "shape", styles),
        *_lines(permuted, "space", {UNSEEN_LABELS: PERMUTED}),
    )


def _lines(
    rows: DataFrame, key: str, styles: Mapping[str, tuple[str, str, str]]
) -> Iterator[plotting.Line]:
    for one, (name, colour, dash) in styles.items():
        if has(rows, **{key: one}):
            yield line(select(rows, **{key: one}), name, colour, x="layer", dash=dash)


ROWS = (
    ("A is swapped at END", _swaps, END),
    ("An unseen A is written at END", _unseen, END),
    ("An unseen A is written at A's token", _unseen, OPERAND),
)
"""The rows of panels: heading, lines and place."""


def _tests(table: DataFrame) -> DataFrame:
    """One line for each model, subject, value, place, layer and shape; unseen values first."""
    keys = ["model", "subject", "variable", "place", "layer", "shape"]
    lines = []
    for parts, spaces in select(table, kind="swap").groupby(keys, sort=False):
        model, subject, variable, place, layer, shape = cast("tuple[Any, ...]", parts)
        named = {one.space: percent_text(one) for one in records(spaces)}
        at = f"{variable} at {'END' if place == END else 'its token'}"
        start = {"model": model, "problems": subject, "number": at, "layer": f"{layer:.0f}"}
        cells = {name: named.get(space, "") for space, name in COLUMNS.items()}
        lines.append(start | {"shape": shape} | cells)
    return DataFrame(lines)
