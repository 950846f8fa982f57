"""Does another training of the same recipe give the same picture? Effects by layer, per seed.

Reads the maps (`experiments/which_heads.py`) of a shipped model and of other trainings of its
recipe, which differ in the seed alone, and draws them without loading a model. Which head does
what has no meaning across trainings. In which layers heads matter, how many they are, and how much
operations have in common can be compared.
"""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.runs import Run
from experiments import results
from experiments.finding import NotComputed, RunSettings, not_default
from experiments.selection import LARGEST_OPERAND, training_folder
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence, NotMeasured
from figures.common import SHIPPED, Options
from figures.exhibit import Exhibit, Numbers, Settings, chart_of, command_for, text_table_of
from figures.tables import seeds as numbers
from figures.tables.effects import EFFECT
from figures.tables.seeds import RecipeTraining
from figures.tables.table import from_csv, keys_of, select, value
from figures.views import maps

SEEDS = (1, 2)
"""The seeds of the other trainings; the shipped model's seed is 0."""
SMALLEST, WHOLE, LARGEST = 0.01, 0.3, 24
"""The least effect that is drawn; the effect whose dot has the largest diameter, in pixels."""


SHIPPED_TABLES = SHIPPED.parent
"""Where the tables of this figure ship with the project: the trainings take hours."""


def exhibits(options: Options) -> list[Exhibit]:
    """The effects by layer, and what repeats.

    Without runs of other trainings, the shipped tables of a shipped model are shown.

    Raises:
        RunError: no other training has its runs, and no shipped table is of this model.
    """
    try:
        trainings = [_training(options.model, 0, options), *_others(options)]
    except NotComputed as error:
        charted = _shipped_table("seeds", options.model)
        if charted.empty or not_default(HEADS_EXPERIMENT, options.settings.values):
            raise error
        return _exhibits(charted, _shipped_table("seeds_summary", options.model))
    runs = dict.fromkeys(run for training in trainings for run in training.runs.values())
    table = numbers.table(trainings)
    with_maps = [table, *map(numbers.maps_table, trainings)]
    return _exhibits(lambda: with_maps, lambda: table, tuple(runs))


def _shipped_table(name: str, model: str) -> DataFrame:
    """The rows of a shipped table, if it is of this model; else none."""
    path = SHIPPED_TABLES / f"{name}.csv"
    rows = from_csv(path.read_text(encoding="utf-8")) if path.exists() else DataFrame()
    is_of_model = "model" in rows.columns and model in keys_of(rows, "model")
    return rows if is_of_model else rows.head(0)


def _exhibits(charted: Numbers, listed: Numbers, runs: Sequence[Run] = ()) -> list[Exhibit]:
    return [
        chart_of(
            charted,
            runs,
            name="seeds",
            title="Does another training of the recipe use the same heads?",
            caption=_caption,
            notes=_notes,
            draw=_draw,
        ),
        text_table_of(
            listed,
            runs,
            name="seeds_summary",
            title="What repeats in other trainings of the recipe",
            caption=lambda _: (
                "Whether the trainings agree. A statement about where heads are, or about what "
                "operations share, needs every row of it to agree."
            ),
            notes=_notes,
            cells=_cells,
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


def _over_trainings(rows: DataFrame) -> DataFrame:
    """The rows over all trainings."""
    return DataFrame(rows[rows.seed.isna()])


def _cells(table: DataFrame) -> DataFrame:
    """Each statistic of each operation as text: of each training, and the mean."""
    seeds, lines = sorted(map(int, keys_of(table, "seed"))), []

    def value_text(measure: str, number: float) -> str:
        is_count = measure == numbers.COUNT
        return f"{number:.1f}".removesuffix(".0") if is_count else f"{number:.0%}"

    for measure in (*numbers.STATISTICS, numbers.IN_COMMON):
        of_measure = select(table, measure=measure)
        for operation in keys_of(of_measure, "operation"):
            rows = select(of_measure, operation=operation)
            by_column = {f"seed {seed}": value(rows, seed=seed) for seed in seeds}
            by_column["mean"] = value(_over_trainings(rows))
            texts = {name: value_text(measure, number) for name, number in by_column.items()}
            lines.append({"statistic": measure, "operation": operation, **texts})
    return DataFrame(lines)


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Per operation a dot for each head of each training, in its layer, as large as its effect."""
    effects = select(table, measure=EFFECT)
    heads = DataFrame(effects[effects["index"].notna() & (effects.value.abs() >= SMALLEST)])
    seeds, n_layers = sorted(map(int, keys_of(heads, "seed"))), int(effects.layer.max()) + 1
    of = effects["index"].max() + 1
    panels = []
    for operation in keys_of(heads, "operation"):
        rows, series = select(heads, operation=operation), []
        certain = (rows.low > 0) | (rows.high < 0)
        for name, sign, is_sure in KINDS:
            own = DataFrame(rows[(np.sign(rows.value) == sign) & (certain == is_sure)])
            across = own.seed.map(seeds.index) + 0.7 * ((own["index"] + 0.5) / of - 0.5)
            series.append(
                plotting.Dots(
                    across.to_numpy(dtype=float),
                    name if is_sure else "",
                    COLOURS[name],
                    symbol="circle" if is_sure else "circle-open",
                    at=(n_layers - 1 - own.layer).to_numpy(dtype=int),
                    sizes=_diameter(own.value.abs().to_numpy()),
                )
            )
        means = select(table, measure=numbers.MEAN_LAYER, operation=operation)
        series += [
            _mean_layer(value(means, seed=seed), n_layers, at) for at, seed in enumerate(seeds)
        ]
        series += [_size_key(size) for size in SIZES]
        layers = tuple(str(layer) for layer in reversed(range(n_layers)))
        panels.append(plotting.DotPanel(maps.title(operation, ""), layers, tuple(series)))
    return plotting.dot_panels(
        panels,
        plotting.DotAxis((-0.6, len(seeds) - 0.4), columns=tuple(f"seed {seed}" for seed in seeds)),
        headings=[_finding(table)],
        notes=notes,
    )


KINDS = tuple(
    (name, sign, is_sure)
    for name, sign in (("effect that helps", -1), ("effect that hinders", 1))
    for is_sure in (True, False)
)
SIZES = (0.02, 0.1, 0.3)
"""The effects of the size key."""


def _diameter(effects: np.ndarray) -> np.ndarray:
    """The pixels of dots whose areas are the effects."""
    return LARGEST * np.sqrt(effects / WHOLE)


def _mean_layer(share: float, n_layers: int, column: int) -> plotting.Dots:
    """A dash at the mean layer of one training."""
    row = (n_layers - 1) * (1 - share)
    at, nothing = np.array([int(row)]), np.array([34.0])
    place = np.array([float(column)])
    return plotting.Dots(
        place,
        "mean layer",
        COLOURS["chosen"],
        symbol="line-ew-open",
        shift=row - int(row),
        at=at,
        sizes=nothing,
    )


def _size_key(effect: float) -> plotting.Dots:
    """An entry of the key: the dot of an effect."""
    nowhere = np.array([np.nan])
    sizes = _diameter(np.array([effect]))
    return plotting.Dots(
        nowhere, f"{effect:.0%}", COLOURS["control"], at=np.array([0]), sizes=sizes
    )


def _finding(table: DataFrame) -> str:
    """Where the heads are, and what operations share, over the trainings."""
    layers, shared = (
        _over_trainings(select(table, measure=measure))
        for measure in (numbers.MEAN_LAYER, numbers.IN_COMMON)
    )
    return (
        f"In {len(keys_of(table, 'seed'))} trainings of one recipe, heads lie on average at "
        f"{layers.low.min():.0%} to {layers.high.max():.0%} of the depth; two operations share "
        f"{shared.low.min():.0%} to {shared.high.max():.0%} of their ten strongest"
    )


def _caption(table: DataFrame) -> str:
    """What the trainings' own numbers say."""
    return (
        f"{_finding(table)}. A dot is a head in its layer, its area the size of its effect on C's "
        "logit with a word in place of the operator; a dash is the mean layer, weighted by effect. "
        "Dots are open where the 95% interval over problems includes 0."
    )


def _notes(table: DataFrame, _: Settings) -> list[str]:
    operations = " and ".join(LARGEST_OPERAND)
    return [
        f"{len(keys_of(table, 'seed'))} trainings of one recipe with different seeds; layers "
        f"upwards. Dots from {SMALLEST:.0%} of C's logit on; open: "
        "the 95% interval over problems includes 0. Across: the heads of a layer in their order.",
        f"Problems of {operations}: larger numbers, whose answer cannot be copied.",
    ]


main = command_for(exhibits)
