"""What a panel holds, and where everything of a grid of panels stands, in pixels."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import Box
from arith_lens.plotting.page import LEFT, LINE, TOP, Page
from arith_lens.plotting.style import Number

_SPAN = 384  # pixels of a panel's longer side
_BAR, _BAR_GAP = 20, 12  # pixels: the bar's width, and its distance from the map
RIGHT = 118
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

    `hover` and `bar_hover` hold further numbers a cell, for the hover text.
    """

    title: str  # may hold <b> and <span>: escape what comes from outside
    values: Float[np.ndarray, "row column"]
    bar: Float[np.ndarray, " row"]
    hover: Float[np.ndarray, "row column number"]
    bar_hover: Float[np.ndarray, "row number"]
    marks: tuple[Mark, ...] = ()
    dots: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Geometry:
    """Pixels of everything, from the maps' shape alone."""

    n_rows: int
    n_columns: int
    grid: tuple[int, int]  # panels down, across
    n_notes: int

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell: they fill the panel, at most 1.6 times as wide as high."""
        height = max(_SPAN // max(self.n_rows, 8), 4)
        width = max(_SPAN // max(self.n_columns, 1), 4)
        return min(width, int(1.6 * height)), min(height, int(1.6 * width))

    @property
    def map_size(self) -> tuple[int, int]:
        return self.n_columns * self.cell[0], self.n_rows * self.cell[1]

    @property
    def panel_width(self) -> int:
        return self.map_size[0] + _BAR_GAP + _BAR

    def page(self, n_panels: int) -> Page:
        """The whole figure; a panel's box is its map with the bar."""
        down, across = self.grid
        width, height = self.panel_width, self.map_size[1]
        corners = [
            (
                LEFT + index % across * (width + _BETWEEN_COLUMNS),
                TOP + index // across * (height + _BETWEEN_ROWS),
            )
            for index in range(n_panels)
        ]
        bottom = 62 + LINE * self.n_notes
        return Page(
            (
                LEFT + across * width + (across - 1) * _BETWEEN_COLUMNS + RIGHT,
                TOP + down * height + (down - 1) * _BETWEEN_ROWS + bottom,
            ),
            tuple(Box(x, y, x + width, y + height) for x, y in corners),
        )

    @property
    def bar_range(self) -> tuple[Number, Number]:
        """The bar's left and right end on the map's x axis, in cells."""
        start = self.n_columns - 0.5 + _BAR_GAP / self.cell[0]
        return start, start + _BAR / self.cell[0]
