"""What do approximations by gradients cost, and how well do they agree with the exact effects?

Reads a run of `experiments do_gradients_agree`.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import RunError
from experiments import results
from experiments.results import EXACT
from figures.common import chosen_run, has_tables_alone
from figures.exhibit import Chart, Settings, chart_of
from figures.options import Options
from figures.tables import approximations
from figures.tables.table import has, keys_of, records, select
from figures.views.words import LENS, PATHS_TITLES, display_name, listed, span_text

FILES = {"via_mlps": "ladder", "total": "ladder_total"}
AGREES, RANKS = "pearson", "spearman"
"""The measure of agreement that is drawn, and the one that the caption has beside it."""
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
            caption=_caption,
            notes=_notes,
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


def _finding(models: Sequence[DataFrame]) -> str:
    """How many approximations are faster than exact effects; if some are, which agree for MLPs."""
    speed = _each(map(_beside_exact, models))
    if "slower" in speed:
        return f"{speed} than exact effects"
    surely = listed(map(display_name, _surely(models, "above")))
    return f"{speed}; for MLPs, only {surely} surely correlate"


def _surely(models: Sequence[DataFrame], side: str, measure: str = AGREES) -> list[str]:
    """The approximations with all intervals for MLPs above or below 0, in all these rows."""
    rows = _operations(concat(models), measure=measure, components="MLPs").groupby("method")
    is_sure = rows.low.min() > 0 if side == "above" else rows.high.max() < 0
    return [*is_sure[is_sure].index]


def _each(texts: Iterable[str]) -> str:
    """`6.4 and 7.1`: the text of each model, once if all are the same."""
    return listed(dict.fromkeys(texts))


def _beside_exact(rows: DataFrame) -> str:
    """How many methods are slower than exact effects in every operation, or faster in all."""
    costs = _operations(rows, measure=approximations.COST).pivot(
        index="operation", columns="method", values="value"
    )
    others = costs.drop(columns=EXACT)
    counts = {
        "slower": others.gt(costs[EXACT], axis=0).all().sum(),
        "faster": others.lt(costs[EXACT], axis=0).all().sum(),
    }
    side = max(counts, key=lambda name: counts[name])
    return f"{counts[side]} of {others.shape[1]} approximations are {side}"


def _counts(models: Sequence[DataFrame], side: str, measure: str = AGREES) -> str:
    """`1 to 2`: how many approximations have all intervals for MLPs on this side of 0."""
    return span_text((len(_surely([rows], side, measure)) for rows in models), "d")


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Costs and the agreement of heads and MLPs, a row for each kind of paths.

    A column of a paper has no room for the panels of costs; the headings say the most of them.
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
        headings=[
            f"{PATHS_TITLES[paths].capitalize()}: {_finding(models)}"
            for paths, models in by_paths.items()
        ],
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
        "MLPs": f"MLPs: {_counts(models, 'above')} of {len(methods) - 1} wholly above 0",
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


def _caption(table: DataFrame) -> str:
    """Which approximations are faster, and how many agree for MLPs by values and by ranks."""
    by_paths = _by_paths(table)
    texts = (
        f"{_each(map(_beside_exact, models))} with {PATHS_TITLES[paths]}"
        for paths, models in by_paths.items()
    )
    every = [rows for models in by_paths.values() for rows in models]
    above, below, ranks_above, ranks_below = (
        _counts(every, side, measure) for measure in (AGREES, RANKS) for side in ("above", "below")
    )
    return (
        f"Beside exact effects, {'; '.join(texts)}. For MLPs, whole 95% intervals of Pearson's "
        f"correlation are above 0 for {above} and below for {below} (Spearman's: {ranks_above} and "
        f"{ranks_below}). A mark is the mean over operations; its line covers their times, or "
        f"intervals over problems. RelP is best on built models, not here: the lens is {LENS}. "
        "With C's lead it correlates for MLPs (docs/lenses.md)."
    )


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


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    pairs = select(table, measure=approximations.PAIRS)
    counts = ", ".join(
        f"{PATHS_TITLES[paths]} {span_text(select(pairs, paths=paths).value, '.0f')}"
        for paths in keys_of(pairs, "paths")
    )
    return [
        "Exact effects: every component is patched, in one sweep with a certificate (other heads "
        "frozen) or by hooks (all paths). Processor time.",
        f"Pairs per operation: {counts}. Methods that integrate take {config['steps']} points. "
        "AtP* has no sign: sizes are compared.",
    ]
