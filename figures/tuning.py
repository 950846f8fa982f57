"""The frontier: every training of experiments/does_tuning_help, its gain against its loss.

`figures/tuning_tables.py` has Tables 1, 2 and 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
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
    "full": plotting.GREY,
    "precise": COLOURS["chosen"],
    "lora": COLOURS["control"],
    "random": COLOURS["control"],
}
METHOD_DASHES = {"full": "solid", "precise": "solid", "lora": "dash", "random": "dot"}
DASH_NAMES = {"solid": "", "dash": " (dashed)", "dot": " (dotted)"}
METHOD_SYMBOLS = {"full": "square", "precise": "circle", "lora": "diamond", "random": "circle-open"}
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
    """What each method gains in mathematics and loses elsewhere, at every rate of the grid.

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
    findings = []
    for model in keys_of(rows, "model"):
        own, texts = select(rows, model=model), []
        for key, rate in rates_for(own, "mathematics").items():
            changes = select(of_setting(own, key), measure=CHANGE, task=ALL, rate=rate)
            gain, loss = (
                100 * value(changes, group=group) for group in ("word problems", "generic tasks")
            )
            texts.append(f"{METHOD_NAMES[key[0]]} {gain:+.0f} and {loss:+.0f}".replace("-", "−"))
        findings.append(f"`{model}`: {', '.join(texts)}")
    return (
        "At its best rate for word problems, a method changes these and generic tasks by, in "
        "points, "
        f"{'; '.join(findings)}. A point is one rate of one method; up and right are "
        "better, "
        "and the paper's claim would be a point of precise tuning at the top right. Crosses are "
        "95% "
        "intervals over questions and seeds; the picture has the first model."
    )


def _draw(rows: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One trail per method, through its rates."""
    rows = select(rows, model=keys_of(rows, "model")[0])
    return plotting.trail_chart(
        [_trail(rows, key) for key in settings_of(rows)],
        x_title="Generic tasks, change in points (square-root scale)",
        y_title="Word problems, change in points",
        root=True,
        notes=notes,
    )


def _trail(rows: DataFrame, key: Key) -> plotting.Trail:
    """A method's rates: the means, with intervals where a rate has several trainings."""
    of_key, method = of_setting(rows, key), key[0]
    trainings = select(of_key, measure=numbers.TRAININGS).sort_values("rate")
    several = (trainings.value > 1).to_numpy()
    (y, y_ends), (x, x_ends) = (
        _points(of_key, group, several) for group in ("word problems", "generic tasks")
    )
    rates = {name: rates_for(rows, name).get(key) for name in criteria_of(rows)}
    return plotting.Trail(
        x,
        y,
        tuple(f"{rate:.0e}".replace("e-0", "e-") for rate in trainings.rate),
        METHOD_NAMES[method] + DASH_NAMES[METHOD_DASHES[method]],
        METHOD_COLOURS[method],
        METHOD_DASHES[method],
        tuple(
            _mark(rates, rate, has_several)
            for rate, has_several in zip(trainings.rate, several, strict=True)
        ),
        x_ends,
        y_ends,
    )


def _points(
    of_key: DataFrame, group: str, several: np.ndarray
) -> tuple[Float[np.ndarray, " rate"], Float[np.ndarray, "rate end=2"]]:
    """The mean change at each rate in points, and its interval if there are several trainings."""
    changes = select(of_key, measure=CHANGE, group=group, task=ALL).sort_values("rate")
    ends = np.where(several[:, None], changes[["low", "high"]], np.nan)
    return 100 * changes.value.to_numpy(), 100 * ends


def _mark(rates: Mapping[str, float | None], rate: float, has_several: bool) -> plotting.TrailMark:
    if rates["mathematics"] == rate:
        return "ring"
    if rate in rates.values():
        return "square"
    return "point" if has_several else "pale"


def _notes(rows: DataFrame, config: Mapping[str, Any]) -> list[str]:
    """How to read the figure, and what it was made from."""
    rows = select(rows, model=keys_of(rows, "model")[0])
    before = select(rows, measure=BEFORE, task=ALL)
    shares = ", ".join(f"{one.group} {one.value:.1%} of {one.n:.0f}" for one in records(before))
    seeds = [f"{count:.0f}" for count in sorted(_seeds(rows))]
    lines = [
        f"Model: {config['model']}, before tuning {shares}. Beside each point its rate; "
        f"{config['examples'] or 'all'} word problems, {config['epochs']} "
        f"epoch{'s' * (config['epochs'] > 1)}. Precise: heads {components_text(rows)}; LoRA has "
        "as many parameters.",
        f"Large marks: means of {' or '.join(seeds)} seeds with 95% intervals over "
        "questions and seeds (broad lines). Ring: the best rate for mathematics. "
        + f"Square: the best that loses {MOST_LOST_TEXT} on other generic questions. "
        * ("little_loss" in criteria_of(rows))
        + "Small points: one training.",
    ]
    unmet = [key for criterion in criteria_of(rows) for key in without_rate(rows, criterion)]
    if unmet:
        lines.append(f"No rate loses {MOST_LOST_TEXT}: {'; '.join(map(title_of, unmet))}.")
    return lines


def _seeds(rows: DataFrame) -> set[float]:
    """How many trainings there are at chosen rates."""
    return {
        value(of_setting(rows, key), measure=numbers.TRAININGS, rate=rate)
        for criterion in criteria_of(rows)
        for key, rate in rates_for(rows, criterion).items()
    }
