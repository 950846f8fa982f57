"""Matrices: shares in percent in coloured cells, with named rows and columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    bear_colours,
    heading_height,
    heading_lines,
    name_axis,
    panel_axes,
    plain,
)
from arith_lens.plotting.style import COLOURS, FRAME, GRID, NOTE, Figure, Number, ink_on, tint
from arith_lens.plotting.widths import page_height, page_width

_WIDEST, _HEIGHT = 66, 17
"""Pixels: the width of a cell, at most, and its height."""
_NUMBERED, _ASIDE = 18, 4
"""Pixels of a cell with a number, and between panels."""
_NAMES, _BETWEEN, _NAME, _GROUP, _MARGIN = 30, 34, 12, 18, 16
_END = 100
"""Percent that have the full colour; 0 is white."""
_LOG_ENDS = (1, 10, 100)
"""Percent at equal distances on a logarithmic scale."""
_LOG_POWER = 1.5
"""Colours grow by this power of the distance: few are of a middle grey, which no ink suits."""


@dataclass(frozen=True)
class Matrix:
    """One panel."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    rows: tuple[str, ...]
    """The names of the rows."""
    columns: tuple[str, ...]
    """The names of the columns; may have several lines."""
    values: Float[np.ndarray, "row column"]
    """In percent; NaN is an empty cell. An empty row has the name of the rows below it."""
    strong: tuple[bool, ...] = ()
    """Which names of rows are bold."""
    heading: str = ""
    """Above the line of panels that begins with this one; plain text."""
    smallest: Number | tuple[Number, ...] = 0
    """Numbers nearer to 0 are not printed in their cells; of all rows, or of each."""
    inks: tuple[str, ...] = ()
    """The colour of each column (`#rrggbb`); empty: dark."""
    bracketed: Bool[np.ndarray, "row column"] | None = None
    """Whose numbers are in brackets; None: no cell's."""
    groups: tuple[tuple[str, int], ...] = ()
    """The names of groups of neighbouring columns, and how many each has."""
    is_log: bool = False
    """Whether colours are even in the logarithm, from 1 to 100 percent."""

    @property
    def empty_rows(self) -> list[int]:
        """The rows without a number."""
        return np.flatnonzero(np.isnan(self.values).all(1)).tolist()

    @property
    def colours(self) -> list[str]:
        """The colour of each cell, row by row."""
        inks = self.inks or (COLOURS["verdict"],) * len(self.columns)
        logs = np.log10(np.clip(self.values, 1, None)) / np.log10(_LOG_ENDS[-1])
        shares = (logs**_LOG_POWER if self.is_log else self.values / _END).tolist()
        return [
            tint(ink, share)
            if np.isfinite(share)
            else "#ffffff"
            if row in self.empty_rows
            else GRID
            for row, some in enumerate(shares)
            for ink, share in zip(inks, some, strict=True)
        ]


def matrix_panels(
    parts: Sequence[Matrix],
    *,
    colour_title: str = "",
    across: int = 1,
    notes: Sequence[str] = (),
) -> Figure:
    """Panels in lines. Cells that are wide enough contain their numbers. Names of columns are above
    them, slanted or upright without the room, and names of groups above these.

    Args:
        colour_title: what the colours mean, beside their bar; without it there is no bar.
        across: the most panels in a line, as far as the page has the room.
        notes: lines below the panels (plain text).

    Raises:
        ValueError: there is no panel, or its values do not fit its names.
    """
    for part in parts:
        if part.values.shape != (len(part.rows), len(part.columns)):
            raise ValueError(
                f"expected values of {len(part.rows)} rows and {len(part.columns)} columns in "
                f"{part.title!r}, found {part.values.shape}"
            )
    if not parts:
        raise ValueError("expected a panel at least, found none")
    across = _fitting(parts, min(across, len(parts)))
    texts = [name for part in parts for name in part.columns]
    longest = widest("\n".join(texts).split("\n"), 10) + 4
    room = _cell(parts, across) / 0.9
    halves = ([widest(name.split("\n"), 10) / 2 for name in part.columns] for part in parts)
    slanted = any(a + b > room for some in halves for a, b in pairwise(some))
    lines = max(text.count("\n") + 1 for text in texts)
    grouped = any(part.groups for part in parts)  # then names stand upright, and are not slanted
    above = max(_NAMES, (0.9 if grouped else 0.66) * longest) if slanted else _NAME * lines + 4
    above += _GROUP * grouped
    cell, sheet = _sheet(parts, notes, (above, BAR if colour_title else 8), across)
    lefts = _lefts(parts, across)
    if colour_title:
        beyond = any(np.nanmax(part.values) > _END for part in parts)
        sheet.set_colours(_END, "%", colour_title, rising=True, beyond=beyond)
        bear_colours(sheet)
    if any(part.is_log for part in parts):
        at = [_END * log / (len(_LOG_ENDS) - 1) for log in range(len(_LOG_ENDS))]
        texts = ["≤ 1", *map(str, _LOG_ENDS[1:-1]), f"≥ {_LOG_ENDS[-1]}%"]
        sheet.update_layout(coloraxis_colorbar={"tickvals": at, "ticktext": texts})
        shares = np.linspace(0, 1, 13).tolist()
        scale = [(share, tint(COLOURS["verdict"], share**_LOG_POWER)) for share in shares]
        sheet.update_layout(coloraxis_colorscale=scale)
    sheet.update_layout(barmode="overlay")
    for index, part in enumerate(parts):
        _add_part(sheet, part, index, cell, slanted)
        _add_groups(sheet, part, index, cell, above)
        if part.title:
            left = sheet.boxes[index].left - lefts[index % across] + _MARGIN
            sheet.add_title(part.title, index, lift=8 + above, left=left)
    lift = above + (8 if any(part.title for part in parts) else -12)
    sheet.add_headings([part.heading for part in parts], 1, lift=lift, left=_MARGIN)
    return sheet.finished(left=_MARGIN)


def _left(parts: Sequence[Matrix]) -> Number:
    """The left edge of the cells."""
    return _MARGIN + max(widest((name for part in parts for name in part.rows), 10.3), 26)


def _fitting(parts: Sequence[Matrix], wished: int) -> int:
    """How many panels stand in a line, so that each cell has the room for a number."""
    fits = (n for n in range(wished, 1, -1) if wished % n == 0 and _cell(parts, n) >= _NUMBERED)
    return next(fits, 1)


def _lefts(parts: Sequence[Matrix], across: int) -> list[Number]:
    """The pixels of the names of rows, of each column of panels."""
    return [_left(parts[column::across]) for column in range(across)]


def _cell(parts: Sequence[Matrix], across: int) -> int:
    """The width of a cell, if so many panels stand in a line."""
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    most = max(sum(len(part.columns) for part in line) for line in lines)
    rest = sum(_lefts(parts, across)) + 12 + _ASIDE * (across - 1)
    return max(int(min((page_width() - rest) / most, _WIDEST)), 2)


def _sheet(
    parts: Sequence[Matrix],
    notes: Sequence[str],
    room: tuple[Number, Number],
    across: int,
) -> tuple[int, Sheet]:
    """The width of a cell, and the page, with room for names of columns and for colour bars."""
    above, bars = room
    cell = _cell(parts, across)
    lefts = _lefts(parts, across)
    lines = [parts[start : start + across] for start in range(0, len(parts), across)]
    boxes: list[Box] = []
    top: Number = TOP + (-4 if any(part.title for part in parts) else -22)
    n_rows = sum(max(len(part.rows) for part in line) for line in lines)
    rest = top + sum(heading_height(part.heading) for part in parts)
    rest += len(lines) * (above + _BETWEEN) + bars + LINE * MOST_LINES
    height = min(_HEIGHT, max((page_height() - rest) / n_rows, 13))
    for line in lines:
        top += heading_height(line[0].heading) + above
        x: Number = 0
        for part, left in zip(line, lefts, strict=False):
            width = len(part.columns) * cell
            boxes.append(Box(x + left, top, x + left + width, top + height * len(part.rows)))
            x += left + width + _ASIDE
        top += height * max(len(part.rows) for part in line) + _BETWEEN
    lines_of_headings = (line for part in parts for line in heading_lines(part.heading))
    widths = (LEFT + HEADING_LETTER * len(line) for line in lines_of_headings)
    least = min(page_width() - 12, max([lefts[0] + 240, *widths]))
    right = max(*(box.right for box in boxes), least) + 12
    return cell, Sheet((right, top - _BETWEEN + bars), boxes, notes)


def _add_part(sheet: Sheet, part: Matrix, index: int, cell: int, slanted: bool) -> None:
    """Draw cells, numbers, frame and names of one panel. A cell is 1 x 1 on its axes."""
    middle, colours = np.arange(len(part.columns)), part.colours
    _add_cells(sheet, part, index, colours)
    blocks = np.split(np.arange(len(part.rows)), part.empty_rows)
    for first, *_, last in ([*block, block[-1]] for block in blocks if len(block)):
        start = first + (first in part.empty_rows) - 0.5
        corners = (-0.5, start), (len(middle) - 0.5, last + 0.5)
        sheet.add_shape("rect", *corners, index, line={"width": 1, "color": FRAME})
    if cell >= _NUMBERED:
        _add_numbers(sheet, part, index, colours, 12 if cell > 30 else 10)
    step = -(-_NAME * 7 // (5 * cell)) if slanted and not part.groups else 1
    x = {
        "range": [-0.5, len(middle) - 0.5],
        "tickvals": [*middle[::step]],
        "ticktext": [plain(name).replace("\n", "<br>") for name in part.columns[::step]],
        "tickangle": (-90 if part.groups else 45) if slanted else 0,
        "ticks": "",
        "side": "top",
    }
    y = name_axis(part.rows, part.strong)
    for row in part.empty_rows:
        y["ticktext"][row] = f'<span style="color:{NOTE}">{y["ticktext"][row]}</span>'
    sheet.set_axes(index, x, y)


def _add_groups(sheet: Sheet, part: Matrix, index: int, cell: int, above: Number) -> None:
    """The names of groups of columns, each with a line over its columns."""
    box, start = sheet.boxes[index], 0
    y = box.top - above + _GROUP - 2
    for name, many in part.groups:
        ends = (box.left + cell * start + 3, y), (box.left + cell * (start + many) - 3, y)
        if name:
            sheet.add_shape("line", *ends, line={"width": 1, "color": NOTE})
            at = (ends[0][0] + ends[1][0]) / 2, y - 3
            sheet.write(plain(name), at, size=10, anchor=("center", "bottom"))
        start += many


def _add_numbers(
    sheet: Sheet, part: Matrix, index: int, colours: Sequence[str], size: Number
) -> None:
    """Write the numbers of cells that are not exactly 0, readable on their colour."""
    sizes = np.abs(part.values)
    least = np.broadcast_to(part.smallest, len(sizes))[:, None]
    rows, columns = np.nonzero(np.isfinite(sizes) & (sizes != 0) & (sizes >= least))
    texts, inks = [], []
    of_cells = np.array(colours).reshape(part.values.shape)[rows, columns].tolist()
    unsures = np.zeros(len(rows), bool) if part.bracketed is None else part.bracketed[rows, columns]
    of_cells = zip(part.values[rows, columns].tolist(), of_cells, unsures, strict=True)
    for value, colour, unsure in of_cells:
        text = f"{value:.0f}".replace("-", "−")
        zero = not text.strip("−0.")
        texts.append("0" if zero else f"({text})" if unsure else text)
        inks.append(NOTE if zero else ink_on(colour))
    sheet.write_in_cells(index, (columns, rows), texts, size=size, inks=inks)


def _add_cells(sheet: Sheet, part: Matrix, index: int, colours: Sequence[str]) -> None:
    """Draw one bar per cell, which is a rectangle in every format, slightly over its neighbours."""
    rows, columns = (grid.ravel() for grid in np.indices(part.values.shape))
    where = [f"{plain(row)}, {plain(column)}" for row in part.rows for column in part.columns]
    sheet.add_bar(
        x=columns,
        base=rows - 0.51,
        y=np.full(rows.size, 1.02),
        width=1.02,
        marker={"color": colours, "line": {"width": int(part.is_log), "color": "white"}},
        customdata=list(zip(where, part.values.ravel().tolist(), strict=True)),
        hovertemplate="<b>%{customdata[0]}</b>: %{customdata[1]:+.1f}%<extra></extra>",
        **panel_axes(index),
    )
