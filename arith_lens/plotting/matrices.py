"""Matrices with named rows, in groups of columns; and one grid of numbers among line charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.page import (
    LEFT,
    LINE,
    RIGHT,
    TOP,
    Box,
    Page,
    Sheet,
    axis_names,
    bear_colours,
    panel_axes,
    panel_refs,
    plain,
    text_box,
    wrapped,
)
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    colour_scale,
    is_dark,
    rising_scale,
    step_texts,
    symmetric_limit,
    tick_texts,
    ticks,
)

_SPAN, _WIDEST, _HEIGHT, _GAP = (
    860,
    30,
    24,
    14,
)  # pixels: all cells of a row, a cell, between groups
_FEET, _BETWEEN = 36, 46


@dataclass(frozen=True)
class Columns:
    """Columns under one name."""

    title: str
    """The name; plain text."""
    names: tuple[str, ...]
    values: Float[np.ndarray, "row column"]
    foot: tuple[str, ...] = ()
    """Small text below each column; may be empty."""


@dataclass(frozen=True)
class Matrix:
    """One panel: rows and groups of columns."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    rows: tuple[str, ...]
    """The names of the rows."""
    groups: tuple[Columns, ...]
    strong: tuple[bool, ...] = ()
    """Which names of rows are bold."""
    foot: str = ""
    """The meaning of the small text below."""


def matrix_panels(
    parts: Sequence[Matrix],
    *,
    colour_title: str,
    unit: str = "",
    digits: int = 0,
    limit: Number | None = None,
    upright: bool = False,
    rising: bool = False,
    notes: Sequence[str] = (),
) -> Figure:
    """Panels one below the other. Cells that are wide enough contain their numbers.

    Args:
        parts: the panels.
        colour_title: the title of the colour bar.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        digits: the number of decimals in cells.
        limit: the end of the colour scale; None: `symmetric_limit` of all cells.
        upright: whether to print all columns' names, rotated; else every fourth if cells are
            narrow.
        rising: whether the colours begin at 0, for numbers that are not negative.
        notes: lines below the panels (plain text).

    Raises:
        ValueError: there is no panel, or values of a group do not fit its names.
    """
    for part in parts:
        for group in part.groups:
            if group.values.shape != (len(part.rows), len(group.names)):
                raise ValueError(
                    f"expected values of {len(part.rows)} rows and {len(group.names)} columns in "
                    f"{group.title!r}, found {group.values.shape}"
                )
    if not parts:
        raise ValueError("expected a panel at least, found none")
    cells = np.concatenate([group.values.ravel() for part in parts for group in part.groups])
    end = symmetric_limit(cells) if limit is None else limit
    names = [name for part in parts for group in part.groups for name in group.names]
    feet = max([_FEET, *(text_box(name, 11)[0] + 12 for name in names)]) if upright else _FEET
    page, cell = _page(parts, notes, feet)
    sheet = Sheet(page)
    sheet.set_colours(end, unit)
    bear_colours(sheet)
    if rising:
        at = [0.0, end / 2, float(end)]
        colour_bar = {"tickvals": at, "ticktext": step_texts(at, unit)}
        sheet.update_coloraxes(cmin=0, colorscale=rising_scale(), colorbar=colour_bar)
    for index, part in enumerate(parts):
        _add_part(sheet, part, index, (cell, end), (unit, digits), upright)
        sheet.add_title(part.title, index, lift=24)
    sheet.add_colour_title(colour_title)
    return sheet.finished(left=LEFT)


def _page(parts: Sequence[Matrix], notes: Sequence[str], feet: Number) -> tuple[Page, int]:
    """The page, and the width of a cell."""
    most = max(sum(len(group.names) for group in part.groups) for part in parts)
    cell = max(min(_SPAN // most, _WIDEST), 6)
    boxes: list[Box] = []
    top: Number = TOP + 12
    left = LEFT + max(text_box(name, 12)[0] for part in parts for name in part.rows) - 30
    for part in parts:
        width = sum(len(group.names) for group in part.groups) * cell
        width += _GAP * (len(part.groups) - 1)
        boxes.append(Box(left, top, left + width, top + _HEIGHT * len(part.rows)))
        top = boxes[-1].bottom + feet + _BETWEEN
    right = max(box.right for box in boxes) + RIGHT
    lines = wrapped(notes, right)
    return Page(
        (right, boxes[-1].bottom + feet + 26 + LINE * len(lines)), tuple(boxes), lines
    ), cell


def _add_part(
    sheet: Sheet,
    part: Matrix,
    index: int,
    scale: tuple[int, Number],
    show: tuple[str, int],
    upright: bool,
) -> None:
    """Draw cells, numbers, frames and names of one panel. A cell is 1 x 1 on its axes."""
    cell, end = scale
    box = sheet.page.boxes[index]
    start, centres, names = 0.0, [], []
    for group in part.groups:
        middle = start + np.arange(len(group.names))
        _add_cells(sheet, part, group, middle, index, (end, *show))
        if cell >= 26:
            _add_numbers(sheet, group, middle, index, (end, show[1]))
        above = (box.left + (start + len(group.names) / 2) * cell, box.top - 6)
        sheet.write(plain(group.title), above, size=11, ink=NOTE, anchor=("center", "bottom"))
        step = 1 if cell >= 20 or upright else 4
        centres += [*middle[::step]]
        names += [plain(name) for name in group.names[::step]]
        for at, text in zip(middle, group.foot, strict=False):
            below = (box.left + (at + 0.5) * cell, box.bottom + 20)
            sheet.write(plain(text), below, size=9, ink=NOTE, anchor=("center", "top"))
        start += len(group.names) + _GAP / cell
    if part.foot:
        below = (box.left - 8, box.bottom + 19)
        sheet.write(plain(part.foot), below, size=10, ink=NOTE, anchor=("right", "top"))
    _set_axes(sheet, part, index, (centres, names, start - _GAP / cell), -90 if upright else 0)


def _add_cells(
    sheet: Sheet,
    part: Matrix,
    group: Columns,
    middle: Float[np.ndarray, " column"],
    index: int,
    show: tuple[Number, str, int],
) -> None:
    """Draw one bar per cell, which is a rectangle in every format, and the group's frame."""
    end, unit, digits = show
    rows, columns = np.indices(group.values.shape)
    values = group.values.ravel().tolist()
    where = [f"{plain(part.rows[r])}, {plain(group.names[c])}"
             for r, c in zip(rows.ravel(), columns.ravel(), strict=True)]  # fmt: skip
    sheet.add_bar(
        x=middle[columns.ravel()],
        base=rows.ravel() - 0.51,
        y=np.full(rows.size, 1.02),
        width=1.02,
        marker={"color": [colour_at(value, end) for value in values], "line": {"width": 0}},
        customdata=list(zip(where, values, strict=True)),
        hovertemplate=f"{plain(group.title)}<br><b>%{{customdata[0]}}</b>: "
        f"%{{customdata[1]:+.{digits + 1}f}}{plain(unit)}<extra></extra>",
        **panel_axes(index),
    )
    corners = (middle[0] - 0.5, -0.5), (middle[-1] + 0.5, len(group.values) - 0.5)
    sheet.add_shape("rect", *corners, index, line={"width": 1, "color": FRAME})


def _add_numbers(
    sheet: Sheet,
    group: Columns,
    middle: Float[np.ndarray, " column"],
    index: int,
    scale: tuple[Number, int],
) -> None:
    """Write the numbers of cells that are not exactly 0, readable on their colour."""
    end, digits = scale
    cells = [at for at, value in np.ndenumerate(group.values) if np.isfinite(value) and value]
    texts = [f"{group.values[at]:.{digits}f}".replace("-", "−") for at in cells]
    small = [not text.strip("−0.") for text in texts]
    dark = [is_dark(colour_at(float(group.values[at]), end)) for at in cells]
    sheet.add_scatter(
        x=[float(middle[column]) for _, column in cells],
        y=[row for row, _ in cells],
        text=["0" if zero else text for text, zero in zip(texts, small, strict=True)],
        mode="text",
        textfont={
            "size": 10,
            "color": [
                "white" if white else NOTE if zero else TEXT
                for white, zero in zip(dark, small, strict=True)
            ],
        },
        hoverinfo="skip",
        **panel_axes(index),
    )


def _set_axes(
    sheet: Sheet, part: Matrix, index: int, across: tuple[list[float], list[str], Number], turn: int
) -> None:
    centres, names, width = across
    strong = part.strong or (False,) * len(part.rows)
    x = {
        "range": [-0.5, width - 0.5],
        "tickvals": centres,
        "ticktext": names,
        "tickangle": turn,
        "ticks": "",
    }
    y = {
        "range": [len(part.rows) - 0.5, -0.5],
        "tickvals": list(range(len(part.rows))),
        "ticktext": [
            f"<b>{plain(name)}</b>" if bold else plain(name)
            for name, bold in zip(part.rows, strong, strict=True)
        ],
        "tickfont": {"size": 12, "color": TEXT},
        "ticklabelstandoff": 5,
        "ticks": "",
    }
    sheet.set_axes(index, x, y)


@dataclass(frozen=True)
class Grid:
    """Numbers in rows and columns, with row 0 at the top."""

    values: Float[np.ndarray, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    winners: tuple[int, ...] = ()
    """For each row, the column whose name is printed in its cell."""
    framed: int | None = None
    """The column with a frame around it."""
    axes: tuple[str, str] = ("", "")
    colour_title: str = ""
    """The title of the colour bar; plain text."""


def add_grid(figure: Figure, index: int, grid: Grid, *, hover: str = "%{z:.3f}") -> None:
    """Draw a grid in the panel `index` of `curve_panels`, which has no lines.

    Positive numbers are red: what supports an answer has the same colour as in a map of effects,
    where its loss is negative.
    """
    x_axis, y_axis = axis_names(index)
    end = symmetric_limit(grid.values)
    row, column = map(plain, grid.axes)
    figure.add_heatmap(
        z=grid.values,
        zmin=-end,
        zmax=end,
        colorscale=colour_scale(),
        reversescale=True,
        colorbar=_colour_bar(figure, index, grid.colour_title, end),
        hovertemplate=f"{row} %{{y}}, {column} %{{x}}: {hover}<extra></extra>",
        **panel_axes(index),
    )
    n_rows, n_columns = grid.values.shape
    _ticks(figure, x_axis, grid.columns, grid.axes[1], [-0.5, n_columns - 0.5])
    _ticks(figure, y_axis, grid.rows, grid.axes[0], [n_rows - 0.5, -0.5])
    for position, winner in enumerate(grid.winners):
        strong = abs(grid.values[position, winner]) > 0.55 * end
        figure.add_annotation(
            x=winner,
            y=position,
            text=f"<b>{plain(grid.columns[winner])}</b>",
            showarrow=False,
            font={"size": 12, "color": "white" if strong else TEXT},
            **panel_refs(index),
        )
    _box(figure, index, (-0.5, n_columns - 0.5), n_rows, FRAME)
    if grid.framed is not None:
        _box(figure, index, (grid.framed - 0.5, grid.framed + 0.5), n_rows, TEXT)


def _colour_bar(figure: Figure, index: int, title: str, end: Number) -> dict[str, Any]:
    """A colour bar right of a panel, as high as the panel."""
    x_axis, y_axis = (figure.layout[name] for name in axis_names(index))
    low, high = y_axis.domain
    return {
        "x": x_axis.domain[1] + 14 / figure.layout.width,
        "xanchor": "left",
        "xpad": 0,
        "y": low,
        "yanchor": "bottom",
        "ypad": 0,
        "lenmode": "fraction",
        "len": high - low,
        "thickness": 12,
        "outlinewidth": 0,
        "tickvals": ticks(end),
        "ticktext": tick_texts(end, ""),
        "tickfont": {"size": 11, "color": NOTE},
        "title": {"text": plain(title), "font": {"size": 12, "color": TEXT}, "side": "right"},
    }


def _ticks(
    figure: Figure, axis: str, names: Sequence[str], title: str, range_: Sequence[float]
) -> None:
    figure.layout[axis].update(
        range=range_,
        tickvals=list(range(len(names))),
        ticktext=[plain(name) for name in names],
        ticks="",
        showline=False,
        showgrid=False,
        zeroline=False,
        title_text=plain(title),
    )


def _box(figure: Figure, index: int, across: tuple[float, float], n_rows: int, ink: str) -> None:
    figure.add_shape(
        type="rect",
        x0=across[0],
        x1=across[1],
        y0=-0.5,
        y1=n_rows - 0.5,
        line={"width": 1, "color": ink},
        **panel_refs(index),
    )
