"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from arith_lens.runs import RunError
from experiments import results
from experiments.results import EXACT
from figures.common import Options, chosen_run, has_tables_alone
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import agreement as numbers
from figures.tables import approximations
from figures.tables.effects import EFFECT
from figures.tables.table import keys_of, records, select
from figures.views import maps
from figures.views.words import LENS, display_name, problems_text, span_text

PAIR_MARKS = {"circle": -0.26, "circle-open": 0.0, "diamond-open": 0.26}
"""The mark of each pair of counterfactuals, and how far it is from the middle of its row."""
PROBLEM_SET_NAMES = {"one-digit": "one digit", "computed": "computed"}
N_SHOWN = 5
"""The strongest heads of each set of problems that are drawn."""


def counterfactuals(options: Options) -> list[Chart]:
    """How far the heads of three kinds of counterfactual agree, two and two.

    Reads a run of `experiments which_counterfactual` and draws it without loading a model: the rank
    correlation of the heads' effects and the share of the ten strongest heads that two kinds have
    in common, with 95% intervals over problems. The table has the maps, too.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_counterfactual")
    return [
        chart_of(
            lambda: numbers.counterfactuals(run),
            [run],
            name="counterfactuals",
            title="Do the heads depend on the counterfactual?",
            caption=_counterfactuals_caption,
            notes=_counterfactuals_notes,
            draw=_draw_counterfactuals,
        )
    ]


def _counterfactuals_caption(table: DataFrame) -> str:
    """Which two counterfactuals agree best in each model, and what all share."""
    findings: dict[str, list[str]] = {}
    for name in keys_of(table, "model"):
        pair, agreement = _best_pair(select(table, model=name))
        findings.setdefault(pair, []).append(f"`{name}` {agreement}")
    best = (f"{pair} agree best ({'; '.join(texts)})" for pair, texts in findings.items())
    return (
        f"The heads depend on the counterfactual: by rank correlation {'; '.join(best)}. Two share "
        f"{_shared(table)} of their {numbers.N_STRONGEST} strongest heads{_by_chance(table)}. A "
        "mark is one pair in one operation, with its 95% interval over problems; an effect is the "
        "change of C's logit when one head gets its output from the other prompt."
    )


def _best_pair(table: DataFrame) -> tuple[str, str]:
    """The two counterfactuals with the highest mean correlation, and all correlations in words."""
    correlations = {
        f"{a} and {b}": select(rows, measure=numbers.CORRELATION).value
        for a, b, rows in _pairs(table)
    }
    best = max(correlations, key=lambda pair: float(correlations[pair].mean()))
    others = [value for pair, values in correlations.items() if pair != best for value in values]
    return best, f"{span_text(correlations[best], '.2f')}, other pairs {span_text(others, '.2f')}"


def _counterfactuals_notes(table: DataFrame, config: Settings) -> list[str]:
    """What the counterfactuals are, and how many problems there are."""
    first = keys_of(table, numbers.COUNTERFACTUALS.key)[0]
    sizes = problems_text(select(table, counterfactual=first))
    return [
        f"Effects: {maps.COLOUR_TITLES[config['metric']].lower()} with a word in place of the "
        "operator, another operator, or other operands.",
        *([f"Problems, answered right: {sizes}."] if sizes else []),
    ]


def _pairs(table: DataFrame) -> Iterator[tuple[str, str, DataFrame]]:
    """Each two counterfactuals, and the rows of how far they agree."""
    rows = select(table, measure=numbers.CORRELATION)
    for a in keys_of(rows, "counterfactual"):
        for b in keys_of(select(rows, counterfactual=a), "other"):
            yield a, b, select(table, counterfactual=a, other=b)


def _shared(table: DataFrame) -> str:
    """How many of the strongest heads two maps share, over operations: `2 to 8`."""
    shares = select(table, measure=numbers.IN_COMMON).value
    return span_text(numbers.N_STRONGEST * shares, ".0f")


def _chance(table: DataFrame) -> float | None:
    """The share of as many random heads that two sets have in common; None without a map."""
    heads = DataFrame(table[table["index"].notna()]) if "index" in table else table[:0]
    return numbers.N_STRONGEST / heads.component.nunique() if len(heads) else None


def _by_chance(table: DataFrame) -> str:
    """How many of the strongest heads as many random ones share, if that is known."""
    chance = _chance(select(table, model=keys_of(table, "model")[0]))
    return "" if chance is None else f" (by chance {numbers.N_STRONGEST * chance:.0f})"


def _draw_counterfactuals(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row per model: how all heads correlate, and how many of the strongest are shared."""
    titles = {
        numbers.CORRELATION: "Rank correlation",
        numbers.IN_COMMON: f"Share of {numbers.N_STRONGEST} strongest",
    }
    models = keys_of(table, "model")
    return plotting.dot_panels(
        [
            _agreement(select(table, model=model), measure, title)
            for model in models
            for measure, title in titles.items()
        ],
        plotting.DotAxis((-0.28, 1.04)),
        across=len(titles),
        headings=[
            f"{model}: {pair} agree best (rank correlation {agreement})"
            for model in models
            for pair, agreement in [_best_pair(select(table, model=model))]
        ],
        row=36,
        notes=notes,
    )


def _agreement(table: DataFrame, measure: str, title: str) -> plotting.DotPanel:
    """One measure of how far counterfactuals agree: a row per operation, a mark per pair."""
    operations = keys_of(select(table, measure=measure), "operation")
    series = []
    for (a, b, rows), (symbol, shift) in zip(_pairs(table), PAIR_MARKS.items(), strict=False):
        ends = select(rows, measure=measure).set_index("operation").loc[operations]
        value, low, high = (ends[name].to_numpy() for name in ("value", "low", "high"))
        series.append(
            plotting.Dots(value, f"{a}, {b}", COLOURS["chosen"], low, high, symbol, shift)
        )
    chance = _chance(table)
    if chance is not None:
        level = np.full(len(operations), chance if measure == numbers.IN_COMMON else 0.0)
        series.append(plotting.Dots(level, "by chance", COLOURS["control"], symbol="line-ns-open"))
    return plotting.DotPanel(title, tuple(map(str.capitalize, operations)), tuple(series))


def computed(options: Options) -> list[Chart]:
    """The strongest heads where no answer can be copied, and in all one-digit problems.

    Reads a run of `experiments do_copies_decide` and draws it without loading a model. The table
    has the maps, the rank correlation of the heads' effects and the share of the ten strongest
    heads that both sets of problems have in common, with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_copies_decide")
    return [
        chart_of(
            lambda: numbers.problem_sets(run),
            [run],
            name="computed",
            title="Do the same heads matter where no answer can be copied?",
            caption=_computed_caption,
            notes=_computed_notes,
            draw=_draw_computed,
        )
    ]


def _computed_caption(table: DataFrame) -> str:
    """How many of the strongest heads the two sets of problems share in each model."""
    texts = (
        f"`{name}` keeps {_kept_heads(select(table, model=name))}"
        for name in keys_of(table, "model")
    )
    return (
        f"Of the {numbers.N_STRONGEST} strongest heads of one-digit problems, {'; '.join(texts)} "
        f"where no answer can be copied{_by_chance(table)}. A mark is {LENS} when one head gets "
        "its output from that prompt, with its 95% interval over problems."
    )


def _computed_notes(table: DataFrame, config: Settings) -> list[str]:
    """What the sets of problems are, and how many problems they have."""
    sizes = {
        name: problems_text(select(table, problems=key)) for key, name in PROBLEM_SET_NAMES.items()
    }
    listed = ", ".join(f"{name} ({text})" for name, text in sizes.items())
    return [
        f"Heads: the {N_SHOWN} strongest of each set. Computed: larger products and quotients, "
        "whose answer is not in the prompt. Problems, "
        f"answered right by the first model: {listed}."
    ]


def _draw_computed(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row of operations per model: the heads that are strongest in either set of problems."""
    models, operations = keys_of(table, "model"), keys_of(table, "operation")
    panels = [
        _strongest(select(table, model=model, operation=operation), operation)
        for model in models
        for operation in operations
    ]
    ends = [end for panel in panels for one in panel.series for end in (one.low, one.high)]
    return plotting.dot_panels(
        panels,
        plotting.DotAxis(reach(ends), "change of C's logit", "%"),
        across=len(operations),
        headings=[
            f"{model} keeps {_kept_heads(own)} of its {numbers.N_STRONGEST} strongest heads"
            f"{_by_chance(own)}"
            for model in models
            for own in [select(table, model=model)]
        ],
        row=19,
        notes=notes,
    )


def _strongest(table: DataFrame, operation: str) -> plotting.DotPanel:
    """The strongest heads of either set of problems, those of one-digit problems first."""
    effects = select(table, measure=EFFECT, other="")
    of_heads = DataFrame(effects[effects["index"].notna()])
    sets = {key: select(of_heads, problems=key).set_index("component") for key in PROBLEM_SET_NAMES}
    ranked = (of_set.value.sort_values().index[:N_SHOWN] for of_set in sets.values())
    heads = [*dict.fromkeys(head for some in ranked for head in some)]
    series = []
    for (key, of_set), symbol, shift in zip(
        sets.items(), ("circle", "circle-open"), (-0.15, 0.15), strict=True
    ):
        value, low, high = (
            100 * of_set.loc[heads, name].to_numpy() for name in ("value", "low", "high")
        )
        name = PROBLEM_SET_NAMES[key]
        series.append(plotting.Dots(value, name, COLOURS["chosen"], low, high, symbol, shift))
    return plotting.DotPanel(maps.title(operation, ""), tuple(heads), tuple(series))


def _kept_heads(table: DataFrame) -> str:
    """How many of the strongest heads stay where the answer cannot be copied: `4 [4, 6] in ×`."""
    return " and ".join(
        f"{numbers.N_STRONGEST * one.value:.0f} [{numbers.N_STRONGEST * one.low:.0f}, "
        f"{numbers.N_STRONGEST * one.high:.0f}] in {OPERATIONS[one.operation].sign}"
        for one in records(select(table, measure=numbers.IN_COMMON))
    )


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
    sizes = chosen.n.dropna()
    n = f", n = {span_text(sizes, '.0f')}" if len(sizes) else ""
    return [
        plotting.DotPanel("milliseconds per pair", names, (times,), strong, at_exact),
        plotting.DotPanel(f"correlation with exact{n}", names, tuple(series), strong),
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
