"""What approximations by gradients cost, and how well they agree with the exact effects.

Reads a run of `experiments do_gradients_agree`. One point per method: processor time per pair
against the correlation with the exact effects, for heads and for MLPs, per operation.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import ComponentEffects, agreement
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.results import EXACT
from figures.common import Options, chosen_run
from figures.exhibit import Chart

PATHS_TITLES = {"via_mlps": "other heads frozen", "total": "all paths"}
PART_COLOURS = {"heads": plotting.RED, "MLPs": plotting.BLUE}
PLOTTED = "pearson"
"""The measure on the vertical axis."""
EDGE = 1e-6
"""Half of the width of the line of an interval, in decades."""


def exhibits(options: Options) -> list[Chart]:
    """One chart per kind of paths. Raises RunError if there is no run."""
    run = chosen_run(options, "do_gradients_agree")
    charts = []
    for paths in PATHS_TITLES:
        operations = results.LADDER.labels(run, None, paths, EXACT)
        if not operations:
            continue
        numbers = concat([table(run, name, paths) for name in operations], ignore_index=True)
        small_print = notes(run, numbers, paths)
        charts.append(
            Chart(
                name="ladder" if paths == "via_mlps" else f"ladder_{paths}",
                title=f"Cost against agreement, {PATHS_TITLES[paths]}: {run.config['model']}",
                look=look(numbers),
                notes=small_print,
                runs=(run,),
                numbers=numbers,
                figure=draw(numbers, small_print),
                small_table=small_table(numbers),
            )
        )
    if not charts:
        raise RunError(f"expected exact effects in {run.path}, found none; compute it again")
    return charts


def table(run: Run, operation: str, paths: str) -> DataFrame:
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
            "milliseconds": cost(approximate),
            "exact milliseconds": cost(exact),
            "forwards": approximate.computation["forwards"],
            "backwards": approximate.computation["backwards"],
            "pairs": exact.heads.n_pairs,
        }
        tables.append(agreement(approximate, exact).assign(**facts))
    both: Any = concat(tables, ignore_index=True)
    return both[[*facts, "part", "measure", "value", "low", "high"]]


def cost(effects: ComponentEffects) -> float:
    """Processor time per pair in milliseconds."""
    return 1000 * effects.computation["processor_seconds"] / effects.computation["n_pairs"]


def draw(numbers: DataFrame, small_print: list[str]) -> plotting.Figure:
    """One row of panels per operation: heads on the left, MLPs on the right."""
    costs = numbers[["milliseconds", "exact milliseconds"]].to_numpy()
    ends = (float(np.log10(costs.min())) - 0.1, float(np.log10(costs.max())) + 0.1)
    figure = plotting.curve_panels(
        [
            panel(some, f"{operation}".capitalize() + f", {part}", ends)
            for operation, of_operation in numbers.groupby("operation", sort=False)
            for part, some in of_operation.groupby("part", sort=False)
        ],
        x_title="processor milliseconds per pair",
        notes=small_print,
        across=2,
        panel=(350, 230),
    )
    decades = range(int(np.floor(ends[0])), int(np.ceil(ends[1])))
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    figure.update_xaxes(tickvals=np.log10(ticks).tolist(), ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def panel(some: DataFrame, title: str, ends: tuple[float, float]) -> plotting.CurvePanel:
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


def look(numbers: DataFrame) -> str:
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


def small_table(numbers: DataFrame) -> DataFrame:
    """Each method's cost, and the mean over operations of each measure."""
    wide: Any = numbers.pivot_table(
        index="method", columns=["part", "measure"], values="value", sort=False
    )
    wide.columns = [f"{part} {measure}" for part, measure in wide.columns]
    of_method: Any = numbers.groupby("method", sort=False)
    costs = of_method[["milliseconds", "forwards", "backwards"]].mean()
    return costs.join(wide).round(2).reset_index()


def notes(run: Run, numbers: DataFrame, paths: str) -> list[str]:
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
