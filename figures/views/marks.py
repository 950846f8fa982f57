"""Charts of dots as data: which rows are marks, their names, and one function that draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from figures.tables.table import has, keys_of, select
from figures.views.lines import dots

LEVEL = "line-ns-open"
"""The mark of a level that is reached by chance; it has no interval."""


@dataclass(frozen=True)
class Marks:
    """The marks of one series."""

    where: Mapping[str, Any]
    name: str
    symbol: str = "circle"
    style: str = "verdict"
    """A colour of `plotting.COLOURS`."""


@dataclass(frozen=True)
class DotChart:
    """Charts that differ in a key alone."""

    where: Mapping[str, Any]
    series: tuple[Marks, ...]
    title: str
    """With the keys of a row in braces, such as `{operation}`, and `{n}`, which is not that of
    controls."""
    names: str
    """The key whose values name the rows of a chart."""
    titles: Mapping[str, str]
    """What the reader sees for these values, in their order; others are left out."""


def draw(
    rows: DataFrame,
    notes: Sequence[str],
    *,
    charts: Sequence[DotChart],
    axis: plotting.DotAxis,
    row: float,
) -> plotting.Figure:
    """The picture: a row of charts for each model.

    Args:
        notes: lines below the picture.
        charts: the charts of one row. Those without rows are left out.
        axis: the x axis of all charts.
        row: the pixels of a row of a chart.
    """
    models = keys_of(rows, "model")
    lines = []
    for model in models:
        own = select(rows, model=model)
        lines.append([_panel(own, chart) for chart in charts if has(own, **chart.where)])
    return plotting.dot_panels(
        [part for line in lines for part in line],
        axis,
        across=len(lines[0]),
        headings=models,
        row=row,
        notes=notes,
    )


def _panel(rows: DataFrame, chart: DotChart) -> plotting.DotPanel:
    """One chart, with the marks of a row one below the other."""
    own = select(rows, **chart.where)
    present = keys_of(own, chart.names)
    names = [name for name in chart.titles if name in present]
    drawn = [one for one in chart.series if has(own, **one.where)]
    free = [one for one in drawn if one.symbol != LEVEL]
    shifts = np.linspace(-0.26, 0.26, len(free)) if len(free) > 1 else np.zeros(1)
    series = []
    for one in drawn:
        marks = select(own, **one.where).set_index(chart.names)
        if one.symbol == LEVEL:
            marks[["low", "high"]] = np.nan
        shift = float(shifts[free.index(one)]) if one in free else 0.0
        style = (one.name, COLOURS[one.style], one.symbol, shift)
        series.append(dots(marks, names, *style))
    sizes = [n for one in free if one.style != "control" for n in select(own, **one.where).n]
    n = " to ".join(dict.fromkeys(f"{size:.0f}" for size in (min(sizes), max(sizes))))
    words = own.iloc[0].to_dict() | {"n": n}
    return plotting.DotPanel(
        plotting.plain(chart.title.format(**words)),
        tuple(chart.titles[name] for name in names),
        tuple(series),
    )
