"""One map of numbers: as a plotly figure, in a panel of line charts, or as an `<svg>` element.

Lines can be such an element, too. It has no script and no network access, and its own background
for dark themes. `as_image` makes an image of it for a notebook's cell: in a notebook that is not
trusted, such as one that was just downloaded, JupyterLab removes the tags of an `<svg>` but shows
images. Such a map is 20 kB and takes 10 ms. Plotly would put its script, 5 MB, into every cell, or
need a network; a browser that draws for it takes seconds.
"""

import html
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curves import Line, Scale
from arith_lens.plotting.labels import Box, text_box, widest
from arith_lens.plotting.markup import render
from arith_lens.plotting.page import axis_names, panel_axes, panel_refs, plain
from arith_lens.plotting.style import (
    COLOURS,
    DIVERGING,
    FONT,
    FRAME,
    GRID,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    colour_bar,
    ink_on,
    plotly,
    signed,
    step_texts,
    steps,
    symmetric_limit,
    tick_positions,
    tint,
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

    Layers go upwards: with `axes` whose first name is "layer", row 0 is at the bottom.

    Args:
        values: the numbers; NaN is an empty cell.
        axes: the names of rows and columns, such as `("layer", "head")`, for labels and hover.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        limit: the end of the colour scale; None: `symmetric_limit(values)`.
        rows, columns: names of rows and columns (plain text); empty: their numbers.
    """
    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    where = html.escape(cell_name(axes, "%{y}", "%{x}"))
    cell = max(10, min(36, 480 // max(n_rows, n_columns)))
    left, below = 60 + int(widest(rows, 12)), 60 + int(widest(columns, 9))
    go = plotly().graph_objects
    figure = go.Figure(
        go.Heatmap(
            z=values,
            zmin=-end,
            zmax=end,
            colorscale=DIVERGING,
            hovertemplate=f"{where}: %{{z:+.3g}}{html.escape(unit)}<extra></extra>",
            colorbar=colour_bar(
                end, unit, title={"text": html.escape(colour_title), "font": {"size": 12}}
            ),
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
    figure.update_yaxes(
        title=down,
        autorange=None if upwards(axes) else "reversed",
        showticklabels=bool(axes[0]),
        **common,
    )
    for update, names in ((figure.update_xaxes, columns), (figure.update_yaxes, rows)):
        if names:
            update(tickvals=list(range(len(names))), ticktext=[plain(name) for name in names])
    if columns:
        figure.update_xaxes(tickangle=45)
    return figure


def upwards(axes: tuple[str, str]) -> bool:
    """Whether row 0 is at the bottom: depth goes upwards."""
    return axes[0].lower() == "layer"


def cell_name(axes: tuple[str, str], row: int | str, column: int | str) -> str:
    """The name of a cell: `layer 3, head 2`, or `layer 3` if a single row has no name."""
    last = f"{axes[1]} {column}"
    return f"{axes[0]} {row}, {last}" if axes[0] else last


@dataclass(frozen=True)
class Grid:
    """Numbers in rows and columns, with row 0 at the top; at the bottom if rows are layers."""

    values: Float[np.ndarray, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    winners: tuple[int, ...] = ()
    """For each row, the column whose name is printed in its cell."""
    framed: int | None = None
    """The column with a frame around it."""
    axes: tuple[str, str] = ("", "")
    colour_title: str = ""
    """The title of the colour bar; plain text."""


def add_grid(figure: Figure, index: int, grid: Grid, *, hover: str = "%{z:.3f}") -> None:
    """Draw a grid in the panel `index` of `curve_panels`, which has no lines.

    Positive numbers, towards an answer, have its colour; negative ones are grey.
    """
    end = symmetric_limit(grid.values)
    (n_rows, n_columns), (row, column) = grid.values.shape, map(plain, grid.axes)
    x_axis, y_axis = axis_names(index)
    low, high = figure.layout[y_axis].domain
    bar = colour_bar(
        end,
        "",
        x=figure.layout[x_axis].domain[1] + 14 / figure.layout.width,
        xanchor="left",
        xpad=0,
        y=low,
        yanchor="bottom",
        ypad=0,
        lenmode="pixels",
        len=(high - low) * figure.layout.height,
        tickfont={"size": 10, "color": NOTE},
        title={
            "text": plain(grid.colour_title),
            "font": {"size": 11, "color": TEXT},
            "side": "right",
        },
    )
    style = {"colorscale": [COLOURS["control"], "#ffffff", COLOURS["answer"]], "colorbar": bar}
    figure.update_layout(coloraxis={"cmin": -end, "cmax": end, **style})
    figure.add_heatmap(
        z=grid.values,
        coloraxis="coloraxis",
        hovertemplate=f"{row} %{{y}}, {column} %{{x}}: {hover}<extra></extra>",
        **panel_axes(index),
    )
    for axis, names, title in ((x_axis, grid.columns, column), (y_axis, grid.rows, row)):
        ends = [-0.5, len(names) - 0.5]
        figure.layout[axis].update(
            range=ends if axis == x_axis or upwards(grid.axes) else ends[::-1],
            tickvals=list(range(len(names))),
            ticktext=[plain(name) for name in names],
            ticks="",
            showline=False,
            showgrid=False,
            zeroline=False,
            title_text=title,
        )
    for position, winner in enumerate(grid.winners):
        share = grid.values[position, winner] / end
        figure.add_annotation(
            x=winner,
            y=position,
            text=f"<b>{plain(grid.columns[winner])}</b>",
            showarrow=False,
            font={"size": 12, "color": ink_on(tint(COLOURS["answer"], share))},
            **panel_refs(index),
        )
    frames = [(-0.5, n_columns - 0.5, FRAME)]
    if grid.framed is not None:
        frames.append((grid.framed - 0.5, grid.framed + 0.5, TEXT))
    for left, right, ink in frames:
        corners = {"x0": left, "x1": right, "y0": -0.5, "y1": n_rows - 0.5}
        figure.add_shape(
            type="rect", **corners, line={"width": 1, "color": ink}, **panel_refs(index)
        )


def as_image(svg: str, *, alt: str = "") -> str:
    """An `<svg>` element in an `<img>`. `alt` (plain text) is read aloud."""
    data = b64encode(svg.encode()).decode()
    return render(_IMAGE, alt=alt, data=data)


_IMAGE = """
<img style="vertical-align:top" alt="{{ alt }}" src="data:image/svg+xml;base64,{{ data }}">
""".strip()


NAMED_CELL = 12
"""The height of a name in pixels. Where cells are smaller, some rows and columns have no name."""


def named_positions(n: int, cell: int) -> list[int]:
    """The rows or columns whose names are written: all, if cells of this size have the room."""
    return tick_positions(n, max(2, n * min(cell, NAMED_CELL) // NAMED_CELL))


def svg_heatmap(
    values: Float[np.ndarray, "row column"],
    *,
    axes: tuple[str, str],
    title: str = "",
    unit: str = "",
    limit: Number | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    framed: Collection[tuple[int, int]] = (),
    cell: int = 24,
) -> str:
    """A map of numbers with exact values on hover. Arguments and direction as `heatmap`; `framed`:
    the cells (row, column) with a frame and, where it fits, a name such as "5.5"; `cell`: pixels
    of a cell of a small map."""
    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    cell = max(7, min(cell, 15 * cell // max(n_rows, n_columns, 1)))
    # a few rows with names are as high as these
    height = max(cell, min(NAMED_CELL, 360 // max(n_rows, 1))) if rows else cell
    left = 44 + widest(rows, 11)
    box = Box(left, 26, left + n_columns * cell, 26 + n_rows * height)
    beyond = ("≤ " * bool((values < -end).any()), "≥ " * bool((values > end).any()))
    ends = beyond[0] + signed(-end, unit), beyond[1] + signed(end, unit)
    up = upwards(axes)
    below = 0.72 * widest(columns, 11) - 4 if columns else 0  # names of columns stand aslant
    slant = 0.72 * text_box(columns[-1], 11)[0] if columns else 0
    bar = "".join(ends) + "m" * 19
    width = max(box.right + 12 + slant, left + widest((title, bar), 11.5))
    svg = _svg(width, box.bottom + below + 50, title)
    down, across = rows or [*map(str, range(n_rows))], columns or [*map(str, range(n_columns))]
    for row, column in product(range(n_rows), range(n_columns)):
        value = float(values[row, column])
        x, y = box.left + column * cell, box.top + (n_rows - 1 - row if up else row) * height
        square = _add(svg, "rect", x=x, y=y, width=cell, height=height, fill=colour_at(value, end))
        name = cell_name(axes, down[row], across[column])
        _add(square, "title", f"{name}: {value:+.3g}{unit}")
        if (row, column) in framed:
            frame = {"fill": "none", "stroke": TEXT, "stroke_width": 2}
            _add(svg, "rect", x=x + 1, y=y + 1, width=cell - 2, height=height - 2, **frame)
            short = f"{down[row]}.{across[column]}"
            if widest((short,), 10) <= cell + 4:  # which leaves some room
                ink = ink_on(colour_at(value, end))
                middle = {"text_anchor": "middle", "font_size": "10", "fill": ink}
                _write(svg, short, x + cell / 2, y + height / 2 + 3.5, **middle)
    _add_frame(svg, box)
    if axes[0] or rows:
        for row in named_positions(n_rows, height):
            y = box.top + (n_rows - 1 - row if up else row) * height + height / 2 + 4
            _write(svg, down[row], box.left - 6, y, text_anchor="end")
    for column in named_positions(n_columns, cell if columns else 2 * cell // 3):
        x = box.left + column * cell + cell / 2
        if columns:
            turn = {"transform": f"rotate(45 {x - 4:g} {box.bottom + 10:g})"}
            _write(svg, across[column], x - 4, box.bottom + 10, **turn)
        else:
            _write(svg, across[column], x, box.bottom + 14, text_anchor="middle")
    bottom, start = box.bottom + below + 32, left + widest(ends[:1], 11) + 6
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    _write(svg, axes[1], x, bottom, text_anchor="middle")
    _write(svg, axes[0], 14, y, text_anchor="middle", transform=f"rotate(-90 14 {y:g})")
    for step, colour in enumerate(DIVERGING):
        _add(svg, "rect", x=start + 7 * step, y=bottom + 7, width=7, height=9, fill=colour)
    _write(svg, ends[0], left, bottom + 16)
    _write(svg, ends[1], start + 7 * len(DIVERGING) + 6, bottom + 16)
    return ET.tostring(svg, encoding="unicode")


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
        unit: printed after the numbers, such as `"%"`.
        top: the end of the y axis; None: from the data.
    """
    box = Box(52, 30, 412, 230)
    first = min(float(line.x.min()) for line in lines)
    last = max(*(float(line.x.max()) for line in lines), first + 1)
    reach = max(float(np.nanmax(line.y if line.high is None else line.high)) for line in lines)
    high = top if top is not None else reach or 1.0
    scale = Scale((first, last), (0, high), box)
    width = box.right + 24 + widest((line.name for line in lines), 11)
    svg = _svg(max(width, box.left + text_box(title, 13)[0]), box.bottom + 46, title)
    levels, positions = np.array(steps(0, high)), np.array(steps(first, last, most=9))
    for y, text in zip(scale.pixels(0, levels)[1], step_texts([*levels], unit), strict=True):
        _add(svg, "line", x1=box.left, x2=box.right, y1=y, y2=y, stroke=GRID)
        _write(svg, text, box.left - 6, y + 4, text_anchor="end")
    for x, text in zip(scale.pixels(positions, 0)[0], step_texts([*positions], ""), strict=True):
        _write(svg, text, x, box.bottom + 14, text_anchor="middle")
    _add_frame(svg, box)
    for line in lines:
        _add_line(svg, line, scale, unit, y_title)
    for place, line in enumerate(lines):
        _write(svg, line.name, box.right + 12, box.top + 10 + 17 * place, fill=line.colour)
    _write(svg, f"{x_title} across, {y_title} up", box.left, box.bottom + 32)
    return ET.tostring(svg, encoding="unicode")


def _add_line(svg: ET.Element, line: Line, scale: Scale, unit: str, y_title: str) -> None:
    """A band, a line, and a point for each number."""

    def points(x: np.ndarray, y: np.ndarray) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    x, y = scale.pixels(line.x, line.y)
    if line.low is not None and line.high is not None:
        around = np.append(line.x, line.x[::-1]), np.append(line.high, line.low[::-1])
        band = {"fill": line.colour, "fill_opacity": "0.15"}
        _add(svg, "polygon", points=points(*scale.pixels(*around)), **band)
    stroke = {"fill": "none", "stroke": line.colour, "stroke_width": 1.8}
    _add(svg, "polyline", points=points(x, y), **stroke)
    for a, b, at, value in zip(x.tolist(), y.tolist(), line.x, line.y, strict=True):
        dot = _add(svg, "circle", cx=a, cy=b, r=2.6, fill=line.colour)
        _add(dot, "title", f"{line.name}, {at:g}: {y_title} {value:.3g}{unit}")


def _svg(width: Number, height: Number, title: str) -> ET.Element:
    """A picture with a title."""
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    size["viewBox"] = f"0 0 {width:.0f} {height:.0f}"
    font = {"font-family": FONT, "font-size": "11", "fill": TEXT}
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, **font})
    _add(svg, "rect", width="100%", height="100%", fill="#ffffff")
    _add(svg, "text", title, x=44, y=16, font_size=13)
    return svg


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str | Number) -> ET.Element:
    """A new element; `font_size` becomes `font-size`, and numbers have a tenth of a pixel."""
    named = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{round(value, 1):g}"
        for name, value in attributes.items()
    }
    element = ET.SubElement(parent, tag, named)
    element.text = text
    return element


def _add_frame(svg: ET.Element, box: Box) -> None:
    width, height = box.right - box.left, box.bottom - box.top
    _add(svg, "rect", x=box.left, y=box.top, width=width, height=height, fill="none", stroke=FRAME)


def _write(
    svg: ET.Element, text: str, x: Number, y: Number, *, fill: str = NOTE, **style: str
) -> None:
    _add(svg, "text", text, x=x, y=y, fill=fill, **style)
