"""Where to write the names of marked cells, so that none hides another or a cell that matters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.style import Number


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: Number
    top: Number
    right: Number
    bottom: Number

    def overlap(self, other: "Box") -> Number:
        """The shared area, 0 when the two only touch."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(width, 0.0) * max(height, 0.0)

    def within(self, other: "Box") -> bool:
        """Whether no part lies outside `other`."""
        return self.overlap(other) >= (self.right - self.left) * (self.bottom - self.top) - 1e-6

    @property
    def centre(self) -> tuple[Number, Number]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def text_box(text: str, size: Number) -> tuple[Number, Number]:
    """Width and height in pixels that `text` needs at a font size, a little generously."""
    return 0.6 * size * len(text) + 4, size + 4


def place_labels(
    cells: Sequence[tuple[int, int]],
    texts: Sequence[str],
    weight: Float[np.ndarray, "row column"],
    *,
    cell: tuple[Number, Number],
    size: Number,
    avoid: Iterable[tuple[int, int]] = (),
) -> list[Box]:
    """A box for each text beside its cell (row, column), the first ones choosing first.

    Where the text fits into its cell, that is its place. Otherwise it goes right, left, diagonally,
    below or above: not over a labelled cell, one of `avoid`, an earlier label or the frame if that
    can be helped, and over as little of `weight` (say |effect|) as possible.

    Args:
        weight: what it costs to hide each cell; its shape is the map's.
        cell: width and height of a cell in pixels.
    """
    n_rows, n_columns = weight.shape
    frame = Box(0, 0, n_columns * cell[0], n_rows * cell[1])
    marked = [cell_box(*position, cell) for position in {*cells, *avoid}]
    placed: list[Box] = []
    for position, text in zip(cells, texts, strict=True):
        own = cell_box(*position, cell)
        width, height = text_box(text, size)
        if width <= cell[0] and height <= cell[1]:
            placed.append(own)
            continue
        others = [box for box in marked if box != own]
        placed.append(
            min(
                _around(own, width, height),
                key=lambda box: _cost(box, [*others, *placed], frame, weight, cell),
            )
        )
    return placed


def cell_box(row: int, column: int, cell: tuple[Number, Number]) -> Box:
    """The pixels of one cell."""
    width, height = cell
    return Box(column * width, row * height, (column + 1) * width, (row + 1) * height)


def _around(own: Box, width: Number, height: Number) -> list[Box]:
    """Candidate places, best first (`min` keeps the first of equals)."""
    x, y = own.centre
    gap = 3.0
    right, left = own.right + gap, own.left - gap - width
    below, above = own.bottom + 1, own.top - 1 - height
    corners = [
        (right, y - height / 2),
        (left, y - height / 2),
        (right - gap, above + gap),
        (right - gap, below - gap),
        (left + gap, above + gap),
        (left + gap, below - gap),
        (x - width / 2, below),
        (x - width / 2, above),
    ]
    return [Box(a, b, a + width, b + height) for a, b in corners]


def _cost(
    box: Box,
    taken: Sequence[Box],
    frame: Box,
    weight: Float[np.ndarray, "row column"],
    cell: tuple[Number, Number],
) -> tuple[Number, Number]:
    """Pixels in conflict; weight hidden, in tenths of the largest: less does not count."""
    conflict = sum(box.overlap(other) for other in taken)
    if not box.within(frame):
        conflict += (box.right - box.left) * (box.bottom - box.top)
    largest = float(np.nanmax(weight)) or 1.0
    return conflict, round(10 * _hidden(box, weight, cell) / largest)


def _hidden(
    box: Box, weight: Float[np.ndarray, "row column"], cell: tuple[Number, Number]
) -> Number:
    rows = range(max(int(box.top // cell[1]), 0), min(int(box.bottom // cell[1]) + 1, len(weight)))
    columns = range(
        max(int(box.left // cell[0]), 0), min(int(box.right // cell[0]) + 1, weight.shape[1])
    )
    area = cell[0] * cell[1]
    covered = (
        box.overlap(cell_box(row, column, cell)) / area * float(weight[row, column])
        for row in rows
        for column in columns
        if np.isfinite(weight[row, column])
    )
    return sum(covered)
