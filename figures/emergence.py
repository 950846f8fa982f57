"""How do the heads, the last MLP and the carry emerge in training?

Reads a run of `experiments emergence`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.interchanges.controls import COMPLEMENT, SPAN
from figures.common import Options, chosen_run
from figures.exhibit import Exhibit, Settings, chart_of
from figures.tables import emergence as numbers
from figures.tables.carry import MEAN, WHOLE
from figures.tables.emergence import ONE_DIGIT, OTHER_HEADS, WITH_CARRY, WITHOUT_CARRY
from figures.tables.table import keys_of, number_of, records, select
from figures.views.lines import line

SUMS = {
    ONE_DIGIT: ("one digit", plotting.BLUE, "dot"),
    WITHOUT_CARRY: ("two digits, no carry", plotting.BLUE, "dash"),
    WITH_CARRY: ("two digits, carry", plotting.DARK, "solid"),
}
SPACES = {
    WHOLE: ("whole stream", plotting.GREY, "solid"),
    MEAN: ("one direction", plotting.DARK, "solid"),
    COMPLEMENT: ("everything but it", plotting.COLOURS["control"], "dash"),
    SPAN: ("random directions", plotting.COLOURS["control"], "dot"),
}
N_NAMED = 3
"""The heads whose lines are named, the strongest of the last snapshot."""
TICKS = (50, 100, 200, 400, 800, 1500, 3000, 6000, 12000)


def emergence(options: Options) -> list[Exhibit]:
    """How heads, the last MLP and the carry emerge, over the steps of one training.

    Reads a run of `experiments emergence` (`--run PATH`) and draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "emergence")
    chart = chart_of(
        lambda: numbers.table(run),
        [run],
        name="emergence",
        title="How do the heads and the carry emerge in training?",
        caption=_caption,
        notes=_notes,
        draw=_draw,
        small_table=lambda rows: DataFrame(list(_cells(rows))),
    )
    return [chart]


def _rises(table: DataFrame) -> dict[str, float]:
    return {one.what: one.value for one in records(select(table, kind="rise"))}


def _caption(table: DataFrame) -> str:
    steps = _rises(table)
    texts = (
        (ONE_DIGIT, "the accuracy of one-digit sums"),
        (numbers.HEADS_RISE, "the effect of the median head of the final ten"),
        (numbers.LAST_MLP, "the last MLP"),
        (WITH_CARRY, "that of two-digit sums with a carry"),
        (numbers.DIRECTION, "the direction of the carry"),
    )
    rises = ", ".join(f"{text} at step {steps[name]:.0f}" for name, text in texts if name in steps)
    return f"When each curve is halfway to its last value: {rises}."


def _notes(table: DataFrame, settings: Settings) -> list[str]:
    last = int(select(table, kind="overlap").step.max())
    carry = select(table, kind="carry", layer_of=numbers.OF_LAST)
    right = select(table, kind="accuracy", measure=numbers.ACCURACY)
    sums = (select(right, sums=one).n.max() for one in (ONE_DIGIT, WITH_CARRY))
    sizes = [*sums, select(table, kind="head").n.max(), carry.n.max()]
    counts = "a {:.0f} and {:.0f}, b and c {:.0f}, e {:.0f}".format(*sizes)
    return [
        f"One training, up to step {last}. Dashed: halfway, for one digit and with a carry. b, c: "
        "path patching under other operands; the final ten are chosen on other problems. e: END at "
        f"the exit of layer {carry.layer.max():.0f}. Bands: 95% over problems ({counts}).",
    ]


def _line(
    rows: DataFrame, name: str, colour: str, factor: float = 100, **changes: Any
) -> plotting.Line:
    """A line over the logarithm of the steps."""
    rows = rows.assign(step=np.log2(rows.step))
    return line(rows, name, colour, x="step", scale=factor, **changes)


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    steps = select(table, kind="overlap").step
    panels = [
        _accuracy(table),
        _heads(table),
        _overlap(table),
        _last_mlp(table),
        _carry(table),
        _losses(table, steps.min()),
    ]
    figure = plotting.curve_panels(
        panels, x_title="step", notes=notes, headings=[*_headings(table)], panel=(290, 150)
    )
    ticks = [step for step in TICKS if steps.min() <= step <= 1.02 * steps.max()]
    return figure.update_xaxes(tickvals=np.log2(ticks), ticktext=[str(step) for step in ticks])


def _headings(table: DataFrame) -> Iterator[str]:
    """The finding of each row of panels."""
    steps = _rises(table)
    rises = (
        (ONE_DIGIT, "one-digit sums"),
        (numbers.HEADS_RISE, "median final head"),
        (WITH_CARRY, "sums with a carry"),
    )
    halfway = ", ".join(f"{text} {steps[what]:.0f}" for what, text in rises if what in steps)
    yield f"Halfway to its last value at step: {halfway}"

    def last(**keys: str) -> float:
        rows = select(table, **keys)
        return rows.loc[rows.step.idxmax()].value

    strongest, mlp = last(kind="overlap"), last(kind="last mlp")
    yield (
        f"At the end {strongest:.0f} of {numbers.N_FINAL} strongest heads are the final ones; the "
        f"last MLP alone gives the other answer in {mlp:.0%}"
    )
    carry = {space: last(kind="carry", layer_of=numbers.OF_LAST, space=space) for space in SPACES}
    yield (
        f"At the end one direction moves the carry in {carry[MEAN]:.0%} of answers; everything but "
        f"it in {carry[COMPLEMENT]:.0%}, random directions in {carry[SPAN]:.0%}"
    )


def _accuracy(table: DataFrame) -> plotting.CurvePanel:
    rows = select(table, kind="accuracy", measure=numbers.ACCURACY)
    lines = [
        _line(select(rows, sums=sums), name, colour, dash=dash)
        for sums, (name, colour, dash) in SUMS.items()
    ]
    steps = _rises(table)
    guides = [
        (float(np.log2(steps[sums])), "") for sums in (ONE_DIGIT, WITH_CARRY) if sums in steps
    ]
    return plotting.CurvePanel(
        title="Right answers",
        lines=tuple(lines),
        guides=tuple(guides),
        y_title="%",
        y_range=(0, 102),
    )


def _heads(table: DataFrame) -> plotting.CurvePanel:
    """Each head of the final ten, and the mean of the others."""
    rows = select(table, kind="head", lens="operands")
    last = DataFrame(rows[rows.step == rows.step.max()]).sort_values("value", ascending=False)
    lines = [
        _line(
            select(rows, component=head),
            head,
            plotting.DARK,
            1,
            label=head if i < N_NAMED else "",
            low=None,
            high=None,
        )
        for i, head in enumerate(keys_of(last, "component"))
    ]
    others = select(table, kind="group", lens="operands", group=OTHER_HEADS)
    lines.append(_line(others, "mean of the others", plotting.COLOURS["control"], 1))
    return plotting.CurvePanel(
        title="The final ten heads", lines=tuple(lines), y_title="lead lost, logits"
    )


def _overlap(table: DataFrame) -> plotting.CurvePanel:
    rows = select(table, kind="overlap")
    line = _line(rows, "are final", plotting.DARK, 100 / numbers.N_FINAL)
    return plotting.CurvePanel(
        title="The ten strongest of each step", lines=(line,), y_title="%", y_range=(0, 102)
    )


def _last_mlp(table: DataFrame) -> plotting.CurvePanel:
    line = _line(select(table, kind="last mlp"), "the other problem's answer", plotting.BLUE)
    return plotting.CurvePanel(
        title="Last MLP exchanged", lines=(line,), y_title="%", y_range=(0, 102)
    )


def _carry(table: DataFrame) -> plotting.CurvePanel:
    rows = select(table, kind="carry", layer_of=numbers.OF_LAST)
    lines = [
        _line(select(rows, space=space), name, colour, dash=dash)
        for space, (name, colour, dash) in SPACES.items()
    ]
    return plotting.CurvePanel(
        title="Carry of the ones",
        lines=tuple(lines),
        y_title="answers that follow, %",
        y_range=(0, 102),
    )


def _losses(table: DataFrame, first: float) -> plotting.CurvePanel | None:
    rows = select(table, kind="loss")
    if not len(rows):
        return None
    line = _line(DataFrame(rows[rows.step >= first]), "loss", plotting.DARK, 1)
    return plotting.CurvePanel(title="Loss of a batch", lines=(line,), y_title="nats")


def _cells(table: DataFrame) -> Iterator[dict[str, str]]:
    """When each curve rises, then the predictions."""
    for one in records(select(table, kind="rise")):
        yield {"what": f"{one.what} rises", "measured": str(number_of(one)), "verdict": ""}
    for one in records(select(table, kind="prediction")):
        yield {
            "what": f"{one.prediction}: {one.of}",
            "measured": str(number_of(one)),
            "holds if": one.condition,
            "verdict": one.verdict,
        }
