"""Line charts as data: which rows are lines, their names, and one function that draws them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from arith_lens.plotting.widths import is_narrow
from figures.tables.table import keys_of, records, select
from figures.views.lines import base_rate, line
from figures.views.words import of_width

Keys = Mapping[str, Any]
"""Keys that rows have, as `select` takes them; a function gets the rows of one chart."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    where: Keys
    name: str
    style: str = "verdict"
    """A colour of `plotting.COLOURS` and, after a space, a dash."""
    band: bool = True
    mark: Callable[[DataFrame, DataFrame], float | Sequence[float]] | None = None
    """The x of its circles, from the rows of the line and of the chart; NaN: it has none."""
    text: str = "{value:.0%}"
    """What stands beside the circle; without it, it is a diamond."""
    mark_at: str = "value"
    """Which number of the row is the circle's height; `high`: the upper end of the band."""
    end: str = ""
    """What stands at the end of the line, with its last value in braces; empty: the name."""
    edge: str = ""
    """The name of a thin line in place of its band, at its low end; with circles at the high end
    it is there, and is drawn alone."""


@dataclass(frozen=True)
class CurveChart:
    """Charts that differ in a key alone: a row of them for each value of `rows`."""

    where: Keys
    series: tuple[Series, ...]
    """The last one is drawn on top; the title has its keys."""
    x: str
    x_title: str
    y_title: str
    title: str
    """With the keys of a row in braces, such as `{operation}`, and `{n}`."""
    heading: str = ""
    """Above a row of charts, with the value of `rows` in braces."""
    rows: str = ""
    columns: str = ""
    """The key whose values have a chart each; "": there is one."""
    scale: float = 100
    y_range: tuple[float, float] | None = None
    """None: from the data of all its charts."""
    base: Keys | None = None
    """The row of a level that is reached without the model, drawn dotted."""
    guides: Callable[[DataFrame], Sequence[float]] = lambda rows: ()
    """The x of vertical dotted lines, from the rows of a chart."""


def draw(
    rows: DataFrame,
    notes: Sequence[str],
    *,
    charts: Sequence[CurveChart],
    panel: tuple[int, int],
    shared_y: bool = False,
    inside: bool = False,
) -> plotting.Figure:
    """The picture; charts without rows are left out. A column of paper has the first model alone.

    Args:
        notes: lines below the picture.
        charts: what is drawn, row after row.
        panel: the width and the height of a chart in pixels.
        shared_y: as of `plotting.curve_panels`; then the first chart of a row has the lines' names.
        inside: whether the names stand in it, beside the lines, and not on its right.
    """
    models, notes = of_width(keys_of(rows, "model"), notes)
    rows = select(rows, model=[*models, ""])
    x_title = charts[0].x_title if len(charts) == 1 else ""  # once, below the last row
    charts = [replace(one, x_title="") if x_title else one for one in charts]
    lines = [line for chart in charts for line in curve_panels(rows, chart)]
    across = max(len(parts) for _, parts in lines)
    if shared_y:
        lines = [(heading, _named_once(parts, inside)) for heading, parts in lines]
    return plotting.curve_panels(
        [part for _, parts in lines for part in [*parts, *[None] * (across - len(parts))]],
        x_title=x_title,
        unit="%" * all(chart.scale == 100 for chart in charts),
        notes=notes,
        headings=[heading for heading, _ in lines],
        across=across,
        panel=panel,
        shared_y=shared_y,
    )


def curve_panels(rows: DataFrame, chart: CurveChart) -> list[tuple[str, list[plotting.CurvePanel]]]:
    """The charts of each row of the picture with its heading, all on one scale."""
    lines = [
        (chart.heading.format(**{chart.rows: value}), parts)
        for value, of_line in _groups(rows, chart.rows)
        if (
            parts := [
                *filter(None, (_panel(own, chart) for _, own in _groups(of_line, chart.columns)))
            ]
        )
    ]
    drawn = [one for _, parts in lines for part in parts for one in part.lines]
    low, high = chart.y_range or reach(end for one in drawn for end in (one.y, one.low, one.high))
    marked = any(one.mark for one in chart.series)
    room = 0.05 * (high - low) * (marked and not chart.y_range)  # for the texts of circles
    ends = (low, high + room)
    return [(heading, [replace(part, y_range=ends) for part in parts]) for heading, parts in lines]


def _groups(rows: DataFrame, key: str) -> Iterator[tuple[Any, DataFrame]]:
    """The rows of each value of a key with those of none; all rows without a key."""
    for value in keys_of(rows, key) if key else [""]:
        yield value, select(rows, **{key: [value, ""]}) if key else rows


def _panel(rows: DataFrame, chart: CurveChart) -> plotting.CurvePanel | None:
    """One chart; None without its rows."""
    where: dict[str, Any] = {
        name: one(rows) if callable(one) else one for name, one in chart.where.items()
    }
    own = select(rows, **where)
    drawn = [(one, of_line) for one in chart.series if len(of_line := select(own, **one.where))]
    if not drawn:
        return None
    lines = [_line(of_line, series, chart) for series, of_line in drawn]
    points = [point for i, one in enumerate(drawn) for point in _circles(rows, *one, chart, i)]
    first, last = (end(end(one.x) for one in lines) for end in (min, max))
    for (series, _), one in zip(drawn, [*lines], strict=True):
        if series.edge:
            alone, bare = series.mark_at == "high", _bare(one)
            end = {"y": one.high if alone else one.low, "name": series.edge, "dash": "solid"}
            worst = replace(bare, is_light=True, **end)
            own = worst if alone else bare
            lines = [own if other is one else other for other in (*lines, *[worst] * (not alone))]
    for index, one in enumerate(lines):
        if one.x[-1] < last:
            points.append(plotting.Point(one.x[-1], one.name, index, is_name=True))
            lines[index] = replace(one, label="")
    if chart.base:
        lines += [base_rate(rate, (first, last)) for rate in select(rows, **chart.base).value[:1]]
    top = drawn[-1][1]
    words = top.iloc[0].to_dict() | {"n": f"{top.n.max():.0f}"}
    return plotting.CurvePanel(
        plotting.plain(chart.title.format(**words)),
        tuple(lines),
        tuple(points),
        guides=tuple((x, f"{x:.0f}" * (x == round(x))) for x in chart.guides(rows)),
        x_title=chart.x_title,
        y_title=chart.y_title,
    )


def _circles(
    rows: DataFrame, series: Series, of_line: DataFrame, chart: CurveChart, index: int
) -> Iterator[plotting.Point]:
    """The circle of a line, with its number; on a narrow page without what follows it."""
    at = np.nan if series.mark is None else series.mark(of_line, rows)
    for one in records(DataFrame(of_line[of_line[chart.x].isin([*np.atleast_1d(at)])])):
        keys = one._asdict()
        height = chart.scale * keys[series.mark_at]
        text = series.text.format(**keys)
        text = text.partition(" [")[0] if is_narrow() else text
        yield plotting.Point(keys[chart.x], text, index, y=height)


def _line(rows: DataFrame, series: Series, chart: CurveChart) -> plotting.Line:
    """One line with its band."""
    colour, _, dash = series.style.partition(" ")
    style: dict[str, Any] = {"x": chart.x, "scale": chart.scale, "dash": dash or "solid"}
    one = line(rows, series.name, COLOURS[colour], **style)
    end = series.end.format(one.y[-1]).replace("-", "−")
    one = replace(one, label=end if series.end else None)
    return one if series.band else _bare(one)


def _bare(line: plotting.Line) -> plotting.Line:
    """The line without its band."""
    return replace(line, low=None, high=None)


def _named_once(parts: Sequence[plotting.CurvePanel], inside: bool) -> list[plotting.CurvePanel]:
    """The charts of a row, of which the first one alone has the names of lines."""
    own, *others = parts
    if inside:
        names = [
            plotting.Point(_freest(one, own.lines), one.name, index, is_name=True)
            for index, one in enumerate(own.lines)
            if one.end_text
        ]
        own = replace(own, lines=tuple(map(_unnamed, own.lines)), points=(*own.points, *names))
    else:  # a line without a text at its end has its name elsewhere
        lines = (
            replace(one, label=" ".join(filter(None, [one.name, one.label])))
            if one.end_text
            else one
            for one in own.lines
        )
        own = replace(own, lines=tuple(lines))
    bare = (
        replace(
            one,
            lines=tuple(map(_unnamed, one.lines)),
            points=tuple(point for point in one.points if not point.is_name),
        )
        for one in others
    )
    return [own, *bare]


def _unnamed(line: plotting.Line) -> plotting.Line:
    """The line without its name at its end."""
    return replace(line, label=line.label or "")


def _freest(line: plotting.Line, every: Sequence[plotting.Line]) -> float:
    """The x at which a line is farthest from all others."""
    x = np.linspace(line.x.min(), line.x.max(), 21)[2:-2]
    y = np.interp(x, line.x, line.y)
    gaps = [np.abs(np.interp(x, one.x, one.y) - y) for one in every if one is not line]
    return float(x[np.min(gaps or [x], axis=0).argmax()])
