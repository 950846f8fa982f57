"""What each method gains in mathematics and loses elsewhere, at every rate of the grid.

Reads a run of `experiments/does_tuning_help` (Table 1) and draws it without loading a model: HTML
that opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as CSV.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.answers import Answers, OverSeeds
from arith_lens.runs import Run
from figures.command import command
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for
from figures.tuning import (
    COLOURS,
    EXPERIMENT,
    METHODS,
    Row,
    answers_before,
    by_rate,
    chosen_rows,
    groups,
)

NEAR = 25.0
"""The largest generic loss that the second chart shows, in points."""


def exhibits(options: Options) -> list[Chart]:
    """Every rate of Table 1. Raises RunError if there is no run, or if it lacks the table."""
    run = chosen_run(options, EXPERIMENT)
    chosen = chosen_rows(run, 1)
    every = by_rate(run)
    rates = {row.key: every[row.key] for row in chosen}
    before = answers_before(run)
    return [
        Chart(
            name="frontier",
            title="What tuning gains in mathematics against what it loses elsewhere",
            look="Up is better, right is better. A method whose line lies above another's gains "
            "more for the same loss, at whichever rate each is trained.",
            notes=notes(run, chosen),
            runs=(run,),
            numbers=DataFrame(
                record for row in chosen for record in records(before, rates[row.key], row.rate)
            ),
            figure=draw(run, before, chosen, rates),
        )
    ]


def changes(before: Answers, row: Row) -> dict[str, OverSeeds]:
    """The changes of word problems and of generic tasks."""
    return {name: row.change(before, chosen) for name, chosen in groups(before).items()}


def records(before: Answers, rates: Mapping[float, Row], chosen: float) -> list[dict[str, Any]]:
    """One line per training: both changes in points."""
    return [
        {
            "method": row.key[0],
            "heads": row.key[1],
            "rate": rate,
            "chosen": rate == chosen,
            "seed": facts["seed"],
            **{
                name.replace(" ", "_"): 100 * change.per_seed[i]
                for name, change in changes(before, row).items()
            },
        }
        for rate, row in rates.items()
        for i, facts in enumerate(row.facts)
    ]


def draw(
    run: Run, before: Answers, chosen: Sequence[Row], rates: Mapping[Any, Mapping[float, Row]]
) -> plotting.Figure:
    """All rates on the left; the rates with small losses on the right."""
    trails = tuple(trail(before, rates[row.key], row) for row in chosen)
    x, y = (np.concatenate([getattr(t, axis) for t in trails]) for axis in ("x", "y"))
    near = y[x >= -NEAR]
    return plotting.trail_panels(
        [
            plotting.TrailPanel("All rates", trails, _ends(x), _ends(y), (-NEAR, _ends(x)[1])),
            plotting.TrailPanel(
                f"At most {NEAR:g} points lost", trails, (-NEAR, max(x.max(), 0) + 1.5), _ends(near)
            ),
        ],
        x_title="Generic tasks, change in points",
        y_title="Word problems, change in points",
        notes=notes(run, chosen),
    )


def trail(before: Answers, rates: Mapping[float, Row], chosen: Row) -> plotting.Trail:
    """A method's rates, each with its first seed; the chosen rate with more seeds."""
    points = np.array([_point(before, row, 0) for row in rates.values()])
    further = [_point(before, chosen, i) for i in range(1, len(chosen.trainings))]
    return plotting.Trail(
        points[:, 0],
        points[:, 1],
        tuple(f"{rate:.0e}".replace("e-0", "e-") for rate in rates),
        METHODS[chosen.key[0]],
        COLOURS[chosen.key[0]],
        chosen=list(rates).index(chosen.rate),
        further=np.array(further) if further else None,
    )


def _point(before: Answers, row: Row, seed: int) -> tuple[float, float]:
    math, generic = changes(before, row).values()
    return 100 * generic.per_seed[seed], 100 * math.per_seed[seed]


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    margin = 0.08 * (high - low or 1.0)
    return low - margin, high + margin


def notes(run: Run, chosen: Sequence[Row]) -> list[str]:
    """How to read the figure, and what it was made from."""
    config = run.config
    before = answers_before(run)
    shares = ", ".join(
        f"{name} {before.select(inside).accuracy:.1%} of {sum(inside)}"
        for name, inside in groups(before).items()
    )
    heads = ", ".join(chosen[1].facts[0]["which_heads"]) if len(chosen) > 1 else ""
    return [
        f"Model: {config['model']}, before tuning {shares}. Each point is a training at the rate "
        f"beside it (on the right, if that shows it; seed {config['seed']}); "
        f"{config['examples'] or 'all'} word problems, {config['epochs']} "
        f"epoch{'s' * (config['epochs'] > 1)}.",
        "Ring: the rate with the best validation accuracy; small points: further seeds at it. "
        f"Precise: heads {heads}; LoRA has as many parameters.",
    ]


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "frontier", __doc__)
