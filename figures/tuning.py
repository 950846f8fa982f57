"""The frontier: what each method of experiments/does_tuning_help gains and loses at chosen rates.

`figures/tuning_tables.py` has Tables 1, 2 and 5.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.dots import LEVEL
from experiments.does_tuning_help import MOST_LOST, Criterion
from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import tuning as numbers
from figures.tables.answers import ALL, BEFORE, CHANGE
from figures.tables.table import has, keys_of, records, select
from figures.tables.tuning import Key
from figures.views.lines import dots

EXPERIMENT = "does_tuning_help"
GROUPS = ("word problems", "generic tasks")
"""What tuning is for, and what it should not change."""
MOST_LOST_TEXT = f"at most {100 * MOST_LOST:g} points"


def title_of(key: Key) -> str:
    """What a row tunes, in words."""
    method, heads, mlps = key
    mlps_text = f" + {mlps} MLP{'s' * (mlps > 1)}" if mlps else ""
    count = f"{heads} head{'s' * (heads > 1)}{mlps_text}"
    return {
        "full": "full: all weights",
        "precise": f"precise: {count}",
        "lora": "LoRA: about as many parameters",
        "random": f"random: {count}",
    }[method]


def settings_of(rows: DataFrame) -> list[Key]:
    """What the rows of the paper's table tune, in its order."""
    return [*dict.fromkeys(map(key_of, records(select(rows, measure=numbers.VALIDATION))))]


def key_of(one: Any) -> Key:
    """What a row of the table tunes."""
    return one.method, int(one.n_heads), int(one.n_mlps)


def of_setting(rows: DataFrame, key: Key) -> DataFrame:
    """The rows of the table about one setting."""
    method, n_heads, n_mlps = key
    return select(rows, method=method, n_heads=n_heads, n_mlps=n_mlps)


def criteria_of(rows: DataFrame) -> list[Criterion]:
    """The purposes that rates were chosen for."""
    little_loss: list[Criterion] = ["little_loss"]
    return ["mathematics", *(little_loss if has(rows, measure=numbers.CHOOSING_CHANGE) else [])]


def rates_for(rows: DataFrame, criterion: Criterion) -> dict[Key, float]:
    """The rate of each setting that was chosen for a purpose."""
    rates = select(rows, measure=numbers.CHOSEN_RATE, chosen_for=criterion)
    return {key_of(one): one.value for one in records(rates)}


def without_rate(rows: DataFrame, criterion: Criterion) -> list[Key]:
    """The settings for which no rate of the grid serves a purpose."""
    served = rates_for(rows, criterion)
    return [key for key in settings_of(rows) if key not in served]


def frontier(options: Options) -> list[Chart]:
    """What each method gains in mathematics and loses elsewhere, at the chosen rates."""
    run = chosen_run(options, EXPERIMENT)
    return [
        chart_of(
            partial(numbers.table, run),
            [run],
            name="frontier",
            table_of="table1",
            title="What does tuning gain in mathematics, and lose elsewhere?",
            caption="Precise tuning trains the heads with the largest effects alone; the paper "
            "claims that it gains as much as full tuning and loses nothing. Rates were chosen on "
            f"other questions; for little loss, one may lose {MOST_LOST_TEXT} there. "
            "Lines: 95% intervals over n questions and trainings.",
            draw=_draw,
        )
    ]


def _changes(rows: DataFrame, criterion: Criterion = "mathematics") -> dict[Key, DataFrame]:
    """The changes of both groups of questions, at the rate of each method for a purpose."""
    return {
        key: select(of_setting(rows, key), measure=CHANGE, task=ALL, rate=rate)
        for key, rate in rates_for(rows, criterion).items()
    }


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row per model: what each method changes in word problems, and in generic tasks."""
    models = keys_of(rows, "model")
    return plotting.dot_panels(
        [_panel(select(rows, model=model), group) for model in models for group in GROUPS],
        tuple(plotting.DotAxis(_ends(rows, group), AXIS) for group in GROUPS),
        across=len(GROUPS),
        headings=models,
        row=34,
        notes=notes,
    )


AXIS = "change of accuracy in points"


def _ends(rows: DataFrame, group: str) -> tuple[float, float]:
    """The ends of the axis of a group: its changes in all models, and 0, with some room."""
    parts = [select(rows, model=model) for model in keys_of(rows, "model")]
    ends = [
        100 * select(one, group=group)[["low", "high"]].to_numpy()
        for part in parts
        for criterion in criteria_of(part)
        for one in _changes(part, criterion).values()
    ]
    low, high = min(0.0, *map(np.min, ends)), max(0.0, *map(np.max, ends))
    return 10 * np.floor(low / 10) - 5, 10 * np.ceil(high / 10) + 5


RATE_MARKS: dict[Criterion, tuple[str, str, float]] = {
    "mathematics": ("learning rate chosen for word problems", "circle", -0.16),
    "little_loss": ("chosen for little loss in generic tasks", "circle-open", 0.2),
}
"""The name, the mark and its place in a row."""
CLAIM = "the paper's claim for precise"


def _panel(rows: DataFrame, group: str) -> plotting.DotPanel:
    """The changes of one group by each method, with what the paper claims of precise tuning."""
    keys, series = settings_of(rows), []
    names = [title_of(key) for key in keys]
    for criterion in criteria_of(rows):
        changes = _changes(rows, criterion)
        own = concat({title_of(key): select(one, group=group) for key, one in changes.items()})
        name, mark, shift = RATE_MARKS[criterion]
        series.append(dots(own.droplevel(1), names, name, COLOURS["verdict"], mark, shift))
    methods = [key[0] for key in keys]
    full = series[0].values[methods.index("full")] if group == GROUPS[0] else 0.0
    claimed = np.where([method == "precise" for method in methods], full, np.nan)
    series.append(plotting.Dots(claimed, CLAIM, COLOURS["control"], symbol=LEVEL))
    (before,) = records(select(rows, measure=BEFORE, task=ALL, group=group))
    title = f"{group.capitalize()}, {before.value:.0%} before, n = {before.n:,.0f}"
    strong = tuple(name.startswith("precise") for name in names)
    return plotting.DotPanel(title, tuple(names), tuple(series), strong)
