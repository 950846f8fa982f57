"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.runs import RunError
from experiments.results import EXACT
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import agreement as numbers
from figures.tables import approximations
from figures.tables.table import has, keys_of, records, select, value
from figures.views import maps
from figures.views.words import display_name, sizes_text

MAP_SPAN = 156  # pixels of a map's longer side: four fit on a page
COUNTERFACTUAL_HEADINGS = {
    "word": "operator → a word without meaning",
    "operator": "operator → another operator",
    "operands": "operands → other operands",
}
PROBLEM_SET_HEADINGS = {
    "one-digit": "all one-digit problems",
    "computed": "larger numbers, computed problems",
}


def counterfactuals(options: Options) -> list[Chart]:
    """The maps of three kinds of counterfactual side by side, with how far they agree.

    Reads a run of `experiments which_counterfactual` and draws it without loading a model: one
    row per kind, one column per operation, on one colour scale. The table has the rank correlation
    of the heads' effects and the share of the ten strongest heads that two kinds have in common,
    with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_counterfactual")
    reading, key = maps.EffectScale.of(run.config), numbers.COUNTERFACTUALS.key
    return [
        chart_of(
            numbers.counterfactuals(run),
            [run],
            name="counterfactuals",
            title="The same problems under three counterfactuals",
            caption=_counterfactuals_caption,
            notes=lambda table, config: _map_notes(table, config, key),
            draw=partial(_draw_maps, reading=reading, key=key, headings=COUNTERFACTUAL_HEADINGS),
        )
    ]


def _counterfactuals_caption(table: DataFrame) -> str:
    """What to look for, and how far each two counterfactuals agree."""
    correlations, ends = select(table, measure=numbers.CORRELATION), []
    for a, b in combinations(keys_of(table, numbers.COUNTERFACTUALS.key), 2):
        of_both = select(correlations, counterfactual=a, other=b).value
        ends.append(f"{a} and {b} {of_both.min():.2f} to {of_both.max():.2f}")
    return (
        "Whether the same heads are red in each row: a key head is one for a "
        "counterfactual. Rank correlation of the heads' effects over operations: "
        f"{'; '.join(ends)}."
    )


def computed(options: Options) -> list[Chart]:
    """The maps of problems whose answer cannot be copied, below those of all one-digit problems.

    Reads a run of `experiments do_copies_decide` and draws it without loading a model. The table
    has the rank correlation of the heads' effects and the share of the ten strongest heads that
    both sets of problems have in common, with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_copies_decide")
    reading, key = maps.EffectScale.of(run.config), numbers.PROBLEM_SET_MAPS.key
    return [
        chart_of(
            numbers.problem_sets(run),
            [run],
            name="computed",
            title="Problems whose answer cannot be copied, beside all one-digit problems",
            caption=_computed_caption,
            notes=_computed_notes,
            draw=partial(_draw_maps, reading=reading, key=key, headings=PROBLEM_SET_HEADINGS),
        )
    ]


def _computed_caption(table: DataFrame) -> str:
    """What to look for, and how far the two sets of problems agree."""
    parts = []
    for operation in keys_of(table, "operation"):
        rows = select(table, operation=operation)
        correlation, overlap = (
            value(rows, measure=measure) for measure in (numbers.CORRELATION, numbers.IN_COMMON)
        )
        parts.append(
            f"{operation} {correlation:.2f} ({overlap:.0%} of the {numbers.N_STRONGEST} strongest "
            "in common)"
        )
    return (
        "Whether the same heads are red in both rows. Trust the second for products and "
        "quotients: in all other figures heads that copy can look like heads that calculate. "
        f"Rank correlation of the heads' effects: {'; '.join(parts)}."
    )


def _computed_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and how many computed problems there are."""
    return [
        *_map_notes(table, config, numbers.PROBLEM_SET_MAPS.key),
        "Computed problems that are answered right (the last digit is read, the digits "
        f"before it are in the prompt): {sizes_text(select(table, problems='computed'))}.",
    ]


def _draw_maps(
    table: DataFrame,
    notes: Sequence[str],
    reading: maps.EffectScale,
    key: str,
    headings: Mapping[str, str],
) -> plotting.Figure:
    """One row per counterfactual or set of problems, one column per operation."""
    operations = keys_of(table, "operation")
    return maps.draw(
        [
            maps.panel(
                select(table, operation=operation, other="", **{key: name}),
                reading,
                maps.title(operation, ""),
                dots=reading.paper_heads(operation),
                n_labels=4,
            )
            for name in headings
            for operation in operations
        ],
        reading,
        notes,
        headings=[*headings.values()],
        across=len(operations),
        span=MAP_SPAN,
    )


def _map_notes(table: DataFrame, config: Settings, key: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    data = maps.data_note({**config, "paths": "via_mlps"})
    sizes = sizes_text(select(table, **{key: keys_of(table, key)[0]}))
    return [maps.map_note(maps.EffectScale.of(config)), f"{data} {sizes}."]


PATHS_TITLES = {"via_mlps": "other heads frozen", "total": "all paths"}
PLOTTED = "pearson"
"""The measure on the vertical axis."""
EDGE = 1e-6
"""Half of the width of the line of an interval, in decades."""


def ladder(options: Options) -> list[Chart]:
    """What approximations by gradients cost, and how well they agree with the exact effects.

    Reads a run of `experiments do_gradients_agree`. One point per method: processor time per
    pair against the correlation with the exact effects, for heads and for MLPs, per operation.

    Raises:
        RunError: there is no run, or it has no exact effects.
    """
    run = chosen_run(options, "do_gradients_agree")
    tables = {paths: approximations.table(run, paths) for paths in PATHS_TITLES}
    charts = [
        chart_of(
            table,
            [run],
            name="ladder" if paths == "via_mlps" else f"ladder_{paths}",
            title=f"Cost against agreement, {PATHS_TITLES[paths]}: {run.config['model']}",
            caption=_ladder_caption,
            notes=_ladder_notes,
            draw=_draw_ladder,
            small_table=_mean_over_operations,
        )
        for paths, table in tables.items()
        if table is not None
    ]
    if not charts:
        raise RunError(f"expected exact effects in {run.path}, found none; compute it again")
    return charts


def _of_operations(table: DataFrame, **keys: Any) -> DataFrame:
    """The rows of the operations, without those of their mean."""
    operations = [name for name in keys_of(table, "operation") if name != approximations.MEAN]
    return select(table, operation=operations, **keys)


def _draw_ladder(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Heads on the left, MLPs on the right: the mean over operations, and their range."""
    rows = _of_operations(table)
    costs = select(rows, measure=approximations.COST).value
    ends = (float(np.log10(costs.min())) - 0.1, float(np.log10(costs.max())) + 0.1)
    figure = plotting.curve_panels(
        [_panel(rows, components, ends) for components in keys_of(rows, "components")],
        x_title="processor milliseconds per pair",
        notes=notes,
        across=2,
        panel=(350, 330),
    )
    decades = range(int(np.floor(ends[0])), int(np.ceil(ends[1])))
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    figure.update_xaxes(tickvals=np.log10(ticks).tolist(), ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def _panel(rows: DataFrame, components: str, ends: tuple[float, float]) -> plotting.CurvePanel:
    """The methods on one kind of components, with the exact effects at 1.

    A line without correlation goes from end to end, so that all panels have one scale.
    """
    zero = plotting.Line(np.array(ends), np.zeros(2), "none", COLOURS["pale control"], label="")
    lines, points = [zero], []
    by_method = select(rows, measure=approximations.COST).groupby("method").value.mean()
    costs = {str(name): float(cost) for name, cost in by_method.items()}
    chosen = select(rows, measure=PLOTTED, components=components)
    spots = [(display_name(EXACT), costs[EXACT], 1.0, 1.0, 1.0), *_spots(chosen, costs)]
    for name, milliseconds, low, middle, high in spots:
        x = float(np.log10(milliseconds))
        across, up = np.array([x - EDGE, x, x + EDGE]), np.array([low, middle, high])
        lines.append(plotting.Line(across, up, name, COLOURS["chosen"], label=""))
        points.append(plotting.Point(x, name, len(lines) - 1))
    return plotting.CurvePanel(
        title=components,
        lines=tuple(lines),
        points=tuple(points),
        y_title="correlation" if components == "heads" else "",
        y_range=(-1.05, 1.1),
    )


def _spots(chosen: DataFrame, costs: Mapping[str, float]) -> Iterator[tuple[Any, ...]]:
    """Range over operations and mean of each method. Equal ones share a point, the cheapest."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for method, of_method in chosen.groupby("method", sort=False):
        values = of_method.value
        ends = tuple(round(float(x), 4) for x in (values.min(), values.mean(), values.max()))
        groups.setdefault(ends, []).append(str(method))
    for ends, methods in groups.items():
        cost = min(costs[name] for name in methods)
        yield (", ".join(map(display_name, methods)), cost, *ends)


def _ladder_caption(table: DataFrame) -> str:
    """What to look for, and the best method in each part."""
    best = []
    for components in keys_of(table, "components"):
        chosen = _of_operations(table, measure=PLOTTED, components=components)
        lowest = {
            method: select(chosen, method=method).value.min()
            for method in keys_of(chosen, "method")
        }
        name = max(lowest, key=lambda method: lowest[method])
        best.append(f"for {components} {display_name(name)} ({lowest[name]:.2f})")
    dearer, n_methods = (
        value(table, measure=measure) for measure in (approximations.DEARER, approximations.METHODS)
    )
    return (
        "Up is better, left is cheaper. A method to the right of the exact effects saves nothing: "
        f"{dearer:.0f} of {n_methods:.0f} methods cost more in every operation. The highest "
        f"correlation in the worst operation: {', '.join(best)}."
    )


def _mean_over_operations(table: DataFrame) -> DataFrame:
    """Each method's cost, and the mean over operations of each measure."""
    means, lines = select(table, operation=approximations.MEAN), []
    for method in keys_of(means, "method"):
        if method != EXACT:
            line: dict[str, Any] = {"method": display_name(method)}
            for one in records(select(means, method=method)):
                line[f"{one.components} {one.measure}".strip()] = one.value
            lines.append(line)
    columns = {approximations.COST: "milliseconds"}
    return DataFrame(lines).rename(columns=columns).round(2)


def _ladder_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    pairs = records(select(table, measure=approximations.PAIRS))
    counts = ", ".join(f"{one.operation} {one.value:.0f}" for one in pairs)
    means = select(table, operation=approximations.MEAN)
    exact = value(means, measure=approximations.COST, method=EXACT)
    return [
        "Pearson's correlation of the mean effects of components with the exact ones: its mean "
        "over operations, and lines from the lowest to the highest. Scores of AtP* have no sign, "
        "and are compared with the sizes of the exact effects. Methods with equal numbers share a "
        "point.",
        f"Exact effects: {exact:.3g} processor milliseconds per pair "
        + ("(the sweep, its certificate included)." if has(table, paths="via_mlps") else "(hooks).")
        + f" Methods that integrate take {config['steps']} points.",
        f"Model: {config['model']}; {config['metric']}; pairs: {counts}.",
    ]
