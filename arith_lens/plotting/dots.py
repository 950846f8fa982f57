"""Dots with intervals on named rows: what a change does, or a mark for each of several things."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import XY, Box, text_box, widest
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    MOST_LINES,
    TOP,
    Sheet,
    heading_height,
    name_axis,
    panel_axes,
    plain,
    value_axis,
)
from arith_lens.plotting.style import GRID, NOTE, TEXT, Figure, Number, step_texts
from arith_lens.plotting.widths import is_narrow, page_height, page_width

ROW, LOWEST_ROW, NARROWEST = 17, 13, 80
"""Pixels of a row, at most and at least, and of a panel, at least."""
BETWEEN, BELOW, FOOT, KEY_LINE, NAME, NAME_LINE, PITCH = 26, 18, 40, 17, 11, 16, 18


@dataclass(frozen=True)
class Dots:
    """One dot per row, with its interval between `low` and `high`. NaN: no dot."""

    values: Float[np.ndarray, " row"]
    name: str
    """In the key above the panels and in the hover; plain text."""
    colour: str = TEXT
    low: Float[np.ndarray, " row"] | None = None
    high: Float[np.ndarray, " row"] | None = None
    symbol: str = "circle"
    """Plotly's name of the mark."""
    shift: float = 0.0
    """How far below the middle of its row, as a share of the row's height."""


@dataclass(frozen=True)
class DotPanel:
    """Named rows with the dots of one or more series."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    rows: tuple[str, ...]
    """The names of the rows; plain text."""
    series: tuple[Dots, ...]
    strong: tuple[bool, ...] = ()
    """Which names are bold; empty: none."""


@dataclass(frozen=True)
class DotAxis:
    """The x axis of panels."""

    ends: tuple[Number, Number]
    title: str = ""
    unit: str = ""
    """Printed after numbers of the axis; the numbers are not changed."""
    columns: tuple[str, ...] = ()
    """The names of the places 0, 1, 2… in place of numbers; plain text. The names of rows stand
    right of the marks then, and these names in lines above the first panel of each column."""
    level: float | None = None
    """A dashed line that numbers are compared with; it has a tick in place of those around it."""


def dot_panels(
    parts: Sequence[DotPanel],
    axes: DotAxis | tuple[DotAxis, ...],
    *,
    across: int = 4,
    headings: Sequence[str] = (),
    row: Number = ROW,
    notes: Sequence[str] = (),
) -> Figure:
    """Panels of dots; the names of rows are printed once if a line of panels shares them.

    Args:
        parts: the panels, row after row.
        axes: the x axis of all panels, or one of each panel of a row, which has the width of its
            range, so that all have one scale.
        across: the most panels in a row.
        headings: a line above each row of panels (plain text); if any, one per row.
        row: the pixels of a row, as far as the page has the room.
        notes: lines below the panels (plain text).

    Raises:
        ValueError: a series does not have one number per row.
    """
    for part in parts:
        lengths = [len(one.values) for one in part.series]
        if any(length != len(part.rows) for length in lengths):
            raise ValueError(
                f"expected a number for each of {len(part.rows)} rows in {part.title!r}, found "
                f"{lengths}"
            )
    every = axes if isinstance(axes, tuple) else (axes,)
    named = any(axis.columns for axis in every)
    wished = min(across, len(parts))
    marks = PITCH * max(len(axis.columns) for axis in every)
    over = _over(parts, named)
    least = 24 if named else max(widest(one.rows, NAME) for one in parts) if over else NARROWEST
    fits = [n for n in range(wished, 0, -1) if wished % n == 0 and _width(parts, n, named) >= least]
    many = fits[0] if fits else 1
    headings = [text for one in headings for text in (one, *[""] * (wished // many - 1))]
    above = 6 * named + max(NAME_LINE * len(axis.columns) for axis in every)
    below = 4 if named else BELOW
    spans = [axis.ends[1] - axis.ends[0] for axis in every]
    spans = spans if len(spans) == many else [1] * many
    sheet = _sheet(parts, spans, headings, notes, (row, above, below, marks))
    own_names = named or not _share_names(parts, many)
    gutters = [width - 12 if own_names else 0 for width in _gutters(parts, many, named)]
    for index, part in enumerate(parts):
        axis = every[index % len(every)]
        _set_axes(sheet, parts, index, many, axis, over)
        for one in sorted(part.series, key=lambda one: one.symbol != LEVEL):
            _add_dots(sheet, part, one, index, axis, over)
        if index < many:
            _add_column_names(sheet, index, axis)
        box = sheet.boxes[index]
        left = box.right + 4 if named else box.left - gutters[index % many]
        sheet.add_title(part.title, index, left=left)
    for text, at in _key(parts):
        sheet.write(text, at, size=NAME, anchor=("left", "middle"))
    left = 12 if own_names else LEFT
    sheet.add_headings(headings, many, lift=8 + above, left=left)
    return sheet.finished(left=12)


def _share_names(parts: Sequence[DotPanel], across: int) -> bool:
    """Whether all panels of each line have the same rows."""
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    return all(part.rows == line[0].rows for line in lines for part in line)


def _over(parts: Sequence[DotPanel], named: bool) -> int:
    """The pixels of a name above its row, where names left of the rows have no room; else 0."""
    longest = max(widest(part.rows, NAME) for part in parts)
    return NAME_LINE * (is_narrow() and not named and longest > 0.4 * page_width())


def _gutters(parts: Sequence[DotPanel], across: int, named: bool) -> list[Number]:
    """The pixels of the names of rows left of each column of panels."""
    shared = _share_names(parts, across)
    columns = [parts if shared else parts[column::across] for column in range(across)]
    names = ((name for part in column for name in part.rows) for column in columns)
    over = _over(parts, named)
    widths = [14 + widest(some, NAME) * 1.02 * (not over) for some in names]
    return [width * (not shared or column == 0) for column, width in enumerate(widths)]


def _width(parts: Sequence[DotPanel], across: int, named: bool) -> Number:
    """The pixels of each of so many panels in a row."""
    between = BETWEEN * (across - 1)
    return (page_width() - sum(_gutters(parts, across, named)) - between - 22) / across


def _sheet(
    parts: Sequence[DotPanel],
    spans: Sequence[Number],
    headings: Sequence[str],
    notes: Sequence[str],
    sizes: tuple[Number, Number, Number, Number],
) -> Sheet:
    """The page: all panels of a line are as high as its largest, and as wide as their spans.

    Sizes: the heights of a row, of the columns' names above the first line, and below each line;
    the width of a panel with names on its right, or 0.
    """
    row, above, below, narrow = sizes
    across = len(spans)
    named = narrow > 0
    gutters = _gutters(parts, across, named)
    whole = across * _width(parts, across, named)
    widths = [narrow or whole * span / sum(spans) for span in spans]
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    n_rows = sum(max(len(part.rows) for part in line) for line in lines)
    above += 11 + max((at[1] for _, at in _key(parts)), default=17)
    rest = above + len(lines) * (TOP + below) + sum(map(heading_height, headings)) + FOOT
    space = page_height() - rest - LINE * MOST_LINES
    over = _over(parts, named)
    row = min(row + over, max(space / n_rows, LOWEST_ROW + over))
    boxes: list[Box] = []
    top: Number = above
    for number, line in enumerate(lines):
        top += TOP + (heading_height(headings[number]) if headings else 0)
        lengths = [len(part.rows) for part in line]
        for column, length in enumerate(lengths):
            left = sum(gutters[: column + 1]) + sum(widths[:column]) + column * BETWEEN
            left = 12 + column * page_width() / across if narrow else left
            high = row * (length if narrow else max(lengths))
            boxes.append(Box(left, top, left + widths[column], top + high))
        top += row * max(lengths) + below
    return Sheet((page_width(), top + (16 if named else FOOT) - below), boxes, notes)


def _set_axes(
    sheet: Sheet, parts: Sequence[DotPanel], index: int, across: int, axis: DotAxis, over: int
) -> None:
    part, box = parts[index], sheet.boxes[index]
    (start, stop), level = axis.ends, axis.level
    lowest = index >= len(parts) - (len(parts) % across or across)
    x: dict[str, Any] = {
        **value_axis(axis.ends, axis.unit),
        "range": axis.ends,
        "zeroline": bool(start < 0 < stop),
    }
    if level is not None:
        at = [one for one in x["tickvals"] if abs(one - level) > 0.15 * (stop - start)] + [level]
        x |= {"tickvals": at, "ticktext": step_texts(at, plain(axis.unit))}
        ends, line = ((level, -0.5), (level, len(part.rows) - 0.5)), {"dash": "3px,2px"}
        sheet.add_shape("line", *ends, index, line={"width": 1, "color": NOTE} | line)
    if axis.columns:
        x |= {"showgrid": False, "showticklabels": False, "zeroline": False}
    else:
        x |= {
            "title_text": axis.title if lowest else None,
            "tickangle": 0,
            "title_standoff": 2,
        }
        if box.right - box.left < 130 and level is None:
            ends = [x["tickvals"][0], 0.0, x["tickvals"][-1]]
            keep = [i for i, value in enumerate(x["tickvals"]) if value in ends]
            x |= {name: [x[name][i] for i in keep] for name in ("tickvals", "ticktext")}
    shows_names = axis.columns or not _share_names(parts, across) or index % across == 0
    y = {**name_axis(part.rows, part.strong), "showticklabels": bool(shows_names)}
    if over:
        high = (box.bottom - box.top) / len(part.rows)
        for row, name in enumerate(y["ticktext"]):
            at = (box.left, box.top + row * high + over / 2)
            sheet.write(name, at, size=NAME, anchor=("left", "middle"), bgcolor="white")
        y |= {"showticklabels": False, "range": [end - over / high / 2 for end in y["range"]]}
    y |= {"showgrid": True, "gridcolor": GRID, "zeroline": False}
    y |= {"side": "right" if axis.columns else "left"}
    sheet.set_axes(index, x, y)


def _add_column_names(sheet: Sheet, index: int, axis: DotAxis) -> None:
    """The names of columns in lines above a panel's title, each with a line to its column."""
    box, (start, stop) = sheet.boxes[index], axis.ends
    for place, name in enumerate(axis.columns):
        at = box.left + (place - start) / (stop - start) * (box.right - box.left)
        low = box.top - TOP + 2 - NAME_LINE * (len(axis.columns) - 1 - place)
        sheet.write(plain(name), (at + 4, low), size=12)
        leader = {"width": 1, "color": NOTE}
        sheet.add_shape("line", (at, low - NAME_LINE + 4), (at, box.top), line=leader)


def _add_dots(
    sheet: Sheet, part: DotPanel, one: Dots, index: int, axis: DotAxis, over: int
) -> None:
    """The dots of a series, with thin lines from the low to the high end."""
    errors, between = None, ""
    is_hollow = one.symbol in HOLLOW  # filled with white, which hides lines below
    rows = np.arange(len(part.rows))
    box = sheet.boxes[index]
    high = (box.bottom - box.top) / len(rows)
    tall = 0.6 * (high - over)
    ends = np.full((len(rows), 2), np.nan)
    if one.low is not None and one.high is not None:
        ends = np.stack([one.low, one.high], axis=-1)
        between = f" (%{{customdata[0]:.3~f}} to %{{customdata[1]:.3~f}}{plain(axis.unit)})"
        errors = {"array": one.high - one.values, "arrayminus": one.values - one.low}
        errors |= {"thickness": 1.2, "width": 2.5, "color": one.colour}
    sheet.add_scatter(
        x=one.values,
        y=rows + one.shift * (1 - over / high),
        mode="markers",
        marker={
            "symbol": one.symbol.replace("-open", "") if is_hollow else one.symbol,
            "size": tall if one.symbol == LEVEL else 9 if axis.columns else 6.5,
            "color": "white" if is_hollow else one.colour,
            "line": {
                "width": 2 if one.symbol == LEVEL else 1.4 if "open" in one.symbol else 0,
                "color": one.colour,
            },
        },
        error_x=errors,
        customdata=ends,
        text=[plain(part.rows[row]) for row in rows],
        hovertemplate=f"%{{text}}, {plain(one.name)}: %{{x:.3~f}}{plain(axis.unit)}{between}"
        "<extra></extra>",
        cliponaxis=False,
        **panel_axes(index),
    )


SIGNS = {"circle": "●", "circle-open": "○", "circle-open-dot": "◉", "square": "■",
         "square-open": "□", "diamond": "◆", "diamond-open": "◇", "x": "✖", "line-ew-open": "–",
         "line-ns-open": "┃", "triangle-down": "▼"}  # fmt: skip
"""The signs of marks in the key."""
LEVEL = "line-ns-open"
"""The mark of a level that others are compared with: as high as its row, below the others."""
HOLLOW = ("circle-open", "circle-open-dot", "square-open", "diamond-open")


def _key(parts: Sequence[DotPanel]) -> list[tuple[str, XY]]:
    """The sign and name of each series as markup, with its pixel, in lines above the panels."""
    every = [one for part in parts for one in part.series]
    keys = dict.fromkeys((one.name, one.colour, one.symbol) for one in every if one.name)
    texts: list[tuple[str, XY]] = []
    left, middle = 12, 17
    for name, colour, symbol in keys:
        width = text_box(name, NAME)[0] + (18 if is_narrow() else 30)
        if texts and left + width > page_width():
            left, middle = 12, middle + KEY_LINE
        sign = f'<span style="color:{colour}">{SIGNS[symbol]}</span>'
        texts.append((f"{sign} {plain(name)}", (left, middle)))
        left += width
    return texts
