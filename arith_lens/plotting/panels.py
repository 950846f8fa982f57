"""Several maps side by side, each with its own bar and marked cells, on one colour scale."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import Box, cell_box, place_labels
from arith_lens.plotting.page import (
    HEADING,
    LEFT,
    RIGHT,
    TOP,
    Sheet,
    panel_axes,
    panel_refs,
    plain,
)
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    ink_on,
    symmetric_limit,
    tick_positions,
)

PANEL_SPAN = 384  # pixels of a panel's longer side
_BAR, _BAR_GAP = 20, 12  # pixels: the bar's width, and its distance from the map
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 40, 72
_TITLE_LETTER = 6.6  # pixels of a letter of a title
_SMALLEST = 6  # font size of a number in a cell, at least


@dataclass(frozen=True)
class Mark:
    """One outlined cell, named. `strong` marks are dark, others light."""

    row: int
    column: int
    text: str
    strong: bool = True

    @property
    def at(self) -> tuple[int, int]:
        """Its row and column."""
        return self.row, self.column


@dataclass(frozen=True)
class Panel:
    """One map with a bar beside it, and its marks."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    values: Float[np.ndarray, "row column"]
    """The map."""
    bar: Float[np.ndarray, " row"]
    """The bar beside the map."""
    hover: Float[np.ndarray, "row column number"]
    """Further numbers per cell of the map, for the hover text."""
    bar_hover: Float[np.ndarray, "row number"]
    """The same for the bar."""
    marks: tuple[Mark, ...] = ()
    dots: tuple[tuple[int, int], ...] = ()
    """Cells with a dot."""
    texts: tuple[tuple[str, ...], ...] = ()
    """The texts in the cells, one tuple per row; may contain <b> and <br>."""
    bar_texts: tuple[str, ...] = ()
    """The texts in the cells of the bar."""


@dataclass(frozen=True)
class Geometry:
    """The pixels of one map and its bar, from the map's shape alone."""

    n_rows: int
    n_columns: int
    span: int = PANEL_SPAN
    """The pixels of the map's longer side."""
    fixed: tuple[int, int] | None = None
    """The width and height of a cell; None: from `span`."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell. It fills the panel, at most 1.6 times wider than high."""
        if self.fixed is not None:
            return self.fixed
        height = max(self.span // max(self.n_rows, 8), 4)
        width = max(self.span // max(self.n_columns, 1), 4)
        return min(width, int(1.6 * height)), min(height, int(1.6 * width))

    @property
    def map_size(self) -> tuple[int, int]:
        return self.n_columns * self.cell[0], self.n_rows * self.cell[1]

    @property
    def bar(self) -> int:
        """The bar's width; that of a cell if cells contain texts."""
        return _BAR if self.fixed is None else max(self.fixed[0], _BAR)

    @property
    def panel_width(self) -> int:
        return self.map_size[0] + _BAR_GAP + self.bar

    @property
    def bar_range(self) -> tuple[Number, Number]:
        """The bar's left and right end on the map's x axis, in units of cells."""
        start = self.n_columns - 0.5 + _BAR_GAP / self.cell[0]
        return start, start + self.bar / self.cell[0]

    @property
    def label(self) -> Number:
        """Font size of labels beside cells."""
        return 10.5 if self.span >= PANEL_SPAN else 9

    @property
    def most_ticks(self) -> int:
        """The largest number of ticks. If cells are large, every row and column has one."""
        return 9 if self.fixed is None else max(self.n_rows, self.n_columns, 1)


def _sheet(
    geometries: Sequence[Geometry],
    across: int,
    notes: Sequence[str],
    headings: Sequence[str],
    titles: Sequence[str],
) -> Sheet:
    """The page. Columns and rows have the size of their largest panel.

    A column is wide enough for its titles beside those of the next one. A panel's box is its map
    with the bar. A row with a heading has room for it above.
    """
    lefts, x = [], LEFT
    for column in range(across):
        lefts.append(x)
        maps = max(geometry.panel_width for geometry in geometries[column::across])
        written = max(_title_width(title) for title in titles[column::across])
        x += max(maps + _BETWEEN_COLUMNS, written)
    boxes: list[Box] = []
    bottom = TOP - _BETWEEN_ROWS
    for start in range(0, len(geometries), across):
        row = geometries[start : start + across]
        headed = bool(headings and headings[start // across])
        top = bottom + _BETWEEN_ROWS + HEADING * headed
        bottom = top + max(geometry.map_size[1] for geometry in row)
        boxes += [
            Box(left, top, left + geometry.panel_width, top + geometry.map_size[1])
            for left, geometry in zip(lefts[: len(row)], row, strict=True)
        ]
    return Sheet((x - _BETWEEN_COLUMNS + RIGHT, bottom + 62), boxes, notes)


def _title_width(title: str) -> int:
    """About the pixels of a title with its letter and a gap after it."""
    letters = html.unescape(re.sub("<[^>]*>", "", title))
    return round(_TITLE_LETTER * len(f"a  {letters}  "))


def _add_marks(
    sheet: Sheet, part: Panel, index: int, geometry: Geometry, end: Number
) -> set[tuple[int, int]]:
    """Draw outlines, dots and labels of one panel; the cells with a label inside."""
    for mark in part.marks:
        corners = (mark.column - 0.5, mark.row - 0.5), (mark.column + 0.5, mark.row + 0.5)
        line = {"width": 1.2, "color": TEXT} if mark.strong else {"width": 1, "color": NOTE}
        sheet.add_shape("rect", *corners, index, line=line)
    named = [mark for mark in part.marks if mark.text]
    labelled = {mark.at for mark in named}
    for dot in part.dots:
        _add_dot(sheet, dot, index, geometry, beside=dot in labelled)
    filled = set[tuple[int, int]]()
    if not part.texts:  # values beyond the scale are written
        filled = {(row, column) for row, column in np.argwhere(np.abs(part.values) > end).tolist()}
    boxes = place_labels(
        [mark.at for mark in named],
        [mark.text for mark in named],
        np.abs(part.values),
        cell=geometry.cell,
        size=geometry.label,
        avoid=[*(mark.at for mark in part.marks), *part.dots],
        filled=filled,
    )
    within = set[tuple[int, int]]()
    for mark, box in zip(named, boxes, strict=True):
        inside = box == cell_box(*mark.at, geometry.cell)
        if inside:
            within.add(mark.at)
        ink = TEXT if mark.strong else NOTE
        x, y = box.centre
        sheet.add_annotation(
            text=plain(mark.text),
            x=x / geometry.cell[0] - 0.5,
            y=y / geometry.cell[1] - 0.5,
            yshift=6 if inside and mark.at in filled else 0,
            showarrow=False,
            borderpad=1,
            bgcolor=None if inside else "rgba(255,255,255,.82)",
            font={
                "size": geometry.label,
                "weight": 600 if mark.strong else 400,
                "color": ink_on(colour_at(float(part.values[mark.at]), end)) if inside else ink,
            },
            **panel_refs(index),
        )
    return within


def _add_dot(
    sheet: Sheet, at: tuple[int, int], index: int, geometry: Geometry, *, beside: bool
) -> None:
    """A dot in the lower corner of a large cell; in the middle of a small one, or on its edge.

    On the edge it is beside the label of the cell.
    """
    width, height = geometry.cell
    right, down = (width / 2 - 6, height / 2 - 6) if width >= 30 else (beside * width / 2, 0)
    sheet.add_shape(
        "circle",
        (right - 2.5, -down - 2.5),
        (right + 2.5, -down + 2.5),
        index,
        xsizemode="pixel",
        ysizemode="pixel",
        xanchor=at[1],
        yanchor=at[0],
        fillcolor=TEXT,
        line={"width": 0.8, "color": "white"},
    )


def _add_texts(sheet: Sheet, part: Panel, index: int, geometry: Geometry, end: Number) -> None:
    """Write the texts in the cells of a panel's map and bar, readable on their colour."""
    rows, columns = np.indices(part.values.shape)
    middle = sum(geometry.bar_range) / 2
    x = np.concatenate([columns.ravel(), np.full(len(part.bar), middle)])
    y = np.concatenate([rows.ravel(), np.arange(len(part.bar))])
    texts = [*(text for row in part.texts for text in row), *part.bar_texts]
    values = np.concatenate([part.values.ravel(), part.bar]).tolist()
    inks = [NOTE if abs(value) < end / 30 else ink_on(colour_at(value, end)) for value in values]
    sheet.write_in_cells(index, (x, y), texts, size=9, inks=inks, cliponaxis=False)


def _add_clipped(
    sheet: Sheet,
    part: Panel,
    index: int,
    geometry: Geometry,
    end: Number,
    named: set[tuple[int, int]],
) -> None:
    """Write the values beyond the colour scale's ends in their cells, below names inside."""
    middle = sum(geometry.bar_range) / 2
    cells = [(*at, value, geometry.cell[0]) for at, value in np.ndenumerate(part.values)]
    cells += [(row, middle, value, geometry.bar) for row, value in enumerate(part.bar)]
    for row, column, value, width in cells:
        if not abs(value) > end:
            continue
        text = f"{value:+.0f}" if end >= 2 else f"{value:+.1g}"
        size = min(9.0, (width - 1) / (0.58 * len(text)), geometry.cell[1] - 2.0)
        sheet.add_annotation(
            text=text.replace("-", "−"),
            x=column,
            y=row,
            **panel_refs(index),
            yshift=-8 if (row, column) in named else 0,
            showarrow=False,
            borderpad=0,
            font={"size": max(size, _SMALLEST), "color": "white"},
        )


def panels(
    parts: Sequence[Panel | None],
    *,
    axes: tuple[str, str],
    bar_name: str,
    colour_title: str,
    hover: tuple[str, str],
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    unit: str = "",
    across: int = 2,
    span: int = PANEL_SPAN,
    cell: tuple[int, int] | None = None,
    limit: Number | None = None,
) -> Figure:
    """Maps with bars on a grid, with letters a, b, c…, one colour scale, and row 0 at the top.

    A value beyond the ends of the colour scale is printed in its cell.

    Args:
        parts: the panels, row after row, with maps of any shape; None is an empty position.
        axes: the names of the maps' rows and columns, such as `("layer", "head")`.
        bar_name: the name of the bars.
        colour_title: the title of the colour bar.
        hover: plotly hover templates of a map's and a bar's cell, with x, y, z and customdata.
        notes: lines below the panels (plain text).
        headings: a line above each row of panels (plain text); an empty one leaves no room.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        across: the number of panels in a row.
        span: the pixels of the longer side of each map.
        cell: the width and height of the cells in pixels, instead of `span`.
        limit: the end of the colour scale; None: `symmetric_limit` of all maps and bars.

    Raises:
        ValueError: there is no panel, or not one heading per row.
    """
    present = [part for part in parts if part is not None]
    across = min(across, len(parts))
    if not present or (headings and len(headings) != -(-len(parts) // across)):
        raise ValueError(
            f"expected a panel at least and, if any, a heading for each row of {across}, found "
            f"{len(present)} panels and {len(headings)} headings"
        )
    everything = np.concatenate([np.append(p.values.ravel(), p.bar.ravel()) for p in present])
    end = symmetric_limit(everything) if limit is None else limit
    shapes = [(part or present[0]).values.shape for part in parts]
    geometries = [Geometry(rows, columns, span, cell) for rows, columns in shapes]
    titles = [part.title if part else "" for part in parts]
    sheet = _sheet(geometries, across, notes, headings, titles)
    sheet.set_colours(end, unit, colour_title)
    for index, (part, geometry) in enumerate(zip(parts, geometries, strict=True)):
        if part is not None:
            _add_cells(sheet, part, index, geometry, hover)
            _set_axes(sheet, index, geometry, axes, bar_name, across)
            _add_frames(sheet, index, geometry)
            sheet.add_title(part.title, index)
            named = _add_marks(sheet, part, index, geometry, end)
            if part.texts:
                _add_texts(sheet, part, index, geometry, end)
            else:
                _add_clipped(sheet, part, index, geometry, end, named)
    sheet.add_headings(headings, across)
    return sheet.finished()


def _add_cells(
    sheet: Sheet, part: Panel, index: int, geometry: Geometry, hover: tuple[str, str]
) -> None:
    """Draw a heat map and its bar."""
    start, stop = geometry.bar_range
    shared = {"coloraxis": "coloraxis", **panel_axes(index)}
    sheet.add_heatmap(
        z=part.values,
        customdata=part.hover,
        hovertemplate=hover[0] + "<extra></extra>",
        **shared,
    )
    sheet.add_heatmap(
        z=part.bar[:, None],
        x0=(start + stop) / 2,
        dx=stop - start,
        customdata=part.bar_hover[:, None],
        hovertemplate=hover[1] + "<extra></extra>",
        **shared,
    )


def _set_axes(
    sheet: Sheet,
    index: int,
    geometry: Geometry,
    axes: tuple[str, str],
    bar_name: str,
    across: int,
) -> None:
    start, stop = geometry.bar_range
    columns = tick_positions(geometry.n_columns, geometry.most_ticks)
    rows = tick_positions(geometry.n_rows, geometry.most_ticks)
    x = {
        "range": [-0.5, stop],
        "tickvals": [*columns, (start + stop) / 2],
        "ticktext": [*map(str, columns), f"<b>{bar_name}</b>"],
        "title_text": axes[1].capitalize() if index + across >= len(sheet.boxes) else None,
    }
    y = {
        "range": [geometry.n_rows - 0.5, -0.5],
        "tickvals": rows,
        "ticktext": [str(row) for row in rows],
        "title_text": axes[0].capitalize() if index % across == 0 else None,
    }
    sheet.set_axes(index, x, y)


def _add_frames(sheet: Sheet, index: int, geometry: Geometry) -> None:
    """Draw frames around map and bar, and thin lines every eight cells if there are many."""
    start, stop = geometry.bar_range
    bottom, right = geometry.n_rows - 0.5, geometry.n_columns - 0.5
    hairline = {"width": 1, "color": "rgba(31,36,48,.10)"}
    for x in np.arange(7.5, right, 8) if geometry.n_columns > 12 else ():
        sheet.add_shape("line", (x, -0.5), (x, bottom), index, line=hairline)
    for y in np.arange(7.5, bottom, 8) if geometry.n_rows > 12 else ():
        sheet.add_shape("line", (-0.5, y), (right, y), index, line=hairline)
    for x0, x1 in ((-0.5, right), (start, stop)):
        frame = {"width": 1, "color": FRAME}
        sheet.add_shape("rect", (x0, -0.5), (x1, bottom), index, line=frame)
