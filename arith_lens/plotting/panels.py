"""Several maps side by side, each with its own strips and marked cells, on one colour scale."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import Box, cell_box, place_labels
from arith_lens.plotting.page import (
    BAR,
    LEFT,
    LINE,
    MOST_LINES,
    TOP,
    Sheet,
    heading_height,
    panel_axes,
    panel_refs,
    plain,
)
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    ROOTED,
    TEXT,
    Figure,
    Number,
    ink_on,
    rooted_colour_at,
    symmetric_limit,
    tick_positions,
)
from arith_lens.plotting.widths import SMALLEST, is_printed, page_height, page_width

PANEL_SPAN = 384  # pixels of a panel's longer side
_STRIP, _STRIP_GAP = 23, 6  # pixels: a strip's width, and its distance from the map
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 8, 54
_NAMES, _STRIP_TITLE = 34, 13  # pixels below a row of panels, and of a title above several strips
_LEAST_CELL = 4  # pixels
LETTER = 0.56  # the width of a figure as a share of the font size
_TAG = re.compile("<[^>]*>")


@dataclass(frozen=True)
class Mark:
    """One cell, named. `strong` marks are outlined, others have a light name alone; doubtful ones
    are dashed."""

    row: int
    column: int
    text: str
    strong: bool = True
    certain: bool = True

    @property
    def at(self) -> tuple[int, int]:
        """Its row and column."""
        return self.row, self.column


@dataclass(frozen=True)
class Panel:
    """One map with strips beside it, and its marks."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    values: Float[np.ndarray, "row column"]
    """The map."""
    strips: Float[np.ndarray, "row strip"]
    """The strips beside the map; NaN is an empty cell."""
    hover: Float[np.ndarray, "row column number"]
    """Further numbers per cell of the map, for the hover text."""
    strip_hover: Float[np.ndarray, "row strip number"]
    """The same for the strips."""
    marks: tuple[Mark, ...] = ()
    dots: tuple[tuple[int, int], ...] = ()
    """Cells with a dot."""
    texts: tuple[tuple[str, ...], ...] = ()
    """The texts in the cells, one tuple per row, for which fewer panels stand in a row; may contain
    <b> and <br>."""
    strip_texts: tuple[tuple[str, ...], ...] = ()
    """The texts in the cells of the strips, one tuple per row."""
    strip_marks: tuple[Mark, ...] = ()
    """Outlined cells of the strips, whose `column` is the strip; without names."""


@dataclass(frozen=True)
class ColourScale:
    """What the colours of all panels of a figure mean."""

    title: str
    """The title of the colour bar."""
    unit: str = ""
    """Printed after each number, such as `"%"`; the numbers are not changed."""
    limit: Number | None = None
    """The end of the scale; None: `symmetric_limit` of all maps and strips."""


@dataclass(frozen=True)
class Geometry:
    """The pixels of one map and its strips, from the map's shape alone."""

    n_rows: int
    n_columns: int
    n_strips: int = 1
    span: int = PANEL_SPAN
    """The pixels of the map's longer side."""
    fixed: tuple[int, int] | None = None
    """The width and height of a cell; None: from `span`."""
    room: Number = 1e6
    """The most pixels across, with the strips."""
    height: Number = float("inf")
    """The most pixels down."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell. It fills the panel, at most 1.6 times wider than high."""
        most = int((self.room - _STRIP_GAP - self.n_strips * self.strip) / max(self.n_columns, 1))
        lowest = max(int(min(self.height, 1e5) / max(self.n_rows, 1)), _LEAST_CELL)
        if self.fixed is not None:
            return max(min(self.fixed[0], most), _LEAST_CELL), min(self.fixed[1], lowest)
        height = max(self.span // max(self.n_rows, 8), _LEAST_CELL)
        width = max(self.span // max(self.n_columns, 1), _LEAST_CELL)
        width = max(min(width, int(1.6 * height), most), _LEAST_CELL)
        return width, min(height, int(1.6 * width), lowest)

    @property
    def map_size(self) -> tuple[int, int]:
        return self.n_columns * self.cell[0], self.n_rows * self.cell[1]

    @property
    def strip(self) -> int:
        """A strip's width; that of a cell if cells contain texts."""
        return _STRIP if self.fixed is None else max(min(self.fixed[0], 30), _STRIP)

    @property
    def panel_width(self) -> int:
        return self.map_size[0] + _STRIP_GAP + self.n_strips * self.strip

    @property
    def strip_range(self) -> tuple[Number, Number]:
        """The strips' left and right end on the map's x axis, in units of cells."""
        start = self.n_columns - 0.5 + _STRIP_GAP / self.cell[0]
        return start, start + self.n_strips * self.strip / self.cell[0]

    @property
    def strip_middles(self) -> Float[np.ndarray, " strip"]:
        """The middles of the strips on the map's x axis."""
        width = self.strip / self.cell[0]
        return self.strip_range[0] + width * (np.arange(self.n_strips) + 0.5)

    def up(self, y: Number) -> Number:
        """A pixel of the map, counted from its top, on its y axis, whose row 0 is at the bottom."""
        return self.n_rows - 0.5 - y / self.cell[1]

    @property
    def label(self) -> Number:
        """Font size of labels beside cells."""
        return SMALLEST

    @property
    def most_ticks(self) -> tuple[int, int]:
        """The largest numbers of ticks of rows and columns, which need so many pixels each."""
        return max(self.map_size[1] // 13, 2), max(self.map_size[0] // 15, 2)


def _sheet(
    geometries: Sequence[Geometry], across: int, notes: Sequence[str], headings: Sequence[str]
) -> Sheet:
    """The page. Columns and rows have the size of their largest panel.

    A panel's box is its map with the strips. A row with a heading has room for it above.
    """
    lefts, x = [], LEFT
    for column in range(across):
        lefts.append(x)
        x += max(g.panel_width for g in geometries[column::across]) + _BETWEEN_COLUMNS
    boxes: list[Box] = []
    titles = _STRIP_TITLE * (geometries[0].n_strips > 1)
    between = _BETWEEN_ROWS + titles
    bottom = TOP + titles - between
    for start in range(0, len(geometries), across):
        row = geometries[start : start + across]
        heading = heading_height(headings[start // across]) if headings else 0
        top = bottom + between + heading
        bottom = top + max(geometry.map_size[1] for geometry in row)
        boxes += [
            Box(left, top, left + geometry.panel_width, top + geometry.map_size[1])
            for left, geometry in zip(lefts[: len(row)], row, strict=True)
        ]
    width = max(x - _BETWEEN_COLUMNS + 6, min(page_width(), 600))
    return Sheet((width, bottom + _NAMES + BAR), boxes, notes)


def _fitted(
    parts: Sequence[Panel | None],
    n_strips: int,
    across: int,
    wish: tuple[int, tuple[int, int] | None],
    above: Number,
) -> tuple[list[Geometry], int]:
    """The panels' geometries and how many stand in a row, so that a row is as wide as the page.

    Cells become narrower first, as far as `_LEAST_CELL`, or as the texts in them allow where these
    are necessary; then there are fewer panels in a row.

    Args:
        n_strips: the strips beside each map.
        across: the most panels in a row.
        wish: the span and the cell of a `Geometry`.
        above: pixels of the headings.
    """
    present = [part for part in parts if part is not None]
    shapes = [(part or present[0]).values.shape for part in parts]
    widths = [_width_of_texts(part) for part in present]
    least = max([_LEAST_CELL, *widths])
    geometries: list[Geometry] = []
    for many in (n for n in range(across, 0, -1) if across % n == 0):
        room = (page_width() - LEFT - 6 - (many - 1) * _BETWEEN_COLUMNS) / many
        n_rows = -(-len(parts) // many)
        rest = TOP + _NAMES + BAR + above + n_rows * _BETWEEN_ROWS + LINE * MOST_LINES
        rest += _STRIP_TITLE * (n_strips > 1) * n_rows
        height = (page_height() - rest) / n_rows
        geometries = [
            Geometry(shape[0], shape[1], n_strips, *wish, room, height) for shape in shapes
        ]
        if all(one.panel_width <= room and one.cell[0] >= least for one in geometries):
            return geometries, many
    if is_printed():
        return geometries, 1
    return [
        Geometry(shape[0], shape[1], n_strips, *wish) for shape in shapes
    ], 1  # a screen scrolls


def _add_marks(
    sheet: Sheet, part: Panel, index: int, geometry: Geometry, end: Number
) -> set[tuple[int, int]]:
    """Draw outlines, dots and labels of one panel; the cells with a label inside."""
    box, strip = sheet.boxes[index], geometry.strip / geometry.cell[0]
    spots = [(mark, float(mark.column), 1.0) for mark in part.marks]
    spots += [(one, float(geometry.strip_middles[one.column]), strip) for one in part.strip_marks]
    for mark, x, wide in (spot for spot in spots if spot[0].strong):
        left, right = (
            box.left + (0.5 + x + end) * geometry.cell[0] for end in (-wide / 2, wide / 2)
        )
        top, low = (box.bottom - (0.5 + mark.row + end) * geometry.cell[1] for end in (0.5, -0.5))
        line = {"width": 1.2, "color": TEXT, "dash": "solid" if mark.certain else "dot"}
        sheet.add_shape(
            "rect", (left, top), (right, low), line=line
        )  # on the page: axes cut it at their ends
    named = [mark for mark in part.marks if mark.text]
    labelled = {mark.at for mark in named}
    for dot in part.dots:
        _add_dot(sheet, dot, index, geometry, beside=dot in labelled)
    filled = set[tuple[int, int]]()
    if not part.texts:  # values beyond the scale are written
        filled = {(row, column) for row, column in np.argwhere(np.abs(part.values) > end).tolist()}
    elif part.texts:
        filled = {(r, c) for r, row in enumerate(part.texts) for c, text in enumerate(row) if text}

    def down(at: tuple[int, int]) -> tuple[int, int]:  # labels are placed with row 0 at the top
        return geometry.n_rows - 1 - at[0], at[1]

    boxes = place_labels(
        [down(mark.at) for mark in named],
        [mark.text for mark in named],
        np.abs(part.values)[::-1],
        cell=geometry.cell,
        size=geometry.label,
        avoid=[down(at) for at in (*(mark.at for mark in part.marks), *part.dots)],
        filled=[down(at) for at in filled],
    )
    within = set[tuple[int, int]]()
    for mark, box in zip(named, boxes, strict=True):
        inside = box == cell_box(*down(mark.at), geometry.cell)
        if inside:
            within.add(mark.at)
        ink = TEXT if mark.strong else NOTE
        x, y = box.centre
        sheet.add_annotation(
            text=plain(mark.text),
            x=x / geometry.cell[0] - 0.5,
            y=geometry.up(y),
            yshift=6 if inside and mark.at in filled else 0,
            showarrow=False,
            borderpad=0,
            bgcolor=None if inside else ink,
            font={
                "size": geometry.label,
                "weight": 600 if mark.strong else 400,
                "color": ink_on(rooted_colour_at(float(part.values[mark.at]), end))
                if inside
                else "white",
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
    """Write the texts in the cells of a panel's map and strips, readable on their colour."""
    rows, columns = np.indices(part.values.shape)
    strip_rows, strips = np.indices(part.strips.shape)
    x = np.concatenate([columns.ravel(), geometry.strip_middles[strips.ravel()]])
    y = np.concatenate([rows.ravel(), strip_rows.ravel()])
    texts = [text for row in (*part.texts, *part.strip_texts) for text in row]
    values = np.concatenate([part.values.ravel(), part.strips.ravel()]).tolist()
    inks = [
        NOTE if abs(value) < end / 30 else ink_on(rooted_colour_at(value, end)) for value in values
    ]
    sheet.write_in_cells(index, (x, y), texts, size=SMALLEST, inks=inks, cliponaxis=False)


def _add_clipped(
    sheet: Sheet,
    part: Panel,
    index: int,
    geometry: Geometry,
    end: Number,
    named: set[tuple[int, int]],
) -> None:
    """Write the values beyond the colour scale's ends in their cells, if these have the room."""
    cells = [(*at, value, geometry.cell[0]) for at, value in np.ndenumerate(part.values)]
    cells += [
        (row, geometry.strip_middles[strip], value, geometry.strip)
        for (row, strip), value in np.ndenumerate(part.strips)
    ]
    for row, column, value, width in cells:
        text = f"{value:+.0f}" if end >= 2 else f"{value:+.1g}"
        room = width >= LETTER * SMALLEST * len(text) and geometry.cell[1] >= SMALLEST
        if not abs(value) > end or not room:
            continue
        sheet.add_annotation(
            text=text.replace("-", "−"),
            x=column,
            y=row,
            **panel_refs(index),
            yshift=-8 if (row, column) in named else 0,
            showarrow=False,
            borderpad=0,
            font={"size": SMALLEST, "color": "white"},
        )


def panels(
    parts: Sequence[Panel | None],
    *,
    axes: tuple[str, str],
    strip_names: Sequence[str],
    strip_titles: tuple[str, str] = ("", ""),
    colours: ColourScale,
    hover: Sequence[str],
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    across: int = 2,
    size: int | tuple[int, int] = PANEL_SPAN,
) -> Figure:
    """Maps with strips on a grid, with letters a, b, c…, one colour scale, row 0 at the bottom.

    A value beyond the ends of the colour scale is printed in its cell if it has the room.

    Args:
        parts: the panels, row after row, with maps of any shape; None is an empty position.
        axes: the names of the maps' rows and columns, such as `("layer", "head")`.
        strip_names: a name below each strip.
        strip_titles: of several strips, what stands above them all, and below their names.
        colours: what the colours mean.
        hover: plotly hover templates of a map's cell and of each strip's, with x, y, z, customdata.
        notes: lines below the panels (plain text).
        headings: a line above each row of panels (plain text); an empty one leaves no room.
        across: the number of panels in a row, as far as the page has the room.
        size: the pixels of the longer side of each map, or the width and height of its cells, as
            far as the page has the room.

    Raises:
        ValueError: there is no panel, not one heading per row of `across`, or not one name per
            strip.
    """
    present = [part for part in parts if part is not None]
    across = min(across, len(parts))
    if not present or (headings and len(headings) != -(-len(parts) // across)):
        raise ValueError(
            f"expected a panel at least and, if any, a heading for each row of {across}, found "
            f"{len(present)} panels and {len(headings)} headings"
        )
    n_strips = len(strip_names)
    if any(part.strips.shape[1] != n_strips for part in present):
        counts = [part.strips.shape[1] for part in present]
        raise ValueError(
            f"expected {n_strips} strips, as there are names, found {counts}; give one name each"
        )
    everything = np.concatenate([np.append(p.values.ravel(), p.strips.ravel()) for p in present])
    end = symmetric_limit(everything) if colours.limit is None else colours.limit
    above = sum(map(heading_height, headings))
    wish = (size, None) if isinstance(size, int) else (PANEL_SPAN, size)
    geometries, many = _fitted(parts, n_strips, across, wish, above)
    headings = [text for one in headings for text in (one, *[""] * (across // many - 1))]
    sheet = _sheet(geometries, many, notes, headings)
    sheet.set_colours(end, colours.unit, colours.title)
    sheet.update_layout(coloraxis_colorscale=ROOTED)
    widths = [(geometry.cell[0], part) for geometry, part in zip(geometries, parts, strict=True)]
    has_room = all(width >= _width_of_texts(part) for width, part in widths if part is not None)
    for index, (part, geometry) in enumerate(zip(parts, geometries, strict=True)):
        if part is not None:
            _add_cells(sheet, part, index, geometry, hover)
            _set_axes(sheet, index, geometry, axes, strip_names, many)
            box, both = sheet.boxes[index], geometry.n_strips * geometry.strip
            for text, at in zip(strip_titles, (box.top - 3, box.bottom + 33), strict=True):
                middle = (box.right - both / 2, at)
                sheet.write(plain(text), middle, size=11, anchor=("center", "bottom"))
            _add_frames(sheet, index, geometry)
            sheet.add_title(part.title, index, lift=8 + _STRIP_TITLE * (n_strips > 1))
            named = _add_marks(sheet, part, index, geometry, end)
            if part.texts and has_room:
                _add_texts(sheet, part, index, geometry, end)
            else:
                _add_clipped(sheet, part, index, geometry, end, named)
    sheet.add_headings(headings, many, lift=8 + _STRIP_TITLE * (n_strips > 1))
    return sheet.finished()


def _width_of_texts(part: Panel) -> Number:
    """The pixels that the longest text in a cell needs."""
    lines = [line for row in part.texts for text in row for line in _TAG.split(text)]
    return LETTER * SMALLEST * max(map(len, lines), default=0)


def _add_cells(
    sheet: Sheet, part: Panel, index: int, geometry: Geometry, hover: Sequence[str]
) -> None:
    """Draw a heat map and its strips."""
    shared = {"coloraxis": "coloraxis", **panel_axes(index)}
    sheet.add_heatmap(
        z=part.values,
        customdata=part.hover,
        hovertemplate=hover[0] + "<extra></extra>",
        **shared,
    )
    for strip, template in enumerate(hover[1:]):
        sheet.add_heatmap(
            z=part.strips[:, [strip]],
            x0=float(geometry.strip_middles[strip]),
            dx=geometry.strip / geometry.cell[0],
            customdata=part.strip_hover[:, [strip]],
            hovertemplate=template + "<extra></extra>",
            **shared,
        )


def _set_axes(
    sheet: Sheet,
    index: int,
    geometry: Geometry,
    axes: tuple[str, str],
    strip_names: Sequence[str],
    across: int,
) -> None:
    columns = tick_positions(geometry.n_columns, geometry.most_ticks[1])
    rows = tick_positions(geometry.n_rows, geometry.most_ticks[0])
    x = {
        "range": [-0.5, geometry.strip_range[1]],
        "tickvals": [*columns, *geometry.strip_middles],
        "ticktext": [*map(str, columns), *map(plain, strip_names)],
        "tickangle": 0,
        "title_text": axes[1].capitalize() if index + across >= len(sheet.boxes) else None,
        "title_standoff": 2,
    }
    y = {
        "range": [-0.5, geometry.n_rows - 0.5],
        "tickvals": rows,
        "ticktext": [str(row) for row in rows],
        "showticklabels": index % across == 0,
        "ticks": "outside" if index % across == 0 else "",
        "title_text": axes[0].capitalize() if index % across == 0 else None,
    }
    sheet.set_axes(index, x, y)


def _add_frames(sheet: Sheet, index: int, geometry: Geometry) -> None:
    """Draw frames around map and strips, and thin lines every eight cells if there are many."""
    start, _ = geometry.strip_range
    bottom, right = geometry.n_rows - 0.5, geometry.n_columns - 0.5
    hairline = {"width": 1, "color": "rgba(31,36,48,.10)"}
    for x in np.arange(7.5, right, 8) if geometry.n_columns > 12 else ():
        sheet.add_shape("line", (x, -0.5), (x, bottom), index, line=hairline)
    for y in np.arange(7.5, bottom, 8) if geometry.n_rows > 12 else ():
        sheet.add_shape("line", (-0.5, y), (right, y), index, line=hairline)
    width = geometry.strip / geometry.cell[0]
    for x in (start + i * width for i in range(1, geometry.n_strips)):
        sheet.add_shape("line", (x, -0.5), (x, bottom), index, line=hairline)
    for x0, x1 in ((-0.5, right), (start, start + geometry.n_strips * width)):
        frame = {"width": 1, "color": FRAME}
        sheet.add_shape("rect", (x0, -0.5), (x1, bottom), index, line=frame)
