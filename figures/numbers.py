"""Is a number a line, a wave or a table? Swaps with controls, and values that were not fitted.

Reads a run of `experiments numbers`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from experiments.numbers import CUBIC, END, HELIX, LINE, MAIN, OPERAND
from figures.common import Options, chosen_run, rows_of
from figures.exhibit import Exhibit, Settings, chart_of, with_predictions
from figures.tables import numbers
from figures.tables.numbers import FOLLOWS
from figures.tables.table import has, keys_of, records, select
from figures.views.lines import line
from figures.views.words import percent_text

GREY = plotting.COLOURS["control"]
SHAPES = {
    HELIX: ("waves + line", plotting.DARK, "solid"),
    CUBIC: ("polynomial", plotting.RUST, "dash"),
    LINE: ("line", plotting.RUST, "dot"),
}
"""The name, the colour and the dashes of each shape, in every panel."""
PERMUTED = ("labels permuted", GREY, "dot")
SPACES = {
    WHOLE: ("whole vector", plotting.GREY, "solid"),
    CONTROLS["pca"]: ("3 directions of PCA", GREY, "solid"),
    CONTROLS["labels"]: PERMUTED,
    CONTROLS["span"]: ("3 random directions", GREY, "dash"),
}
"""What is swapped beside the shapes: the controls of waves with a line are grey."""
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
    n = select(_shown(table), measure=FOLLOWS).n.max()
    return [
        "One-digit sums. A shape is fitted to the residual stream at a layer's exit; unseen: "
        "without the value that it writes. Labels permuted: waves + line, fitted to values in "
        f"another order. Bands: 95% intervals over {n:.0f} problems that were not fitted.",
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
            headings.append(f"Answers that follow {heading}: {_best(lines)}")
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
        panel=(300, 160),
    )


def _best(panels: Sequence[Sequence[plotting.Line]]) -> str:
    """What waves with a line and their control reach at most, in each panel."""
    texts = []
    for name, *_ in (SHAPES[HELIX], PERMUTED):
        most = (max(one.y) for lines in panels for one in lines if one.name == name)
        texts.append(f"{name} {' and '.join(f'{share:.0f}%' for share in most)}")
    return ", ".join(texts) + " at most"


def _swaps(rows: DataFrame) -> tuple[plotting.Line, ...]:
    """The swaps of waves with a line, and of their controls."""
    return (
        *_lines(select(rows, space=OWN, shape=HELIX), "shape", SHAPES),
        *_lines(select(rows, shape=HELIX), "space", SPACES),
    )


def _unseen(rows: DataFrame) -> tuple[plotting.Line, ...]:
    """The unseen values of each shape, and those of permuted labels."""
    return (
        *_lines(select(rows, space=UNSEEN), "shape", SHAPES),
        *_lines(select(rows, shape=HELIX), "space", {UNSEEN_LABELS: PERMUTED}),
    )


def _lines(
    rows: DataFrame, key: str, styles: Mapping[str, tuple[str, str, str]]
) -> Iterator[plotting.Line]:
    for one, (name, colour, dash) in styles.items():
        if has(rows, **{key: one}):
            drawn = line(select(rows, **{key: one}), name, colour, x="layer", dash=dash)
            yield replace(drawn, low=None, high=None) if colour == plotting.RUST else drawn


ROWS = (
    ("a swapped A at END", _swaps, END),
    ("an unseen A at END", _unseen, END),
    ("an unseen A at its token", _unseen, OPERAND),
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
