"""A grid of numbers as one panel among line charts: winners printed, one column framed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.page import axis_names, plain
from arith_lens.plotting.style import FRAME, TEXT, Figure, colour_scale, symmetric_limit


@dataclass(frozen=True)
class Grid:
    """Numbers in rows and columns, row 0 at the top.

    Attributes:
        winners: for each row, the column whose name is printed in its cell
        framed: a column with a frame around it; None for none
    """

    values: Float[np.ndarray, "row column"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    winners: tuple[int, ...] = ()
    framed: int | None = None
    axes: tuple[str, str] = ("", "")


def add_grid(figure: Figure, index: int, grid: Grid, *, hover: str = "%{z:.3f}") -> None:
    """Draw `grid` in the place of the panel `index`, which `curve_panels` left without lines."""
    x_axis, y_axis = axis_names(index)
    names = {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}
    end = symmetric_limit(grid.values)
    row, column = map(plain, grid.axes)
    figure.add_heatmap(
        z=grid.values,
        zmin=-end,
        zmax=end,
        colorscale=colour_scale(),
        showscale=False,
        hovertemplate=f"{row} %{{y}}, {column} %{{x}}: {hover}<extra></extra>",
        **names,
    )
    n_rows, n_columns = grid.values.shape
    _ticks(figure, x_axis, grid.columns, grid.axes[1], [-0.5, n_columns - 0.5])
    _ticks(figure, y_axis, grid.rows, grid.axes[0], [n_rows - 0.5, -0.5])
    for place, winner in enumerate(grid.winners):
        strong = abs(grid.values[place, winner]) > 0.55 * end
        figure.add_annotation(
            x=winner,
            y=place,
            xref=names["xaxis"],
            yref=names["yaxis"],
            text=f"<b>{plain(grid.columns[winner])}</b>",
            showarrow=False,
            font={"size": 12, "color": "white" if strong else TEXT},
        )
    _box(figure, names, (-0.5, n_columns - 0.5), n_rows, FRAME)
    if grid.framed is not None:
        _box(figure, names, (grid.framed - 0.5, grid.framed + 0.5), n_rows, TEXT)


def _ticks(
    figure: Figure, axis: str, names: Sequence[str], title: str, range_: Sequence[float]
) -> None:
    figure.layout[axis].update(
        range=range_,
        tickvals=list(range(len(names))),
        ticktext=[plain(name) for name in names],
        ticks="",
        showline=False,
        showgrid=False,
        zeroline=False,
        title_text=plain(title),
    )


def _box(
    figure: Figure, names: dict[str, str], across: tuple[float, float], n_rows: int, ink: str
) -> None:
    figure.add_shape(
        type="rect",
        x0=across[0],
        x1=across[1],
        y0=-0.5,
        y1=n_rows - 0.5,
        line={"width": 1, "color": ink},
        xref=names["xaxis"],
        yref=names["yaxis"],
    )
