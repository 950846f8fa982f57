"""What each method gains in mathematics and loses elsewhere, at every rate of the grid.

Reads a run of `experiments/does_tuning_help` (Table 1) and draws it without loading a model: HTML
that opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as CSV.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.runs import Run
from experiments.does_tuning_help import Criterion
from figures.common import Options, chosen_run
from figures.exhibit import Chart
from figures.tuning import (
    EXPERIMENT,
    METHOD_COLOURS,
    METHOD_NAMES,
    TableRow,
    by_rate,
    possible_ends,
    rows_by_criterion,
    title_of,
    without_rate,
)
from figures.tuning_words import MOST_LOST_TEXT


def exhibits(options: Options) -> list[Chart]:
    """Every rate of Table 1. Raises RunError if there is no run, or if it lacks the table."""
    run = chosen_run(options, EXPERIMENT)
    chosen = rows_by_criterion(run, 1)
    every = by_rate(run, {row.key for row in chosen["mathematics"]})
    methods = {row.key: every[row.key] for row in chosen["mathematics"]}
    return [
        Chart(
            name="frontier",
            title="What tuning gains in mathematics against what it loses elsewhere",
            look="Up is better, right is better. A method whose line lies above another's gains "
            "more for the same loss, at whichever rate each is trained.",
            notes=notes(run, chosen),
            runs=(run,),
            numbers=DataFrame(
                record for rates in methods.values() for record in records(rates, chosen)
            ),
            figure=plotting.trail_chart(
                [trail(rates, chosen) for rates in methods.values()],
                x_title="Generic tasks, change in points (square-root scale)",
                y_title="Word problems, change in points",
                root=True,
                notes=notes(run, chosen),
            ),
        )
    ]


def chosen_for(row: TableRow, chosen: Mapping[Criterion, Sequence[TableRow]]) -> list[Criterion]:
    """What the rate of a row was chosen for."""
    return [
        criterion
        for criterion, rows in chosen.items()
        if (row.key, row.rate) in {(one.key, one.rate) for one in rows}
    ]


def records(
    rates: Mapping[float, TableRow], chosen: Mapping[Criterion, Sequence[TableRow]]
) -> Iterator[dict[str, Any]]:
    """One line per rate: the mean of both changes in points, their intervals, and each seed's."""
    for rate, row in rates.items():
        line: dict[str, Any] = {"method": row.key[0], "heads": row.key[1], "rate": rate}
        line |= {"chosen_for": " ".join(chosen_for(row, chosen)), "seeds": len(row.trainings)}
        for group in row.before.groups:
            name, change = group.replace(" ", "_"), row.changes[group]
            low, high = change.ci()
            line |= {name: 100 * change.mean, f"{name}_low": 100 * low, f"{name}_high": 100 * high}
            line[f"{name}_per_seed"] = " ".join(f"{100 * v:+.2f}" for v in change.per_seed)
        yield line


def trail(
    rates: Mapping[float, TableRow], chosen: Mapping[Criterion, Sequence[TableRow]]
) -> plotting.Trail:
    """A method's rates: the means, with intervals where a rate has several trainings."""
    rows = [*rates.values()]
    (y, y_ends), (x, x_ends) = (_points(rows, name) for name in rows[0].before.groups)
    return plotting.Trail(
        x,
        y,
        tuple(f"{rate:.0e}".replace("e-0", "e-") for rate in rates),
        METHOD_NAMES[rows[0].key[0]],
        METHOD_COLOURS[rows[0].key[0]],
        tuple(_mark(row, chosen) for row in rows),
        x_ends,
        y_ends,
    )


def _points(
    rows: Sequence[TableRow], group: str
) -> tuple[Float[np.ndarray, " rate"], Float[np.ndarray, "rate end=2"]]:
    """The mean change at each rate in points, and its interval, cut where none or all are right.

    A rate with one training has no interval (NaN).
    """
    share = rows[0].before.accuracy[group]
    changes = [row.changes[group] for row in rows]
    ends = [
        possible_ends(change, share) if len(change.per_seed) > 1 else (np.nan, np.nan)
        for change in changes
    ]
    return 100 * np.array([change.mean for change in changes]), 100 * np.array(ends)


def _mark(row: TableRow, chosen: Mapping[Criterion, Sequence[TableRow]]) -> plotting.TrailMark:
    purposes = chosen_for(row, chosen)
    if "mathematics" in purposes:
        return "ring"
    if purposes:
        return "square"
    return "point" if len(row.trainings) > 1 else "pale"


def notes(run: Run, chosen: Mapping[Criterion, Sequence[TableRow]]) -> list[str]:
    """How to read the figure, and what it was made from."""
    config, rows = run.config, chosen["mathematics"]
    before = rows[0].before
    shares = ", ".join(
        f"{name} {before.accuracy[name]:.1%} of {sum(inside)}"
        for name, inside in before.groups.items()
    )
    heads = ", ".join(next((r.facts[0]["which_heads"] for r in rows if r.key[0] == "precise"), ()))
    seeds = sorted({len(row.trainings) for some in chosen.values() for row in some})
    lines = [
        f"Model: {config['model']}, before tuning {shares}. Beside each point its rate; "
        f"{config['examples'] or 'all'} word problems, {config['epochs']} "
        f"epoch{'s' * (config['epochs'] > 1)}. Precise: heads {heads}; LoRA has as many "
        "parameters.",
        f"Large marks: means of {' or '.join(map(str, seeds))} seeds with 95% intervals over "
        "questions and seeds (broad lines). Ring: the best rate for mathematics. "
        + f"Square: the best that loses {MOST_LOST_TEXT} on other generic questions. "
        * ("little_loss" in chosen)
        + "Small points: one training.",
    ]
    unmet = [key for criterion in chosen for key in without_rate(run, 1, criterion)]
    if unmet:
        lines.append(f"No rate loses {MOST_LOST_TEXT}: {'; '.join(map(title_of, unmet))}.")
    return lines
