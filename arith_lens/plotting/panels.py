"""Several maps side by side, each with a bar of its own, marked cells, and one colour scale."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.heatmap import tick_positions, tick_texts
from arith_lens.plotting.labels import cell_box, place_labels
from arith_lens.plotting.style import (
    FONT,
    FRAME,
    NOTE,
    TEXT,
    Figure,
    colour_at,
    colour_scale,
    is_dark,
    symmetric_limit,
    ticks,
)

_SPAN = 384  # pixels of a panel's longer side
_BAR, _BAR_GAP = 20, 12  # pixels: the bar's width, and its distance from the map
_LEFT, _RIGHT, _TOP, _LINE = 62, 118, 40, 17
_BETWEEN_COLUMNS, _BETWEEN_ROWS = 40, 72
_LABEL_SIZE = 10.5


@dataclass(frozen=True)
class Mark:
    """One outlined cell, named. `strong` marks are dark, others light."""

    row: int
    column: int
    text: str
    strong: bool = True


@dataclass(frozen=True)
class Panel:
    """One map [row column], the bar beside it [row], and what to point out.

    `hover` and `bar_hover` hold further numbers a cell, for the hover text.
    """

    title: str  # may hold <b> and <span>: escape what comes from outside
    values: Float[np.ndarray, "row column"]
    bar: Float[np.ndarray, " row"]
    hover: Float[np.ndarray, "row column number"]
    bar_hover: Float[np.ndarray, "row number"]
    marks: tuple[Mark, ...] = ()
    dots: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Geometry:
    """Pixels of everything, from the maps' shape alone."""

    n_rows: int
    n_columns: int
    grid: tuple[int, int]  # panels down, across
    n_notes: int

    @property
    def cell(self) -> tuple[int, int]:
        """Width and height of a cell: they fill the panel, at most 1.6 times as wide as high."""
        height = max(_SPAN // max(self.n_rows, 8), 4)
        width = max(_SPAN // max(self.n_columns, 1), 4)
        return min(width, int(1.6 * height)), min(height, int(1.6 * width))

    @property
    def map_size(self) -> tuple[int, int]:
        return self.n_columns * self.cell[0], self.n_rows * self.cell[1]

    @property
    def panel_width(self) -> int:
        return self.map_size[0] + _BAR_GAP + _BAR

    @property
    def size(self) -> tuple[int, int]:
        down, across = self.grid
        bottom = 62 + _LINE * self.n_notes
        return (
            _LEFT + across * self.panel_width + (across - 1) * _BETWEEN_COLUMNS + _RIGHT,
            _TOP + down * self.map_size[1] + (down - 1) * _BETWEEN_ROWS + bottom,
        )

    def corner(self, index: int) -> tuple[int, int]:
        """Left and top pixel of a panel's map."""
        row, column = divmod(index, self.grid[1])
        return (
            _LEFT + column * (self.panel_width + _BETWEEN_COLUMNS),
            _TOP + row * (self.map_size[1] + _BETWEEN_ROWS),
        )

    def paper(self, x: float, y: float) -> tuple[float, float]:
        """Pixels from the top left corner to plotly's fractions of the whole figure."""
        return x / self.size[0], 1 - y / self.size[1]

    @property
    def bar_range(self) -> tuple[float, float]:
        """The bar's left and right end on the map's x axis, in cells."""
        start = self.n_columns - 0.5 + _BAR_GAP / self.cell[0]
        return start, start + _BAR / self.cell[0]


def panels(
    parts: Sequence[Panel],
    *,
    axes: tuple[str, str],
    bar_name: str,
    colour_title: str,
    hover: tuple[str, str],
    notes: Sequence[str] = (),
    unit: str = "",
    across: int = 2,
    limit: float | None = None,
    vector: bool = False,
) -> Figure:
    """Maps with bars on a grid, lettered a, b, c…, one colour scale, row 0 at the top.

    Args:
        axes: what a row and a column of the maps are, such as `("layer", "head")`.
        hover: plotly hover templates of a map's and a bar's cell, over x, y, z and customdata.
        notes: lines below the panels (plain text).
        limit: where the colours end; None: `symmetric_limit` of all maps and bars together.
        vector: draw each cell as a rectangle, for SVG and PDF (a heat map is a bitmap there).
    """
    from plotly import graph_objects as go

    if len({part.values.shape for part in parts}) != 1:
        raise ValueError(
            f"expected maps of one shape, found {[part.values.shape for part in parts]}; "
            "draw models of different sizes as figures of their own"
        )
    everything = np.concatenate([np.append(p.values.ravel(), p.bar.ravel()) for p in parts])
    end = symmetric_limit(everything) if limit is None else limit
    n_rows, n_columns = parts[0].values.shape
    down = -(-len(parts) // across)
    place = _Geometry(n_rows, n_columns, (down, min(across, len(parts))), len(notes))
    figure = go.Figure()
    _set_page(figure, place, end, colour_title, unit)
    for index, part in enumerate(parts):
        _add_cells(figure, part, index, place, hover, vector)
        _set_axes(figure, index, len(parts), place, axes, bar_name)
        _add_frames(figure, index, place)
        _add_title(figure, part.title, index, place)
        _add_marks(figure, part, index, place, end)
    _add_notes(figure, notes, place)
    return figure


def _set_page(figure: Figure, place: _Geometry, end: float, colour_title: str, unit: str) -> None:
    width, height = place.size
    bar_height = min(place.map_size[1], 330)
    x, y = place.paper(width - _RIGHT + 22, _TOP - 6)
    figure.update_layout(
        template="none",
        width=width,
        height=height,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        font={"family": FONT, "size": 13, "color": TEXT},
        paper_bgcolor="white",
        plot_bgcolor="white",
        showlegend=False,
        barmode="overlay",
        hoverlabel={"bgcolor": "white", "font": {"family": FONT, "size": 13}},
        coloraxis={
            "cmin": -end,
            "cmax": end,
            "colorscale": colour_scale(),
            "colorbar": {
                "title": {"text": colour_title, "side": "top", "font": {"size": 12}},
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
    place: _Geometry,
    hover: tuple[str, str],
    vector: bool,
) -> None:
    start, stop = place.bar_range
    shared = {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}
    if vector:
        _add_rectangles(figure, part.values, np.arange(place.n_columns), 1.0, shared)
        _add_rectangles(
            figure, part.bar[:, None], np.array([(start + stop) / 2]), stop - start, shared
        )
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
    width: float,
    shared: dict[str, Any],
) -> None:
    """One bar a cell, a hair larger than it so that no seam shows."""
    rows, columns = np.indices(values.shape)
    figure.add_bar(
        x=centres[columns.ravel()],
        base=rows.ravel() - 0.52,
        y=np.full(values.size, 1.04),
        width=width * 1.04,
        marker={"color": values.ravel(), "coloraxis": "coloraxis", "line": {"width": 0}},
        **shared,
    )


def _set_axes(
    figure: Figure,
    index: int,
    n_panels: int,
    place: _Geometry,
    axes: tuple[str, str],
    bar_name: str,
) -> None:
    left, top = place.corner(index)
    x0, y1 = place.paper(left, top)
    x1, y0 = place.paper(left + place.panel_width, top + place.map_size[1])
    start, stop = place.bar_range
    columns, rows = tick_positions(place.n_columns), tick_positions(place.n_rows)
    across = place.grid[1]
    common: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": FRAME,
        "tickfont": {"size": 11, "color": NOTE},
        "title": {"font": {"size": 13}, "standoff": 6},
    }
    x_axis, y_axis = _axis_names(index)
    figure.update_layout(
        {
            x_axis: {
                **common,
                "domain": _clamped(x0, x1),
                "anchor": f"y{index + 1}",
                "range": [-0.5, stop],
                "tickvals": [*columns, (start + stop) / 2],
                "ticktext": [*map(str, columns), f"<b>{bar_name}</b>"],
            },
            y_axis: {
                **common,
                "domain": _clamped(y0, y1),
                "anchor": f"x{index + 1}",
                "range": [place.n_rows - 0.5, -0.5],
                "tickvals": rows,
                "ticktext": [str(row) for row in rows],
            },
        }
    )
    if index + across >= n_panels:
        figure.layout[x_axis].title.text = axes[1].capitalize()
    if index % across == 0:
        figure.layout[y_axis].title.text = axes[0].capitalize()


def _axis_names(index: int) -> tuple[str, str]:
    suffix = "" if index == 0 else str(index + 1)
    return f"xaxis{suffix}", f"yaxis{suffix}"


def _clamped(low: float, high: float) -> list[float]:
    return [max(low, 0.0), min(high, 1.0)]


def _add_frames(figure: Figure, index: int, place: _Geometry) -> None:
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


def _add_title(figure: Figure, title: str, index: int, place: _Geometry) -> None:
    left, top = place.corner(index)
    x, y = place.paper(left, top - 8)
    letter = "abcdefghijklmnopqrstuvwxyz"[index]
    figure.add_annotation(
        text=f"<b>{letter}</b>  {title}",
        x=x,
        y=y,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        borderpad=0,
        font={"size": 14},
    )


def _add_marks(figure: Figure, part: Panel, index: int, place: _Geometry, end: float) -> None:
    axes = {"xref": f"x{index + 1}", "yref": f"y{index + 1}"}
    for mark in part.marks:
        figure.add_shape(
            type="rect",
            x0=mark.column - 0.5,
            x1=mark.column + 0.5,
            y0=mark.row - 0.5,
            y1=mark.row + 0.5,
            line={"width": 1.2 if mark.strong else 1, "color": TEXT if mark.strong else NOTE},
            **axes,
        )
    for row, column in part.dots:
        figure.add_shape(
            type="circle",
            xsizemode="pixel",
            ysizemode="pixel",
            xanchor=column,
            yanchor=row,
            x0=-2,
            x1=2,
            y0=-2,
            y1=2,
            fillcolor=TEXT,
            line={"width": 0.8, "color": "white"},
            **axes,
        )
    _add_labels(figure, part, place, end, axes)


def _add_labels(
    figure: Figure, part: Panel, place: _Geometry, end: float, axes: dict[str, str]
) -> None:
    named = [mark for mark in part.marks if mark.text]
    boxes = place_labels(
        [(mark.row, mark.column) for mark in named],
        [mark.text for mark in named],
        np.abs(part.values),
        cell=place.cell,
        size=_LABEL_SIZE,
        avoid=[(mark.row, mark.column) for mark in part.marks] + list(part.dots),
    )
    for mark, box in zip(named, boxes, strict=True):
        inside = box == cell_box(mark.row, mark.column, place.cell)
        fill = colour_at(float(part.values[mark.row, mark.column]), end)
        ink = TEXT if mark.strong else NOTE
        if inside:
            ink = "white" if is_dark(fill) else TEXT
        x, y = box.centre
        figure.add_annotation(
            text=html.escape(mark.text),
            x=x / place.cell[0] - 0.5,
            y=y / place.cell[1] - 0.5,
            showarrow=False,
            borderpad=1,
            bgcolor=None if inside else "rgba(255,255,255,.82)",
            font={"size": _LABEL_SIZE, "weight": 600 if mark.strong else 400, "color": ink},
            **axes,
        )


def _add_notes(figure: Figure, notes: Sequence[str], place: _Geometry) -> None:
    for line, note in enumerate(notes):
        x, y = place.paper(_LEFT, place.size[1] - 12 - _LINE * (len(notes) - 1 - line))
        figure.add_annotation(
            text=html.escape(note),
            x=x,
            y=y,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            align="left",
            showarrow=False,
            borderpad=0,
            font={"size": 11, "color": NOTE},
        )
