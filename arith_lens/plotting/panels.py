"""Several maps side by side, each with a bar of its own, marked cells, and one colour scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.annotations import (
    add_colour_title,
    add_headings,
    add_marks,
    add_texts,
)
from arith_lens.plotting.heatmap import tick_positions, tick_texts
from arith_lens.plotting.layout import RIGHT, SPAN, Geometry, Panel, map_page
from arith_lens.plotting.page import (
    Page,
    add_notes,
    add_title,
    axis_names,
    axis_style,
    set_page,
)
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    Figure,
    Number,
    colour_at,
    colour_scale,
    symmetric_limit,
    ticks,
)


def panels(
    parts: Sequence[Panel | None],
    *,
    axes: tuple[str, str],
    bar_name: str,
    colour_title: str,
    hover: tuple[str, str],
    notes: Sequence[str] = (),
    headings: Sequence[str] = (),
    unit: str = "",
    across: int = 2,
    span: int = SPAN,
    cell: tuple[int, int] | None = None,
    limit: Number | None = None,
    vector: bool = False,
) -> Figure:
    """Maps with bars on a grid, lettered a, b, c…, one colour scale, row 0 at the top.

    Args:
        parts: the panels, row after row, maps of any shape; None leaves its place empty.
        axes: what a row and a column of the maps are, such as `("layer", "head")`.
        hover: plotly hover templates of a map's and a bar's cell, over x, y, z and customdata.
        notes: lines below the panels (plain text).
        headings: a line above each row of panels (plain text).
        span: pixels of the longer side of each map.
        cell: width and height of the cells in pixels, instead of `span`.
        limit: where the colours end; None: `symmetric_limit` of all maps and bars together.
        vector: draw each cell as a rectangle, for SVG and PDF (a heat map is a bitmap there).

    Raises:
        ValueError: no panel at all, or not one heading for each row.
    """
    from arith_lens.plotting.library import go

    there = [part for part in parts if part is not None]
    across = min(across, len(parts))
    if not there or (headings and len(headings) != -(-len(parts) // across)):
        raise ValueError(
            f"expected a panel at least and, if any, a heading for each row of {across}, found "
            f"{len(there)} panels and {len(headings)} headings"
        )
    everything = np.concatenate([np.append(p.values.ravel(), p.bar.ravel()) for p in there])
    end = symmetric_limit(everything) if limit is None else limit
    shapes = [(part or there[0]).values.shape for part in parts]
    places = [Geometry(rows, columns, span, cell) for rows, columns in shapes]
    page = map_page(places, across, notes, bool(headings))
    figure = go.Figure()
    set_page(figure, page)
    set_colours(figure, page, end, unit)
    if vector:
        bear_colours(figure)
    for index, (part, place) in enumerate(zip(parts, places, strict=True)):
        if part is not None:
            _add_cells(figure, part, index, place, hover, end if vector else None)
            _set_axes(figure, index, page, place, axes, bar_name, across)
            _add_frames(figure, index, place)
            add_title(figure, part.title, index, page)
            add_marks(figure, part, index, place, end)
            if part.texts:
                add_texts(figure, part, index, place, end)
    add_headings(figure, headings, across, page)
    add_colour_title(figure, colour_title, page)
    add_notes(figure, page)
    return figure


def bear_colours(figure: Figure) -> None:
    """A trace without a mark: where cells have their colours by name, no other would bring the
    colour bar."""
    unseen = {"color": [0], "coloraxis": "coloraxis"}
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=unseen, hoverinfo="skip")


def set_colours(figure: Figure, page: Page, end: Number, unit: str) -> None:
    """One colour axis for every panel, its bar at the right of the first one."""
    first = page.boxes[0]
    bar_height = max(min(first.bottom - first.top - 40, 330), 60)
    x, y = page.paper(page.size[0] - RIGHT + 22, first.top + 40)
    figure.update_layout(
        barmode="overlay",
        coloraxis={
            "cmin": -end,
            "cmax": end,
            "colorscale": colour_scale(),
            "colorbar": {
                "lenmode": "pixels",
                "len": bar_height,
                "thickness": 12,
                "outlinewidth": 0,
                "x": x,
                "xanchor": "left",
                "xpad": 0,
                "y": y,
                "yanchor": "top",
                "ypad": 0,
                "tickvals": ticks(end),
                "ticktext": tick_texts(end, unit),
                "tickfont": {"size": 11, "color": NOTE},
                "ticks": "outside",
                "ticklen": 3,
                "tickcolor": FRAME,
            },
        },
    )


def _add_cells(
    figure: Figure,
    part: Panel,
    index: int,
    place: Geometry,
    hover: tuple[str, str],
    end: Number | None,
) -> None:
    """A heat map and its bar; as rectangles, coloured up to `end`, where that is given."""
    start, stop = place.bar_range
    shared = {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}
    if end is not None:
        middle, width = np.array([(start + stop) / 2]), stop - start
        _add_rectangles(figure, part.values, np.arange(place.n_columns), 1.0, end, shared)
        _add_rectangles(figure, part.bar[:, None], middle, width, end, shared)
        return
    figure.add_heatmap(
        z=part.values,
        customdata=part.hover,
        hovertemplate=hover[0] + "<extra></extra>",
        coloraxis="coloraxis",
        **shared,
    )
    figure.add_heatmap(
        z=part.bar[:, None],
        x0=(start + stop) / 2,
        dx=stop - start,
        customdata=part.bar_hover[:, None],
        hovertemplate=hover[1] + "<extra></extra>",
        coloraxis="coloraxis",
        **shared,
    )


def _add_rectangles(
    figure: Figure,
    values: Float[np.ndarray, "row column"],
    centres: np.ndarray,
    width: Number,
    end: Number,
    shared: dict[str, Any],
) -> None:
    """One bar a cell that has a number, a hair larger than it so that no seam shows.

    Colours are given by name: of a number on a colour axis plotly.js warns a bar at a time, which
    takes minutes for the cells of a large model.
    """
    rows, columns = np.nonzero(np.isfinite(values))
    figure.add_bar(
        x=centres[columns],
        base=rows - 0.52,
        y=np.full(rows.size, 1.04),
        width=width * 1.04,
        marker={
            "color": [colour_at(value, end) for value in values[rows, columns].tolist()],
            "line": {"width": 0},
        },
        **shared,
    )


def _set_axes(
    figure: Figure,
    index: int,
    page: Page,
    place: Geometry,
    axes: tuple[str, str],
    bar_name: str,
    across: int,
) -> None:
    x_domain, y_domain = page.domains(index)
    start, stop = place.bar_range
    columns = tick_positions(place.n_columns, place.most_ticks)
    rows = tick_positions(place.n_rows, place.most_ticks)
    common = axis_style()
    x_axis, y_axis = axis_names(index)
    figure.update_layout(
        {
            x_axis: {
                **common,
                "domain": x_domain,
                "anchor": f"y{index + 1}",
                "range": [-0.5, stop],
                "tickvals": [*columns, (start + stop) / 2],
                "ticktext": [*map(str, columns), f"<b>{bar_name}</b>"],
            },
            y_axis: {
                **common,
                "domain": y_domain,
                "anchor": f"x{index + 1}",
                "range": [place.n_rows - 0.5, -0.5],
                "tickvals": rows,
                "ticktext": [str(row) for row in rows],
            },
        }
    )
    if index + across >= len(page.boxes):
        figure.layout[x_axis].title.text = axes[1].capitalize()
    if index % across == 0:
        figure.layout[y_axis].title.text = axes[0].capitalize()


def _add_frames(figure: Figure, index: int, place: Geometry) -> None:
    """Frames around map and bar, and hairlines every eight cells where cells are many."""
    start, stop = place.bar_range
    bottom = place.n_rows - 0.5
    axes = {"xref": f"x{index + 1}", "yref": f"y{index + 1}"}
    hairline = {"width": 1, "color": "rgba(31,36,48,.10)"}
    right = place.n_columns - 0.5
    if place.n_columns > 12:
        for x in np.arange(7.5, right, 8):
            figure.add_shape(type="line", x0=x, x1=x, y0=-0.5, y1=bottom, line=hairline, **axes)
    if place.n_rows > 12:
        for y in np.arange(7.5, bottom, 8):
            figure.add_shape(type="line", x0=-0.5, x1=right, y0=y, y1=y, line=hairline, **axes)
    for x0, x1 in ((-0.5, right), (start, stop)):
        figure.add_shape(
            type="rect", x0=x0, x1=x1, y0=-0.5, y1=bottom, line={"width": 1, "color": FRAME}, **axes
        )
