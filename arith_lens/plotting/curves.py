"""Line charts on a grid: lines with intervals, marked points, and names at the lines' ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from arith_lens.plotting.page import (
    HEADING,
    LEFT,
    LINE,
    TOP,
    Box,
    Page,
    add_headings,
    add_notes,
    add_title,
    around,
    axis_names,
    axis_style,
    conflict,
    page_figure,
    plain,
    spread,
    text_box,
    wrapped,
    write,
)
from arith_lens.plotting.style import (
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    step_texts,
    steps,
    translucent,
)

NAME, LEADER = 12, 14
"""Font size of a line's name; pixels from a line's end to a name that had to move."""


@dataclass(frozen=True)
class Line:
    """A line with its name and, between `low` and `high`, its interval. NaN is a gap."""

    x: Num[np.ndarray, " point"]
    y: Float[np.ndarray, " point"]
    name: str
    """The name in the hover and, without a label, at the line's end; plain text."""
    colour: str = TEXT
    low: Float[np.ndarray, " point"] | None = None
    high: Float[np.ndarray, " point"] | None = None
    dash: str = "solid"
    """`solid`, `dash` or `dot`."""
    label: str | None = None
    """The text at the line's end; None: the name. If it is empty, the end has no text."""

    @property
    def end_text(self) -> str:
        """The text at the line's end."""
        return self.name if self.label is None else self.label


@dataclass(frozen=True)
class Point:
    """An open marker on a line at `x`, with a text beside it."""

    x: Number
    text: str
    line: int = 0
    """The index of the panel's line."""


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
        """The pixels of numbers on the page."""
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


def _page(
    parts: Sequence[CurvePanel],
    across: int,
    panel: tuple[int, int],
    notes: Sequence[str],
    headed: bool,
) -> Page:
    """Each column of charts has room for its longest name, each row for guides and its heading."""
    guided = any(text for part in parts for _, text in part.guides)
    top = TOP + (18 if guided else 0) + (HEADING if headed else 0)
    names = [
        max((text_box(line.end_text, NAME)[0] for line in part.lines if line.end_text), default=0)
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


_MARKER_WEIGHT = 4  # how much worse it is to cover a marker than a line
_MARK = 11  # font size of a marked point's text
_GAP = 8  # pixels from a line's end to its name, where no leader ties them
_MIDDLE = ("center", "middle")
_REACHES = (0, 14, 26, 40, 56, 74, 94, 116)  # pixels from a marker to its text, as far as need be


def add_points(figure: Figure, part: CurvePanel, index: int, scale: Scale, page: Page) -> None:
    """Draw markers and their texts.

    A text is at the nearest position where it covers no line, leader, marker or earlier text, and
    where its own leader crosses no earlier text. If it is not beside its marker, a leader connects
    them.
    """
    spots = [
        (point.x, float(np.interp(point.x, part.lines[point.line].x, part.lines[point.line].y)))
        for point in part.points
    ]
    markers = [_square(*scale.pixels(*spot), 6) for spot in spots]
    taken = [*_MARKER_WEIGHT * markers, *(box for line in part.lines for box in _path(line, scale))]
    for end in _ends(part, scale):
        if not end.straight:
            taken += _along(*zip(end.start, end.stop, strict=True))
    texts: list[Box] = []
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
        candidates = [
            (reach, _moved_inside(box, scale.box))
            for reach in _REACHES
            for box in around(_square(*own.centre, 6 + reach), *size)
        ]
        reach, label = min(
            candidates,
            key=lambda candidate: (
                conflict(candidate[1], taken, scale.box)
                + sum(box.overlap(text) for box in _leader(own, candidate[1]) for text in texts)
            ),
        )
        if reach:
            _add_leader(figure, own.centre, _nearest(label, own.centre), NOTE, page)
            taken += _leader(own, label)
        taken.append(label)
        texts.append(label)
        write(figure, plain(point.text), label.centre, page, size=_MARK, anchor=_MIDDLE)


def _moved_inside(box: Box, frame: Box) -> Box:
    """A box moved sideways as far as it leaves the frame."""
    right = min(frame.right - box.right, 0) + max(frame.left - box.left, 0)
    return Box(box.left + right, box.top, box.right + right, box.bottom)


def _leader(own: Box, label: Box) -> list[Box]:
    """Small squares along the line from a marker to its text."""
    return _along(*zip(own.centre, _nearest(label, own.centre), strict=True))


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
    """Draw each line's name right of the chart, at the height of its end, without overlaps."""
    for end in _ends(part, scale):
        left = scale.box.right + (_GAP if end.straight else LEADER + 4)
        write(
            figure,
            plain(end.line.end_text),
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
    """A line's end and its name: the leader's pixels, and whether the name needs no leader."""

    line: Line
    start: tuple[Number, Number]
    stop: tuple[Number, Number]
    straight: bool


def _ends(part: CurvePanel, scale: Scale) -> list[_End]:
    named = [line for line in part.lines if line.end_text and np.isfinite(line.y).any()]
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


def curve_panels(
    parts: Sequence[CurvePanel],
    *,
    x_title: str,
    unit: str = "",
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    across: int = 2,
    panel: tuple[int, int] = (380, 290),
) -> Figure:
    """Line charts on a grid, with letters a, b, c… if there is more than one.

    Args:
        unit: printed after the numbers, such as `"%"`; the numbers are not changed.
        notes: lines below the panels (plain text).
        headings: a line above each row of panels (plain text); if any, one per row.
        across: the number of panels in a row.
        panel: the width and height of a chart in pixels, without its axes and names.

    Raises:
        ValueError: a line's arrays differ in length, a point's line does not exist, or a point is
            outside its line.
    """
    for part in parts:
        _check(part)
    across = min(across, len(parts))
    page = _page(parts, across, panel, notes, bool(headings))
    figure = page_figure(page)
    figure.update_layout(hovermode="x unified")
    guided = any(text for part in parts for _, text in part.guides)
    for index, part in enumerate(parts):
        scale = Scale.of(part, page.boxes[index])
        _set_axes(figure, index, page, scale, part.y_title, unit)
        if index + across >= len(parts):
            figure.update_layout({f"{axis_names(index)[0]}_title_text": x_title})
        for line in part.lines:
            _add_line(figure, line, index, unit)
        _add_guides(figure, part, index, scale, page)
        add_points(figure, part, index, scale, page)
        add_names(figure, part, scale, page)
        add_title(figure, part.title, index, page, lift=26 if guided else 8)
    add_headings(figure, headings, across, page, lift=26 if guided else 8)
    add_notes(figure, page)
    return figure.finished()


def _set_axes(
    figure: Figure, index: int, page: Page, scale: Scale, y_title: str, unit: str
) -> None:
    x_domain, y_domain = page.domains(index)
    x_axis, y_axis = axis_names(index)
    low, high = scale.y
    at = steps(low, high)
    zero = {"zeroline": low < 0 < high, "zerolinecolor": FRAME, "zerolinewidth": 1}
    figure.update_layout(
        {
            x_axis: {
                **axis_style(),
                "domain": x_domain,
                "anchor": f"y{index + 1}",
                "range": scale.x,
                "showline": True,
                "linecolor": FRAME,
                "nticks": 7,
                "unifiedhovertitle": {"text": "%{x}"},
            },
            y_axis: {
                **axis_style(),
                **zero,
                "domain": y_domain,
                "anchor": f"x{index + 1}",
                "range": [low, high + (high - low) / 200],  # or the top grid line is not drawn
                "tickvals": at,
                "ticktext": step_texts(at, plain(unit)),
                "ticks": "",
                "showgrid": True,
                "gridcolor": GRID,
            },
        }
    )
    figure.update_layout({f"{y_axis}_title_text": y_title})


def _add_line(figure: Figure, line: Line, index: int, unit: str) -> None:
    shared = {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}", "mode": "lines"}
    between = ""
    further = None
    if line.low is not None and line.high is not None:
        between = " (%{customdata[0]:.3~f} to %{customdata[1]:.3~f})"
        further = np.stack([line.low, line.high], axis=-1)
        for part in _unbroken(line.low, line.high):
            figure.add_scatter(
                x=np.concatenate([line.x[part], line.x[part][::-1]]),
                y=np.concatenate([line.high[part], line.low[part][::-1]]),
                fill="toself",
                fillcolor=translucent(line.colour, 0.15),
                line={"width": 0},
                hoverinfo="skip",
                **shared,
            )
    figure.add_scatter(
        x=line.x,
        y=line.y,
        name=plain(line.name),
        customdata=further,
        hovertemplate=f"{plain(line.name)}: %{{y:.3~f}}{plain(unit)}{between}<extra></extra>",
        line={"width": 2.2, "color": line.colour, "dash": line.dash},
        **shared,
    )


def _unbroken(*arrays: Float[np.ndarray, " point"]) -> list[slice]:
    """Stretches without NaN in any of the arrays."""
    finite = np.isfinite(np.stack(arrays)).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], finite, [False]]).astype(int)))
    return [slice(start, stop) for start, stop in edges.reshape(-1, 2)]


def _add_guides(figure: Figure, part: CurvePanel, index: int, scale: Scale, page: Page) -> None:
    for x, text in part.guides:
        figure.add_shape(
            type="line",
            x0=x,
            x1=x,
            y0=scale.y[0],
            y1=scale.y[1],
            xref=f"x{index + 1}",
            yref=f"y{index + 1}",
            line={"width": 1.2, "color": FRAME, "dash": "dot"},
            layer="below",
        )
        across, _ = scale.pixels(x, 0)
        at = (across, scale.box.top - 4)
        write(figure, plain(text), at, page, size=11, ink=NOTE, anchor=("center", "bottom"))
