"""What stands on and beside the lines of a chart: marked points, names at the lines' ends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arith_lens.plotting.curve_layout import LEADER, NAME, CurvePanel, Line, Scale
from arith_lens.plotting.labels import Box, around, conflict, spread, text_box
from arith_lens.plotting.page import Page, plain, write
from arith_lens.plotting.style import NOTE, Figure, Number, translucent

_MARK = 11  # font size of a marked point's text
_GAP = 8  # pixels from a line's end to its name, where no leader ties them
_MIDDLE = ("center", "middle")
_REACHES = (0, 14, 26, 40, 56, 74, 94, 116)  # pixels from a marker to its text, as far as need be


def add_points(figure: Figure, part: CurvePanel, index: int, scale: Scale, page: Page) -> None:
    """Markers, and their texts where they cover no line, leader, marker or earlier text: the
    nearest such place, tied to its marker where it is not beside it."""
    spots = [
        (point.x, float(np.interp(point.x, part.lines[point.line].x, part.lines[point.line].y)))
        for point in part.points
    ]
    markers = [_square(*scale.pixels(*spot), 6) for spot in spots]
    taken = [*markers, *(box for line in part.lines for box in _path(line, scale))]
    for end in _ends(part, scale):
        if not end.straight:
            taken += _along(*zip(end.start, end.stop, strict=True))
    for point, spot, own in zip(part.points, spots, markers, strict=True):
        figure.add_scatter(
            x=[spot[0]],
            y=[spot[1]],
            xaxis=f"x{index + 1}",
            yaxis=f"y{index + 1}",
            mode="markers",
            hoverinfo="skip",
            marker={
                "size": 8,
                "color": "white",
                "line": {"width": 2, "color": part.lines[point.line].colour},
            },
        )
        size = text_box(point.text, _MARK)
        there = [
            (reach, box)
            for reach in _REACHES
            for box in around(_square(*own.centre, 6 + reach), *size)
        ]
        reach, place = min(there, key=lambda found: conflict(found[1], taken, scale.box))
        if reach:
            _add_leader(figure, own.centre, _nearest(place, own.centre), NOTE, page)
        taken.append(place)
        write(figure, plain(point.text), place.centre, page, size=_MARK, anchor=_MIDDLE)


def _nearest(box: Box, to: tuple[Number, Number]) -> tuple[Number, Number]:
    """The point of a box next to another point."""
    x, y = to
    return min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)


def _square(x: Number, y: Number, half: Number) -> Box:
    return Box(x - half, y - half, x + half, y + half)


def _path(line: Line, scale: Scale) -> list[Box]:
    """Small squares along a line, so that texts can keep off it."""
    x, y = scale.pixels(line.x, line.y)
    finite = np.isfinite(y)
    return _along(x[finite], y[finite])


def _along(x: Sequence[Number] | np.ndarray, y: Sequence[Number] | np.ndarray) -> list[Box]:
    """Small squares along the pixels (x, y)."""
    along = np.concatenate([np.zeros(1), np.cumsum(np.hypot(np.diff(x), np.diff(y)))])[: len(x)]
    at = np.arange(0, along[-1] + 3, 3.0) if len(x) else along
    return [
        _square(*spot, 2)
        for spot in zip(np.interp(at, along, x), np.interp(at, along, y), strict=True)
    ]


def add_names(figure: Figure, part: CurvePanel, scale: Scale, page: Page) -> None:
    """Each line's name right of the chart at the height of its end, apart from its neighbours."""
    for end in _ends(part, scale):
        left = scale.box.right + (_GAP if end.straight else LEADER + 4)
        write(
            figure,
            plain(end.line.name),
            (left, end.stop[1]),
            page,
            size=NAME,
            ink=end.line.colour,
            anchor=("left", "middle"),
            font={"weight": 600},
        )
        if not end.straight:
            _add_leader(figure, end.start, end.stop, end.line.colour, page)


@dataclass(frozen=True)
class _End:
    """A line's end and its name: the leader's pixels, and whether none is needed in this panel."""

    line: Line
    start: tuple[Number, Number]
    stop: tuple[Number, Number]
    straight: bool


def _ends(part: CurvePanel, scale: Scale) -> list[_End]:
    named = [line for line in part.lines if line.name and np.isfinite(line.y).any()]
    ends = [_end(line, scale) for line in named]
    box = scale.box
    heights = spread([y for _, y in ends], NAME + 4, box.top, box.bottom)
    straight = all(
        abs(y - h) < 4 and box.right - x < 20 for (x, y), h in zip(ends, heights, strict=True)
    )
    return [
        _End(line, (x + 3, y), (box.right + LEADER + 1, float(height)), straight)
        for line, (x, y), height in zip(named, ends, heights, strict=True)
    ]


def _end(line: Line, scale: Scale) -> tuple[float, float]:
    """The pixel where a line ends on the right."""
    finite = np.flatnonzero(np.isfinite(line.y))
    last = finite[np.argmax(line.x[finite])]
    x, y = scale.pixels(float(line.x[last]), float(line.y[last]))
    return x, min(max(y, scale.box.top), scale.box.bottom)


def _add_leader(
    figure: Figure,
    start: tuple[Number, Number],
    stop: tuple[Number, Number],
    colour: str,
    page: Page,
) -> None:
    (x0, y0), (x1, y1) = page.paper(*start), page.paper(*stop)
    figure.add_shape(
        type="line",
        x0=x0,
        y0=y0,
        x1=x1,
        y1=y1,
        xref="paper",
        yref="paper",
        line={"width": 1, "color": translucent(colour, 0.6)},
    )
