"""Bar charts on a grid; and two ways to a result side by side, as tables and coloured cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from arith_lens.plotting.page import (
    LEFT,
    LINE,
    TOP,
    XY,
    Box,
    Page,
    Sheet,
    axis_names,
    letter_of,
    panel_axes,
    plain,
    reach,
    text_box,
    value_axis,
    wrapped,
)
from arith_lens.plotting.style import NOTE, PALE, RUST, TEXT, Figure, Number, is_dark

_TICK, _KEY = 11, 12  # font sizes of the groups' names and of the key


@dataclass(frozen=True)
class Bars:
    """One bar per group, with its interval between `low` and `high`. NaN is no bar."""

    values: Float[np.ndarray, " group"]
    low: Float[np.ndarray, " group"] | None = None
    high: Float[np.ndarray, " group"] | None = None
    name: str = ""
    """The name in the key above the panels and in the hover; plain text."""
    colour: str = RUST
    strong: Bool[np.ndarray, " group"] | None = None
    """The bars in full colour; the others are pale. None: all."""


@dataclass(frozen=True)
class BarPanel:
    """One chart: the groups' names and one or more bars for each."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    names: tuple[str, ...]
    """The names of the groups; plain text. A name may occur more than once."""
    series: tuple[Bars, ...]
    y_title: str = ""
    ink: str = TEXT
    """The colour of the y title."""


def bar_panels(
    parts: Sequence[BarPanel],
    *,
    y_range: tuple[Number, Number] | None = None,
    notes: Sequence[str] = (),
    across: int = 4,
    panel: tuple[int, int] | None = None,
    names_below: bool = False,
) -> Figure:
    """Bar charts on a grid with one y scale, with letters a, b, c… if there is more than one.

    Args:
        y_range: the ends of the y axes; None: from all bars and intervals, with 0.
        notes: lines below the panels (plain text).
        across: the number of panels in a row.
        panel: the width and height of a chart in pixels; None: by the number of bars.
        names_below: whether a column of charts with equal names prints them once, below the last.

    Raises:
        ValueError: a series does not have one number per name, or charts with `names_below` have
            different names.
    """
    for part in parts:
        _check(part)
    across = min(across, len(parts))
    if names_below and any(a.names != b.names for a, b in zip(parts, parts[across:], strict=False)):
        raise ValueError("expected equal names in each column of charts, found different ones")
    key = dict.fromkeys((s.name, s.colour) for part in parts for s in part.series if s.name)
    slanted, page = _page(parts, across, panel, notes, bool(key), names_below)
    ends = y_range or _reach(parts)
    sheet = Sheet(page)
    sheet.update_layout(barmode="overlay")
    for index, part in enumerate(parts):
        _set_axes(sheet, index, part, ends, slanted)
        if names_below and index + across < len(parts):
            sheet.update_layout({f"{axis_names(index)[0]}_showticklabels": False})
        for which, bars in enumerate(part.series):
            _add_bars(sheet, part, which, bars, index)
        sheet.add_title(part.title, index)
    _add_key(sheet, list(key))
    return sheet.finished()


def _check(part: BarPanel) -> None:
    for bars in part.series:
        arrays = (bars.values, bars.low, bars.high, bars.strong)
        lengths = [len(a) for a in arrays if a is not None]
        if set(lengths) != {len(part.names)} or (bars.low is None) != (bars.high is None):
            raise ValueError(
                f"expected values and, where given, low with high, and strong for "
                f"{len(part.names)} names, found {lengths} numbers"
            )


def _reach(parts: Sequence[BarPanel]) -> tuple[float, float]:
    """From the lowest to the highest bar or interval, and 0, with a margin."""
    series = [bars for part in parts for bars in part.series]
    return reach([array for bars in series for array in (bars.values, bars.low, bars.high)])


def _page(
    parts: Sequence[BarPanel],
    across: int,
    panel: tuple[int, int] | None,
    notes: Sequence[str],
    keyed: bool,
    names_below: bool,
) -> tuple[bool, Page]:
    """Whether the names are slanted (if there is no room), and the page."""
    n_bars = max(len(part.names) * len(part.series) for part in parts)
    width, height = panel or (min(max(26 * n_bars, 150), 520), 190)
    room = width / max(len(part.names) for part in parts)
    longest = max((text_box(name, _TICK)[0] for part in parts for name in part.names), default=0)
    slanted = longest > room
    below = 22 + (0.64 * longest if slanted else 0)
    top = TOP + (24 if keyed else 0)
    titles = 16 * max(part.title.count("<br>") for part in parts)
    top += titles
    down = -(-len(parts) // across)
    row = height + titles + 44 + (0 if names_below else below)
    below = below if names_below else 0
    boxes = [
        Box(x, y, x + width, y + height)
        for index in range(len(parts))
        for x, y in [(LEFT + 12 + index % across * (width + 26), top + index // across * row)]
    ]
    right = LEFT + 12 + across * width + (across - 1) * 26 + 24
    lines = wrapped(notes, right)
    foot = LINE * len(lines) - 14
    return slanted, Page((right, top + down * row + below + foot), tuple(boxes), lines)


def _set_axes(
    sheet: Sheet, index: int, part: BarPanel, ends: tuple[Number, Number], slanted: bool
) -> None:
    boxes = sheet.page.boxes
    x: dict[str, Any] = {
        "range": [-0.6, len(part.names) - 0.4],
        "tickvals": list(range(len(part.names))),
        "ticktext": [plain(name) for name in part.names],
        "tickangle": -40 if slanted else 0,
        "ticks": "",
    }
    title = {"size": 13, "color": part.ink}
    y = {
        **value_axis(ends, ""),
        "showticklabels": boxes[index].left == boxes[0].left,
        "zeroline": True,
        "zerolinewidth": 1.2,
        "title": {"text": part.y_title, "font": title, "standoff": 8},
    }
    sheet.set_axes(index, x, y)


def _add_bars(sheet: Sheet, part: BarPanel, which: int, bars: Bars, index: int) -> None:
    width = 0.72 / len(part.series)
    offset = (which - (len(part.series) - 1) / 2) * width
    strong = np.ones(len(part.names), bool) if bars.strong is None else bars.strong
    between, errors = "", None
    further = np.full((len(part.names), 2), np.nan)
    if bars.low is not None and bars.high is not None:
        between = " (%{customdata[0]:.3~f} to %{customdata[1]:.3~f})"
        further = np.stack([bars.low, bars.high], axis=-1)
        errors = {
            "array": bars.high - bars.values,
            "arrayminus": bars.values - bars.low,
            "thickness": 1.1,
            "width": 3,
            "color": "#475569",
        }
    name = f"{plain(bars.name)}, " if bars.name else ""
    sheet.add_bar(
        x=np.arange(len(part.names)) + offset,
        y=bars.values,
        width=width * (0.94 if len(part.series) > 1 else 1),
        marker={"color": [bars.colour if s else PALE for s in strong], "line": {"width": 0}},
        error_y=errors,
        customdata=further,
        text=[plain(name) for name in part.names],
        textposition="none",
        hovertemplate=f"{name}%{{text}}: %{{y:.3~f}}{between}<extra></extra>",
        **panel_axes(index),
    )


def _add_key(sheet: Sheet, key: Sequence[tuple[str, str]]) -> None:
    """One coloured square and a name for each series, in a line above the panels."""
    left: Number = sheet.page.boxes[0].left
    for name, colour in key:
        text = f'<span style="color:{colour}">■</span> {plain(name)}'
        sheet.write(text, (left, 8), size=_KEY, ink=NOTE, anchor=("left", "top"))
        left += text_box(name, _KEY)[0] + 30


_LETTER, _APART, _CELL, _WIDEST = 7.3, 34, 30, 720  # pixels: a letter, between tables, cells
_LINE, _HEAD, _GAP, _KEY_LINE = 17, 50, 26, 30
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
        parts: the rows.
        cells_title: the meaning of the cells.
        feet_title: the meaning of the small texts below them.
        legend: the names of the cells' colours, with the colours; above the rows.
        notes: lines below the rows (plain text).

    Raises:
        ValueError: there is no row.
    """
    if not parts:
        raise ValueError("expected a row at least, found none")
    page = _steps_page(parts, notes, keyed=bool(legend))
    sheet = Sheet(page)
    sheet.update_xaxes(visible=False)
    sheet.update_yaxes(visible=False)
    starts = _starts(parts)
    for index, (part, box) in enumerate(zip(parts, page.boxes, strict=True)):
        sheet.write(f"{letter_of(index)}  {plain(part.title)}", (box.left, box.top - 30), size=14)
        _add_tables(sheet, part, box, starts)
        _add_cells(sheet, part, (box.left + starts[-1], box.top), (cells_title, feet_title))
    _add_legend(sheet, legend, (page.boxes[0].left, 22))
    return sheet.finished()


def _steps_page(parts: Sequence[Steps], notes: Sequence[str], *, keyed: bool) -> Page:
    tables = _starts(parts)[-1]
    widest = max(_cell(part) * len(part.cells) for part in parts)
    boxes: list[Box] = []
    top = 12 + _HEAD + _KEY_LINE * keyed
    for part in parts:
        lines = max(len(lines) for _, lines in part.tables)
        boxes.append(Box(LEFT - 30, top, LEFT - 30 + tables + widest, top + _LINE * lines))
        top += _LINE * lines + _GAP + _HEAD
    width = boxes[0].right + 24
    small = wrapped(notes, width)
    return Page((width, boxes[-1].bottom + 30 + LINE * len(small)), tuple(boxes), small)


def _starts(parts: Sequence[Steps]) -> list[float]:
    """The left edges of the tables and of the cells, the same in every row."""
    starts = [0.0]
    for number in range(max(len(part.tables) for part in parts)):
        tables = [part.tables[number] for part in parts if number < len(part.tables)]
        longest = max(len(line) for name, lines in tables for line in (name, *lines))
        starts.append(starts[-1] + _LETTER * longest + _APART)
    return starts


def _cell(part: Steps) -> int:
    return max(min(_CELL, _WIDEST // max(len(part.cells), 1)), 12)


def _add_tables(sheet: Sheet, part: Steps, box: Box, starts: Sequence[float]) -> None:
    for number, (name, lines) in enumerate(part.tables):
        left = box.left + starts[number]
        sheet.write(plain(name), (left, box.top - 6), size=11, ink=NOTE)
        for row, line in enumerate(lines):
            text = plain(line).replace(" ", "\u00a0")
            at = (left, box.top + _LINE * (row + 1))
            sheet.write(text, at, font={"family": _MONO, "size": 12})


def _add_cells(sheet: Sheet, part: Steps, corner: XY, titles: tuple[str, str]) -> None:
    (left, top), size = corner, _cell(part)
    sheet.write(plain(titles[0]), (left, top - 6), size=11, ink=NOTE)
    if part.feet:
        sheet.write(plain(titles[1]), (left, top + size + 50), size=11, ink=NOTE)
    for number, (text, colour) in enumerate(part.cells):
        x = left + number * size
        _add_square(sheet, (x, top + 4), size - 4, colour)
        ink = "white" if is_dark(colour) else TEXT
        middle = (x + size / 2 - 2, top + 2 + size / 2)
        sheet.write(plain(text), middle, ink=ink, anchor=("center", "middle"))
        for line, text in enumerate((str(number), *part.feet[number : number + 1])):
            below = (x + size / 2 - 2, top + size + 16 + 14 * line)
            sheet.write(plain(text), below, size=10, ink=NOTE, anchor=("center", "bottom"))


def _add_legend(sheet: Sheet, legend: Sequence[tuple[str, str]], corner: XY) -> None:
    x, bottom = corner
    for name, colour in legend:
        _add_square(sheet, (x, bottom - 13), 11, colour)
        sheet.write(plain(name), (x + 16, bottom), size=11, ink=NOTE)
        x += 30 + 7 * len(name)


def _add_square(sheet: Sheet, corner: XY, size: int, colour: str) -> None:
    stop = (corner[0] + size, corner[1] + size)
    sheet.add_shape("rect", corner, stop, fillcolor=colour, line={"width": 0})
