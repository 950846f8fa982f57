"""Line charts on a grid: lines with intervals, marked points, and names at the lines' ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import dist
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from arith_lens.plotting.labels import (
    XY,
    Box,
    along,
    around,
    conflicts,
    spread,
    square,
    text_box,
    widest,
)
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    MOST_LINES,
    TOP,
    Sheet,
    axis_names,
    heading_height,
    panel_axes,
    plain,
    reach,
    value_axis,
)
from arith_lens.plotting.style import FRAME, NOTE, TEXT, Figure, Number, translucent
from arith_lens.plotting.widths import is_printed, page_height, page_width

NAME, LEADER, GAP = 11, 14, 12
"""Font size of a line's name; pixels from a line's end to a name that had to move;
pixels right of charts without names."""
NARROWEST, LOWEST = 88, 60
"""Pixels of a chart, at least."""


@dataclass(frozen=True)
class Line:
    """A line with its name and, between `low` and `high`, its interval. NaN is a gap."""

    x: Num[np.ndarray, " point"]
    y: Float[np.ndarray, " point"]
    name: str
    """The name in the hover and, without a label, at the line's end; plain text of one or more
    lines."""
    colour: str = TEXT
    low: Float[np.ndarray, " point"] | None = None
    high: Float[np.ndarray, " point"] | None = None
    dash: str = "solid"
    """`solid`, `dash`, `dot`, or lengths of strokes and gaps, such as `5px,3px`."""
    label: str | None = None
    """The text at the line's end; None: the name. If it is empty, the end has no text."""
    is_light: bool = False
    """Whether the line is thin, and its interval a thin outline: what others are compared with."""

    @property
    def end_text(self) -> str:
        """The text at the line's end."""
        return self.name if self.label is None else self.label


@dataclass(frozen=True)
class Point:
    """A text beside a line at `x`, with an open marker; without a text it is a diamond."""

    x: Number
    text: str
    line: int = 0
    """The index of the panel's line."""
    is_name: bool = False
    """Whether the text names the line, in its colour and without a marker."""
    y: Number | None = None
    """The height of the marker; None: on the line."""


@dataclass(frozen=True)
class CurvePanel:
    """One chart: its lines, points to mark, and dotted vertical guides with a text above."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    lines: tuple[Line, ...]
    points: tuple[Point, ...] = ()
    guides: tuple[tuple[Number, str], ...] = ()
    y_title: str = ""
    y_range: tuple[Number, Number] | None = None
    """None: from the data, with 0."""
    x_title: str = ""
    """Of this chart alone, in whichever row it is; empty: that of all, in the last row."""


@dataclass(frozen=True)
class Scale:
    """From a chart's numbers to the page's pixels."""

    x: tuple[Number, Number]
    y: tuple[Number, Number]
    box: Box

    def pixels(
        self, x: Num[np.ndarray, " point"] | Number, y: Float[np.ndarray, " point"] | Number
    ) -> tuple[Any, Any]:
        """The pixels of numbers on the page."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        box = self.box
        return (
            box.left + across * (box.right - box.left),
            box.bottom - up * (box.bottom - box.top),
        )


def _scale(part: CurvePanel, box: Box) -> Scale:
    """The scale of a chart, from all its lines and bands."""
    x = np.concatenate([line.x for line in part.lines])
    low, high = float(np.min(x)), float(np.max(x))
    margin = (high - low or 1.0) * (0.012 if all(p.is_name for p in part.points) else 0.05)
    y = [array for line in part.lines for array in (line.y, line.low, line.high)]
    return Scale((low - margin, high + margin), part.y_range or reach(y), box)


def _check(part: CurvePanel) -> None:
    """Raise ValueError for a panel that cannot be drawn; see `curve_panels`."""
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


def _sheet(
    parts: Sequence[CurvePanel | None],
    across: int,
    panel: tuple[int, int],
    notes: Sequence[str],
    headings: Sequence[str],
    guided: bool,
    inner: Number,
) -> Sheet:
    """Each column of charts has room for its longest name, each row for guides and its heading;
    `inner` pixels are left of each chart but the first of its row.

    Charts are narrower than `panel` where the page has no room for a row of them, and lower where a
    page of paper is not high enough.
    """
    names = _widths_of_names(parts)
    gutters = [max(names[column::across]) for column in range(across)]
    gutters = [name + LEADER + 10 if name else GAP for name in gutters]
    room = (page_width() - LEFT - inner * (across - 1) - sum(gutters)) / across
    width = min(panel[0], room)
    n_rows = -(-len(parts) // across)
    above = n_rows * (TOP + 34 + 18 * guided) + sum(map(heading_height, headings))
    space = page_height() - LINE * MOST_LINES - above - 22
    high = max(panel[1] * (width / panel[0]) ** 0.5, LOWEST)
    height = min(panel[1], high, max(space / n_rows, LOWEST))
    lefts = [LEFT + column * (width + inner) + sum(gutters[:column]) for column in range(across)]
    boxes: list[Box] = []
    bottom: Number = -34
    for start in range(0, len(parts), across):
        heading = heading_height(headings[start // across]) if headings else 0
        top = bottom + 34 + TOP + 18 * guided + heading
        bottom = top + height
        boxes += [Box(x, top, x + width, bottom) for x in lefts[: len(parts) - start]]
    return Sheet((lefts[-1] + width + gutters[-1], boxes[-1].bottom + 46), boxes, notes)


def _widths_of_names(parts: Sequence[CurvePanel | None]) -> list[Number]:
    """The pixels of the names at the ends of each chart's lines."""
    return [
        widest("\n".join(one.end_text for one in part.lines).split("\n"), NAME) if part else 0
        for part in parts
    ]


def _charts_in_a_row(
    parts: Sequence[CurvePanel | None], across: int, inner: Number, least: Number
) -> int:
    """How many charts stand in a row, so that each is as many pixels wide at least."""
    names = _widths_of_names(parts)
    for many in (n for n in range(across, 0, -1) if across % n == 0):
        widths = [max(names[column::many]) for column in range(many)]
        gutters = sum(name + LEADER + 10 if name else GAP for name in widths)
        if (page_width() - LEFT - inner * (many - 1) - gutters) / many >= least:
            return many
    return 1


_MARKER_WEIGHT = 4  # how much worse it is to cover a marker than a line
_MARK = 10  # font size of a marked point's text
_GAP = 8  # pixels from a line's end to its name, where no leader ties them
_REACHES = (0, 14, 26, 40, 56, 74, 94, 116)  # pixels from a marker to its text, as far as need be


def _add_points(sheet: Sheet, part: CurvePanel, index: int, scale: Scale) -> None:
    """Draw markers and their texts.

    A text is at the nearest position where it covers no line, leader, marker or earlier text, and
    where its own leader crosses no earlier text. If it is not beside its marker, a leader connects
    them. A name stands anywhere beside its line, off other lines' bands, as near its point as it
    can, or has a leader, too.
    """
    spots = []
    for point in part.points:
        line = part.lines[point.line]
        on_line = float(np.interp(point.x, line.x, line.y))
        spots.append((point.x, on_line if point.y is None else point.y))
    markers = [square(*scale.pixels(*spot), 6) for spot in spots]
    ends, straight = _ends(part, scale)
    taken = [*_MARKER_WEIGHT * markers, *(box for line in part.lines for box in _path(line, scale))]
    if not straight:
        taken += [box for _, start, stop in ends for box in _squares(start, stop)]
    texts: list[Box] = []
    for point, spot, own in zip(part.points, spots, markers, strict=True):
        colour = part.lines[point.line].colour
        if not point.is_name:
            _add_marker(sheet, spot, index, colour, "circle" if point.text else "diamond")
        if not point.text:
            continue
        size = text_box(point.text, _MARK)
        boxes = _boxes_beside(point, own, part, scale)
        places = [_moved_inside(box, scale.box) for one in boxes for box in around(one, *size)]
        others = [one for one in part.lines if not point.is_name or one is not line]
        covered = [*taken, *_bands(others, scale)]
        leaders = [_squares(own.centre, place.nearest(own.centre)) for place in places]
        crossed = [sum(box.overlap(text) for box in leader for text in texts) for leader in leaders]
        far = [point.is_name * dist(own.centre, place.centre) for place in places]
        best = int((conflicts(places, covered, scale.box) + crossed + far).argmin())
        label = places[best]
        if best * len(boxes) // len(places) > len(boxes) - len(_REACHES):  # not beside its own
            _add_leader(sheet, own.centre, label.nearest(own.centre), NOTE)
            taken += leaders[best]
        taken.append(label)
        texts.append(label)
        style = {"ink": colour, "font": {"weight": 600}} if point.is_name else {}
        middle = ("center", "middle")
        sheet.write(plain(point.text), label.centre, size=_MARK, anchor=middle, **style)


def _boxes_beside(point: Point, own: Box, part: CurvePanel, scale: Scale) -> list[Box]:
    """What the text of a point may stand beside, best first: its marker, then with more room around
    it; of a name, its line first."""
    reaches = [square(*own.centre, 6 + distance) for distance in _REACHES]
    if not point.is_name:
        return reaches
    line = part.lines[point.line]
    path = zip(*scale.pixels(line.x, line.y), strict=True)
    nearest = sorted(path, key=lambda at: abs(at[0] - own.centre[0]))
    return [*(square(*at, 6) for at in nearest), *reaches]


def _add_marker(sheet: Sheet, spot: XY, index: int, colour: str, symbol: str) -> None:
    """An open marker on a line."""
    sheet.add_scatter(
        x=[spot[0]],
        y=[spot[1]],
        **panel_axes(index),
        mode="markers",
        hoverinfo="skip",
        cliponaxis=False,
        marker={"size": 8, "color": "white", "symbol": symbol}
        | {"line": {"width": 2, "color": colour}},
    )


def _moved_inside(box: Box, frame: Box) -> Box:
    """A box moved sideways as far as it leaves the frame."""
    right = min(frame.right - box.right, 0) + max(frame.left - box.left, 0)
    return Box(box.left + right, box.top, box.right + right, box.bottom)


def _squares(start: XY, stop: XY) -> list[Box]:
    """Small squares along a straight line."""
    return along(*zip(start, stop, strict=True))


def _path(line: Line, scale: Scale) -> list[Box]:
    """Small squares along a line, so that texts can keep off it."""
    x, y = scale.pixels(line.x, line.y)
    finite = np.isfinite(y)
    return along(x[finite], y[finite])


def _bands(lines: Sequence[Line], scale: Scale) -> Iterator[Box]:
    """Boxes that cover the bands or outlines of lines, and the line at 0."""
    _, zero = scale.pixels(0, 0)
    yield from _squares((scale.box.left, zero), (scale.box.right, zero))
    for line in lines:
        if line.low is None or line.high is None:
            continue
        (x, low), (_, high) = (scale.pixels(line.x, end) for end in (line.low, line.high))
        if line.is_light:
            yield from (*along(x, low), *along(x, high))
            continue
        for at in np.arange(x.min(), x.max(), 3.0):
            yield Box(at, np.interp(at, x, high), at + 3, np.interp(at, x, low))


def _add_names(sheet: Sheet, part: CurvePanel, scale: Scale) -> None:
    """Draw each line's name right of the chart, at the height of its end, without overlaps."""
    ends, straight = _ends(part, scale)
    for line, start, stop in ends:
        left = scale.box.right + (_GAP if straight else LEADER + 4)
        add_name(sheet, line.end_text, (left, stop[1]), line.colour)
        if not straight:
            _add_leader(sheet, start, stop, line.colour)


def add_name(sheet: Sheet, name: str, at: XY, colour: str) -> None:
    """The name of a line, right of a chart."""
    style = {"size": NAME, "ink": colour, "font": {"weight": 600}}
    sheet.write(plain(name).replace("\n", "<br>"), at, anchor=("left", "middle"), **style)


def _ends(part: CurvePanel, scale: Scale) -> tuple[list[tuple[Line, XY, XY]], bool]:
    """Each line with the pixels of its leader, and whether all names need no leader."""
    lines = [line for line in part.lines if line.end_text and np.isfinite(line.y).any()]
    ends = [_end(line, scale) for line in lines]
    box = scale.box
    gap = (NAME + 4) * (1 + max((line.end_text.count("\n") for line in lines), default=0))
    heights = spread([y for _, y in ends], gap, box.top, box.bottom)
    straight = all(
        abs(y - h) < 4 and box.right - x < 20 for (x, y), h in zip(ends, heights, strict=True)
    )
    return [
        (line, (x + 3, y), (box.right + LEADER + 1, float(height)))
        for line, (x, y), height in zip(lines, ends, heights, strict=True)
    ], straight


def _end(line: Line, scale: Scale) -> XY:
    """The pixel where a line ends on the right."""
    finite = np.flatnonzero(np.isfinite(line.y))
    last = finite[np.argmax(line.x[finite])]
    x, y = scale.pixels(float(line.x[last]), float(line.y[last]))
    return x, min(max(y, scale.box.top), scale.box.bottom)


def _add_leader(sheet: Sheet, start: XY, stop: XY, colour: str) -> None:
    """A thin line from a point or a line's end to its text."""
    line = {"width": 1, "color": translucent(colour, 0.6)}
    sheet.add_shape("line", start, stop, line=line)


def curve_panels(
    parts: Sequence[CurvePanel | None],
    *,
    x_title: str,
    unit: str = "",
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    across: int = 2,
    panel: tuple[int, int] = (380, 290),
    shared_y: bool = False,
) -> Figure:
    """Line charts on a grid, with letters a, b, c… if there is more than one.

    Args:
        parts: the charts, row after row; None is an empty position.
        x_title: the title of the x axes of charts that have none of their own.
        unit: printed after the numbers, such as `"%"`; the numbers are not changed.
        notes: lines below the panels (plain text).
        headings: a line above each row of panels (plain text); if any, one per row.
        across: the number of panels in a row, as far as the page has the room.
        panel: the width and height of a chart in pixels, without its axes and names; where the page
            lacks the room, it has half of the width at least on a screen, or fewer stand in a row.
        shared_y: whether the charts of a row share their y axis, so that only the first one has its
            numbers and its title; all need one `y_range`.

    Raises:
        ValueError: a line's arrays differ in length, a point's line does not exist, or a point is
            outside its line.
    """
    present = [part for part in parts if part is not None]
    for part in present:
        _check(part)
    wished = min(across, len(parts))
    inner = 0 if shared_y else LEFT
    least = NARROWEST if is_printed() else max(NARROWEST, panel[0] / 2)
    across = _charts_in_a_row(parts, wished, inner, least)
    headings = [text for one in headings for text in (one, *[""] * (wished // across - 1))]
    guided = any(text for part in present for _, text in part.guides)
    sheet = _sheet(parts, across, panel, notes, headings, guided, inner)
    sheet.update_layout(hovermode="x unified")
    lift = 26 if guided else 8
    for index, part in enumerate(parts):
        if part is None:
            continue
        scale = _scale(part, sheet.boxes[index])
        lowest = index + across >= len(parts)
        own = part.x_title or (x_title if lowest else None)
        _set_axes(sheet, index, scale, (own, part.y_title), unit)
        if shared_y and index % across:
            sheet.update_layout({axis_names(index)[1]: {"showticklabels": False, "title": None}})
        for line in part.lines:
            _add_line(sheet, line, index, unit)
        _add_guides(sheet, part, index, scale)
        _add_points(sheet, part, index, scale)
        _add_names(sheet, part, scale)
        sheet.add_title(part.title, index, lift=lift)
    sheet.add_headings(headings, across, lift=lift)
    return sheet.finished()


def _set_axes(
    sheet: Sheet, index: int, scale: Scale, titles: tuple[str | None, str], unit: str
) -> None:
    x = {
        "range": scale.x,
        "showline": True,
        "linecolor": FRAME,
        "nticks": 7 if sheet.boxes[index].right - sheet.boxes[index].left > 200 else 4,
        "unifiedhovertitle": {"text": "%{x}"},
        "title_text": titles[0],
    }
    y = {
        **value_axis(scale.y, unit),
        "zeroline": scale.y[0] < 0 < scale.y[1],
        "zerolinewidth": 1,
        "title_text": titles[1],
    }
    sheet.set_axes(index, x, y)


def _add_line(sheet: Sheet, line: Line, index: int, unit: str) -> None:
    shared = {"mode": "lines", **panel_axes(index)}
    between = ""
    further = None
    if line.low is not None and line.high is not None:
        between = " (%{customdata[0]:.3~f} to %{customdata[1]:.3~f})"
        further = np.stack([line.low, line.high], axis=-1)
        for part in _unbroken(line.low, line.high):
            x, low, high = line.x[part], line.low[part], line.high[part]
            gap = np.full(int(line.is_light), np.nan)  # between the two lines of an outline
            outline = {"width": 1, "color": translucent(line.colour, 0.7)}
            area = {"fill": "toself", "fillcolor": translucent(line.colour, 0.15)}
            sheet.add_scatter(
                x=np.concatenate([x, gap, x[::-1]]),
                y=np.concatenate([high, gap, low[::-1]]),
                hoverinfo="skip",
                **shared,
                **({"line": outline} if line.is_light else area | {"line": {"width": 0}}),
            )
    sheet.add_scatter(
        x=line.x,
        y=line.y,
        name=plain(line.name),
        customdata=further,
        hovertemplate=f"{plain(line.name)}: %{{y:.3~f}}{plain(unit)}{between}<extra></extra>",
        line={"width": 1.4 if line.is_light else 2.2, "color": line.colour, "dash": line.dash},
        **shared,
    )


def _unbroken(*arrays: Float[np.ndarray, " point"]) -> list[slice]:
    """Stretches without NaN in any of the arrays."""
    finite = np.isfinite(np.stack(arrays)).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], finite, [False]]).astype(int)))
    return [slice(start, stop) for start, stop in edges.reshape(-1, 2)]


def _add_guides(sheet: Sheet, part: CurvePanel, index: int, scale: Scale) -> None:
    line = {"width": 1.2, "color": FRAME, "dash": "dot"}
    for x, text in part.guides:
        ends = (x, scale.y[0]), (x, scale.y[1])
        sheet.add_shape("line", *ends, index, line=line, layer="below")
        across, _ = scale.pixels(x, 0)
        at = (across, scale.box.top - 4)
        sheet.write(plain(text), at, size=10, ink=NOTE, anchor=("center", "bottom"))
