"""What a panel holds, and where everything of a grid of panels stands, in pixels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import Box
from arith_lens.plotting.page import LEFT, LINE, TOP, Page, wrapped
from arith_lens.plotting.style import Number

SPAN = 384  # pixels of a panel's longer side
_BAR, _BAR_GAP = 20, 12  # pixels: the bar's width, and its distance from the map
RIGHT, HEADING = 118, 26
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 40, 72


@dataclass(frozen=True)
class Mark:
    """One outlined cell, named. `strong` marks are dark, others light."""

    row: int
    column: int
    text: str
    strong: bool = True


@dataclass(frozen=True)
class Panel:
    """One map [row column], the bar beside it [row], and what to point out.

    `hover` and `bar_hover` hold further numbers a cell, for the hover text; `texts` and
    `bar_texts`, if any, are written in the cells.
    """

    title: str  # may hold <b> and <span>: pass `plain` what comes from outside
    values: Float[np.ndarray, "row column"]
    bar: Float[np.ndarray, " row"]
    hover: Float[np.ndarray, "row column number"]
    bar_hover: Float[np.ndarray, "row number"]
    marks: tuple[Mark, ...] = ()
    dots: tuple[tuple[int, int], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()  # a line a row; may hold <b> and <br>
    bar_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Geometry:
    """Pixels of one map and its bar, from the map's shape alone."""

    n_rows: int
    n_columns: int
    span: int = SPAN  # pixels of the map's longer side
    fixed: tuple[int, int] | None = None  # width and height of a cell, whatever the span

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell: they fill the panel, at most 1.6 times as wide as high."""
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
        """The bar's width: a cell's where cells hold texts."""
        return _BAR if self.fixed is None else max(self.fixed[0], _BAR)

    @property
    def panel_width(self) -> int:
        return self.map_size[0] + _BAR_GAP + self.bar

    @property
    def bar_range(self) -> tuple[Number, Number]:
        """The bar's left and right end on the map's x axis, in cells."""
        start = self.n_columns - 0.5 + _BAR_GAP / self.cell[0]
        return start, start + self.bar / self.cell[0]

    @property
    def label(self) -> Number:
        """Font size of labels beside cells."""
        return 10.5 if self.span >= SPAN else 9

    @property
    def most_ticks(self) -> int:
        """Every row and column has its number where cells are large."""
        return 9 if self.fixed is None else max(self.n_rows, self.n_columns, 1)


def map_page(places: Sequence[Geometry], across: int, notes: Sequence[str], headed: bool) -> Page:
    """The whole figure: columns as wide and rows as high as their largest panel.

    A panel's box is its map with the bar; above each row is room for a heading if `headed`.
    """
    widths = [max(g.panel_width for g in places[c::across]) for c in range(across)]
    rows = [places[i : i + across] for i in range(0, len(places), across)]
    heights = [max(g.map_size[1] for g in row) for row in rows]
    above = TOP + (HEADING if headed else 0)
    lefts = [LEFT + sum(widths[:c]) + c * _BETWEEN_COLUMNS for c in range(across)]
    gap = _BETWEEN_ROWS + (HEADING if headed else 0)
    tops = [above + sum(heights[:r]) + r * gap for r in range(len(rows))]
    corners = [(lefts[i % across], tops[i // across]) for i in range(len(places))]
    width = lefts[-1] + widths[-1] + RIGHT
    lines = wrapped(notes, width)
    return Page(
        (width, tops[-1] + heights[-1] + 62 + LINE * len(lines)),
        tuple(
            Box(x, y, x + g.panel_width, y + g.map_size[1])
            for (x, y), g in zip(corners, places, strict=True)
        ),
        lines,
    )
