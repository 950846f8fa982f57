"""Line charts side by side: bands, names at the lines' ends, marked points, guides."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curve_layout import (
    LEADER,
    NAME,
    CurvePanel,
    Line,
    Scale,
    check,
    curve_page,
)
from arith_lens.plotting.labels import Box, around, conflict, spread, text_box
from arith_lens.plotting.page import (
    Page,
    add_notes,
    add_title,
    axis_names,
    axis_style,
    plain,
    set_page,
    write,
)
from arith_lens.plotting.style import (
    FRAME,
    GRID,
    NOTE,
    Figure,
    Number,
    step_texts,
    steps,
    translucent,
)

_MARK = 11  # font size of a marked point's text
_GAP = 8  # pixels from a line's end to its name, where no leader ties them
_MIDDLE = ("center", "middle")


def curve_panels(
    parts: Sequence[CurvePanel],
    *,
    x_title: str,
    unit: str = "",
    notes: Sequence[str] = (),
    across: int = 2,
    panel: tuple[int, int] = (380, 290),
) -> Figure:
    """Line charts on a grid, lettered a, b, c… where there is more than one.

    Args:
        unit: printed after the numbers, such as `"%"`; the numbers are not changed.
        notes: lines below the panels (plain text).
        across: panels in a row.
        panel: width and height of a chart in pixels, without its axes and names.

    Raises:
        ValueError: a line's arrays differ in length, a point's line is not there, or a point lies
            outside its line.
    """
    from plotly import graph_objects as go

    for part in parts:
        check(part)
    page = curve_page(parts, min(across, len(parts)), panel, notes)
    figure = go.Figure()
    set_page(figure, page)
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
        _add_points(figure, part, index, scale, page)
        _add_names(figure, part, scale, page)
        add_title(figure, part.title, index, page, lift=26 if guided else 8)
    add_notes(figure, page)
    return figure


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
    there = np.isfinite(np.stack(arrays)).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int)))
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


def _add_points(figure: Figure, part: CurvePanel, index: int, scale: Scale, page: Page) -> None:
    """Markers, and their texts where they cover no line, marker or earlier text."""
    spots = [
        (point.x, float(np.interp(point.x, part.lines[point.line].x, part.lines[point.line].y)))
        for point in part.points
    ]
    markers = [_square(*scale.pixels(*spot), 6) for spot in spots]
    taken = [*markers, *(box for line in part.lines for box in _path(line, scale))]
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
        place = min(around(own, *size), key=lambda box: conflict(box, taken, scale.box))
        taken.append(place)
        write(figure, plain(point.text), place.centre, page, size=_MARK, anchor=_MIDDLE)


def _square(x: Number, y: Number, half: Number) -> Box:
    return Box(x - half, y - half, x + half, y + half)


def _path(line: Line, scale: Scale) -> list[Box]:
    """Small squares along a line, so that texts can keep off it."""
    x, y = scale.pixels(line.x, line.y)
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    along = np.concatenate([np.zeros(1), np.cumsum(np.hypot(np.diff(x), np.diff(y)))])[: len(x)]
    at = np.arange(0, along[-1] + 3, 3.0) if len(x) else along
    return [
        _square(*spot, 2)
        for spot in zip(np.interp(at, along, x), np.interp(at, along, y), strict=True)
    ]


def _add_names(figure: Figure, part: CurvePanel, scale: Scale, page: Page) -> None:
    """Each line's name right of the chart at the height of its end, apart from its neighbours."""
    named = [line for line in part.lines if line.name and np.isfinite(line.y).any()]
    ends = [_end(line, scale) for line in named]
    box = scale.box
    heights = spread([y for _, y in ends], NAME + 4, box.top, box.bottom)
    straight = all(
        abs(y - h) < 4 and box.right - x < 20 for (x, y), h in zip(ends, heights, strict=True)
    )
    for line, (x, y), height in zip(named, ends, heights, strict=True):
        left = box.right + (_GAP if straight else LEADER + 4)
        weight = {"weight": 600}
        at = (left, height)
        write(
            figure,
            plain(line.name),
            at,
            page,
            size=NAME,
            ink=line.colour,
            anchor=("left", "middle"),
            font=weight,
        )
        if not straight:
            _add_leader(figure, (x + 3, y), (left - 3, height), line.colour, page)


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
