"""Two tables of maps: under several counterfactuals, and of several sets of problems.

Keys: operation; counterfactual, or problems, which names the map; those of the table `effects`. How
far two maps agree has the name of the second in the key other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import results
from experiments.selection import LARGEST_OPERAND
from experiments.which_heads import COMPARED_KINDS, PROBLEM_SETS
from figures.tables.effects import StoredMap, map_rows, measured
from figures.tables.map_statistics import top_overlap
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import QuestionTable, Row, n_problems, row, sample_rows

N_STRONGEST = 10
N_RESAMPLES = 500
CORRELATION = "rank correlation of the heads"
IN_COMMON = f"share of the {N_STRONGEST} strongest heads in common"


@dataclass(frozen=True)
class ComparedMaps:
    """The maps of a figure."""

    stored: StoredMap
    key: str
    """The column that names the map."""
    names: tuple[str, ...]
    """Its values."""


COUNTERFACTUALS = ComparedMaps(results.COUNTERFACTUAL_MAP, "counterfactual", COMPARED_KINDS)
PROBLEM_SET_MAPS = ComparedMaps(results.SET_MAP, "problems", (*PROBLEM_SETS,))


def counterfactuals(run: Run, /) -> QuestionTable:
    """The rows of a run of `which_counterfactual`. Raises RunError if it is damaged."""
    return _table("counterfactuals", run, COUNTERFACTUALS, run.config["operations"])


def problem_sets(run: Run, /) -> QuestionTable:
    """The rows of a run of `do_copies_decide`. Raises RunError if it is damaged."""
    return _table("computed", run, PROBLEM_SET_MAPS, LARGEST_OPERAND)


def _table(
    question: str, run: Run, compared: ComparedMaps, operations: Iterable[str]
) -> QuestionTable:
    rows: list[Row] = []
    for operation, maps in loaded(run, compared, operations).items():
        for name in maps:
            keys = {"operation": operation, compared.key: name}
            statistics = measured(compared.stored, run, operation, name)
            rows += sample_rows(compared.stored.facts(run, operation, name), **keys)
            rows += map_rows(statistics, run.config["metric"], **keys)
        for a, b in combinations(maps, 2):
            keys = {"operation": operation, compared.key: a, "other": b}
            rows += _agreement_rows(maps[a].heads, maps[b].heads, **keys)
    return QuestionTable.of(question, str(run.config["model"]), rows)


def loaded(
    run: Run, compared: ComparedMaps, operations: Iterable[str]
) -> dict[str, dict[str, ComponentEffects]]:
    """The maps by operation and name."""
    return {
        operation: {name: compared.stored.load(run, operation, name) for name in compared.names}
        for operation in operations
    }


def _agreement_rows(a: Effects, b: Effects, **keys: str) -> Iterator[Row]:
    """The rank correlation of two maps and the overlap of their strongest heads."""
    resamples = zip(resampled_cells(a).T, resampled_cells(b).T, strict=True)
    sampled = np.array([[*_agreement(*both).values()] for both in resamples])
    low, high = np.nanquantile(sampled, [0.025, 0.975], axis=0)
    units: dict[str, Unit] = {CORRELATION: "correlation", IN_COMMON: "share"}
    for i, (measure, value) in enumerate(_agreement(cell_means(a), cell_means(b)).items()):
        ends, n = (float(low[i]), float(high[i])), n_problems(a)
        yield row(measure, Number(value, *ends, PROBLEMS, n, units[measure]), **keys)


def _agreement(a: Float[np.ndarray, " head"], b: Float[np.ndarray, " head"]) -> Mapping[str, float]:
    correlation = float(np.asarray(spearmanr(a, b))[0])
    return {CORRELATION: correlation, IN_COMMON: top_overlap(a, b, N_STRONGEST)}


def cell_means(effects: Effects) -> Float[np.ndarray, " cell"]:
    """The mean of each cell of a map."""
    return effects.mean().flatten().double().numpy()


def resampled_cells(effects: Effects) -> Float[np.ndarray, "cell resample"]:
    """The mean of each cell in each resample; equal resamples for equal problems."""
    return resampled_means(effects.sample(), slice(None), N_RESAMPLES, 0).numpy()
