"""The table `seeds`: where heads matter in several trainings of one recipe.

Keys: operation, or two of them; seed, of one training; trainings, two seeds. Without a seed
or trainings, a row is over all trainings, or of random heads.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from pandas import DataFrame

from arith_lens.effects import ComponentEffects, key_heads
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from figures.tables import map_statistics as heads
from figures.tables.effects import EFFECT, MapStatistics, map_rows
from figures.tables.number import Number, Unit, over_draws
from figures.tables.table import QuestionTable, Row, keys_of, row, select

SHARED_TOP = 10
"""How many strongest heads of two operations are compared."""
COUNT = "key heads"
STRONGEST = "strongest effect"
FEW_SHARE = "share of the strongest 5% of the heads"
MEAN_LAYER = "mean layer, as a share of the depth"
EARLY_SHARE = "share in the first quarter of the layers"
IN_COMMON = f"{SHARED_TOP} strongest heads in common"
SAME_HEADS = f"{SHARED_TOP} strongest heads in common to two trainings"
SAME_LAYERS = f"{SHARED_TOP} strongest heads of two trainings in the same layers"
RANDOM, N_RANDOM = "random heads", 10_000
DEVIATION = "standard deviation"


@dataclass(frozen=True)
class RecipeTraining:
    """One training: its name, its seed, its runs, and its map of each operation."""

    name: str
    seed: int
    runs: Mapping[str, Run]
    effects: Mapping[str, ComponentEffects]

    def means(self, operation: str) -> Float[np.ndarray, "layer head"]:
        """The mean effect of every head."""
        return self.effects[operation].heads.mean().double().numpy()


Statistic = Callable[[RecipeTraining, str], float]


def maps_table(training: RecipeTraining) -> QuestionTable:
    """The rows of the maps of one training, as in the table `effects`, with its seed."""
    rows: list[Row] = []
    for operation, effects in training.effects.items():
        part = map_rows(MapStatistics.of(effects, None), effects.heads.metric, operation=operation)
        rows += [row(one.measure, one.number, seed=training.seed, **one.keys) for one in part]
    return QuestionTable.of("effects", training.name, rows)


def table(trainings: Sequence[RecipeTraining]) -> QuestionTable:
    """The rows of several trainings. The first one has the name of the recipe's model."""
    rows = [
        one
        for measure, (unit, statistic) in STATISTICS.items()
        for operation in FOUR
        for one in _rows(
            measure,
            {training.seed: statistic(training, operation) for training in trainings},
            unit,
            operation=operation,
        )
    ]
    for a, b in combinations(FOUR, 2):
        overlaps = {
            training.seed: heads.top_overlap(training.means(a), training.means(b), SHARED_TOP)
            for training in trainings
        }
        rows += _rows(IN_COMMON, overlaps, "share", operation=f"{a} and {b}")
    return QuestionTable.of("seeds", trainings[0].name, rows)


def overlap_table(rows: DataFrame, model: str) -> QuestionTable:
    """What the strongest heads of two trainings have in common, beside as many random heads.

    Args:
        rows: those of `maps_table` of all trainings, as their file has them.
        model: the name of the recipe's model.
    """
    heads_alone = DataFrame(rows[(rows.measure == EFFECT) & rows["index"].notna()])
    every = _heads(heads_alone.drop_duplicates(["layer", "index"]))
    overlaps = []
    for operation in keys_of(heads_alone, "operation"):
        strongest = {
            seed: _heads(
                select(heads_alone, operation=operation, seed=seed).nsmallest(SHARED_TOP, "value")
            )
            for seed in keys_of(heads_alone, "seed")
        }
        for a, b in combinations(strongest, 2):
            keys = {"operation": operation, "trainings": f"{a:.0f} and {b:.0f}"}
            for measure, overlap in OVERLAPS.items():
                overlaps.append(row(measure, Number(overlap(strongest[a], strongest[b])), **keys))
    generator = np.random.default_rng(0)
    drawn = [
        [every[i] for i in generator.permutation(len(every))[:SHARED_TOP]]
        for _ in range(2 * N_RANDOM)
    ]
    for measure, overlap in OVERLAPS.items():
        shares = [overlap(*both) for both in zip(drawn[::2], drawn[1::2], strict=True)]
        low, high = np.quantile(shares, [0.025, 0.975])
        spread = f"2.5th to 97.5th percentile of {N_RANDOM} draws"
        number = Number(float(np.mean(shares)), float(low), float(high), spread, N_RANDOM)
        overlaps.append(row(f"{measure}, {RANDOM}", number))
    return QuestionTable.of("seeds", model, overlaps)


def _heads(rows: DataFrame) -> list[tuple[int, int]]:
    """The layers and indices of the rows' heads."""
    return [*zip(rows.layer.astype(int), rows["index"].astype(int), strict=True)]


Heads = Collection[tuple[int, int]]
OVERLAPS: Mapping[str, Callable[[Heads, Heads], float]] = {
    SAME_HEADS: lambda a, b: len({*a} & {*b}) / SHARED_TOP,
    SAME_LAYERS: lambda a, b: (
        (Counter(layer for layer, _ in a) & Counter(layer for layer, _ in b)).total() / SHARED_TOP
    ),
}
"""The share of the heads of two lists that are the same, or in the same layers."""


def _rows(
    measure: str, by_seed: Mapping[int, float], unit: Unit, **keys: str | int
) -> Iterator[Row]:
    """A number of each training, and their mean, range and standard deviation."""
    for seed, number in by_seed.items():
        yield row(measure, Number(number, unit=unit), **keys, seed=seed)
    values = [*by_seed.values()]
    yield row(measure, over_draws(values, unit=unit, what="trainings"), **keys)
    if len(values) > 1:
        deviation = Number(float(np.std(values, ddof=1)), n=len(values), unit=unit)
        yield row(f"{measure}, {DEVIATION}", deviation, **keys)


def mean_layer(training: RecipeTraining, operation: str) -> float:
    """The mean layer, weighted by how much heads take away, as a share of the depth."""
    means = training.means(operation)
    depth = np.linspace(0, 1, len(means))[:, None]
    return heads.mean_by_loss(means, depth)


def early_share(training: RecipeTraining, operation: str) -> float:
    """The share of what heads take away that is in the first quarter of the layers."""
    means = training.means(operation)
    early = np.arange(len(means)) < len(means) // 4
    return heads.mean_by_loss(means, early[:, None])


STATISTICS: Mapping[str, tuple[Unit, Statistic]] = {
    COUNT: ("count", lambda training, name: len(key_heads(training.effects[name]))),
    STRONGEST: ("relative", lambda training, name: float(np.nanmin(training.means(name)))),
    FEW_SHARE: ("share", lambda training, name: heads.share_of_few(training.means(name))),
    MEAN_LAYER: ("share", mean_layer),
    EARLY_SHARE: ("share", early_share),
}
