"""How many problems until the strongest heads stay the same, by operation?

Reads a run of `experiments/which_heads.py`. It draws samples of n problems without
replacement, and compares their top heads and their key heads with those of all problems and with
those of another sample of the same size.
"""

from dataclasses import dataclass
from typing import Any

from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from arith_lens.stability import StabilityError, stability_of
from experiments import results
from figures.command import command
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for

NAMES = {"all": "with all", "another": "with another sample"}


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
            look="Where the curves reach the top: with so many problems another sample finds the "
            "same heads. Below that a list of key heads is partly chance.",
            notes=notes(run, tables),
            runs=(run,),
            numbers=concat([table.assign(operation=name) for name, table in tables.items()]),
            figure=draw(run, tables),
        )
    ]


def draw(run: Run, tables: dict[str, DataFrame]) -> plotting.Figure:
    """One panel per operation."""
    parts = [
        plotting.CurvePanel(
            title=plotting.plain(name.capitalize()),
            lines=_lines(table),
            y_title="heads in common",
            y_range=(0, 100),
        )
        for name, table in tables.items()
    ]
    return plotting.curve_panels(
        parts,
        x_title="problems, each in all its wordings",
        unit="%",
        notes=notes(run, tables),
        across=min(2, len(parts)),
    )


def notes(run: Run, tables: dict[str, DataFrame]) -> list[str]:
    """How to read the figure, and what it was made from."""
    name = next(iter(tables.values()))["set"].iloc[0]
    return [
        f"Share of the heads of two {name} sets, or key sets, that both have; mean over samples.",
        f"Band: 10th to 90th percentile of samples of the {name} set. Two empty key sets agree.",
        f"Model: {run.config['model']}; paths: {run.config['paths']}.",
    ]


def _lines(table: DataFrame) -> tuple[plotting.Line, ...]:
    lines = []
    colours = (plotting.RED, plotting.BLUE)
    for (kind, part), colour in zip(table.groupby("set", sort=False), colours, strict=False):
        for which, dash in (("all", "solid"), ("another", "dot")):
            some: Any = part[part["with"] == which]
            band = {end: 100 * some[end].to_numpy() for end in ("low", "high")}
            lines.append(
                plotting.Line(
                    x=some["n"].to_numpy(),
                    y=100 * some["mean"].to_numpy(),
                    name=f"{kind}, {NAMES[which]}",
                    colour=colour,
                    dash=dash,
                    **(band if which == "all" and colour == plotting.RED else {}),
                )
            )
    return tuple(lines)


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "stability", __doc__)
