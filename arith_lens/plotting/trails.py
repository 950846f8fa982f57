"""Trails: two numbers against each other, for settings of one kind in order.

An example is the gain against the loss at several learning rates, with one trail per method.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import cos, pi, sin
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curves import LEADER, NAME, Scale, add_name
from arith_lens.plotting.labels import (
    Box,
    along,
    around,
    conflicts,
    spread,
    square,
    text_box,
    widest,
)
from arith_lens.plotting.page import LEFT, TOP, Sheet, plain
from arith_lens.plotting.style import FRAME, GRID, TEXT, Figure, signed, steps, translucent
from arith_lens.plotting.widths import page_width

TrailMark: TypeAlias = Literal["point", "pale", "ring", "square"]

_LABEL = 10  # font size of a setting's label
_SIZE = (640, 320)  # pixels of the chart, at most
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
    dash: str = "solid"
    marks: tuple[TrailMark, ...] = ()
    """The mark of each setting; empty: points."""
    x_ends: Float[np.ndarray, "setting end=2"] | None = None
    """The interval of each x; NaN is none."""
    y_ends: Float[np.ndarray, "setting end=2"] | None = None
    """The interval of each y; NaN is none."""


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
    names = widest((trail.name for trail in trails), NAME)
    width = min(_SIZE[0], page_width() - LEFT - 14 - names - LEADER - 16)
    left, right = LEFT + 14, LEFT + 14 + width
    box = Box(left, TOP, right, TOP + min(_SIZE[1], 0.9 * width))
    sheet = Sheet((right + names + LEADER + 16, box.bottom + 60), [box], notes)
    x_ends = _ends([array for trail in trails for array in (trail.x, trail.x_ends)])
    drawn = trails
    if root:  # the margins are equal on the page
        low, high = map(float, _root(np.array(x_ends)))
        x_ends = low - 0.03 * (high - low), high + 0.03 * (high - low)
        drawn = [_rooted(trail) for trail in trails]
    y_ends = _ends([array for trail in trails for array in (trail.y, trail.y_ends)])
    scale = Scale(x_ends, y_ends, box)
    _set_axes(sheet, scale, (x_title, y_title), root)
    for trail in drawn:
        for x, y in _intervals(trail):
            line = {"width": 3.5, "color": translucent(trail.colour, 0.28)}
            sheet.add_scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip")
    for trail, original in zip(drawn, trails, strict=True):
        _add_trail(sheet, trail, original.x)
    taken = [box for trail in drawn for box in _taken(trail, scale)]
    for trail in drawn:
        _add_labels(sheet, trail, scale, taken)
    heights = spread([box.top + 10 + 22 * i for i in range(len(trails))], 22, box.top, box.bottom)
    for trail, height in zip(trails, heights, strict=True):
        add_name(sheet, trail.name, (right + LEADER, float(height)), trail.colour)
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


def _ends(arrays: Sequence[np.ndarray | None]) -> tuple[float, float]:
    """From the lowest to the highest number, and 0, with a margin."""
    values = np.concatenate([[0.0], *(array.ravel() for array in arrays if array is not None)])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.04 * (high - low or 1.0)
    return low - margin, high + margin


def _root(x: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The square root, to both sides of 0."""
    return np.sign(x) * np.sqrt(np.abs(x))


def _rooted(trail: Trail) -> Trail:
    """The trail with the roots of its x."""
    ends = None if trail.x_ends is None else _root(trail.x_ends)
    return replace(trail, x=_root(trail.x), x_ends=ends)


def _set_axes(sheet: Sheet, scale: Scale, titles: tuple[str, str], root: bool) -> None:
    across = np.array(steps(*scale.x)), np.array(steps(*scale.x))
    if root:
        numbers = np.array([-v for v in _ROOT_TICKS] + [0, *reversed(_ROOT_TICKS)], float)
        places = _root(numbers)
        inside = (scale.x[0] <= places) & (places <= scale.x[1])
        across = numbers[inside], places[inside]
    up = np.array(steps(*scale.y))
    axes = [
        {
            "range": ends,
            "tickvals": places.tolist(),
            "ticktext": [signed(value) for value in numbers],
            "showgrid": True,
            "gridcolor": GRID,
            "zeroline": True,
            "zerolinecolor": FRAME,
            "zerolinewidth": 1.4,
            "title": {"text": plain(title), "font": {"size": 12}, "standoff": 8},
        }
        for ends, (numbers, places), title in zip(
            (scale.x, scale.y), (across, (up, up)), titles, strict=True
        )
    ]
    sheet.set_axes(0, *axes)


def _intervals(trail: Trail) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of every interval: their x and their y."""
    for i, (x, y) in enumerate(zip(trail.x, trail.y, strict=True)):
        if trail.x_ends is not None and np.isfinite(trail.x_ends[i]).all():
            yield trail.x_ends[i], np.array([y, y])
        if trail.y_ends is not None and np.isfinite(trail.y_ends[i]).all():
            yield np.array([x, x]), trail.y_ends[i]


def _taken(trail: Trail, scale: Scale) -> Iterator[Box]:
    """What a trail covers: its points, its line, its intervals."""
    x, y = scale.pixels(trail.x, trail.y)
    yield from (square(*point, 6) for point in zip(x, y, strict=True))
    for line in ((trail.x, trail.y), *_intervals(trail)):
        yield from along(*scale.pixels(*line))


def _add_trail(sheet: Sheet, trail: Trail, numbers: Float[np.ndarray, " setting"]) -> None:
    """Draw a trail; `numbers` are its x in the hover."""
    marks = [_STYLES[mark] for mark in trail.marks or ("point",) * len(trail.labels)]
    labels = map(plain, trail.labels)
    sheet.add_scatter(
        x=trail.x,
        y=trail.y,
        mode="lines+markers",
        name=plain(trail.name),
        customdata=[[label, float(x)] for label, x in zip(labels, numbers, strict=True)],
        hovertemplate=(
            f"{plain(trail.name)}, %{{customdata[0]}}: %{{customdata[1]:+.1f}}, "
            "%{y:+.1f}<extra></extra>"
        ),
        line={"width": 1.4, "color": trail.colour, "dash": trail.dash},
        marker={
            "symbol": [symbol for symbol, _, _ in marks],
            "size": [size for _, size, _ in marks],
            "opacity": 1,
            "color": [trail.colour if filled else "white" for _, _, filled in marks],
            "line": {"width": [2 if size > 6 else 1.2 for _, size, _ in marks],
                     "color": trail.colour},
        },
    )  # fmt: skip


def _add_labels(sheet: Sheet, trail: Trail, scale: Scale, taken: list[Box]) -> None:
    """Write each setting's label where it covers nothing, with a line to its point if it is far."""
    points = zip(*scale.pixels(trail.x, trail.y), strict=True)
    for label, at in zip(trail.labels, points, strict=True):
        width, height = text_box(label, _LABEL)
        places = around(square(*at, 7), width, height)
        n_beside = len(places)
        for away, turn in product(_AWAY, range(16)):
            x = at[0] + (away + width / 2) * cos(turn * pi / 8)
            y = at[1] + (away + height / 2) * sin(turn * pi / 8)
            places.append(Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2))
        best = int(conflicts(places, taken, scale.box).argmin())
        taken.append(places[best])
        if best >= n_beside:
            line = {"width": 0.8, "color": translucent(trail.colour, 0.5)}
            sheet.add_shape("line", at, places[best].nearest(at), layer="below", line=line)
        style = {"size": _LABEL, "ink": trail.colour, "anchor": ("center", "middle")}
        sheet.write(plain(label), places[best].centre, **style)
