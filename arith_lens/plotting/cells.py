"""Matrices: numbers in coloured cells, with named rows and groups of columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import ne
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from arith_lens.plotting.labels import Box, widest
from arith_lens.plotting.page import (
    BAR,
    HEADING_LETTER,
    LEFT,
    LINE,
    MOST_LINES,
    TOP,
    Sheet,
    axis_names,
    bear_colours,
    heading_height,
    heading_lines,
    name_axis,
    panel_axes,
    plain,
)
from arith_lens.plotting.style import (
    DARK,
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    ink_on,
    symmetric_limit,
    tint,
)
from arith_lens.plotting.widths import page_height, page_width

_WIDEST, _NARROWEST, _HEIGHT, _GAP = 30, 6, 17, 14
"""Pixels: the width of a cell, at most and at least, its height, between groups."""
_WIDE = 66
"""Pixels of a cell, at most, whose column has its name above."""
_NUMBERED, _LOW, _ASIDE = 18, 14, 4
"""Pixels of a cell with a number, and of its height where panels stand in a line; between them."""
_FEET, _BETWEEN, _NAME = 30, 34, 12


@dataclass(frozen=True)
class Columns:
    """Columns under one name."""

    title: str
    """The name; plain text."""
    names: tuple[str, ...]
    """May have several lines."""
    values: Float[np.ndarray, "row column"]
    foot: tuple[str, ...] = ()
    """Small text below each column; may be empty."""
    inks: tuple[str, ...] = ()
    """The colour of each column (`#rrggbb`) where colours begin at 0; empty: grey."""
    bracketed: Bool[np.ndarray, "row column"] | None = None
    """Whose numbers are in brackets; None: no cell's."""


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
    heading: str = ""
    """A finding above the line of panels that begins with this one; plain text."""
    smallest: Number = 0
    """Numbers nearer to 0 are not printed in their cells."""


def matrix_panels(
    parts: Sequence[Matrix],
    *,
    colour_title: str,
    unit: str = "",
    digits: int = 0,
    limit: Number | None = None,
    names: Literal["some", "all", "above"] = "some",
    rising: bool = False,
    across: int = 1,
    notes: Sequence[str] = (),
) -> Figure:
    """Panels in lines. Cells that are wide enough contain their numbers.

    Args:
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        digits: the number of decimals in cells.
        limit: the end of the colour scale; None: `symmetric_limit` of all cells.
        names: which names of columns are printed: "some", every fourth below narrow cells; "all",
            rotated below; "above", in lines above wide columns, or as "all" without the room.
        rising: whether the colours begin at 0, for numbers that are not negative.
        across: the most panels in a line, as far as the page has the room.
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
    across = _fitting(parts, min(across, len(parts)))
    if across == 1:
        parts = [some for part in parts for some in _broken(part, _left(parts))]
    cells = np.concatenate([group.values.ravel() for part in parts for group in part.groups])
    end = symmetric_limit(cells) if limit is None else limit
    texts = [name for part in parts for group in part.groups for name in group.names]
    longest = widest("\n".join(texts).split("\n"), 10) + 4
    above = names == "above"
    upright = names == "all" or (above and _cell(parts, across, _WIDE) < 0.8 * longest)
    feet = max(_FEET, longest) if upright else _FEET
    if above and not upright:
        feet = 12 * max(text.count("\n") + 1 for text in texts) + 4
    cell, sheet = _sheet(parts, notes, feet, across, above)
    inks = dict.fromkeys(ink for part in parts for group in part.groups for ink in group.inks)
    sheet.set_colours(
        end,
        unit,
        colour_title,
        rising=rising,
        beyond=bool(np.nanmax(cells) > end),
        inks=[ink for ink in inks if ink != DARK],
    )
    bear_colours(sheet)
    for index, part in enumerate(parts):
        _add_part(sheet, part, index, _Colours(cell, end, rising), (unit, digits), upright)
        if not above and not _line_has_names(parts, across, index // across):
            sheet.update_layout({f"{axis_names(index)[0]}_showticklabels": False})
        if part.title:
            sheet.add_title(part.title, index, lift=_lift(part))
        if above:
            sheet.update_layout({f"{axis_names(index)[0]}_side": "top"})
    lift = _lift(parts[0]) if any(part.title for part in parts) else feet - 12 if above else 8
    sheet.add_headings([part.heading for part in parts], 1, lift=lift)
    return sheet.finished(left=LEFT)


@dataclass(frozen=True)
class _Colours:
    """The width of a cell, and the end of the colour scale."""

    cell: int
    end: Number
    rising: bool

    def of(self, group: Columns) -> list[str]:
        """The colour of each cell of a group, row by row."""
        values = group.values.ravel().tolist()
        if not self.rising:
            return [colour_at(value, self.end) for value in values]
        inks = group.inks or (DARK,) * len(group.names)
        return [
            tint(inks[i % len(inks)], value / self.end) if np.isfinite(value) else GRID
            for i, value in enumerate(values)
        ]


def _lift(part: Matrix) -> Number:
    """The pixels between a panel and its title: more where its groups have names."""
    return 24 if any(group.title for group in part.groups) else 8


def _left(parts: Sequence[Matrix]) -> Number:
    """The left edge of the cells."""
    return 16 + max(widest((name for part in parts for name in part.rows), 11), 26)


def _broken(part: Matrix, left: Number) -> list[Matrix]:
    """The panel in as many parts as the page needs, so that no cell is too narrow."""
    most = (page_width() - left - 12) / _NARROWEST
    parts: list[list[Columns]] = [[]]
    for group in part.groups:
        columns = sum(len(one.names) + _GAP / _NARROWEST for one in parts[-1])
        if parts[-1] and columns + len(group.names) > most:
            parts.append([])
        parts[-1].append(group)
    return [
        replace(part, title=title, heading=heading, groups=tuple(groups))
        for (title, heading), groups in zip(
            [(part.title, part.heading), *[("", "")] * (len(parts) - 1)], parts, strict=True
        )
    ]


def _fitting(parts: Sequence[Matrix], wished: int) -> int:
    """How many panels stand in a line, so that each cell has the room for a number."""
    fits = (n for n in range(wished, 1, -1) if wished % n == 0 and _cell(parts, n) >= _NUMBERED)
    return next(fits, 1)


def _lefts(parts: Sequence[Matrix], across: int) -> list[Number]:
    """The pixels of the names of rows, of each column of panels."""
    return [_left(parts[column::across]) for column in range(across)]


def _cell(parts: Sequence[Matrix], across: int, most_wide: int = _WIDEST) -> int:
    """The width of a cell, if so many panels stand in a line."""
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    most = max(sum(len(g.names) for part in line for g in part.groups) for line in lines)
    gaps = max(sum(len(part.groups) - 1 for part in line) for line in lines)
    rest = sum(_lefts(parts, across)) + 12 + _GAP * gaps + _ASIDE * (across - 1)
    return int(min((page_width() - rest) / most, most_wide))


def _sheet(
    parts: Sequence[Matrix], notes: Sequence[str], feet: Number, across: int, above: bool
) -> tuple[int, Sheet]:
    """The width of a cell, and the page."""
    cell = max(_cell(parts, across, _WIDE if above else _WIDEST), 2)
    lefts = _lefts(parts, across)
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    boxes: list[Box] = []
    top: Number = TOP + (-22 if above else 12)
    n_rows = sum(max(len(part.rows) for part in line) for line in lines)
    rest = top + sum(heading_height(part.heading) for part in parts)
    rest += len(lines) * (feet + _BETWEEN) + BAR + LINE * MOST_LINES
    height = min(_HEIGHT, max((page_height() - rest) / n_rows, 13))
    if across > 1:
        height = min(height, _LOW)
    for number, line in enumerate(lines):
        top += heading_height(line[0].heading) + feet * above
        x: Number = 0
        for part, left in zip(line, lefts, strict=False):
            width = sum(len(group.names) for group in part.groups) * cell
            width += _GAP * (len(part.groups) - 1)
            bottom = top + height * len(part.rows)
            boxes.append(Box(x + left, top, x + left + width, bottom))
            x += left + width + _ASIDE
        named = not above and _line_has_names(parts, across, number)
        top += height * max(len(part.rows) for part in line) + feet * named + _BETWEEN
    lines_of_headings = (line for part in parts for line in heading_lines(part.heading))
    widths = (LEFT + HEADING_LETTER * len(line) for line in lines_of_headings)
    least = max([lefts[0] + 240, *widths])
    least = min(page_width() - 12, least)
    right = max(*(box.right for box in boxes), least) + 12
    return cell, Sheet((right, top - _BETWEEN + BAR), boxes, notes)


def _line_has_names(parts: Sequence[Matrix], across: int, line: int) -> bool:
    """Whether columns have names: not if the next line of panels has them, without a heading."""
    own, below = (parts[at * across : (at + 1) * across] for at in (line, line + 1))
    names = ([group.names for part in some for group in part.groups] for some in (own, below))
    return across == 1 or not below or bool(below[0].heading) or ne(*names)


def _add_part(
    sheet: Sheet,
    part: Matrix,
    index: int,
    scale: _Colours,
    show: tuple[str, int],
    upright: bool,
) -> None:
    """Draw cells, numbers, frames and names of one panel. A cell is 1 x 1 on its axes."""
    cell, (unit, digits) = scale.cell, show
    box = sheet.boxes[index]
    start, centres, names = 0.0, [], []
    for group in part.groups:
        middle = start + np.arange(len(group.names))
        colours = scale.of(group)
        add_cells(
            sheet,
            index,
            group.values,
            (part.rows, group.names),
            (middle, np.ones(len(middle))),
            colours,
            f"{plain(group.title)}<br><b>%{{customdata[0]}}</b>: "
            f"%{{customdata[1]:+.{digits + 1}f}}{plain(unit)}",
            seam=0.01,
        )
        corners = (middle[0] - 0.5, -0.5), (middle[-1] + 0.5, len(part.rows) - 0.5)
        sheet.add_shape("rect", *corners, index, line={"width": 1, "color": FRAME})
        if cell >= (26 if digits else _NUMBERED):
            size = 12 if cell > _WIDEST else 10
            _add_numbers(sheet, group, middle, index, colours, digits, part.smallest, size)
        above = (box.left + (start + len(group.names) / 2) * cell, box.top - 6)
        sheet.write(plain(group.title), above, size=11, ink=NOTE, anchor=("center", "bottom"))
        step = -(-_NAME // cell) if upright else 1 if cell >= 20 else 4
        centres += [*middle[::step]]
        names += [plain(name).replace("\n", "<br>") for name in group.names[::step]]
        for at, text in zip(middle if group.foot else (), group.foot, strict=True):
            below = (box.left + (at + 0.5) * cell, box.bottom + 20)
            sheet.write(plain(text), below, size=10, ink=NOTE, anchor=("center", "top"))
        start += len(group.names) + _GAP / cell
    if part.foot:
        below = (box.left - 8, box.bottom + 19)
        sheet.write(plain(part.foot), below, size=10, ink=NOTE, anchor=("right", "top"))
    x = {
        "range": [-0.5, start - _GAP / cell - 0.5],
        "tickvals": centres,
        "ticktext": names,
        "tickangle": -90 if upright else 0,
        "ticks": "",
    }
    sheet.set_axes(index, x, name_axis(part.rows, part.strong))


def _add_numbers(
    sheet: Sheet,
    group: Columns,
    middle: Float[np.ndarray, " column"],
    index: int,
    colours: Sequence[str],
    digits: int,
    smallest: Number,
    size: Number,
) -> None:
    """Write the numbers of cells that are not exactly 0, readable on their colour."""
    sizes = np.abs(group.values)
    rows, columns = np.nonzero(np.isfinite(sizes) & (sizes != 0) & (sizes >= smallest))
    texts, inks = [], []
    of_cells = np.array(colours).reshape(group.values.shape)[rows, columns].tolist()
    unsures = (
        np.zeros(len(rows), bool) if group.bracketed is None else group.bracketed[rows, columns]
    )
    of_cells = zip(group.values[rows, columns].tolist(), of_cells, unsures, strict=True)
    for value, colour, unsure in of_cells:
        text = f"{value:.{digits}f}".replace("-", "−")
        zero = not text.strip("−0.")
        ink = ink_on(colour)
        texts.append("0" if zero else f"({text})" if unsure else text)
        inks.append(NOTE if zero and ink == TEXT else ink)
    sheet.write_in_cells(index, (middle[columns], rows), texts, size=size, inks=inks)


def add_cells(
    sheet: Sheet,
    index: int,
    values: Float[np.ndarray, "row column"],
    names: tuple[Sequence[str], Sequence[str]],
    across: tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"]],
    colours: Sequence[str],
    hover: str,
    *,
    seam: float = 0.0,
) -> None:
    """Draw one bar per cell, which is a rectangle in every format.

    Args:
        sheet, index: the page, and the panel's index.
        names: the names of the rows and of the columns (plain text).
        across: the centre and the width of each column.
        colours: the colours of the cells, row by row.
        hover: plotly's template; `customdata` is the cell's name and its number.
        seam: how far a cell is drawn over its neighbours, which hides seams.
    """
    rows, columns = (grid.ravel() for grid in np.indices(values.shape))
    (row_names, column_names), (centres, widths) = names, across
    where = [f"{plain(row)}, {plain(column)}" for row in row_names for column in column_names]
    sheet.add_bar(
        x=centres[columns],
        base=rows - (0.5 + seam),
        y=np.full(rows.size, 1 + 2 * seam),
        width=widths[columns] + 2 * seam,
        marker={"color": colours, "line": {"width": 0}},
        customdata=list(zip(where, values.ravel().tolist(), strict=True)),
        hovertemplate=f"{hover}<extra></extra>",
        **panel_axes(index),
    )
