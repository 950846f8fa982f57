"""Agreement: do other counterfactuals, problems and methods give the same effects of heads?"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, concat
from scipy.stats import spearmanr

from arith_lens import plotting
from arith_lens.effects import ComponentEffects, Effects, agreement
from arith_lens.runs import Run, RunError
from arith_lens.statistics import resampled_means
from experiments import results
from experiments.results import EXACT
from experiments.selection import LARGEST_OPERAND
from experiments.which_heads import COMPARED_KINDS, PROBLEM_SETS
from figures import maps
from figures.claims.heads import top_overlap
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart

N_STRONGEST = 10
N_RESAMPLES = 500
MAP_SPAN = 156  # pixels of a map's longer side: four fit on a page


@dataclass(frozen=True)
class MapRows:
    """The rows of a figure of maps: what is stored, and the heading of each kind."""

    stored: maps.StoredMap
    headings: Mapping[str, str]


COUNTERFACTUAL_ROWS = MapRows(
    results.COUNTERFACTUAL_MAP,
    {
        "word": "operator → a word without meaning",
        "operator": "operator → another operator",
        "operands": "operands → other operands",
    },
)
PROBLEM_SET_ROWS = MapRows(
    results.SET_MAP,
    dict(
        zip(
            PROBLEM_SETS,
            ("all one-digit problems", "larger numbers, computed problems"),
            strict=True,
        )
    ),
)


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
    effects = loaded(run, COUNTERFACTUAL_ROWS, run.config["operations"])
    numbers = _agreement_table(effects)
    correlations: Any = numbers.set_index(["a", "b"]).sort_index()["rank_correlation"]
    ends = []
    for a, b in combinations(COMPARED_KINDS, 2):
        ends.append(f"{a} and {b} {correlations[a, b].min():.2f} to {correlations[a, b].max():.2f}")
    return [
        Chart(
            name="counterfactuals",
            title="The same problems under three counterfactuals",
            look="Whether the same heads are red in each row: a key head is one for a "
            "counterfactual. Rank correlation of the heads' effects over operations: "
            f"{'; '.join(ends)}.",
            notes=_map_notes(run, COUNTERFACTUAL_ROWS, effects),
            runs=(run,),
            numbers=numbers,
            figure=_draw_maps(run, effects, COUNTERFACTUAL_ROWS),
        )
    ]


def computed(options: Options) -> list[Chart]:
    """The maps of problems whose answer cannot be copied, below those of all one-digit problems.

    Reads a run of `experiments do_copies_decide` and draws it without loading a model. The table
    has the rank correlation of the heads' effects and the share of the ten strongest heads that
    both sets of problems have in common, with 95% intervals over problems.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_copies_decide")
    effects = loaded(run, PROBLEM_SET_ROWS, LARGEST_OPERAND)
    numbers = _agreement_table(effects)
    parts = [
        f"{row['operation']} {row['rank_correlation']:.2f} "
        f"({row[f'top_{N_STRONGEST}_in_common']:.0%} of the {N_STRONGEST} strongest in common)"
        for _, row in numbers.iterrows()
    ]
    sizes = _sample_sizes(run, PROBLEM_SET_ROWS, "computed", LARGEST_OPERAND)
    return [
        Chart(
            name="computed",
            title="Problems whose answer cannot be copied, beside all one-digit problems",
            look="Whether the same heads are red in both rows. Trust the second for products and "
            "quotients: in all other figures heads that copy can look like heads that calculate. "
            f"Rank correlation of the heads' effects: {'; '.join(parts)}.",
            notes=[
                *_map_notes(run, PROBLEM_SET_ROWS, LARGEST_OPERAND),
                "Computed problems that are answered right (the last digit is read, the digits "
                f"before it are in the prompt): {sizes}.",
            ],
            runs=(run,),
            numbers=numbers,
            figure=_draw_maps(run, effects, PROBLEM_SET_ROWS),
        )
    ]


def loaded(
    run: Run, rows: MapRows, operations: Iterable[str]
) -> dict[str, dict[str, ComponentEffects]]:
    """The maps by operation and kind."""
    return {
        operation: {kind: rows.stored.load(run, operation, kind) for kind in rows.headings}
        for operation in operations
    }


def _agreement_table(effects: Mapping[str, Mapping[str, ComponentEffects]]) -> DataFrame:
    """One row per operation and two kinds: rank correlation and overlap, with intervals."""
    rows = []
    for operation, kinds in effects.items():
        for a, b in combinations(kinds, 2):
            of_a, of_b = kinds[a].heads, kinds[b].heads
            correlation, overlap = _agreement(cell_means(of_a), cell_means(of_b))
            drawn = [resampled_cells(of_a).T, resampled_cells(of_b).T]
            resampled = np.array([_agreement(*both) for both in zip(*drawn, strict=True)])
            low, high = np.nanquantile(resampled, [0.025, 0.975], axis=0)
            rows.append(
                {
                    "operation": operation,
                    "a": a,
                    "b": b,
                    "rank_correlation": correlation,
                    "rank_correlation_low": low[0],
                    "rank_correlation_high": high[0],
                    f"top_{N_STRONGEST}_in_common": overlap,
                    f"top_{N_STRONGEST}_in_common_low": low[1],
                    f"top_{N_STRONGEST}_in_common_high": high[1],
                }
            )
    return DataFrame(rows)


def cell_means(effects: Effects) -> Float[np.ndarray, " cell"]:
    """The mean of each cell of a map."""
    return effects.mean().flatten().double().numpy()


def resampled_cells(effects: Effects) -> Float[np.ndarray, "cell resample"]:
    """The mean of each cell in each resample; equal resamples for equal problems."""
    return resampled_means(effects.sample(), slice(None), N_RESAMPLES, 0).numpy()


def _agreement(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> tuple[float, float]:
    """The rank correlation, and the share of the strongest heads in common."""
    return float(np.asarray(spearmanr(a, b))[0]), top_overlap(a, b, N_STRONGEST)


def _draw_maps(run: Run, operations: Collection[str], rows: MapRows) -> plotting.Figure:
    """One row per kind, one column per operation."""
    reading = maps.Reading.of(run.config)
    measured = [
        maps.measure(run, operation, kind, stored=rows.stored)
        for kind in rows.headings
        for operation in operations
    ]
    return maps.draw(
        [maps.panel(part, reading, n_labels=4, sized=False) for part in measured],
        reading,
        _map_notes(run, rows, operations),
        headings=[*rows.headings.values()],
        across=len(operations),
        span=MAP_SPAN,
    )


def _map_notes(run: Run, rows: MapRows, operations: Iterable[str]) -> list[str]:
    """How to read the figure, and what it was made from."""
    data = maps.data_note({**run.config, "paths": "via_mlps"})
    sizes = _sample_sizes(run, rows, next(iter(rows.headings)), operations)
    return [maps.map_note(maps.Reading.of(run.config)), f"{data} {sizes}."]


def _sample_sizes(run: Run, rows: MapRows, kind: str, operations: Iterable[str]) -> str:
    return "; ".join(
        f"{name}: {sample_size(rows.stored.facts(run, name, kind))}" for name in operations
    )


PATHS_TITLES = {"via_mlps": "other heads frozen", "total": "all paths"}
PART_COLOURS = {"heads": plotting.RED, "MLPs": plotting.BLUE}
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
    charts = []
    for paths in PATHS_TITLES:
        operations = results.LADDER.labels(run, None, paths, EXACT)
        if not operations:
            continue
        tables = [_costs_and_agreement(run, name, paths) for name in operations]
        numbers = concat(tables, ignore_index=True)
        notes = _ladder_notes(run, numbers, paths)
        charts.append(
            Chart(
                name="ladder" if paths == "via_mlps" else f"ladder_{paths}",
                title=f"Cost against agreement, {PATHS_TITLES[paths]}: {run.config['model']}",
                look=_ladder_look(numbers),
                notes=notes,
                runs=(run,),
                numbers=numbers,
                figure=_draw_ladder(numbers, notes),
                small_table=_mean_over_operations(numbers),
            )
        )
    if not charts:
        raise RunError(f"expected exact effects in {run.path}, found none; compute it again")
    return charts


def _costs_and_agreement(run: Run, operation: str, paths: str) -> DataFrame:
    """One row per method, part and measure, with both costs."""
    exact = results.LADDER.load(run, operation, paths, EXACT)
    tables = []
    for method in results.LADDER.labels(run, operation, paths, None):
        if method == EXACT:
            continue
        approximate = results.LADDER.load(run, operation, paths, method)
        facts = {
            "operation": operation,
            "paths": paths,
            "method": method,
            "milliseconds": _milliseconds(approximate),
            "exact milliseconds": _milliseconds(exact),
            "forwards": approximate.computation["forwards"],
            "backwards": approximate.computation["backwards"],
            "pairs": exact.heads.n_pairs,
        }
        tables.append(agreement(approximate, exact).assign(**facts))
    both: Any = concat(tables, ignore_index=True)
    return both[[*facts, "part", "measure", "value", "low", "high"]]


def _milliseconds(effects: ComponentEffects) -> float:
    """Processor time per pair in milliseconds."""
    return 1000 * effects.computation["processor_seconds"] / effects.computation["n_pairs"]


def _draw_ladder(numbers: DataFrame, notes: list[str]) -> plotting.Figure:
    """One row of panels per operation: heads on the left, MLPs on the right."""
    costs = numbers[["milliseconds", "exact milliseconds"]].to_numpy()
    ends = (float(np.log10(costs.min())) - 0.1, float(np.log10(costs.max())) + 0.1)
    figure = plotting.curve_panels(
        [
            _panel(some, f"{operation}".capitalize() + f", {part}", ends)
            for operation, of_operation in numbers.groupby("operation", sort=False)
            for part, some in of_operation.groupby("part", sort=False)
        ],
        x_title="processor milliseconds per pair",
        notes=notes,
        across=2,
        panel=(350, 230),
    )
    decades = range(int(np.floor(ends[0])), int(np.ceil(ends[1])))
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    figure.update_xaxes(tickvals=np.log10(ticks).tolist(), ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def _panel(some: DataFrame, title: str, ends: tuple[float, float]) -> plotting.CurvePanel:
    """The methods of one operation and part, with the exact effects at 1.

    A line without correlation goes from end to end, so that all panels have one scale.
    """
    zero = plotting.Line(np.array(ends), np.zeros(2), "none", plotting.PALE, label="")
    lines, points = [zero], []
    chosen: Any = some[some["measure"] == PLOTTED]
    spots = [(EXACT, chosen["exact milliseconds"].iloc[0], 1.0, 1.0, 1.0), *_spots(chosen)]
    for name, milliseconds, low, value, high in spots:
        x = float(np.log10(milliseconds))
        colour = plotting.DARK if name == EXACT else PART_COLOURS[chosen["part"].iloc[0]]
        across, up = np.array([x - EDGE, x, x + EDGE]), np.array([low, value, high])
        lines.append(plotting.Line(across, up, name, colour, label=""))
        points.append(plotting.Point(x, name, len(lines) - 1))
    return plotting.CurvePanel(
        title=plotting.plain(title),
        lines=tuple(lines),
        points=tuple(points),
        y_title="correlation" if chosen["part"].iloc[0] == "heads" else "",
        y_range=(-1.05, 1.1),
    )


def _spots(chosen: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Methods with the same numbers share a point, at the lowest of their costs."""
    chosen = chosen.assign(same=chosen["value"].round(4))
    for _, group in chosen.groupby("same", sort=False):
        cheapest = group.sort_values("milliseconds").iloc[0]
        ends = (float(cheapest[name]) for name in ("milliseconds", "low", "value", "high"))
        yield (", ".join(group["method"]), *ends)


def _ladder_look(numbers: DataFrame) -> str:
    """What to look for, and the best method in each part."""
    best, plotted = [], numbers["measure"] == PLOTTED
    chosen: Any = numbers[plotted]
    for part, some in chosen.groupby("part", sort=False):
        lowest = some.groupby("method")["value"].min()
        best.append(f"for {part} {lowest.idxmax()} ({lowest.max():.2f})")
    costs: Any = numbers.assign(dearer=numbers["milliseconds"] > numbers["exact milliseconds"])
    dearer = costs.groupby("method")["dearer"].all()
    return (
        "Up is better, left is cheaper. A method to the right of the exact effects saves nothing: "
        f"{dearer.sum()} of {len(dearer)} methods cost more in every operation. The highest "
        f"correlation in the worst operation: {', '.join(best)}."
    )


def _mean_over_operations(numbers: DataFrame) -> DataFrame:
    """Each method's cost, and the mean over operations of each measure."""
    wide: Any = numbers.pivot_table(
        index="method", columns=["part", "measure"], values="value", sort=False
    )
    wide.columns = [f"{part} {measure}" for part, measure in wide.columns]
    of_method: Any = numbers.groupby("method", sort=False)
    costs = of_method[["milliseconds", "forwards", "backwards"]].mean()
    return costs.join(wide).round(2).reset_index()


def _ladder_notes(run: Run, numbers: DataFrame, paths: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    pairs = numbers.groupby("operation", sort=False)["pairs"].first()
    counts = ", ".join(f"{name} {count}" for name, count in pairs.items())
    exact = numbers["exact milliseconds"].mean()
    return [
        "Pearson's correlation of the mean effects of components with the exact ones; lines: 95% "
        "bootstrap intervals over problems and wordings. Scores of atp_star have no sign, and are "
        "compared with the sizes of the exact effects. Methods with equal numbers share a point.",
        f"Exact effects: {exact:.3g} processor milliseconds per pair "
        + ("(the sweep, its certificate included)." if paths == "via_mlps" else "(hooks).")
        + f" Methods that integrate take {run.config['steps']} points.",
        f"Model: {run.config['model']}; {run.config['metric']}; pairs: {counts}.",
    ]
