"""Charts of dots as data: which rows are marks, their names, and one function that draws them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from figures.tables.table import has, keys_of, select
from figures.views.lines import dots

LEVEL = "line-ns-open"
"""The mark of a level that is reached by chance; it has no interval."""
FROM_DATA = (0, 0)
"""Ends of an axis that has all intervals and 0."""


@dataclass(frozen=True)
class Marks:
    """The marks of one series."""

    where: Mapping[str, Any]
    name: str
    symbol: str = "circle"
    style: str = "chosen"
    """A colour of `plotting.COLOURS`."""
    level: Callable[[DataFrame], float] | None = None
    """The value of every mark, from the rows of the chart, in place of rows of their own."""


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
    titles: Callable[[DataFrame], Mapping[str, str]] | None = None
    """What the reader sees for these values, in their order, from the rows of the chart; others are
    left out. None: all as they are."""
    columns: str = ""
    """The key whose values have a chart each; "": there is one."""
    scale: float = 100
    linked: bool = False


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
        axis: the x axis of all charts; its ends may be `FROM_DATA`.
        row: the pixels of a row of a chart.
    """
    models = keys_of(rows, "model")
    lines = [[*_row(select(rows, model=model), charts)] for model in models]
    every = [one for line in lines for part in line for one in part.series]
    if axis.ends == FROM_DATA:
        axis = replace(axis, ends=reach(end for one in every for end in (one.low, one.high)))
    return plotting.dot_panels(
        [part for line in lines for part in line],
        axis,
        across=len(lines[0]),
        headings=models,
        row=row,
        notes=notes,
    )


def _row(rows: DataFrame, charts: Sequence[DotChart]) -> Iterator[plotting.DotPanel]:
    """The charts of one model."""
    for chart in charts:
        for value in keys_of(rows, chart.columns) if chart.columns else [""]:
            own = select(rows, **{chart.columns: value}) if chart.columns else rows
            if has(own, **chart.where):
                yield _panel(own, chart)


def _panel(rows: DataFrame, chart: DotChart) -> plotting.DotPanel:
    """One chart, with the marks of a row one below the other."""
    own = select(rows, **chart.where)
    present = keys_of(own, chart.names)
    titles = chart.titles(rows) if chart.titles else {str(name): str(name) for name in present}
    names = [name for name in titles if name in present]
    drawn = [one for one in chart.series if one.level or has(own, **one.where)]
    free = [one for one in drawn if one.symbol != LEVEL]
    shifts = np.linspace(-0.26, 0.26, len(free)) if len(free) > 1 else np.zeros(1)
    series = []
    for one in drawn:
        marks = select(own, **one.where).set_index(chart.names)
        if one.level:
            marks = DataFrame({"value": one.level(rows), "low": np.nan, "high": np.nan}, names)
        elif one.symbol == LEVEL:
            marks[["low", "high"]] = np.nan
        shift = float(shifts[free.index(one)]) if one in free else 0.0
        style = (one.name, COLOURS[one.style], one.symbol, shift)
        series.append(dots(marks, names, *style, scale=chart.scale))
    sizes = [n for one in free if one.style != "control" for n in select(own, **one.where).n]
    n = " to ".join(dict.fromkeys(f"{size:.0f}" for size in (min(sizes), max(sizes))))
    words = own.iloc[0].to_dict() | {"n": n}
    return plotting.DotPanel(
        plotting.plain(chart.title.format(**words)),
        tuple(titles[name] for name in names),
        tuple(series),
        linked=chart.linked,
    )
