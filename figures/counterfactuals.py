"""The maps of three kinds of counterfactual side by side, with how far they agree.

Reads a run of `experiments/which_counterfactual.py` and draws it without loading a model: one row
per kind, one column per operation, on one colour scale. The table has the rank correlation of the
heads' effects and the share of the ten strongest heads that two kinds have in common, with 95%
intervals over problems.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from pandas import DataFrame
from scipy.stats import spearmanr

from arith_lens import plotting
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import results
from experiments.which_counterfactual import KINDS
from figures import maps
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart, command_for

TOP = 10
N_RESAMPLES = 500
SPAN = 156  # pixels of a map's longer side: four fit on a page
PATHS = {"paths": "via_mlps"}
HEADINGS = {
    "word": "operator → a word without meaning",
    "operator": "operator → another operator",
    "operands": "operands → other operands",
}


@dataclass(frozen=True)
class Rows:
    """The rows of the figure: what is stored, and the heading of each kind."""

    stored: results.Stored[ComponentEffects, results.Sample]
    headings: Mapping[str, str]


ROWS = Rows(results.COUNTERFACTUAL_MAP, HEADINGS)


def exhibits(options: Options) -> list[Chart]:
    """The maps of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "which_counterfactual")
    effects = loaded(run, ROWS, run.config["operations"])
    numbers = agreement_table(effects)
    return [
        Chart(
            name="counterfactuals",
            title="The same problems under three counterfactuals",
            look=_look(numbers),
            notes=notes(run, ROWS, effects),
            runs=(run,),
            numbers=numbers,
            figure=draw(run, effects, ROWS),
            vector=draw(run, effects, ROWS, vector=True),
        )
    ]


def loaded(
    run: Run, rows: Rows, operations: Iterable[str]
) -> dict[str, dict[str, ComponentEffects]]:
    """The maps by operation and kind."""
    return {
        operation: {kind: rows.stored.load(run, operation, kind) for kind in rows.headings}
        for operation in operations
    }


def agreement_table(effects: Mapping[str, Mapping[str, ComponentEffects]]) -> DataFrame:
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
                    f"top_{TOP}_in_common": overlap,
                    f"top_{TOP}_in_common_low": low[1],
                    f"top_{TOP}_in_common_high": high[1],
                }
            )
    return DataFrame(rows)


def cell_means(effects: Effects) -> Float[np.ndarray, " cell"]:
    """The mean of each cell of a map."""
    return effects.mean().flatten().double().numpy()


def resampled_cells(effects: Effects) -> Float[np.ndarray, "cell resample"]:
    """The mean of each cell in each resample; equal resamples for equal problems."""
    return resampled_means(effects.sample(), slice(None), N_RESAMPLES, 0).numpy()


def in_common(
    a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"], top: int = TOP
) -> float:
    """The share of the strongest heads that two maps have in common."""
    strongest = [{*np.argsort(values)[:top].tolist()} for values in (a, b)]
    return len(strongest[0] & strongest[1]) / top


def _agreement(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> tuple[float, float]:
    """The rank correlation, and the share of the strongest heads in common."""
    return float(np.asarray(spearmanr(a, b))[0]), in_common(a, b)


def draw(
    run: Run,
    effects: Mapping[str, Mapping[str, ComponentEffects]],
    rows: Rows,
    *,
    vector: bool = False,
) -> plotting.Figure:
    """The figure; `vector` for SVG and PDF."""
    reading = maps.Reading.of(run.config)
    return plotting.panels(
        [
            maps.panel(
                _measured(run, operation, kind, kinds[kind], rows), reading, n_labels=4, sized=False
            )
            for kind in rows.headings
            for operation, kinds in effects.items()
        ],
        headings=[*rows.headings.values()],
        limit=reading.limit,
        axes=("layer", "head"),
        bar_name="MLP",
        colour_title=reading.colour_title,
        hover=maps.hover(reading),
        notes=notes(run, rows, effects),
        unit=reading.unit,
        across=len(effects),
        span=SPAN,
        vector=vector,
    )


def _measured(
    run: Run, operation: str, kind: str, effects: ComponentEffects, rows: Rows
) -> maps.Measured:
    stored = rows.stored
    computed = stored.computed(run, operation, kind)
    return maps.Measured(
        name=operation,
        size=sample_size(stored.facts(run, operation, kind)),
        heads=maps.statistics(effects.heads, computed),
        mlps=maps.statistics(effects.mlps, computed),
    )


def _look(numbers: DataFrame) -> str:
    """What the run's own numbers say."""
    ends = []
    for a, b in combinations(KINDS, 2):
        part = numbers[(numbers["a"] == a) & (numbers["b"] == b)]["rank_correlation"]
        ends.append(f"{a} and {b} {part.min():.2f} to {part.max():.2f}")
    return (
        "Whether the same heads are red in each row: a key head is one for a counterfactual. Rank "
        f"correlation of the heads' effects over operations: {'; '.join(ends)}."
    )


def notes(run: Run, rows: Rows, operations: Iterable[str]) -> list[str]:
    """How to read the figure, and what it was made from."""
    samples = [
        f"{name}: {sample_size(rows.stored.facts(run, name, next(iter(rows.headings))))}"
        for name in operations
    ]
    data = maps.data_note({**run.config, **PATHS})
    return [maps.map_note(maps.Reading.of(run.config)), f"{data} {'; '.join(samples)}."]


main = command_for(exhibits)
