"""Line charts side by side: bands, names at the lines' ends, marked points, guides."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curve_layout import (
    CurvePanel,
    Line,
    Scale,
    check,
    curve_page,
)
from arith_lens.plotting.curve_marks import add_names, add_points
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
    step_texts,
    steps,
    translucent,
)


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
    from arith_lens.plotting.library import go

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
        add_points(figure, part, index, scale, page)
        add_names(figure, part, scale, page)
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
