"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.runs import RunError
from experiments import results
from experiments.results import EXACT
from figures.common import Options, chosen_run, has_tables_alone
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import agreement as numbers
from figures.tables import approximations
from figures.tables.table import keys_of, records, select, value
from figures.views import maps
from figures.views.words import LENS, display_name, problems_text, span_text

MAP_CELL = (17, 11)  # pixels: four maps fit on a page
COUNTERFACTUAL_HEADINGS = {
    "word": "operator → a word without meaning",
    "operator": "operator → another operator",
    "operands": "operands → other operands",
}
PROBLEM_SET_HEADINGS = {
    "one-digit": "one digit",
    "computed": "computed",
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
            lambda: numbers.counterfactuals(run),
            [run],
            name="counterfactuals",
            title="Do the heads depend on the counterfactual?",
            caption=_counterfactuals_caption,
            notes=lambda table, config: _map_notes(table, config, key),
            draw=partial(_draw_counterfactuals, reading=reading),
        )
    ]


def _counterfactuals_caption(table: DataFrame) -> str:
    """How far each two counterfactuals agree in each model."""
    findings = []
    for model in keys_of(table, "model"):
        own = select(table, model=model)
        pairs = [
            f"{a} and {b} {_agreement(own, a, b)}"
            for a, b in combinations(keys_of(own, numbers.COUNTERFACTUALS.key), 2)
        ]
        findings.append(f"`{model}`: {', '.join(pairs)}")
    return (
        "Rank correlations of the heads' effects under two counterfactuals are, over operations, "
        "in "
        f"{'; '.join(findings)}. A cell is the mean change of C's logit when "
        "one "
        "head or MLP gets its output from that counterfactual prompt. The picture has the first "
        "model."
    )


def _agreement(table: DataFrame, a: str, b: str) -> str:
    """The rank correlations of two counterfactuals, over the operations."""
    return span_text(
        select(table, measure=numbers.CORRELATION, counterfactual=a, other=b).value, ".2f"
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
    reading = maps.EffectScale.of(run.config)
    return [
        chart_of(
            lambda: numbers.problem_sets(run),
            [run],
            name="computed",
            title="Do the same heads matter where no answer can be copied?",
            caption=_computed_caption,
            notes=_computed_notes,
            draw=partial(_draw_computed, reading=reading),
        )
    ]


def _computed_caption(table: DataFrame) -> str:
    """How far the two sets of problems agree in each model."""
    findings = []
    for model in keys_of(table, "model"):
        parts = []
        for operation in keys_of(table, "operation"):
            rows = select(table, model=model, operation=operation)
            correlation, overlap = (
                value(rows, measure=measure) for measure in (numbers.CORRELATION, numbers.IN_COMMON)
            )
            parts.append(f"{operation} {overlap:.0%} (rank correlation {correlation:.2f})")
        findings.append(f"`{model}`: {', '.join(parts)}")
    return (
        f"Of their {numbers.N_STRONGEST} strongest heads, one-digit problems and problems whose "
        f"answer cannot be copied share, in {'; '.join(findings)}. A cell is the mean change of "
        "C's "
        "logit with a word in place of the operator. In the other pictures, heads that copy can "
        "look "
        "like heads that calculate."
    )


def _computed_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and how many problems there are."""
    sizes = {
        heading: problems_text(select(table, problems=problems))
        for problems, heading in PROBLEM_SET_HEADINGS.items()
    }
    listed = ", ".join(f"{heading} ({text})" for heading, text in sizes.items())
    return [
        maps.map_note(maps.EffectScale.of(config)),
        f"Problems, answered right by the first model: {listed}.",
    ]


def _draw_counterfactuals(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale
) -> plotting.Figure:
    """One row per counterfactual, with its agreement with the row above; of the first model."""
    own, key = select(table, model=keys_of(table, "model")[0]), numbers.COUNTERFACTUALS.key
    operations, kinds = keys_of(own, "operation"), keys_of(own, key)
    headings = [COUNTERFACTUAL_HEADINGS[kind] for kind in kinds]
    for above, (a, b) in enumerate(pairwise(kinds)):
        headings[above + 1] += f" (rank correlation with the row above {_agreement(own, a, b)})"
    panels = [
        _map(own, reading, maps.title(operation, ""), operation=operation, **{key: kind})
        for kind in kinds
        for operation in operations
    ]
    layout = {"headings": headings, "across": len(operations), "cell": MAP_CELL}
    return maps.draw(panels, reading, notes, **layout)


def _draw_computed(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale
) -> plotting.Figure:
    """One row per model: each operation with both sets of problems."""
    models, operations = keys_of(table, "model"), keys_of(table, "operation")
    panels = [
        _map(
            select(table, model=model),
            reading,
            f"{OPERATIONS[operation].sign}, {PROBLEM_SET_HEADINGS[problems]}",
            operation=operation,
            problems=problems,
        )
        for model in models
        for operation in operations
        for problems in PROBLEM_SET_HEADINGS
    ]
    layout = {"headings": models, "across": 2 * len(operations), "cell": MAP_CELL}
    return maps.draw(panels, reading, notes, **layout)


def _map(
    table: DataFrame, reading: maps.EffectScale, title: str, *, operation: str, **key: str
) -> plotting.Panel:
    """The map of one operation under one counterfactual or on one set of problems."""
    rows, dots = select(table, operation=operation, other="", **key), reading.paper_heads(operation)
    return maps.panel(rows, reading, title, dots=dots)


def _map_notes(table: DataFrame, config: Settings, key: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    sizes = problems_text(select(table, **{key: keys_of(table, key)[0]}))
    return [maps.map_note(maps.EffectScale.of(config)), f"Problems, answered right: {sizes}."]


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
    names = {"via_mlps": "ladder", "total": "ladder_total"}
    measured = [*PATHS_TITLES]
    if not has_tables_alone(run):
        measured = [one for one in names if results.LADDER.labels(run, None, one, EXACT)]
    charts = [
        chart_of(
            partial(approximations.table, run, paths),
            [run],
            name=names[paths],
            title="What do approximations by gradients cost, and how well do they agree?",
            caption=_ladder_caption,
            notes=_ladder_notes,
            draw=_draw_ladder,
            small_table=_mean_over_operations,
        )
        for paths in measured
    ]
    if not charts:
        raise RunError(f"expected exact effects in {run.path}, found none; compute it again")
    return charts


def _of_operations(table: DataFrame, **keys: Any) -> DataFrame:
    """The rows of the operations, without those of their mean."""
    operations = [name for name in keys_of(table, "operation") if name != approximations.MEAN]
    return select(table, operation=operations, **keys)


def _draw_ladder(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Heads on the left, MLPs on the right, a row for each kind of paths; of the first model."""
    rows = _of_operations(select(table, model=keys_of(table, "model")[0]))
    costs = select(rows, measure=approximations.COST).value
    ends = (float(np.log10(costs.min())) - 0.1, float(np.log10(costs.max())) + 0.1)
    every_paths = keys_of(rows, "paths")
    figure = plotting.curve_panels(
        [
            _panel(select(rows, paths=paths), components, ends)
            for paths in every_paths
            for components in keys_of(rows, "components")
        ],
        x_title="processor milliseconds per pair",
        notes=notes,
        headings=[f"{rows.model.iloc[0]}, {PATHS_TITLES[paths]}" for paths in every_paths],
        across=2,
        panel=(350, 150),
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
    """The best method of each part in its worst operation, and how many save nothing."""
    best, costs = [], []
    first = select(table, model=keys_of(table, "model")[0])
    for paths in keys_of(first, "paths"):
        own = select(first, paths=paths)
        texts = [f"{part} {_best(own, part)}" for part in keys_of(own, "components")]
        best.append(f"{PATHS_TITLES[paths]}: {', '.join(texts)}")
        dearer, of = (
            value(own, measure=measure)
            for measure in (approximations.DEARER, approximations.METHODS)
        )
        costs.append(f"{dearer:.0f} of {of:.0f} with {PATHS_TITLES[paths]}")
    return (
        "The best approximation has, in its worst operation, the correlation with the exact "
        "effects "
        f"{'; '.join(best)} (`{first.model.iloc[0]}`). More than the exact effects cost "
        f"{', '.join(costs)}. A point is a method's mean over operations, its line their range; "
        "the "
        f"lens is {LENS}."
    )


def _best(table: DataFrame, components: str) -> str:
    """The method whose lowest correlation over operations is the highest."""
    chosen = _of_operations(table, measure=PLOTTED, components=components)
    lowest = chosen.groupby("method").value.min()
    return f"{lowest.max():.2f} ({display_name(str(lowest.idxmax()))})"


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


def _ladder_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    first = select(table, model=keys_of(table, "model")[0])
    means = select(first, operation=approximations.MEAN, measure=approximations.COST, method=EXACT)
    costs = ", ".join(
        f"{PATHS_TITLES[one.paths]} {one.value:.3g} ms"
        + (" (the sweep with its certificate)" if one.paths == "via_mlps" else " (hooks)")
        for one in records(means)
    )
    pairs = select(first, measure=approximations.PAIRS, paths=keys_of(first, "paths")[:1])
    counts = ", ".join(f"{one.operation} {one.value:.0f}" for one in records(pairs))
    return [
        "Pearson's correlation of components' mean effects with the exact ones: mean and range "
        "over "
        "operations. AtP* has no sign, and is compared with sizes. Equal methods share a point.",
        f"Exact: {costs}. Methods that integrate take {config['steps']} points. Pairs: {counts}.",
    ]
