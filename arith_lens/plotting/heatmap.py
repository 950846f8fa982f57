"""One map of numbers as a plotly figure."""

import html
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import text_box
from arith_lens.plotting.page import plain
from arith_lens.plotting.style import (
    FONT,
    FRAME,
    TEXT,
    Figure,
    Number,
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
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Figure:
    """A plotly map of `values`, row 0 at the top, colours symmetric about 0.

    Args:
        axes: what a row and a column are, such as `("layer", "head")`; in the labels and the hover.
        unit: printed after each number, such as `"%"`; the numbers are not changed.
        limit: where the colours end; None takes `symmetric_limit(values)`.
        rows, columns: names (plain text) of those that are not simply counted.
    """
    from arith_lens.plotting.library import go

    end = symmetric_limit(values) if limit is None else limit
    n_rows, n_columns = values.shape
    where = html.escape(place(axes, "%{y}", "%{x}"))
    cell = max(10, min(36, 480 // max(n_rows, n_columns)))
    left = 60 + max((int(text_box(name, 12)[0]) for name in rows), default=0)
    below = 60 + max((int(text_box(name, 9)[0]) for name in columns), default=0)
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


def tick_texts(limit: Number, unit: str) -> list[str]:
    """The colour bar's labels; its ends say that what lies beyond has the same colour."""
    values = ticks(limit)
    texts = [signed(value, unit) for value in values]
    return [f"≤ {texts[0]}", *texts[1:-1], f"≥ {texts[-1]}"]


def place(axes: tuple[str, str], row: int | str, column: int | str) -> str:
    """`layer 3, head 2`; `layer 3` where a single row has no name."""
    last = f"{axes[1]} {column}"
    return f"{axes[0]} {row}, {last}" if axes[0] else last


def tick_positions(n: int, most: int = 9) -> list[int]:
    """Evenly spaced indices from 0, the last one always among them."""
    step = next(s for s in (1, 2, 4, 5, 8, 10, 16, 20, 32, 64, n) if n / s <= most)
    regular = [i for i in range(0, n, step) if n - 1 - i >= step / 2 or i == n - 1]
    return sorted({*regular, n - 1})
