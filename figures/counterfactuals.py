"""The maps of three kinds of counterfactual side by side, with how far they agree.

Reads a run of `experiments which_counterfactual` and draws it without loading a model: one row
per kind, one column per operation, on one colour scale. The table has the rank correlation of the
heads' effects and the share of the ten strongest heads that two kinds have in common, with 95%
intervals over problems.
"""

from collections.abc import Collection, Iterable, Mapping
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
from experiments.selection import LARGEST_OPERAND
from experiments.which_heads import COMPARED_KINDS, PROBLEM_SETS
from figures import maps
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart

N_STRONGEST = 10
N_RESAMPLES = 500
MAP_SPAN = 156  # pixels of a map's longer side: four fit on a page
PATHS_SETTING = {"paths": "via_mlps"}
HEADINGS = {
    "word": "operator → a word without meaning",
    "operator": "operator → another operator",
    "operands": "operands → other operands",
}


@dataclass(frozen=True)
class MapRows:
    """The rows of the figure: what is stored, and the heading of each kind."""

    stored: maps.StoredMap
    headings: Mapping[str, str]


COUNTERFACTUAL_ROWS = MapRows(results.COUNTERFACTUAL_MAP, HEADINGS)
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


def exhibits(options: Options) -> list[Chart]:
    """The maps of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "which_counterfactual")
    effects = loaded(run, COUNTERFACTUAL_ROWS, run.config["operations"])
    numbers = agreement_table(effects)
    return [
        Chart(
            name="counterfactuals",
            title="The same problems under three counterfactuals",
            look=_look(numbers),
            notes=notes(run, COUNTERFACTUAL_ROWS, effects),
            runs=(run,),
            numbers=numbers,
            figure=draw(run, effects, COUNTERFACTUAL_ROWS),
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
    numbers = agreement_table(effects)
    return [
        Chart(
            name="computed",
            title="Problems whose answer cannot be copied, beside all one-digit problems",
            look=_look_of_computed(numbers),
            notes=[*notes(run, PROBLEM_SET_ROWS, LARGEST_OPERAND), _sizes(run)],
            runs=(run,),
            numbers=numbers,
            figure=draw(run, effects, PROBLEM_SET_ROWS),
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


def in_common(
    a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"], top: int = N_STRONGEST
) -> float:
    """The share of the strongest heads that two maps have in common."""
    strongest = [{*np.argsort(values)[:top].tolist()} for values in (a, b)]
    return len(strongest[0] & strongest[1]) / top


def _agreement(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> tuple[float, float]:
    """The rank correlation, and the share of the strongest heads in common."""
    return float(np.asarray(spearmanr(a, b))[0]), in_common(a, b)


def draw(run: Run, operations: Collection[str], rows: MapRows) -> plotting.Figure:
    """One row per kind, one column per operation."""
    reading = maps.Reading.of(run.config)
    return maps.draw(
        [
            maps.panel(
                maps.measure(run, operation, kind, stored=rows.stored),
                reading,
                n_labels=4,
                sized=False,
            )
            for kind in rows.headings
            for operation in operations
        ],
        reading,
        notes(run, rows, operations),
        headings=[*rows.headings.values()],
        across=len(operations),
        span=MAP_SPAN,
    )


def _look(numbers: DataFrame) -> str:
    """What the run's own numbers say."""
    ends = []
    for a, b in combinations(COMPARED_KINDS, 2):
        part = numbers[(numbers["a"] == a) & (numbers["b"] == b)]["rank_correlation"]
        ends.append(f"{a} and {b} {part.min():.2f} to {part.max():.2f}")
    return (
        "Whether the same heads are red in each row: a key head is one for a counterfactual. Rank "
        f"correlation of the heads' effects over operations: {'; '.join(ends)}."
    )


def notes(run: Run, rows: MapRows, operations: Iterable[str]) -> list[str]:
    """How to read the figure, and what it was made from."""
    samples = [
        f"{name}: {sample_size(rows.stored.facts(run, name, next(iter(rows.headings))))}"
        for name in operations
    ]
    data = maps.data_note({**run.config, **PATHS_SETTING})
    return [maps.map_note(maps.Reading.of(run.config)), f"{data} {'; '.join(samples)}."]


def _look_of_computed(numbers: DataFrame) -> str:
    """What the run's own numbers say."""
    parts = [
        f"{row['operation']} {row['rank_correlation']:.2f} "
        f"({row[f'top_{N_STRONGEST}_in_common']:.0%} of the {N_STRONGEST} strongest in common)"
        for _, row in numbers.iterrows()
    ]
    return (
        "Whether the same heads are red in both rows. Trust the second for products and quotients: "
        "in all other figures heads that copy can look like heads that calculate. Rank "
        f"correlation of the heads' effects: {'; '.join(parts)}."
    )


def _sizes(run: Run) -> str:
    parts = [
        f"{operation}: {sample_size(results.SET_MAP.facts(run, operation, 'computed'))}"
        for operation in LARGEST_OPERAND
    ]
    return (
        "Computed problems that are answered right (the last digit is read, the digits before it "
        f"are in the prompt): {'; '.join(parts)}."
    )
