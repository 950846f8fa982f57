"""Trails: two numbers against each other, for settings of one kind in order.

An example is the gain against the loss at several learning rates, with one trail per method.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import cos, pi, sin
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curves import LEADER, NAME, add_name, along, nearest
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    TOP,
    Box,
    Page,
    Sheet,
    around,
    freest,
    plain,
    spread,
    square,
    text_box,
    wrapped,
)
from arith_lens.plotting.style import FRAME, GRID, TEXT, Figure, signed, steps, translucent

TrailMark: TypeAlias = Literal["point", "pale", "ring", "square"]

_LABEL = 10  # font size of a setting's label
_SIZE = (640, 400)  # pixels of the chart
_AWAY = (16, 26, 38, 52, 68, 86)  # pixels from a point to a label that found no room beside it
_ROOT_TICKS = (100, 50, 25, 10, 5, 2)
_STYLES: dict[TrailMark, tuple[str, int, bool]] = {
    "point": ("circle", 7, True),
    "pale": ("circle", 5, False),
    "ring": ("circle", 12, False),
    "square": ("square", 11, False),
}
"""The symbol, size and filling of each mark."""


@dataclass(frozen=True)
class Trail:
    """The settings of one kind, in order."""

    x: Float[np.ndarray, " setting"]
    y: Float[np.ndarray, " setting"]
    labels: tuple[str, ...]
    """The labels of the settings; plain text."""
    name: str
    """Plain text."""
    colour: str = TEXT
    marks: tuple[TrailMark, ...] = ()
    """The mark of each setting; empty: points."""
    x_ends: Float[np.ndarray, "setting end=2"] | None = None
    """The interval of each x; NaN is none."""
    y_ends: Float[np.ndarray, "setting end=2"] | None = None
    """The interval of each y; NaN is none."""


@dataclass(frozen=True)
class _Chart:
    """The chart's axes on the page."""

    page: Page
    x: tuple[float, float]
    y: tuple[float, float]
    root: bool

    @property
    def box(self) -> Box:
        return self.page.boxes[0]

    def across(self, x: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The place of numbers on the x axis."""
        return np.sign(x) * np.sqrt(np.abs(x)) if self.root else x

    def pixels(
        self, x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]
    ) -> list[tuple[float, float]]:
        """The pixels of points on the page."""
        low, high = self.across(np.array(self.x))
        box = self.box
        right = box.left + (self.across(x) - low) / (high - low) * (box.right - box.left)
        down = box.bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (box.bottom - box.top)
        return [(float(a), float(d)) for a, d in zip(right, down, strict=True)]

    def taken(self, trail: Trail) -> Iterator[Box]:
        """What a trail covers: its points, its line, its intervals."""
        points = self.pixels(trail.x, trail.y)
        yield from (square(*point, 6) for point in points)
        yield from along(*zip(*points, strict=True))
        for start, end in _intervals(trail):
            yield from along(*zip(*self.pixels(*np.stack([start, end]).T), strict=True))


def trail_chart(
    trails: Sequence[Trail],
    *,
    x_title: str,
    y_title: str,
    root: bool = False,
    notes: Sequence[str] = (),
) -> Figure:
    """One chart with all settings of all trails, and the trails' names right of it.

    Args:
        trails: at least one.
        x_title: the title of the x axis.
        y_title: the title of the y axis.
        root: whether x has a square-root scale to both sides of 0, which shows small and large
            numbers together.
        notes: lines below the chart (plain text).

    Raises:
        ValueError: x, y, labels and marks of a trail differ in number.
    """
    for trail in trails:
        _check(trail)
    chart = _chart(trails, root, notes)
    sheet = Sheet(chart.page)
    _set_axes(sheet, chart, (x_title, y_title))
    taken = [box for trail in trails for box in chart.taken(trail)]
    for trail in trails:
        _add_intervals(sheet, trail, chart)
    for trail in trails:
        _add_trail(sheet, trail, chart)
    for trail in trails:
        _add_labels(sheet, trail, chart, taken)
    _add_key(sheet, trails)
    return sheet.finished()


def _check(trail: Trail) -> None:
    n = len(trail.labels)
    counts = [len(trail.x), len(trail.y), n, len(trail.marks) or n]
    counts += [n if ends is None else len(ends) for ends in (trail.x_ends, trail.y_ends)]
    if len({*counts}) > 1:
        raise ValueError(
            f"expected x, y, labels, marks and intervals of one number of settings for the trail "
            f"{trail.name!r}, found {counts}"
        )


def _chart(trails: Sequence[Trail], root: bool, notes: Sequence[str]) -> _Chart:
    left = LEFT + 14
    box = Box(left, TOP, left + _SIZE[0], TOP + _SIZE[1])
    right = box.right + max(text_box(trail.name, NAME)[0] for trail in trails) + LEADER + 16
    lines = wrapped(notes, right)
    page = Page((right, box.bottom + 60 + LINE * len(lines)), (box,), lines)
    x = [part for trail in trails for part in (trail.x, trail.x_ends) if part is not None]
    y = [part for trail in trails for part in (trail.y, trail.y_ends) if part is not None]
    ends = _ends(np.concatenate([part.ravel() for part in x]))
    if root:  # the margins are equal on the page
        low, high = np.sign(ends) * np.sqrt(np.abs(ends))
        margin = 0.03 * (high - low)
        low, high = float(low - margin), float(high + margin)
        ends = low * abs(low), high * abs(high)
    return _Chart(page, ends, _ends(np.concatenate([part.ravel() for part in y])), root)


def _ends(values: np.ndarray) -> tuple[float, float]:
    """From the lowest to the highest number, and 0, with a margin."""
    low, high = min(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    margin = 0.04 * (high - low or 1.0)
    return low - margin, high + margin


def _set_axes(sheet: Sheet, chart: _Chart, titles: tuple[str, str]) -> None:
    numbers = [-v for v in _ROOT_TICKS] + [0, *reversed(_ROOT_TICKS)]
    axes: list[dict[str, Any]] = []
    for ends, title, root in zip((chart.x, chart.y), titles, (chart.root, False), strict=True):
        at = [v for v in (numbers if root else steps(*ends)) if ends[0] <= v <= ends[1]]
        places = chart.across(np.array([*ends, *at], float)) if root else np.array([*ends, *at])
        axis = {
            "range": places[:2].tolist(),
            "tickvals": places[2:].tolist(),
            "ticktext": [signed(value) for value in at],
            "showgrid": True,
            "gridcolor": GRID,
            "zeroline": True,
            "zerolinecolor": FRAME,
            "zerolinewidth": 1.4,
            "title": {"text": plain(title), "font": {"size": 13}, "standoff": 8},
        }
        axes.append(axis)
    sheet.set_axes(0, *axes)


def _intervals(trail: Trail) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of every interval, as points (x, y)."""
    for i, (x, y) in enumerate(zip(trail.x, trail.y, strict=True)):
        if trail.x_ends is not None and np.isfinite(trail.x_ends[i]).all():
            yield np.array([trail.x_ends[i, 0], y]), np.array([trail.x_ends[i, 1], y])
        if trail.y_ends is not None and np.isfinite(trail.y_ends[i]).all():
            yield np.array([x, trail.y_ends[i, 0]]), np.array([x, trail.y_ends[i, 1]])


def _add_intervals(sheet: Sheet, trail: Trail, chart: _Chart) -> None:
    for ends in _intervals(trail):
        x, y = np.stack(ends).T
        sheet.add_scatter(
            x=chart.across(x),
            y=y,
            mode="lines",
            line={"width": 3.5, "color": translucent(trail.colour, 0.28)},
            hoverinfo="skip",
        )


def _add_trail(sheet: Sheet, trail: Trail, chart: _Chart) -> None:
    marks = [_STYLES[mark] for mark in trail.marks or ("point",) * len(trail.labels)]
    numbers: list[Any] = [
        [plain(label), float(x)] for label, x in zip(trail.labels, trail.x, strict=True)
    ]
    sheet.add_scatter(
        x=chart.across(trail.x),
        y=trail.y,
        mode="lines+markers",
        name=plain(trail.name),
        customdata=numbers,
        hovertemplate=(
            f"{plain(trail.name)}, %{{customdata[0]}}: %{{customdata[1]:+.1f}}, "
            "%{y:+.1f}<extra></extra>"
        ),
        line={"width": 1.4, "color": trail.colour},
        marker={
            "symbol": [symbol for symbol, _, _ in marks],
            "size": [size for _, size, _ in marks],
            "opacity": 1,
            "color": [trail.colour if filled else "white" for _, _, filled in marks],
            "line": {"width": [2 if size > 6 else 1.2 for _, size, _ in marks],
                     "color": trail.colour},
        },
    )  # fmt: skip


def _add_labels(sheet: Sheet, trail: Trail, chart: _Chart, taken: list[Box]) -> None:
    """Write each setting's label where it covers nothing, with a line to its point if it is far."""
    points = chart.pixels(trail.x, trail.y)
    for label, at in zip(trail.labels, points, strict=True):
        width, height = text_box(label, _LABEL)
        beside = around(square(*at, 7), width, height)
        far = [
            Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            for away, turn in product(_AWAY, range(16))
            for x, y in [
                (
                    at[0] + (away + width / 2) * cos(turn * pi / 8),
                    at[1] + (away + height / 2) * sin(turn * pi / 8),
                )
            ]
        ]
        spot = freest([*beside, *far], taken, chart.box)
        taken.append(spot)
        if spot in far:
            line = {"width": 0.8, "color": translucent(trail.colour, 0.5)}
            sheet.add_shape("line", at, nearest(spot, at), layer="below", line=line)
        style = {"size": _LABEL, "ink": trail.colour, "anchor": ("center", "middle")}
        sheet.write(plain(label), spot.centre, **style)


def _add_key(sheet: Sheet, trails: Sequence[Trail]) -> None:
    """Write the trails' names right of the chart, in order."""
    box = sheet.page.boxes[-1]
    heights = spread([box.top + 10 + 22 * i for i in range(len(trails))], 22, box.top, box.bottom)
    for trail, height in zip(trails, heights, strict=True):
        add_name(sheet, trail.name, (box.right + LEADER, float(height)), trail.colour)
