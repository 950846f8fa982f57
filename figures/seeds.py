"""Does another training of the same recipe use the same heads?

Reads the maps (`experiments/which_heads.py`) of a shipped model and of other trainings of its
recipe, which differ in the seed alone, and draws them without loading a model. The picture shows
how many of the strongest heads two trainings have in common, how many are in the same layers, and
how many two operations of one training have in common, beside as many random heads.
"""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.runs import Run
from experiments import results
from experiments.finding import NotComputed, RunSettings, not_default
from experiments.selection import LARGEST_OPERAND, training_folder
from figures.claims.evidence import HEADS_EXPERIMENT, Evidence, NotMeasured
from figures.common import SHIPPED, Options
from figures.exhibit import Exhibit, Numbers, Settings, chart_of, command_for, text_table_of
from figures.tables import seeds as numbers
from figures.tables.seeds import RecipeTraining
from figures.tables.table import from_csv, keys_of, read_back, records, select, value
from figures.views.words import LENS, listed

SEEDS = (1, 2)
"""The seeds of the other trainings; the shipped model's seed is 0."""
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
    maps = [*map(numbers.maps_table, trainings)]
    overlaps = numbers.overlap_table(read_back(*maps), options.model)
    return _exhibits(lambda: [table, overlaps, *maps], lambda: table, tuple(runs))


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
    """A panel for each kind of overlap, with a dot per training or pair, and random heads."""
    *of_trainings, of_operations = (_above_random(table, *kind[1:]) for kind in KINDS)
    above, total = map(sum, zip(*of_trainings, strict=True))
    n = len(keys_of(table, "seed"))
    dot = f"one of {n * (n - 1) // 2} pairs of trainings (a, b), or of {n} trainings (c)"
    return plotting.dot_panels(
        [_panel(table, dot, title.format(n=n), *rest) for title, *rest in KINDS],
        plotting.DotAxis((-5, 105), f"of the {numbers.SHARED_TOP} strongest heads", "%"),
        headings=[
            f"Two trainings share more than the random band in {above} of {total} cases (heads, "
            f"layers); two operations do in {_count_text(*of_operations)}"
        ],
        row=24,
        notes=notes,
    )


KINDS = (
    ("Same heads, 2 of {n} trainings", numbers.SAME_HEADS, numbers.SAME_HEADS),
    ("Same layers, 2 of {n} trainings", numbers.SAME_LAYERS, numbers.SAME_LAYERS),
    ("Same heads, 2 operations", numbers.IN_COMMON, numbers.SAME_HEADS),
)
"""The title of each panel, its measure, and the measure that random heads have beside it."""


def _above_random(table: DataFrame, measure: str, of_random: str) -> tuple[int, int]:
    """In how many cases more is shared than in 95% of the draws of random heads; all cases."""
    shares = _overlaps(table, measure).value
    return int((shares > _random(table, of_random)[2]).sum()), len(shares)


def _count_text(above: int, total: int) -> str:
    """`16 of 18`."""
    return f"{above} of {total}"


def _overlaps(table: DataFrame, measure: str) -> DataFrame:
    """The overlaps in each training, or in each pair."""
    rows = select(table, measure=measure)
    return DataFrame(rows[rows.seed.notna() | (rows.trainings != "")])


def _random(table: DataFrame, measure: str) -> tuple[float, float, float]:
    """What random heads have in common: the low end of 95% of them, the mean, the high end."""
    (one,) = records(select(table, measure=f"{measure}, {numbers.RANDOM}"))
    return one.low, one.value, one.high


def _panel(
    table: DataFrame, dot: str, title: str, measure: str, of_random: str
) -> plotting.DotPanel:
    """One kind of overlap, a row for each operation or each two; `dot` says what its dots are."""
    rows = _overlaps(table, measure)
    operations = keys_of(rows, "operation")
    shares = np.array([100 * select(rows, operation=name).value for name in operations], float)
    middle = (shares.shape[1] - 1) / 2
    series = tuple(
        plotting.Dots(of_one, dot, COLOURS["chosen"], shift=0.28 * (at - middle))
        for at, of_one in enumerate(shares.T)
    )
    low, mean, high = (100 * end for end in _random(table, of_random))
    band = plotting.Band(low, mean, high, "95% of draws of random heads (dashed: mean)")
    return plotting.DotPanel(title, tuple(map(_signs, operations)), series, band=band)


def _signs(operations: str) -> str:
    """`+ and −` for two operations; the name of one."""
    names = operations.split(" and ")
    return " and ".join(OPERATIONS[name].sign for name in names) if names[1:] else operations


def _caption(table: DataFrame) -> str:
    """What two trainings share, and what two operations of one training share, on average."""
    parts = [
        f"{_overlaps(table, measure).value.mean():.0%} ({start}{_random(table, of_random)[1]:.0%})"
        for (_, measure, of_random), start in zip(KINDS, ("random heads ", "", ""), strict=True)
    ]
    above = [_count_text(*_above_random(table, *kind[1:])) for kind in KINDS]
    (model,) = keys_of(select(table, measure=numbers.SAME_HEADS), "model")
    return (
        f"Of their {numbers.SHARED_TOP} strongest heads, two trainings share {parts[0]} on "
        f"average, and have {parts[1]} in the same layers; two operations of one training share "
        f"{parts[2]}. Above the band (95% of random draws) are {listed(above)}. A dot is "
        f"one of {len(keys_of(table, 'seed'))} trainings of the recipe of `{model}`, or one pair; "
        f"heads are ordered by {LENS}."
    )


def _notes(table: DataFrame, _: Settings) -> list[str]:
    operations = " and ".join(LARGEST_OPERAND)
    return [
        f"{len(keys_of(table, 'seed'))} trainings of one recipe with different seeds. Problems of "
        f"{operations}: larger numbers, whose answer cannot be copied.",
    ]


main = command_for(exhibits)
