"""How many problems until the strongest heads stay the same, by operation?

Reads a run of `experiments/which_heads.py`. It draws samples of n problems without
replacement, and compares their top heads and their key heads with those of all other problems and
with those of another sample of the same size. No problem is on both sides.
"""

from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import StabilityError, stability_of
from arith_lens.runs import Run, RunError
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart

COMPARISON_NAMES = {"rest": "with the rest", "another": "with a sample"}
STABLE_SHARE = 0.9
"""Sets that have this share in common count as the same in the caption."""


@dataclass(frozen=True)
class StabilityOptions(Options):
    """Which run to draw, and where its files go."""

    k: int = 5
    """How many heads the top set has."""
    draws: int = 200
    """Samples of each size."""


def exhibits(options: StabilityOptions) -> list[Chart]:
    """The curves of a run. Raises RunError if there is no run, or if it has too few pairs."""
    run = chosen_run(options, "which_heads")
    try:
        tables = {
            name: stability_of(
                results.MAP.load(run, name).heads, k=options.k, n_draws=options.draws
            )
            for name in results.MAP.labels(run)
        }
    except StabilityError as error:
        raise RunError(str(error)) from error
    return [
        Chart(
            name="stability",
            title="How many problems until the strongest heads stay the same?",
            look=look(tables),
            notes=notes(run, tables),
            runs=(run,),
            numbers=concat([table.assign(operation=name) for name, table in tables.items()]),
            figure=draw(run, tables),
        )
    ]


def look(tables: dict[str, DataFrame]) -> str:
    """What to look for, and where the run's own curves end."""
    parts = []
    for name, table in tables.items():
        top = _top(table)
        enough = top[top["mean"] >= STABLE_SHARE]
        last, n = float(top["mean"].iloc[-1]), int(top["n"].iloc[-1])
        parts.append(
            f"{name} {last:.0%} at {n} problems"
            + (f" ({STABLE_SHARE:.0%} from {int(enough['n'].iloc[0])} on)" if len(enough) else "")
        )
    below = sum(float(_top(table)["mean"].iloc[-1]) < STABLE_SHARE for table in tables.values())
    verdict = (
        f"The curve stays below {STABLE_SHARE:.0%} in {below} of {len(tables)} operations: a list "
        "of heads is partly chance there."
        if below
        else f"Every curve reaches {STABLE_SHARE:.0%}: other problems give nearly the same heads."
    )
    return (
        "The height of the red curves: the share of the strongest heads that problems outside "
        f"the sample give too. With half of the problems: {', '.join(parts)}. {verdict}"
    )


def _top(table: DataFrame) -> Any:
    """The curve of the top heads against the rest, by size."""
    rest: Any = table[table["with"] == "rest"]
    return rest[rest["set"] == rest["set"].iloc[0]].sort_values("n")


def draw(run: Run, tables: dict[str, DataFrame]) -> plotting.Figure:
    """One panel per operation."""
    parts = [
        plotting.CurvePanel(
            title=plotting.plain(name.capitalize()),
            lines=_lines(table),
            y_title="heads in common" if index % 2 == 0 else "",
            y_range=(0, 100),
        )
        for index, (name, table) in enumerate(tables.items())
    ]
    return plotting.curve_panels(
        parts,
        x_title="problems, each in all its wordings",
        unit="%",
        notes=notes(run, tables),
        across=min(2, len(parts)),
        panel=(270, 220),
    )


def notes(run: Run, tables: dict[str, DataFrame]) -> list[str]:
    """How to read the figure, and what it was made from."""
    name = next(iter(tables.values()))["set"].iloc[0]
    return [
        f"Share of the heads of two {name} sets, or key sets, that both have; mean over samples. "
        "Solid: a sample against all problems that are not in it. Dotted: against another sample "
        "of its size. The two sides never share a problem.",
        f"Band: 10th to 90th percentile of samples of the {name} set. Two empty key sets agree.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}.",
    ]


def _lines(table: DataFrame) -> tuple[plotting.Line, ...]:
    lines = []
    colours = (plotting.RED, plotting.BLUE)
    for (kind, part), colour in zip(table.groupby("set", sort=False), colours, strict=False):
        for which, dash in (("rest", "solid"), ("another", "dot")):
            some: Any = part[part["with"] == which]
            band = {end: 100 * some[end].to_numpy() for end in ("low", "high")}
            lines.append(
                plotting.Line(
                    x=some["n"].to_numpy(),
                    y=100 * some["mean"].to_numpy(),
                    name=f"{kind}, {COMPARISON_NAMES[which]}",
                    colour=colour,
                    dash=dash,
                    **(band if which == "rest" and colour == plotting.RED else {}),
                )
            )
    return tuple(lines)
