"""Tables of steps in letters of one width, with coloured cells."""

from collections.abc import Sequence
from dataclasses import dataclass

from arith_lens.plotting.labels import XY, Box
from arith_lens.plotting.page import TITLE, Sheet, letter_of, plain
from arith_lens.plotting.style import NOTE, Figure, Number, ink_on
from arith_lens.plotting.widths import page_width

_LETTER, _APART, _CELL = 6.1, 20, 30  # pixels: a letter, between tables, a cell
_LINE, _HEAD, _GAP, _KEY_LINE = 15, 46, 34, 26
_LEAST_OF_FEET = 20  # pixels of a cell that has a text below its number
_MONO = "'DejaVu Sans Mono', 'Liberation Mono', monospace"


@dataclass(frozen=True)
class Steps:
    """One row: tables with their names, lines in letters of one width, and cells with colours."""

    title: str
    """Plain text, like all texts here."""
    tables: tuple[tuple[str, tuple[str, ...]], ...]
    cells: tuple[tuple[str, str], ...]
    """The text and the colour of each cell."""
    feet: tuple[str, ...] = ()
    """A small text below the number of each cell."""


def step_panels(
    parts: Sequence[Steps],
    *,
    cells_title: str,
    feet_title: str = "",
    legend: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> Figure:
    """The rows one below the other, with letters. Cells are counted from 0.

    Args:
        feet_title: the meaning of the small texts below them.
        legend: the names of the cells' colours, with the colours; above the rows.
        notes: lines below the rows (plain text).

    Raises:
        ValueError: there is no row.
    """
    if not parts:
        raise ValueError("expected a row at least, found none")
    starts = _starts(parts)
    sheet, place, cell = _steps_sheet(parts, notes, starts[-1], keyed=bool(legend))
    sheet.update_xaxes(visible=False)
    sheet.update_yaxes(visible=False)
    for index, (part, box) in enumerate(zip(parts, sheet.boxes, strict=True)):
        title = f"{letter_of(index)}  {plain(part.title)}"
        sheet.write(title, (box.left, box.top - 28), size=TITLE)
        _add_tables(sheet, part, box, starts)
        corner = box.left + place[0], box.top + place[1]
        _add_cells(sheet, part, corner, cell, (cells_title, feet_title))
    _add_steps_legend(sheet, legend, (sheet.boxes[0].left, 22))
    return sheet.finished()


def _steps_sheet(
    parts: Sequence[Steps], notes: Sequence[str], tables: Number, *, keyed: bool
) -> tuple[Sheet, XY, Number]:
    """The page, where cells are from the corner of each row, and the size of a cell.

    Args:
        parts, notes: as in `step_panels`.
        keyed: whether there is a legend.
    """
    left, room = 14, page_width() - 14 - 10
    most = max(len(part.cells) for part in parts)
    lines = max(len(lines) for part in parts for _, lines in part.tables)
    beside = tables + most * (_CELL - 6) <= room
    place = (tables, 0) if beside else (0, _LINE * lines + 26)
    cell = max(min(_CELL, (room - place[0]) / most), 12)
    boxes: list[Box] = []
    top = 12 + _HEAD + _KEY_LINE * keyed
    for part in parts:
        height = _LINE * max(len(lines) for _, lines in part.tables)
        height = height if beside else _LINE * lines + 26 + cell + 14
        right = left + place[0] + cell * most
        boxes.append(Box(left, top, max(right, left + tables), top + height))
        top += height + _GAP + _HEAD
    width = max(box.right for box in boxes) + 10
    return Sheet((width, boxes[-1].bottom + 40), boxes, notes), place, cell


def _starts(parts: Sequence[Steps]) -> list[float]:
    """The left edges of the tables and of the cells, the same in every row."""
    starts = [0.0]
    for number in range(max(len(part.tables) for part in parts)):
        tables = [part.tables[number] for part in parts if number < len(part.tables)]
        longest = max(len(line) for name, lines in tables for line in (name, *lines))
        starts.append(starts[-1] + _LETTER * longest + _APART)
    return starts


def _add_tables(sheet: Sheet, part: Steps, box: Box, starts: Sequence[float]) -> None:
    for number, (name, lines) in enumerate(part.tables):
        left = box.left + starts[number]
        sheet.write(plain(name), (left, box.top - 6), size=10, ink=NOTE)
        for row, line in enumerate(lines):
            text = plain(line).replace(" ", "\u00a0")
            at = (left, box.top + _LINE * (row + 1))
            sheet.write(text, at, font={"family": _MONO, "size": 10})


def _add_cells(
    sheet: Sheet, part: Steps, corner: XY, size: Number, titles: tuple[str, str]
) -> None:
    left, top = corner
    sheet.write(plain(titles[0]), (left, top - 6), size=10, ink=NOTE)
    if part.feet:
        sheet.write(plain(titles[1]), (left, top + size + 46), size=10, ink=NOTE)
    feet = part.feet if size >= _LEAST_OF_FEET else ()
    for number, (text, colour) in enumerate(part.cells):
        x = left + number * size
        _add_square(sheet, (x, top + 4), size - 4, colour)
        middle = (x + size / 2 - 2, top + 2 + size / 2)
        sheet.write(plain(text), middle, ink=ink_on(colour), anchor=("center", "middle"))
        for line, text in enumerate((str(number), *feet[number : number + 1])):
            below = (x + size / 2 - 2, top + size + 16 + 14 * line)
            sheet.write(plain(text), below, size=10, ink=NOTE, anchor=("center", "bottom"))


def _add_steps_legend(sheet: Sheet, legend: Sequence[tuple[str, str]], corner: XY) -> None:
    x, bottom = corner
    for name, colour in legend:
        _add_square(sheet, (x, bottom - 13), 11, colour)
        sheet.write(plain(name), (x + 16, bottom), size=11, ink=NOTE)
        x += 30 + 7 * len(name)


def _add_square(sheet: Sheet, corner: XY, size: Number, colour: str) -> None:
    stop = (corner[0] + size, corner[1] + size)
    sheet.add_shape("rect", corner, stop, fillcolor=colour, line={"width": 0})
