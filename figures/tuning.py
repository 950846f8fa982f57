"""The frontier: what each method of experiments/does_tuning_help gains and loses at chosen rates.

`figures/tuning_tables.py` has Tables 1, 2 and 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from experiments.does_tuning_help import MOST_LOST, Criterion, TuningMethod
from figures.common import Options, chosen_run
from figures.exhibit import Chart, chart_of
from figures.tables import tuning as numbers
from figures.tables.answers import ALL, BEFORE, CHANGE
from figures.tables.table import has, keys_of, records, select, value
from figures.tables.tuning import Key
from figures.views.words import components_text

EXPERIMENT = "does_tuning_help"
METHOD_NAMES: dict[TuningMethod, str] = {
    "full": "full",
    "precise": "precise",
    "lora": "LoRA",
    "random": "random heads",
}
METHOD_COLOURS = {
    "full": COLOURS["chosen"],
    "precise": COLOURS["chosen"],
    "lora": COLOURS["control"],
    "random": COLOURS["control"],
}
METHOD_SYMBOLS = {
    "full": "square-open",
    "precise": "circle",
    "lora": "diamond",
    "random": "circle-open",
}
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
    """What each method gains in mathematics and loses elsewhere, at the chosen rates.

    Reads a run of `experiments/does_tuning_help` (Table 1) and draws it without loading a model:
    HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as
    CSV.

    Raises:
        RunError: there is no run, or it lacks the table.
    """
    run = chosen_run(options, EXPERIMENT)
    return [
        chart_of(
            lambda: numbers.table(run),
            [run],
            name="frontier",
            title="What does tuning gain in mathematics, and lose elsewhere?",
            caption=_caption,
            notes=_notes,
            draw=_draw,
        )
    ]


def _caption(rows: DataFrame) -> str:
    """What each method gains and loses at its best rate, in each model."""
    findings, before = [], []
    for model in keys_of(rows, "model"):
        (one,) = records(
            select(rows, model=model, measure=BEFORE, task=ALL, group=GROUPS[0]).head(1)
        )
        before.append(f"{one.value:.0%}")
        changes = _changes(select(rows, model=model))
        texts = (
            f"{METHOD_NAMES[key[0]]} {' and '.join(_points(one))}" for key, one in changes.items()
        )
        findings.append(f"`{model}`: {', '.join(texts)}")
    return (
        f"At the rate that was best on validation problems (right before: {' and '.join(before)}; "
        f"n = {one.n:,.0f}), tuning changes word problems and generic tasks by, in points, "
        f"{'; '.join(findings)}. Diamonds are the paper's claim: precise tuning gains as "
        "much as full and loses nothing. Lines are 95% intervals over questions and seeds."
    )


def _changes(rows: DataFrame, criterion: Criterion = "mathematics") -> dict[Key, DataFrame]:
    """The changes of both groups of questions, at the rate of each method for a purpose."""
    rates = rates_for(rows, criterion)
    return {
        key: select(of_setting(rows, key), measure=CHANGE, task=ALL, rate=rate)
        for key, rate in rates.items()
    }


def _points(changes: DataFrame) -> list[str]:
    """What a method changes in each group of questions, in points."""
    texts = (f"{round(100 * value(changes, group=group)):+d}" for group in GROUPS)
    return ["0" if text == "+0" else text.replace("-", "−") for text in texts]


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row per model: what each method changes in word problems, and in generic tasks."""
    panels, headings = [], []
    for model in keys_of(rows, "model"):
        own = select(rows, model=model)
        best = _changes(own)
        full, precise = (
            next(_points(one) for key, one in best.items() if key[0] == method)
            for method in ("full", "precise")
        )
        headings.append(
            f"{model}: precise tuning {precise[0]} points in {GROUPS[0]}, {precise[1]} in "
            f"{GROUPS[1]}; full {' and '.join(full)}"
        )
        panels += [_panel(own, group) for group in GROUPS]
    return plotting.dot_panels(
        panels,
        tuple(plotting.DotAxis(_ends(rows, group), AXIS) for group in GROUPS),
        across=len(GROUPS),
        headings=headings,
        row=30,
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


CRITERION_MARKS: dict[Criterion, tuple[str, str, str]] = {
    "mathematics": ("best rate for word problems", "circle", COLOURS["chosen"]),
    "little_loss": (
        f"best rate that loses {MOST_LOST_TEXT} on other generic questions",
        "circle-open",
        plotting.GREY,
    ),
}


def _panel(rows: DataFrame, group: str) -> plotting.DotPanel:
    """The changes of one group by each method, with what the paper claims of precise tuning."""
    keys, series = settings_of(rows), []
    names = tuple(title_of(key) for key in keys)
    for shift, criterion in zip((-0.22, 0.22), criteria_of(rows), strict=False):
        changes = _changes(rows, criterion)
        ends = np.full((len(keys), 3), np.nan)
        for at, key in enumerate(keys):
            if key in changes:
                of_group = select(changes[key], group=group)
                ends[at] = 100 * of_group[["value", "low", "high"]].to_numpy()[0]
        name, symbol, colour = CRITERION_MARKS[criterion]
        series.append(
            plotting.Dots(ends[:, 0], name, colour, ends[:, 1], ends[:, 2], symbol, shift)
        )
    methods = [key[0] for key in keys]
    claimed = np.full(len(keys), np.nan)
    as_full = series[0].values[methods.index("full")]
    claimed[methods.index("precise")] = as_full if group == GROUPS[0] else 0.0
    claim = plotting.Dots(claimed, "the paper's claim", COLOURS["chosen"], symbol="diamond-open")
    strong = tuple(method == "precise" for method in methods)
    before = select(rows, measure=BEFORE, task=ALL, group=group).value
    title = f"{group.capitalize()}, {before.iloc[0]:.1%} before" if len(before) else group
    return plotting.DotPanel(title, names, (*series, claim), strong)


def _notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How many questions, trainings and heads there are."""
    questions = records(select(rows, measure=BEFORE, task=ALL).drop_duplicates("group"))
    sizes = ", ".join(f"{one.n:.0f} {one.group}" for one in questions)
    seeds = [f"{count:.0f}" for count in sorted(_seeds(rows))]
    precise = (
        f"{components_text(select(rows, model=name))} of {name}" for name in keys_of(rows, "model")
    )
    lines = [
        f"Before: the share that was right. {sizes}; {config['examples'] or 'all'} word problems "
        f"are tuned on, {config['epochs']} epoch{'s' * (config['epochs'] > 1)}. Precise: heads "
        f"{', '.join(precise)}. Means of {' or '.join(seeds)} seeds with 95% intervals over "
        "questions and seeds.",
    ]
    for name in keys_of(rows, "model"):
        own = select(rows, model=name)
        unmet = [key for criterion in criteria_of(own) for key in without_rate(own, criterion)]
        if unmet:
            texts = "; ".join(map(title_of, unmet))
            lines.append(f"In {name} no rate loses {MOST_LOST_TEXT}: {texts}.")
    return lines


def _seeds(rows: DataFrame) -> set[float]:
    """How many trainings there are at chosen rates."""
    return {
        value(of_setting(own, key), measure=numbers.TRAININGS, rate=rate)
        for own in (select(rows, model=name) for name in keys_of(rows, "model"))
        for criterion in criteria_of(own)
        for key, rate in rates_for(own, criterion).items()
    }
