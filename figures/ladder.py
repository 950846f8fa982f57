"""What do approximations by gradients cost, and how well do they agree with the exact effects?

Reads a run of `experiments do_gradients_agree`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import RunError
from experiments import results
from experiments.results import EXACT
from figures.common import chosen_run, has_tables_alone
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import approximations
from figures.tables.table import has, keys_of, records, select
from figures.views.words import PATHS_TITLES, display_name, span_text

FILES = {"via_mlps": "ladder", "total": "ladder_total"}
AGREES = "pearson"
"""The measure of agreement that is drawn."""
MARKS = (("circle", -0.17), ("diamond-open", 0.17))
"""The mark of each model, and its place in a row."""


def exhibits(options: Options) -> list[Chart]:
    """What each approximation costs, and how well it agrees with the exact effects.

    A row of panels for each kind of paths: processor time, and the correlation for heads and MLPs.

    Raises:
        RunError: there is no run, or it has no exact effects.
    """
    run = chosen_run(options, "do_gradients_agree")
    charts = [
        chart_of(
            partial(approximations.table, run, paths),
            [run],
            name=name,
            title="What do approximations by gradients cost, and how well do they agree?",
            caption="A mark is the mean over operations of one model; its line covers the "
            "operations' processor times, or their 95% intervals of the correlation over problems. "
            "Grey band: exact effects, for which every component is patched. AtP* has no sign, so "
            "its sizes are compared.",
            draw=_draw,
            small_table=_mean_over_operations,
        )
        for paths, name in FILES.items()
        if has_tables_alone(run) or results.LADDER.labels(run, None, paths, EXACT)
    ]
    if not charts:
        raise RunError(f"expected exact effects in {run.path}, found none; compute it again")
    return charts


def _by_paths(table: DataFrame) -> dict[str, list[DataFrame]]:
    """The rows of each model, for each kind of paths."""
    return {
        paths: [select(rows, model=model) for model in keys_of(rows, "model")]
        for paths in PATHS_TITLES
        if has(table, paths=paths)
        for rows in [select(table, paths=paths)]
    }


def _operations(rows: DataFrame, **keys: Any) -> DataFrame:
    """The rows of the operations, without those of their mean."""
    rows = select(rows, **keys)
    return DataFrame(rows[rows.operation != approximations.MEAN])


def _means(rows: DataFrame, measure: str, components: str = "") -> Any:
    """The mean over operations of each method, the smallest first."""
    keys = {"operation": approximations.MEAN, "measure": measure, "components": components}
    return select(rows, **keys).set_index("method").value.sort_values()


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Costs and the agreement of heads and MLPs, a row for each kind of paths.

    A column of a paper has no room for the panels of costs.
    """
    by_paths, first = _by_paths(table), int(is_narrow())
    costs = select(table, measure=approximations.COST).value
    ends = (costs.min() / 1.5, costs.max() * 1.5)
    order = [*_means(next(iter(by_paths.values()))[0], approximations.COST).index]
    time = plotting.DotAxis(ends, "processor time per pair, ms (log)", log=True)
    agreement = plotting.DotAxis((-1.06, 1.06), "Pearson correlation with exact")
    return plotting.dot_panels(
        [panel for models in by_paths.values() for panel in _panels(models, order)[first:]],
        (time, agreement, agreement)[first:],
        across=3 - first,
        headings=[PATHS_TITLES[paths].capitalize() for paths in by_paths],
        row=19,
        notes=notes,
    )


def _panels(models: Sequence[DataFrame], methods: Sequence[str]) -> list[plotting.DotPanel]:
    """What the methods cost, and how well they agree; a mark per model."""
    names = tuple(map(display_name, methods))
    strong = tuple(name == EXACT for name in methods)
    exact = [_means(rows, approximations.COST)[EXACT] for rows in models]
    band = plotting.Band(min(exact), exact[0], max(exact), "")
    sizes = span_text((n for rows in models for n in _operations(rows).n.dropna()), ".0f")
    titles = {
        "": "grey band: exact effects",
        "heads": f"heads ({sizes} problems)",
        "MLPs": f"MLPs ({sizes} problems)",
    }
    panels = []
    for components, title in titles.items():
        series = tuple(
            _dots(rows, components, methods, mark)
            for rows, mark in zip(models, MARKS, strict=False)
        )
        own_band = None if components else band
        panels.append(plotting.DotPanel(title, names, series, strong, own_band))
    return panels


def _dots(
    rows: DataFrame, components: str, methods: Sequence[str], mark: tuple[str, float]
) -> plotting.Dots:
    """One model: the mean over operations, and how far times or intervals of all reach."""
    measure = AGREES if components else approximations.COST
    by_method = _operations(rows, measure=measure, components=components).groupby("method")
    ends = (by_method.low.min(), by_method.high.max())
    if not components:
        ends = (by_method.value.min(), by_method.value.max())
    mean, low, high = (
        one.reindex(methods).to_numpy() for one in (_means(rows, measure, components), *ends)
    )
    return plotting.Dots(mean, str(rows.model.iloc[0]), COLOURS["chosen"], low, high, *mark)


def _mean_over_operations(table: DataFrame) -> DataFrame:
    """Each method's cost, and the mean over operations of each measure."""
    means, lines = select(table, operation=approximations.MEAN), []
    for paths in keys_of(means, "paths"):
        for method in keys_of(means, "method"):
            rows = select(means, method=method, paths=paths)
            if method != EXACT and len(rows):
                line: dict[str, Any] = {"paths": paths, "method": display_name(method)}
                for one in records(rows):
                    line[f"{one.components} {one.measure}".strip()] = one.value
                lines.append(line)
    columns = {approximations.COST: "milliseconds"}
    return DataFrame(lines).rename(columns=columns).round(2)
