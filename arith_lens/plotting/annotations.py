"""What is drawn over maps: outlines, labels, dots."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from arith_lens.plotting.labels import cell_box, place_labels
from arith_lens.plotting.layout import HEADING, RIGHT, Geometry, Panel
from arith_lens.plotting.page import Page, plain, write
from arith_lens.plotting.style import NOTE, TEXT, Figure, Number, colour_at, is_dark


def add_colour_title(figure: Figure, title: str, page: Page) -> None:
    """What the colours mean, above the colour bar."""
    write(figure, title, (page.size[0] - RIGHT + 22, page.boxes[0].top + 30), page)


def add_headings(figure: Figure, headings: Sequence[str], across: int, page: Page) -> None:
    """A line of plain text above each row of panels."""
    for row, heading in enumerate(headings):
        box = page.boxes[row * across]
        at = (box.left, box.top - 8 - HEADING)
        write(figure, plain(heading), at, page, size=15, font={"weight": 600})


def add_marks(figure: Figure, part: Panel, index: int, place: Geometry, end: Number) -> None:
    """Outlines, dots and labels of one panel."""
    axes = {"xref": f"x{index + 1}", "yref": f"y{index + 1}"}
    for mark in part.marks:
        figure.add_shape(
            type="rect",
            x0=mark.column - 0.5,
            x1=mark.column + 0.5,
            y0=mark.row - 0.5,
            y1=mark.row + 0.5,
            line={"width": 1.2 if mark.strong else 1, "color": TEXT if mark.strong else NOTE},
            **axes,
        )
    for row, column in part.dots:
        figure.add_shape(**_dot(row, column, place), **axes)
    _add_labels(figure, part, place, end, axes)


def _dot(row: int, column: int, place: Geometry) -> dict[str, Any]:
    """In the middle of a small cell; in the lower corner of one that may hold its label."""
    width, height = place.cell
    right, down = (0, 0) if width < 30 else (width / 2 - 6, height / 2 - 6)
    return {
        "type": "circle",
        "xsizemode": "pixel",
        "ysizemode": "pixel",
        "xanchor": column,
        "yanchor": row,
        "x0": right - 2.5,
        "x1": right + 2.5,
        "y0": -down - 2.5,
        "y1": -down + 2.5,
        "fillcolor": TEXT,
        "line": {"width": 0.8, "color": "white"},
    }


def _add_labels(
    figure: Figure, part: Panel, place: Geometry, end: Number, axes: dict[str, str]
) -> None:
    named = [mark for mark in part.marks if mark.text]
    boxes = place_labels(
        [(mark.row, mark.column) for mark in named],
        [mark.text for mark in named],
        np.abs(part.values),
        cell=place.cell,
        size=place.label,
        avoid=[(mark.row, mark.column) for mark in part.marks] + list(part.dots),
    )
    for mark, box in zip(named, boxes, strict=True):
        inside = box == cell_box(mark.row, mark.column, place.cell)
        fill = colour_at(float(part.values[mark.row, mark.column]), end)
        ink = TEXT if mark.strong else NOTE
        if inside:
            ink = "white" if is_dark(fill) else TEXT
        x, y = box.centre
        figure.add_annotation(
            text=plain(mark.text),
            x=x / place.cell[0] - 0.5,
            y=y / place.cell[1] - 0.5,
            showarrow=False,
            borderpad=1,
            bgcolor=None if inside else "rgba(255,255,255,.82)",
            font={"size": place.label, "weight": 600 if mark.strong else 400, "color": ink},
            **axes,
        )


def add_texts(figure: Figure, part: Panel, index: int, place: Geometry, end: Number) -> None:
    """What is written in the cells of a panel's map and bar, in ink that reads on their colour."""
    rows, columns = np.indices(part.values.shape)
    middle = sum(place.bar_range) / 2
    values = np.concatenate([part.values.ravel(), part.bar])
    figure.add_scatter(
        x=np.concatenate([columns.ravel(), np.full(len(part.bar), middle)]),
        y=np.concatenate([rows.ravel(), np.arange(len(part.bar))]),
        text=[*(text for row in part.texts for text in row), *part.bar_texts],
        mode="text",
        textfont={"size": 9, "color": [_ink(float(value), end) for value in values]},
        hoverinfo="skip",
        cliponaxis=False,
        xaxis=f"x{index + 1}",
        yaxis=f"y{index + 1}",
    )


def _ink(value: Number, end: Number) -> str:
    if abs(value) < end / 30:
        return NOTE
    return "white" if is_dark(colour_at(value, end)) else TEXT
