"""Does another training of the same recipe give the same picture? Effects by layer, per seed.

Reads the maps (`experiments/which_heads.py`) of a shipped model and of other trainings of its
recipe, which differ in the seed alone, and draws them without loading a model. Which head does
what has no meaning across trainings. In which layers heads matter, how many they are, and how much
operations have in common can be compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import ComponentEffects, key_heads
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from experiments.finding import NotComputed, RunSettings
from experiments.selection import LARGEST_OPERAND, training_folder
from figures.claims import heads
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence, NotMeasured
from figures.common import SHIPPED, Options
from figures.exhibit import Chart, Exhibit, Table, command_for

SEEDS = (1, 2)
"""The seeds of the other trainings; the shipped model's seed is 0."""
INKS = {0: plotting.GREY, 1: plotting.OCHRE, 2: plotting.TEAL}
"""Of the trainings, by seed."""
SHARED_TOP = 10
"""How many strongest heads of two operations are compared."""


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


def exhibits(options: Options) -> list[Exhibit]:
    """The effects by layer, and what repeats. Raises RunError if no other training has its runs."""
    trainings = [_training(options.model, 0, options), *_others(options)]
    runs = tuple(run for training in trainings for run in dict.fromkeys(training.runs.values()))
    statistics = summary(trainings)
    return [
        Chart(
            name="seeds",
            title="Where heads matter, in several trainings of one recipe",
            look=_look(statistics),
            notes=_notes(trainings),
            runs=runs,
            numbers=concat([numbers(training) for training in trainings], ignore_index=True),
            figure=draw(trainings),
        ),
        Table(
            name="seeds_summary",
            title="What repeats in other trainings of the recipe",
            look="Whether the trainings agree. A statement about where heads are, or about what "
            "operations share, needs every row of it to agree.",
            notes=_notes(trainings),
            runs=runs,
            numbers=statistics,
            cells=_cells(statistics, trainings),
        ),
    ]


def _others(options: Options) -> list[RecipeTraining]:
    """The other trainings of the model's recipe that have their runs."""
    trainings, missing = [], []
    for seed in SEEDS:
        try:
            name = str(training_folder(options.model, seed) / "final")
            trainings.append(_training(name, seed, options))
        except NotComputed as error:
            missing.append(error)
    if not trainings:
        raise missing[0]
    return trainings


def _training(name: str, seed: int, options: Options) -> RecipeTraining:
    settings = RunSettings.of_paper(**options.settings.values)
    evidence = Evidence(name, (options.root, SHIPPED), settings)
    try:
        runs = evidence.runs(HEADS_EXPERIMENT)
    except NotMeasured as error:
        raise NotComputed(str(error), error.command) from error
    maps = {operation: results.MAP.load(run, operation) for operation, run in runs.items()}
    return RecipeTraining(name, seed, runs, maps)


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


COUNT = "key heads"
MEAN_LAYER = "mean layer, as a share of the depth"
EARLY_SHARE = "share in the first quarter of the layers"
STATISTICS: Mapping[str, Statistic] = {
    COUNT: lambda training, name: len(key_heads(training.effects[name])),
    "strongest effect": lambda training, name: float(np.nanmin(training.means(name))),
    "share of the strongest 5% of the heads": lambda training, name: heads.share_of_few(
        training.means(name)
    ),
    MEAN_LAYER: mean_layer,
    EARLY_SHARE: early_share,
}
IN_COMMON = f"{SHARED_TOP} strongest heads in common"


def summary(trainings: Sequence[RecipeTraining]) -> DataFrame:
    """One row per statistic and operation: each training's value, their mean and their range."""
    values = {
        (title, operation): [statistic(training, operation) for training in trainings]
        for title, statistic in STATISTICS.items()
        for operation in FOUR
    } | {
        (IN_COMMON, f"{a} and {b}"): [
            heads.top_overlap(training.means(a), training.means(b), SHARED_TOP)
            for training in trainings
        ]
        for a, b in combinations(FOUR, 2)
    }
    return DataFrame(
        {
            "statistic": title,
            "operation": operation,
            **{
                f"seed {training.seed}": value
                for training, value in zip(trainings, of_trainings, strict=True)
            },
            "mean": np.mean(of_trainings),
            "sd": np.std(of_trainings, ddof=1),
            "lowest": min(of_trainings),
            "highest": max(of_trainings),
        }
        for (title, operation), of_trainings in values.items()
    )


def _cells(statistics: DataFrame, trainings: Sequence[RecipeTraining]) -> DataFrame:
    """The table as text."""
    seeds = [f"seed {training.seed}" for training in trainings]

    def value_text(title: str, value: float) -> str:
        return f"{value:.1f}".removesuffix(".0") if title == COUNT else f"{value:.0%}"

    rows = []
    for row in statistics.to_dict("records"):
        texts = {name: value_text(row["statistic"], row[name]) for name in (*seeds, "mean")}
        rows.append({"statistic": row["statistic"], "operation": row["operation"], **texts})
    return DataFrame(rows)


def numbers(training: RecipeTraining) -> DataFrame:
    """The map of one training: the effect of every head and MLP, with its interval."""
    tables = [
        effects.to_dataframe().assign(operation=operation)
        for operation, effects in training.effects.items()
    ]
    table = concat(tables, ignore_index=True)
    table.insert(0, "training", training.name)
    return table


def draw(trainings: Sequence[RecipeTraining]) -> plotting.Figure:
    """Per operation, the summed effect of each layer's heads: every training, and their mean."""
    parts = []
    for index, operation in enumerate(FOUR):
        by_layer = np.stack([training.means(operation).sum(1) for training in trainings])
        layers = np.arange(by_layer.shape[1])
        lines = [
            plotting.Line(layers, 100 * values, f"seed {training.seed}", INKS[training.seed])
            for training, values in zip(trainings, by_layer, strict=True)
        ]
        mean = 100 * by_layer.mean(0)
        low, high = 100 * by_layer.min(0), 100 * by_layer.max(0)
        lines.append(plotting.Line(layers, mean, "mean", plotting.BLUE, low, high))
        parts.append(
            plotting.CurvePanel(
                title=plotting.plain(operation.capitalize()),
                lines=tuple(lines),
                y_title="effect of a layer's heads" if index % 2 == 0 else "",
            )
        )
    return plotting.curve_panels(
        parts, x_title="layer", unit="%", notes=_notes(trainings), across=2, panel=(270, 220)
    )


def _look(statistics: DataFrame) -> str:
    """What the trainings' own numbers say."""
    layers = statistics[statistics["statistic"] == MEAN_LAYER]
    low, high = layers["lowest"].min(), layers["highest"].max()
    early = statistics[statistics["statistic"] == EARLY_SHARE]
    return (
        "Whether the lines fall in the same layers. The effect-weighted mean layer lies between "
        f"{low:.0%} and {high:.0%} of the depth; the first quarter of the layers has "
        f"{early['lowest'].min():.0%} to {early['highest'].max():.0%} of what heads take away."
    )


def _notes(trainings: Sequence[RecipeTraining]) -> list[str]:
    operations = " and ".join(LARGEST_OPERAND)
    return [
        f"{len(trainings)} trainings of one recipe with different seeds. Band: the lowest and the "
        "highest of them.",
        f"Problems of {operations}: larger numbers, whose answer cannot be copied.",
        f"Models: {', '.join(training.name for training in trainings)}.",
    ]


main = command_for(exhibits)
