"""What a line chart holds, and where everything of a grid of them stands, in pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from arith_lens.plotting.labels import Box, text_box
from arith_lens.plotting.page import LEFT, LINE, TOP, Page, wrapped
from arith_lens.plotting.style import TEXT, Number

NAME, LEADER = 12, 14
"""Font size of a line's name; pixels from a line's end to a name that had to move."""


@dataclass(frozen=True)
class Line:
    """A line with its name and, between `low` and `high`, its interval. NaN is a gap."""

    x: Num[np.ndarray, " point"]
    y: Float[np.ndarray, " point"]
    name: str  # at the line's end and in the hover; plain text
    colour: str = TEXT
    low: Float[np.ndarray, " point"] | None = None
    high: Float[np.ndarray, " point"] | None = None
    dash: str = "solid"  # or "dash", "dot"


@dataclass(frozen=True)
class Point:
    """An open marker on a line at `x`, with a text beside it."""

    x: Number
    text: str
    line: int = 0  # which of the panel's lines


@dataclass(frozen=True)
class CurvePanel:
    """One chart: its lines, points to mark, and dotted vertical guides with a text above."""

    title: str  # may hold <b> and <span>: pass `plain` what comes from outside
    lines: tuple[Line, ...]
    points: tuple[Point, ...] = ()
    guides: tuple[tuple[Number, str], ...] = ()
    y_title: str = ""
    y_range: tuple[Number, Number] | None = None  # None: from the data, 0 included


@dataclass(frozen=True)
class Scale:
    """From a chart's numbers to the page's pixels."""

    x: tuple[Number, Number]
    y: tuple[Number, Number]
    box: Box

    @classmethod
    def of(cls, part: CurvePanel, box: Box) -> "Scale":
        x = np.concatenate([line.x for line in part.lines])
        low, high = float(np.min(x)), float(np.max(x))
        margin = (high - low or 1.0) * 0.012
        return cls((low - margin, high + margin), part.y_range or _reach(part), box)

    def pixels(
        self, x: Num[np.ndarray, " point"] | Number, y: Float[np.ndarray, " point"] | Number
    ) -> tuple[Any, Any]:
        """Where numbers stand on the page."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        box = self.box
        return (
            box.left + across * (box.right - box.left),
            box.bottom - up * (box.bottom - box.top),
        )


def _reach(part: CurvePanel) -> tuple[float, float]:
    """From the lowest to the highest number of lines and bands, and 0, with a margin."""
    drawn = [a for line in part.lines for a in (line.y, line.low, line.high) if a is not None]
    values = np.concatenate([*drawn, np.zeros(1)])
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    margin = 0.05 * (high - low or 1.0)
    return low - margin if low < 0 else 0.0, high + margin if high > 0 else 0.0


def check(part: CurvePanel) -> None:
    """Refuse what cannot be drawn; see `curve_panels`."""
    for line in part.lines:
        shapes = [a.shape for a in (line.x, line.y, line.low, line.high) if a is not None]
        if len(set(shapes)) != 1 or line.x.size == 0 or (line.low is None) != (line.high is None):
            raise ValueError(
                f"expected x, y and, together, low and high of one length from 1 for the line "
                f"{line.name!r}, found {shapes}"
            )
    for point in part.points:
        if not 0 <= point.line < len(part.lines):
            raise ValueError(
                f"expected a point on one of {len(part.lines)} lines, found line {point.line}"
            )
        x = part.lines[point.line].x
        if not x.min() <= point.x <= x.max():
            raise ValueError(
                f"expected a point within {x.min():g} to {x.max():g}, where the line "
                f"{part.lines[point.line].name!r} is, found {point.x:g}"
            )


def curve_page(
    parts: Sequence[CurvePanel], across: int, panel: tuple[int, int], notes: Sequence[str]
) -> Page:
    """Each column of charts has room for its longest name, each row for its guides."""
    guided = any(text for part in parts for _, text in part.guides)
    top = TOP + (18 if guided else 0)
    names = [
        max((text_box(line.name, NAME)[0] for line in part.lines if line.name), default=0)
        for part in parts
    ]
    gutters = [max(names[column::across]) + LEADER + 10 for column in range(across)]
    lefts = [LEFT + column * (panel[0] + LEFT) + sum(gutters[:column]) for column in range(across)]
    down = -(-len(parts) // across)
    boxes = [
        Box(x, y, x + panel[0], y + panel[1])
        for index in range(len(parts))
        for x, y in [(lefts[index % across], top + index // across * (panel[1] + 34 + top))]
    ]
    width = lefts[-1] + panel[0] + gutters[-1]
    lines = wrapped(notes, width)
    height = top + down * panel[1] + (down - 1) * (34 + top) + 56 + LINE * len(lines)
    return Page((width, height), tuple(boxes), lines)
