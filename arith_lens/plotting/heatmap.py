"""One map of numbers: as a plotly figure, and as an inline SVG that needs no script."""

import html

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.style import (
    FONT,
    FRAME,
    NOTE,
    TEXT,
    Figure,
    Number,
    colour_at,
    colour_scale,
    signed,
    symmetric_limit,
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
) -> Figure:
    """A plotly map of `values`, row 0 at the top, colours symmetric about 0.

    Args:
        axes: what a row and a column are, such as `("layer", "head")`; in the labels and the hover.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        limit: where the colours end; None takes `symmetric_limit(values)`.
    """
    from plotly import graph_objects as go

    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    where = html.escape(_place(axes, "%{y}", "%{x}"))
    cell = max(10, min(36, 480 // max(n_rows, n_columns)))
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
        width=max(n_columns * cell, 120) + 190,
        height=max(n_rows * cell, 80) + 110,
        margin={"l": 60, "r": 130, "t": 50, "b": 60},
        hoverlabel={"bgcolor": "white", "font": {"family": FONT}},
    )
    common = {"showgrid": False, "zeroline": False, "mirror": True, "linecolor": FRAME}
    down, across = (html.escape(axis.capitalize()) for axis in axes)
    figure.update_xaxes(title=across, constrain="domain", **common)
    figure.update_yaxes(title=down, autorange="reversed", showticklabels=bool(axes[0]), **common)
    return figure


def tick_texts(limit: Number, unit: str) -> list[str]:
    """The colour bar's labels; its ends say that what lies beyond has the same colour."""
    values = ticks(limit)
    texts = [signed(value, unit) for value in values]
    return [f"≤ {texts[0]}", *texts[1:-1], f"≥ {texts[-1]}"]


def svg_heatmap(
    values: Float[np.ndarray, "row column"],
    *,
    axes: tuple[str, str],
    title: str = "",
    unit: str = "",
    limit: Number | None = None,
) -> str:
    """The same map as one `<svg>` element: no script, no network, exact values on hover."""
    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    cell = max(7, min(24, 360 // max(n_rows, n_columns, 1)))
    left, top = 44, 26
    width, height = left + n_columns * cell + 12, top + n_rows * cell + 56
    squares = "".join(
        f'<rect x="{left + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}" '
        f'fill="{colour_at(float(values[row, column]), end)}"><title>'
        f"{html.escape(_place(axes, row, column))}: "
        f"{values[row, column]:+.3g}{html.escape(unit)}</title></rect>"
        for row in range(n_rows)
        for column in range(n_columns)
    )
    bottom = top + n_rows * cell
    scale = f"colours from {signed(-end, unit)} (red) to {signed(end, unit)} (blue)"
    reading = f"{axes[0]} down, {axes[1]} across" if axes[0] else f"{axes[1]} across"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 330)}" height="{height}" '
        f'font-family="{FONT}" font-size="11" fill="{TEXT}">'
        f'<text x="{left}" y="16" font-size="13">{html.escape(title)}</text>{squares}'
        f'<rect x="{left}" y="{top}" width="{n_columns * cell}" height="{n_rows * cell}" '
        f'fill="none" stroke="{FRAME}"/>'
        + (_row_ticks(n_rows, left, top, cell) if axes[0] else "")
        + _column_ticks(n_columns, left, bottom, cell)
        + f'<text x="{left}" y="{bottom + 32}" fill="{NOTE}">{html.escape(reading)}</text>'
        f'<text x="{left}" y="{bottom + 48}" fill="{NOTE}">{html.escape(scale)}</text></svg>'
    )


def _place(axes: tuple[str, str], row: int | str, column: int | str) -> str:
    """`layer 3, head 2`; `layer 3` where a single row has no name."""
    last = f"{axes[1]} {column}"
    return f"{axes[0]} {row}, {last}" if axes[0] else last


def tick_positions(n: int, most: int = 9) -> list[int]:
    """Evenly spaced indices from 0, the last one always among them."""
    step = next(s for s in (1, 2, 4, 5, 8, 10, 16, 20, 32, 64, n) if n / s <= most)
    regular = [i for i in range(0, n, step) if n - 1 - i >= step / 2 or i == n - 1]
    return sorted({*regular, n - 1})


def _row_ticks(n_rows: int, left: int, top: int, cell: int) -> str:
    return "".join(
        f'<text x="{left - 6}" y="{top + row * cell + cell / 2 + 4:g}" text-anchor="end" '
        f'fill="{NOTE}">{row}</text>'
        for row in tick_positions(n_rows)
    )


def _column_ticks(n_columns: int, left: int, bottom: int, cell: int) -> str:
    return "".join(
        f'<text x="{left + column * cell + cell / 2:g}" y="{bottom + 14}" text-anchor="middle" '
        f'fill="{NOTE}">{column}</text>'
        for column in tick_positions(n_columns)
    )
