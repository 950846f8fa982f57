"""How few heads suffice after solved examples: the curves of each case, and the predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.predictions import cells
from figures.tables import few_heads as numbers
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import base_rate, line
from figures.views.words import percent_text

FEW = 5
"""Headings and caption say what so many heads do alone."""
STRONGEST = {"order": "effect", "counterfactual": "operands"}
LINES = {
    ("random", "operands"): ("random", plotting.COLOURS["control"], "solid"),
    ("same layers", "operands"): ("near layers", plotting.COLOURS["control"], "dash"),
    ("effect", "word"): ("by word", plotting.COLOURS["chosen"], "dash"),
    ("effect", "operands"): ("strongest", plotting.COLOURS["chosen"], "solid"),
}
"""Name, colour and dash of each order; the first is drawn first."""


def few_heads(options: Options) -> list[Chart]:
    """How few heads suffice after solved examples? Accuracy with the first k heads kept at END.

    Reads a run of `experiments how_few_suffice`. The table also has where the strongest heads
    attend among the examples, what changes of the examples do, and the verdicts on predictions.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "how_few_suffice")
    return [
        chart_of(
            lambda: numbers.table(run),
            [run],
            name="few_heads",
            title="How few heads suffice after solved examples?",
            caption=_caption,
            notes=_notes,
            draw=_draw,
            small_table=lambda rows: cells(DataFrame(rows[rows.get("prediction", "") != ""])),
        )
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row of the cases with controls, and one of the others."""
    right = select(table, measure=numbers.ACCURACY, prediction="")
    cases = keys_of(right, "case")
    compared = [case for case in cases if has(right, case=case, order="random")]
    rows = [row for row in (compared, [case for case in cases if case not in compared]) if row]
    across = max(map(len, rows))
    panels = [
        _panel(select(right, case=row[place]), _base_rate(table, row[place]), place == len(row) - 1)
        if place < len(row)
        else None
        for row in rows
        for place in range(across)
    ]
    return plotting.curve_panels(
        panels,
        x_title="heads kept at END",
        unit="%",
        notes=notes,
        headings=[_heading(table, row) for row in rows],
        across=across,
        panel=(190, 150),
        shared_y=True,
    )


def _panel(rows: DataFrame, share: float, is_last: bool) -> plotting.CurvePanel:
    """A case's accuracy by size, with the result of five heads; the last has its lines' names."""
    lines = [*_lines(rows, share)]
    five = value(rows, **STRONGEST, k=FEW)
    n = select(rows, **STRONGEST).n.max()
    if not is_last:
        lines = [replace(one, label="") for one in lines]
    return plotting.CurvePanel(
        title=f"{words(rows.case.iloc[0]).capitalize()}, n = {n:.0f}",
        lines=tuple(lines),
        points=(plotting.Point(FEW, f"{five:.0%}", len(lines) - 1),),
        y_title="right answers",
        y_range=(-3, 104),
    )


def _heading(table: DataFrame, cases: Sequence[str]) -> str:
    """What five heads alone answer in these cases, beside random heads and the base rate."""
    parts = []
    for case in cases:
        right = select(table, measure=numbers.ACCURACY, case=case, k=FEW)
        share = f"{words(case)} {value(right, **STRONGEST):.0%}"
        parts.append(share + (f" ({_random(right)})" if has(right, order="random") else ""))
    total = select(table, **STRONGEST).k.max()
    return f"{FEW} of {total:.0f} heads alone: {', '.join(parts)}"


def _random(right: DataFrame) -> str:
    """What random heads answer, over all draws."""
    (one,) = records(select(right, order="random"))
    return f"random {one.low:.0%} to {one.high:.0%}"


def words(case: str) -> str:
    """A case for a reader, such as `addition, one example`."""
    operation, _, size = case.partition("_")
    return f"{operation}, {size.replace('_', ' ')}" if size else operation


def _base_rate(table: DataFrame, case: str) -> float:
    return value(table, measure=numbers.BASE_RATE, case=case)


def _lines(rows: DataFrame, share: float) -> Iterator[plotting.Line]:
    """The base rate, then the orders up to the last size before all heads."""
    most = float(np.sort(rows.k.unique())[-2])
    yield base_rate(share, (0.0, most))
    for (order, lens), (name, colour, dash) in LINES.items():
        chosen = select(rows, order=order, counterfactual=lens)
        chosen = DataFrame(chosen[chosen.k <= most])
        if len(chosen):
            drawn = line(chosen, name, colour, dash=dash)
            yield replace(drawn, low=None, high=None) if lens == "word" else drawn


def _caption(table: DataFrame) -> str:
    """What five heads alone answer, with intervals, controls and base rates."""
    right = select(table, measure=numbers.ACCURACY, k=FEW)
    parts = []
    for one in records(select(right, **STRONGEST)):
        of_case = select(right, case=one.case)
        random = f"{_random(of_case)}, " if has(of_case, order="random") else ""
        parts.append(
            f"{percent_text(one)} of {words(one.case)} ({random}base rate "
            f"{_base_rate(table, one.case):.0%})"
        )
    total, model = select(table, **STRONGEST).k.max(), table.model.iloc[0]
    return (
        f"{FEW} of {total:.0f} heads of the pretrained `{model}`, alone at END, answer "
        f"{', '.join(parts)}. Solved examples stand before each problem. The other heads give "
        "their means over counterfactuals with other operands; the lens is C's lead over other "
        "digits. Bands are 95% intervals over n problems on which no head was chosen."
    )


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        f"Model: {config['model']}. Strongest: by C's lead with other operands in the "
        "counterfactual. By word: with a word in place of the operator.",
        f"Near layers: other heads of the same or neighbouring layers. Grey: range of "
        f"{config['controls']} orders. Base rate: always the most frequent answer.",
    ]
