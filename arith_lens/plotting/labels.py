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
                around(own, width, height),
                key=lambda box: (
                    conflict(box, [*others, *placed], frame),
                    _hidden(box, weight, cell),
                ),
            )
        )
    return placed


def cell_box(row: int, column: int, cell: tuple[Number, Number]) -> Box:
    """The pixels of one cell."""
    width, height = cell
    return Box(column * width, row * height, (column + 1) * width, (row + 1) * height)


def around(own: Box, width: Number, height: Number) -> list[Box]:
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


def conflict(box: Box, taken: Iterable[Box], frame: Box) -> Number:
    """Pixels of `box` over what is taken; all of them count where it leaves the frame."""
    overlap = sum(box.overlap(other) for other in taken)
    if not box.within(frame):
        overlap += (box.right - box.left) * (box.bottom - box.top)
    return overlap


def _hidden(box: Box, weight: Float[np.ndarray, "row column"], cell: tuple[Number, Number]) -> int:
    """Weight under the box, in tenths of the largest: less does not count."""
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
    return round(10 * sum(covered) / (float(np.nanmax(weight)) or 1.0))


def spread(
    wanted: Sequence[Number], gap: Number, low: Number, high: Number
) -> Float[np.ndarray, " label"]:
    """Heights near the wanted ones, at least `gap` apart and between `low` and `high`.

    The order of the wanted heights is kept, and neighbours that clash move by equal amounts. Where
    there is no room for all, they overflow below `high`.
    """
    order = np.argsort(np.asarray(wanted, float), kind="stable")
    groups: list[tuple[Number, int]] = []  # of touching labels: the first one's height, how many
    for height in (float(wanted[index]) for index in order):
        groups.append((_held(height, 1, gap, low, high), 1))
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] * gap > groups[-1][0]:
            (first, many), (second, more) = groups[-2:]
            both = many + more
            mean = (many * first + more * (second - many * gap)) / both
            groups[-2:] = [(_held(mean, both, gap, low, high), both)]
    result = np.empty(len(order))
    result[order] = [first + i * gap for first, many in groups for i in range(many)]
    return result


def _held(first: Number, many: int, gap: Number, low: Number, high: Number) -> Number:
    """The first height of a group, moved so that the group stays between the ends."""
    return max(min(first, high - (many - 1) * gap), low)
