"""The frontier: what each method of experiments/does_tuning_help gains and loses at chosen rates.

`figures/tuning_tables.py` has Tables 1, 2 and 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from experiments.does_tuning_help import MOST_LOST, Criterion, TuningMethod
from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import tuning as numbers
from figures.tables.answers import ALL, BEFORE, CHANGE
from figures.tables.table import has, keys_of, records, select, value
from figures.tables.tuning import Key
from figures.views import maps
from figures.views.lines import dots
from figures.views.words import components_text

EXPERIMENT = "does_tuning_help"
METHOD_NAMES: dict[TuningMethod, str] = {
    "full": "full",
    "precise": "precise",
    "lora": "LoRA",
    "random": "random heads",
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
    """What precise tuning gains and loses in each model, what others do, and with little loss."""
    findings, little = [], []
    for model in keys_of(rows, "model"):
        own = select(rows, model=model)
        texts = {key[0]: " and ".join(_points(one)) for key, one in _changes(own).items()}
        others = ", ".join(
            f"{METHOD_NAMES[one]} {texts[one]}"
            for one in ("random", "lora", "full")
            if one in texts
        )
        findings.append(f"{texts['precise']} in `{model}` ({others})")
        gains = {key[0]: _points(one)[0] for key, one in _changes(own, "little_loss").items()}
        little.append(f"{gains.get('precise', 'none')} (full {gains.get('full', 'none')})")
    sizes = records(select(rows, measure=BEFORE, task=ALL).drop_duplicates("group"))
    return (
        f"At its best rate, precise tuning changes {' and '.join(GROUPS)} by, in points, "
        f"{'; '.join(findings)}. At the best that loses {MOST_LOST_TEXT} on other generic tasks, "
        f"which choose the rate (hollow), word problems change by {' and '.join(little)}. Lines: "
        "95% intervals over trainings, "
        f"{' and '.join(f'{one.n:,.0f} {one.group}' for one in sizes)}."
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
        headings.append(f"{model}: precise tuning {_finding(own)}")
        panels += [_panel(own, group) for group in GROUPS]
    return plotting.dot_panels(
        panels,
        tuple(plotting.DotAxis(_ends(rows, group), AXIS) for group in GROUPS),
        across=len(GROUPS),
        headings=headings,
        row=25,
        notes=notes,
    )


def _finding(rows: DataFrame) -> str:
    """What precise tuning gains and loses beside full tuning, in words that intervals support."""
    changes = {key[0]: one for key, one in _changes(rows).items()}
    random, own, full = (
        records(select(changes[method], group=GROUPS[0]))[0]
        for method in ("random", "precise", "full")
    )
    lora = records(select(changes["lora"], group=GROUPS[0])) if "lora" in changes else []
    if own.low > 0 and full.low > 0:
        by_others = "".join(f", LoRA {one.value / full.value:.0%}" for one in lora)
        by_others = f"(random heads {random.value / full.value:.0%}{by_others})".replace("-", "−")
        gain = f"gains {own.value / full.value:.0%} of full tuning's gain {by_others}"
    else:
        by_lora = "".join(f" (LoRA {100 * one.value:+.0f})" for one in lora).replace("-", "−")
        by_full = _verb(full).removesuffix(" points")
        gain = f"{_verb(own)} where full tuning {by_full}{by_lora}"
    own, full = (records(select(changes[one], group=GROUPS[1]))[0] for one in ("precise", "full"))
    if own.low <= 0 <= own.high:
        return f"{gain}, loses nothing elsewhere"
    degree = "more" if own.high < full.low else "less" if own.low > full.high else "as much"
    return f"{gain}, loses {degree} elsewhere"


def _verb(change: Any) -> str:
    """`gains 13 points`, if the interval is on one side of 0."""
    if change.low <= 0 <= change.high:
        return "changes nothing"
    return f"{'gains' if change.value > 0 else 'loses'} {abs(100 * change.value):.0f} points"


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


RATE_MARKS: dict[Criterion, tuple[str, str, str, float]] = {
    "mathematics": ("best learning rate for word problems", "circle", COLOURS["chosen"], -0.2),
    "little_loss": (
        f"best that loses {MOST_LOST_TEXT} on other generic tasks",
        "circle-open",
        plotting.GREY,
        0.2,
    ),
}
"""The name, the mark, its colour and its place in a row."""
CLAIM = "the paper's claim for precise tuning"


def _panel(rows: DataFrame, group: str) -> plotting.DotPanel:
    """The changes of one group by each method, with what the paper claims of precise tuning."""
    keys, series = settings_of(rows), []
    names = [title_of(key) for key in keys]
    for criterion in criteria_of(rows):
        changes = _changes(rows, criterion)
        own = concat({title_of(key): select(one, group=group) for key, one in changes.items()})
        series.append(rate_dots(criterion, own.droplevel(1), names))
    methods = [key[0] for key in keys]
    full = series[0].values[methods.index("full")] if group == GROUPS[0] else 0.0
    claimed = np.where([method == "precise" for method in methods], full, np.nan)
    series.append(plotting.Dots(claimed, CLAIM, COLOURS["control"], symbol="line-ns-open"))
    (before,) = records(select(rows, measure=BEFORE, task=ALL, group=group))
    title = maps.title(group, f"{before.value:.0%} before, n = {before.n:,.0f}")
    strong = tuple(name.startswith("precise") for name in names)
    return plotting.DotPanel(title, tuple(names), tuple(series), strong)


def rate_dots(criterion: Criterion, rows: DataFrame, names: Sequence[str]) -> plotting.Dots:
    """Marks at the changes of the named rows, in points, by the rates for a purpose."""
    name, symbol, colour, shift = RATE_MARKS[criterion]
    return dots(rows, names, name, colour, symbol, shift)


def _notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """What is tuned on what, how often, and where no rate loses little."""
    seeds = [f"{count:.0f}" for count in sorted(_seeds(rows))]
    precise = (
        f"{components_text(select(rows, model=name))} of {name}" for name in keys_of(rows, "model")
    )
    lines = [
        f"Precise: heads {'; '.join(precise)}. Tuned on {config['examples'] or 'all'} word "
        f"problems, {config['epochs']} epoch{'s' * (config['epochs'] > 1)}. Marks: means of "
        f"{' or '.join(seeds)} seeds, with 95% intervals over questions and seeds.",
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
