"""Two ways to a result side by side: tables of text, and a strip of coloured cells."""

from collections.abc import Sequence
from dataclasses import dataclass

from arith_lens.plotting.labels import Box
from arith_lens.plotting.page import LEFT, LINE, Page, add_notes, plain, set_page, wrapped, write
from arith_lens.plotting.style import NOTE, TEXT, Figure, is_dark

_LETTER, _APART, _CELL, _WIDEST = 7.3, 34, 30, 720  # pixels: a letter, between tables, cells
_LINE, _HEAD, _GAP = 17, 50, 26
_MONO = "'DejaVu Sans Mono', 'Liberation Mono', monospace"


@dataclass(frozen=True)
class Steps:
    """One row: tables with their names, lines in letters of one width, and cells with colours."""

    title: str  # plain text, as all texts here
    tables: tuple[tuple[str, tuple[str, ...]], ...]
    cells: tuple[tuple[str, str], ...]


def step_panels(
    parts: Sequence[Steps],
    *,
    cells_title: str,
    legend: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> Figure:
    """The rows one below the other, lettered; cells are counted from 0.

    Raises ValueError where there is no row.
    """
    from arith_lens.plotting.library import go

    if not parts:
        raise ValueError("expected a row at least, found none")
    page = _page(parts, notes)
    figure = go.Figure()
    set_page(figure, page)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    starts = _starts(parts)
    for letter, part, box in zip("abcdefghijklmnopqrstuvwxyz", parts, page.boxes, strict=False):
        write(figure, f"<b>{letter}</b>  {plain(part.title)}", (box.left, box.top - 30), page,
              size=14)  # fmt: skip
        _add_tables(figure, part, box, page, starts)
        _add_cells(figure, part, (box.left + starts[-1], box.top), page, cells_title)
    first = page.boxes[0]
    _add_legend(figure, legend, (first.left + starts[-1], first.bottom), page)
    add_notes(figure, page, left=page.boxes[0].left)
    return figure


def _page(parts: Sequence[Steps], notes: Sequence[str]) -> Page:
    tables = _starts(parts)[-1]
    widest = max(_cell(part) * len(part.cells) for part in parts)
    boxes: list[Box] = []
    top = 12 + _HEAD
    for part in parts:
        lines = max(len(lines) for _, lines in part.tables)
        boxes.append(Box(LEFT - 30, top, LEFT - 30 + tables + widest, top + _LINE * lines))
        top += _LINE * lines + _GAP + _HEAD
    width = boxes[0].right + 24
    small = wrapped(notes, width)
    return Page((width, boxes[-1].bottom + 30 + LINE * len(small)), tuple(boxes), small)


def _starts(parts: Sequence[Steps]) -> list[float]:
    """Where each table begins, then the cells, from the left edge, the same in every row."""
    starts = [0.0]
    for number in range(max(len(part.tables) for part in parts)):
        there = [part.tables[number] for part in parts if number < len(part.tables)]
        longest = max(len(line) for name, lines in there for line in (name, *lines))
        starts.append(starts[-1] + _LETTER * longest + _APART)
    return starts


def _cell(part: Steps) -> int:
    return max(min(_CELL, _WIDEST // max(len(part.cells), 1)), 12)


def _add_tables(figure: Figure, part: Steps, box: Box, page: Page, starts: Sequence[float]) -> None:
    for number, (name, lines) in enumerate(part.tables):
        left = box.left + starts[number]
        write(figure, plain(name), (left, box.top - 6), page, size=11, ink=NOTE)
        for row, line in enumerate(lines):
            shown = plain(line).replace(" ", "\u00a0")
            at = (left, box.top + _LINE * (row + 1))
            write(figure, shown, at, page, font={"family": _MONO, "size": 12})


def _add_cells(
    figure: Figure, part: Steps, corner: tuple[float | int, float | int], page: Page, title: str
) -> None:
    (left, top), size = corner, _cell(part)
    write(figure, plain(title), (left, top - 6), page, size=11, ink=NOTE)
    for number, (text, colour) in enumerate(part.cells):
        x = left + number * size
        _add_square(figure, (x, top + 4), size - 2, colour, page)
        ink = "white" if is_dark(colour) else TEXT
        middle = (x + size / 2 - 1, top + 4 + size / 2)
        write(figure, plain(text), middle, page, ink=ink, anchor=("center", "middle"))
        below = (x + size / 2 - 1, top + size + 18)
        write(figure, str(number), below, page, size=9, ink=NOTE, anchor=("center", "bottom"))


def _add_legend(
    figure: Figure,
    legend: Sequence[tuple[str, str]],
    corner: tuple[float | int, float | int],
    page: Page,
) -> None:
    x, bottom = corner
    for name, colour in legend:
        _add_square(figure, (x, bottom - 13), 11, colour, page)
        write(figure, plain(name), (x + 16, bottom), page, size=11, ink=NOTE)
        x += 30 + 7 * len(name)


def _add_square(
    figure: Figure, corner: tuple[float | int, float | int], size: int, colour: str, page: Page
) -> None:
    (x0, y1), (x1, y0) = page.paper(*corner), page.paper(corner[0] + size, corner[1] + size)
    figure.add_shape(type="rect", xref="paper", yref="paper", x0=x0, x1=x1, y0=y0, y1=y1,
                     fillcolor=colour, line={"width": 0})  # fmt: skip
