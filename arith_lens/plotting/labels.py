"""Places of labels: boxes in pixels that cover as little of a picture as possible."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.style import Number

XY: TypeAlias = tuple[Number, Number]
"""Across and down in pixels, or a place on a panel's axes."""


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
        area = (self.right - self.left) * (self.bottom - self.top)
        return bool(self.overlap(other) >= area - 1e-6)

    def nearest(self, to: XY) -> XY:
        """The point of the box next to another point."""
        x, y = to
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    @property
    def centre(self) -> tuple[Number, Number]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def text_box(text: str, size: Number) -> tuple[Number, Number]:
    """Width and height in pixels that `text` needs at a font size, a little generously."""
    return 0.6 * size * len(text) + 4, size + 4


def widest(texts: Iterable[str], size: Number) -> Number:
    """The width in pixels of the longest text at a font size; 0 without a text."""
    return max((text_box(text, size)[0] for text in texts), default=0)


def square(x: Number, y: Number, half: Number) -> Box:
    """The square around a pixel."""
    return Box(x - half, y - half, x + half, y + half)


def cell_box(row: int, column: int, cell: tuple[Number, Number]) -> Box:
    """The pixels of one cell."""
    width, height = cell
    return Box(column * width, row * height, (column + 1) * width, (row + 1) * height)


def along(x: Sequence[Number] | np.ndarray, y: Sequence[Number] | np.ndarray) -> list[Box]:
    """Small squares along the pixels (x, y)."""
    length = np.concatenate([np.zeros(1), np.cumsum(np.hypot(np.diff(x), np.diff(y)))])[: len(x)]
    at = np.arange(0, length[-1] + 3, 3.0) if len(x) else length
    spots = zip(np.interp(at, length, x), np.interp(at, length, y), strict=True)
    return [square(*spot, 2) for spot in spots]


def around(own: Box, width: Number, height: Number) -> list[Box]:
    """Candidate places of a label beside its own box, best first."""
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


def conflicts(
    places: Sequence[Box], taken: Sequence[Box], frame: Box
) -> Float[np.ndarray, " place"]:
    """Pixels of each place over what is taken; all of them count where it leaves the frame."""

    def sides(boxes: Sequence[Box]) -> Float[np.ndarray, "side=4 box"]:
        ends = [(box.left, box.top, box.right, box.bottom) for box in boxes]
        return np.array(ends, float).reshape(-1, 4).T

    a, b = sides(taken)[..., None], sides(places)
    width = np.minimum(a[2], b[2]) - np.maximum(a[0], b[0])
    height = np.minimum(a[3], b[3]) - np.maximum(a[1], b[1])
    covered = (np.maximum(width, 0.0) * np.maximum(height, 0.0)).sum(0)
    outside = np.array([not place.within(frame) for place in places])
    return covered + outside * (b[2] - b[0]) * (b[3] - b[1])


def place_labels(
    cells: Sequence[tuple[int, int]],
    texts: Sequence[str],
    weight: Float[np.ndarray, "row column"],
    *,
    cell: tuple[Number, Number],
    size: Number,
    avoid: Iterable[tuple[int, int]] = (),
    filled: Iterable[tuple[int, int]] = (),
) -> list[Box]:
    """A box for each text beside its cell (row, column), the first ones choosing first.

    Where the text fits into its cell, that is its place. Otherwise it goes right, left, diagonally,
    below or above: not over a labelled cell, one of `avoid`, an earlier label or the frame if that
    can be helped, and over as little of `weight` (say |effect|) as possible.

    Args:
        weight: what it costs to hide each cell; its shape is the map's.
        cell: width and height of a cell in pixels.
        filled: cells with a number of their own; a text fits only if both do, one above the other.
    """
    n_rows, n_columns = weight.shape
    filled = {*filled}
    frame = Box(0, 0, n_columns * cell[0], n_rows * cell[1])
    marked = [cell_box(*position, cell) for position in {*cells, *avoid}]
    placed: list[Box] = []
    for position, text in zip(cells, texts, strict=True):
        own = cell_box(*position, cell)
        width, height = text_box(text, size)
        if width <= cell[0] and height * (1 + (position in filled)) <= cell[1]:
            placed.append(own)
            continue
        places = around(own, width, height)
        costs = conflicts(places, [*(box for box in marked if box != own), *placed], frame)
        hidden = [_hidden(place, weight, cell) for place in places]
        best = min(range(len(places)), key=lambda i: (costs[i], hidden[i]))
        placed.append(places[best])
    return placed


def _hidden(box: Box, weight: Float[np.ndarray, "row column"], cell: tuple[Number, Number]) -> int:
    """Weight under the box, in tenths of the largest: less does not count."""

    def shares(start: Number, stop: Number, n: int) -> Float[np.ndarray, " cell"]:
        at = np.arange(n)
        return np.maximum(np.minimum(stop, at + 1) - np.maximum(start, at), 0.0)

    rows = shares(box.top / cell[1], box.bottom / cell[1], weight.shape[0])
    columns = shares(box.left / cell[0], box.right / cell[0], weight.shape[1])
    covered = rows @ np.where(np.isfinite(weight), weight, 0.0) @ columns
    return round(10 * float(covered) / (float(np.nanmax(weight)) or 1.0))


def spread(
    wanted: Sequence[Number], gap: Number, low: Number, high: Number
) -> Float[np.ndarray, " label"]:
    """Heights near the wanted ones, at least `gap` apart and between `low` and `high`.

    The order of the wanted heights is kept, and neighbours that clash move by equal amounts. Where
    there is no room for all, they overflow below `high`.
    """

    def held(first: Number, many: int) -> Number:
        """The first height of a group, moved so that the group stays between the ends."""
        return max(min(first, high - (many - 1) * gap), low)

    order = np.argsort(np.asarray(wanted, float), kind="stable")
    groups: list[tuple[Number, int]] = []  # of touching labels: the first one's height, how many
    for height in (float(wanted[index]) for index in order):
        groups.append((held(height, 1), 1))
        while len(groups) > 1 and groups[-2][0] + groups[-2][1] * gap > groups[-1][0]:
            (first, many), (second, more) = groups[-2:]
            both = many + more
            mean = (many * first + more * (second - many * gap)) / both
            groups[-2:] = [(held(mean, both), both)]
    result = np.empty(len(order))
    result[order] = [first + i * gap for first, many in groups for i in range(many)]
    return result
