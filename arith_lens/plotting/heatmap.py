"""A map of numbers as a plotly figure or as an `<svg>` element; also lines as `<svg>`.

The element has no script and no network access, and its own background for dark themes. `as_image`
makes an image of it for a notebook's cell: in a notebook that is not trusted, such as one that was
just downloaded, JupyterLab removes the tags of an `<svg>` but shows images.
"""

import html
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curves import Line
from arith_lens.plotting.markup import render
from arith_lens.plotting.page import Box, plain, text_box
from arith_lens.plotting.style import (
    FONT,
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    colour_scale,
    plotly,
    signed,
    step_texts,
    steps,
    symmetric_limit,
    tick_positions,
    tick_texts,
    ticks,
)


def heatmap(
    values: Float[np.ndarray, "row column"],
    *,
    axes: tuple[str, str],
    title: str = "",
    colour_title: str = "",
    unit: str = "",
    limit: Number | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Figure:
    """A plotly map of numbers, with row 0 at the top and colours symmetric about 0.

    Args:
        values: the numbers; NaN is an empty cell.
        axes: the names of rows and columns, such as `("layer", "head")`, for labels and hover.
        title: the title of the map.
        colour_title: the title of the colour bar.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        limit: the end of the colour scale; None: `symmetric_limit(values)`.
        rows, columns: names of rows and columns (plain text); empty: their numbers.
    """
    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    where = html.escape(cell_name(axes, "%{y}", "%{x}"))
    cell = max(10, min(36, 480 // max(n_rows, n_columns)))
    left = 60 + max((int(text_box(name, 12)[0]) for name in rows), default=0)
    below = 60 + max((int(text_box(name, 9)[0]) for name in columns), default=0)
    go = plotly().graph_objects
    figure = go.Figure(
        go.Heatmap(
            z=values,
            zmin=-end,
            zmax=end,
            colorscale=colour_scale(),
            hovertemplate=f"{where}: %{{z:+.3g}}{html.escape(unit)}<extra></extra>",
            colorbar={
                "title": {"text": html.escape(colour_title), "font": {"size": 12}},
                "tickvals": ticks(end),
                "ticktext": tick_texts(end, unit),
                "thickness": 12,
                "outlinewidth": 0,
            },
        )
    )
    figure.update_layout(
        template="none",
        title={"text": html.escape(title), "font": {"size": 14}},
        font={"family": FONT, "size": 12, "color": TEXT},
        width=max(n_columns * cell, 120) + 130 + left,
        height=max(n_rows * cell, 80) + 50 + below,
        margin={"l": left, "r": 130, "t": 50, "b": below},
        hoverlabel={"bgcolor": "white", "font": {"family": FONT}},
    )
    common = {"showgrid": False, "zeroline": False, "mirror": True, "linecolor": FRAME}
    down, across = (html.escape(axis.capitalize()) for axis in axes)
    figure.update_xaxes(title=across, constrain="domain", **common)
    figure.update_yaxes(title=down, autorange="reversed", showticklabels=bool(axes[0]), **common)
    for update, names in ((figure.update_xaxes, columns), (figure.update_yaxes, rows)):
        if names:
            update(tickvals=list(range(len(names))), ticktext=[plain(name) for name in names])
    if columns:
        figure.update_xaxes(tickangle=45)
    return figure


def cell_name(axes: tuple[str, str], row: int | str, column: int | str) -> str:
    """The name of a cell: `layer 3, head 2`, or `layer 3` if a single row has no name."""
    last = f"{axes[1]} {column}"
    return f"{axes[0]} {row}, {last}" if axes[0] else last


def as_image(svg: str, *, alt: str = "") -> str:
    """An `<svg>` element in an `<img>`. `alt` (plain text) is read aloud."""
    data = b64encode(svg.encode()).decode()
    return render(_IMAGE, alt=alt, data=data)


_IMAGE = """
<img style="vertical-align:top" alt="{{ alt }}" src="data:image/svg+xml;base64,{{ data }}">
""".strip()


def svg_heatmap(
    values: Float[np.ndarray, "row column"],
    *,
    axes: tuple[str, str],
    title: str = "",
    unit: str = "",
    limit: Number | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> str:
    """A map of numbers with row 0 at the top and exact values on hover. Arguments as `heatmap`."""
    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    cell = max(7, min(24, 360 // max(n_rows, n_columns, 1)))
    left = 44 + _widest(rows) * bool(rows)
    foot = (14 + 0.72 * _widest(columns)) if columns else 18  # names of columns stand aslant
    box = Box(left, 26, left + n_columns * cell, 26 + n_rows * cell)
    down, across = rows or range(n_rows), columns or range(n_columns)
    squares = "".join(
        f'<rect x="{left + column * cell:g}" y="{26 + row * cell}" width="{cell}" height="{cell}" '
        f'fill="{colour_at(float(values[row, column]), end)}"><title>'
        f"{html.escape(cell_name(axes, down[row], across[column]))}: "
        f"{values[row, column]:+.3g}{html.escape(unit)}</title></rect>"
        for row in range(n_rows)
        for column in range(n_columns)
    )
    scale = f"colours from {signed(-end, unit)} (red) to {signed(end, unit)} (blue)"
    reading = f"{axes[0]} down, {axes[1]} across" if axes[0] else f"{axes[1]} across"
    feet = [reading, scale]
    ticks = _row_names(rows, n_rows, box, cell) if axes[0] or rows else ""
    ticks += _column_names(columns, n_columns, box, cell)
    lines = _feet(feet, left, box.bottom + foot)
    slant = 0.72 * text_box(columns[-1], 11)[0] if columns else 0
    width = max(box.right + 12 + slant, left + max(text_box(t, 11.5)[0] for t in (*feet, title)))
    return _svg(width, box.bottom + foot + 32, title, f"{squares}{_frame(box)}{ticks}{lines}")


def svg_lines(
    lines: Sequence[Line],
    *,
    x_title: str,
    y_title: str,
    title: str = "",
    unit: str = "",
    top: Number | None = None,
) -> str:
    """Lines with their intervals on a y axis from 0, with exact values on hover.

    Args:
        lines: the lines; each name has one colour.
        x_title, y_title, title: the titles.
        unit: printed after the numbers, such as `"%"`.
        top: the end of the y axis; None: from the data.
    """
    box = Box(52, 30, 412, 230)
    reach = max(float(np.nanmax(line.y if line.high is None else line.high)) for line in lines)
    xs = [float(line.x.min()) for line in lines] + [float(line.x.max()) for line in lines]
    ends = (min(xs), max(max(xs), min(xs) + 1), top if top is not None else reach or 1.0)
    drawn = "".join(_line(line, box, ends, unit, y_title) for line in lines)
    names = "".join(
        f'<text x="{box.right + 12}" y="{box.top + 10 + 17 * i}" fill="{line.colour}">'
        f"{html.escape(line.name)}</text>"
        for i, line in enumerate(lines)
    )
    feet = _feet([f"{x_title} across, {y_title} up"], box.left, box.bottom + 18)
    width = box.right + 24 + max(text_box(line.name, 11)[0] for line in lines)
    width = max(width, box.left + text_box(title, 13)[0])
    return _svg(width, box.bottom + 46, title, _axes(box, ends, unit) + drawn + names + feet)


def _line(
    line: Line, box: Box, ends: tuple[Number, Number, Number], unit: str, y_title: str
) -> str:
    """A band, a line, and a point for each number."""
    x, y = _across(line.x, box, ends), _up(line.y, box, ends)
    band = ""
    if line.low is not None and line.high is not None:
        low, high = _up(line.low, box, ends), _up(line.high, box, ends)
        around = _points(np.append(x, x[::-1]), np.append(high, low[::-1]))
        band = f'<polygon points="{around}" fill="{line.colour}" fill-opacity="0.15"/>'
    path = (
        f'<polyline points="{_points(x, y)}" fill="none" '
        f'stroke="{line.colour}" stroke-width="1.8"/>'
    )
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{line.colour}"><title>'
        f"{html.escape(line.name)}, {at:g}: {html.escape(y_title)} {value:.3g}"
        f"{html.escape(unit)}</title></circle>"
        for a, b, at, value in zip(x, y, line.x, line.y, strict=True)
    )
    return band + path + dots


def _across(x: np.ndarray, box: Box, ends: tuple[Number, Number, Number]) -> np.ndarray:
    return box.left + (x - ends[0]) / (ends[1] - ends[0]) * (box.right - box.left)


def _up(y: np.ndarray, box: Box, ends: tuple[Number, Number, Number]) -> np.ndarray:
    return box.bottom - y / ends[2] * (box.bottom - box.top)


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _axes(box: Box, ends: tuple[Number, Number, Number], unit: str) -> str:
    levels, positions = steps(0, ends[2]), steps(ends[0], ends[1], most=9)
    grid = "".join(
        f'<line x1="{box.left}" x2="{box.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        f'<text x="{box.left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{NOTE}">{text}</text>'
        for y, text in zip(_up(np.array(levels), box, ends), step_texts(levels, unit), strict=True)
    )
    ticks = "".join(
        f'<text x="{x:.1f}" y="{box.bottom + 14}" text-anchor="middle" fill="{NOTE}">{text}</text>'
        for x, text in zip(
            _across(np.array(positions), box, ends), step_texts(positions, ""), strict=True
        )
    )
    return grid + ticks + _frame(box)


def _svg(width: Number, height: Number, title: str, inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="{FONT}" font-size="11" fill="{TEXT}">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="44" y="16" font-size="13">{html.escape(title)}</text>{inside}</svg>'
    )


def _frame(box: Box) -> str:
    return (
        f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.right - box.left:g}" '
        f'height="{box.bottom - box.top:g}" fill="none" stroke="{FRAME}"/>'
    )


def _feet(lines: Sequence[str], left: Number, top: Number) -> str:
    return "".join(
        f'<text x="{left:g}" y="{top + 14 + 16 * i:g}" fill="{NOTE}">{html.escape(line)}</text>'
        for i, line in enumerate(lines)
    )


def _widest(names: Sequence[str]) -> Number:
    return max((text_box(name, 11)[0] for name in names), default=0)


def _row_names(names: Sequence[str], n: int, box: Box, cell: int) -> str:
    named_rows = range(n) if names else tick_positions(n)
    return "".join(
        f'<text x="{box.left - 6:g}" y="{box.top + row * cell + cell / 2 + 4:g}" text-anchor="end" '
        f'fill="{NOTE}">{html.escape(names[row]) if names else row}</text>'
        for row in named_rows
    )


def _column_names(names: Sequence[str], n: int, box: Box, cell: int) -> str:
    """Numbers stand below their columns; names hang from them, aslant."""
    if not names:
        return "".join(
            f'<text x="{box.left + column * cell + cell / 2:g}" y="{box.bottom + 14}" '
            f'text-anchor="middle" fill="{NOTE}">{column}</text>'
            for column in tick_positions(n)
        )
    parts = []
    for column, name in enumerate(names):
        x, y = box.left + column * cell + cell / 2 - 4, box.bottom + 10
        parts.append(
            f'<text x="{x:g}" y="{y:g}" transform="rotate(45 {x:g} {y:g})" fill="{NOTE}">'
            f"{html.escape(name)}</text>"
        )
    return "".join(parts)
