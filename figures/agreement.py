"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Sequence
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
from figures.tables.effects import EFFECT, KEY_EFFECT
from figures.tables.table import keys_of, records, select, value
from figures.views import maps
from figures.views.words import LENS, display_name, problems_text, span_text

MAP_CELL = (17, 11)  # pixels: four maps fit on a page
COUNTERFACTUAL_HEADINGS = {
    "word": "A word in place of the operator",
    "operator": "Another operator",
    "operands": "Other operands",
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
        "The counterfactual decides which heads are strong: rank correlations of their effects "
        f"are, over operations, {'; '.join(findings)}. A cell is the mean change of C's logit when "
        "one part gets its output from that prompt. Outlines are solid where the whole 95% "
        "interval over problems is beyond 5%; the picture has the first model."
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
        "C's logit when one part gets its output from the prompt with a word in place of the "
        "operator. Outlines are solid where the whole 95% interval over problems is beyond 5%."
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
    if "component" not in own:
        raise RunError(
            "expected the effects of every head and MLP in the table of counterfactuals, found "
            "none; compute them: python -m experiments which_counterfactual"
        )
    operations, kinds = keys_of(own, "operation"), keys_of(own, key)
    headings = [COUNTERFACTUAL_HEADINGS[kind] for kind in kinds]
    effects = select(own, **{key: kinds[0]}, measure=EFFECT, other="", operation=operations)
    is_head = effects.component.str.match(r"\d+\.\d+$").astype(bool)
    below = DataFrame(effects[is_head & (effects.value < KEY_EFFECT)])
    headings[0] += f": {below.component.nunique()} heads are below −{-KEY_EFFECT:.0%}"
    for above, (a, b) in enumerate(pairwise(kinds)):
        shared = select(own, measure=numbers.IN_COMMON, counterfactual=a, other=b).value
        headings[above + 1] += (
            f": {span_text(numbers.N_STRONGEST * shared, '.0f')} of the {numbers.N_STRONGEST} "
            f"strongest heads are those of the row above (rank correlation {_agreement(own, a, b)})"
        )
    panels = [
        _map(own, reading, maps.title(operation, ""), operation=operation, **{key: kind})
        for kind in kinds
        for operation in operations
    ]
    layout = {"headings": headings, "across": len(operations), "size": MAP_CELL}
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
    headings = [f"{name}: {_kept_heads(select(table, model=name))}" for name in models]
    layout = {"headings": headings, "across": 2 * len(operations), "size": MAP_CELL}
    return maps.draw(panels, reading, notes, **layout)


def _kept_heads(table: DataFrame) -> str:
    """How many of the strongest heads stay where the answer cannot be copied."""
    shared = select(table, measure=numbers.IN_COMMON)
    texts = [
        f"{numbers.N_STRONGEST * one.value:.0f} of {OPERATIONS[one.operation].sign}"
        for one in records(shared)
    ]
    return (
        f"where no answer can be copied, {' and '.join(texts)} stay among the "
        f"{numbers.N_STRONGEST} strongest heads"
    )


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
"""The measure along the horizontal axis."""


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
    """Costs on the left, agreement on the right, a row for each kind of paths; of one model."""
    rows = select(table, model=keys_of(table, "model")[0])
    every_paths = keys_of(rows, "paths")
    costs = select(rows, measure=approximations.COST).value
    return plotting.dot_panels(
        [panel for paths in every_paths for panel in _panels(select(rows, paths=paths))],
        (
            plotting.DotAxis((costs.min() / 1.5, costs.max() * 1.5), log=True),
            plotting.DotAxis((-1.04, 1.04)),
        ),
        across=2,
        headings=[
            f"{rows.model.iloc[0]}, {PATHS_TITLES[paths]}: {_cost_text(select(rows, paths=paths))}"
            for paths in every_paths
        ],
        row=19,
        notes=notes,
    )


def _costs(rows: DataFrame) -> dict[str, float]:
    """The mean milliseconds of each method, the cheapest first."""
    means = select(rows, measure=approximations.COST, operation=approximations.MEAN)
    return {one.method: one.value for one in records(means.sort_values("value"))}


def _cost_text(rows: DataFrame) -> str:
    """How many approximations cost more than the exact effects."""
    costs = _costs(rows)
    dearer = sum(cost > costs[EXACT] for cost in costs.values())
    return (
        f"{dearer} of {len(costs) - 1} approximations cost more than the exact effects "
        f"({costs[EXACT]:.3g} ms)"
    )


def _panels(rows: DataFrame) -> list[plotting.DotPanel]:
    """What the methods cost, the cheapest first, and how well they agree."""
    costs = _costs(rows)
    names = tuple(map(display_name, costs))
    strong = tuple(name == EXACT for name in costs)
    times = plotting.Dots(np.array([*costs.values()]), "", COLOURS["chosen"], symbol="diamond")
    exact = costs[EXACT]
    at_exact = plotting.Band(exact, exact, exact, "")
    chosen, series = _of_operations(rows, measure=PLOTTED), []
    means = select(rows, measure=PLOTTED, operation=approximations.MEAN)
    for components, (symbol, shift) in MARKS.items():
        mean = select(means, components=components).set_index("method").value
        by_method = select(chosen, components=components).groupby("method")
        mean, low, high = (
            ends.reindex([*costs], fill_value=1.0).to_numpy()
            for ends in (mean, by_method.low.min(), by_method.high.max())
        )
        colour = COLOURS["chosen"]
        series.append(plotting.Dots(mean, components, colour, low, high, symbol, shift))
    n = span_text(chosen.n, ".0f")
    return [
        plotting.DotPanel("milliseconds per pair", names, (times,), strong, at_exact),
        plotting.DotPanel(f"correlation with exact, n = {n}", names, tuple(series), strong),
    ]


MARKS = {"heads": ("circle", -0.18), "MLPs": ("square-open", 0.18)}
"""The mark of each kind of components, and its place in a row."""


def _ladder_caption(table: DataFrame) -> str:
    """The best method of each part in its worst operation, and how many save nothing."""
    best, costs = [], []
    first = select(table, model=keys_of(table, "model")[0])
    for paths in keys_of(first, "paths"):
        own = select(first, paths=paths)
        texts = [f"{part} {_best(own, part)}" for part in keys_of(own, "components")]
        best.append(f"{PATHS_TITLES[paths]}: {', '.join(texts)}")
        costs.append(f"with {PATHS_TITLES[paths]}, {_cost_text(own)}")
    return (
        f"W{'; '.join(costs)[1:]} (`{first.model.iloc[0]}`). The best correlation in its worst "
        f"operation is {'; '.join(best)}. A mark is the mean over operations; its line "
        f"reaches over all their 95% intervals over problems (n). The lens is {LENS}."
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
        "Processor time; Pearson's correlation of components' mean effects with the exact ones. "
        "AtP* has no sign, and is compared with sizes.",
        f"Exact: {costs}. Methods that integrate take {config['steps']} points. Pairs: {counts}.",
    ]
