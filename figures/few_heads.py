"""How few heads suffice after solved examples: the curves of each case, and the predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.predictions import cells
from figures.tables import few_heads as numbers
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import base_rate, line
from figures.views.words import display_name, percent_text

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
ENDS = ("strongest", "base rate")
"""The names that stand right of the lines."""
LARGER = "_two_digits"
"""The end of the names of cases that are a row of their own."""


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
    """A row of the cases of one digit, and one of those of two digits."""
    cases = keys_of(select(table, measure=numbers.ACCURACY, prediction=""), "case")
    rows = [[case for case in cases if case.endswith(LARGER) == larger] for larger in (False, True)]
    rows = [row for row in rows if row]
    across = max(map(len, rows))
    panels = [
        _panel(table, row[place], row[place + 1 :], is_last=place == across - 1)
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
        panel=(215, 150),
        shared_y=True,
    )


def _panel(
    table: DataFrame, case: str, later: Sequence[str], *, is_last: bool
) -> plotting.CurvePanel:
    """A case's accuracy by size, with the result of five heads.

    The name of a line that some cases have stands inside the last of them, the names of the others
    right of the row's last panel.
    """
    rows = select(table, measure=numbers.ACCURACY, prediction="", case=case)
    drawn = [*_lines(rows, _base_rate(table, case))]
    after = {
        LINES[order, lens][0]
        for order, lens in LINES
        if has(table, measure=numbers.ACCURACY, case=later, order=order, counterfactual=lens)
    }
    inside = [
        plotting.Point(one.x[-1], one.name, index, is_name=True)
        for index, one in enumerate(drawn)
        if one.name not in {*ENDS, *after}
    ]
    lines = [one if is_last and one.name in ENDS else replace(one, label="") for one in drawn]
    strongest = select(rows, **STRONGEST)
    share = f"{value(strongest, k=FEW):.0%}"
    return plotting.CurvePanel(
        title=f"{words(case).capitalize()}, n = {strongest.n.max():.0f}",
        lines=tuple(lines),
        points=(plotting.Point(FEW, share, len(lines) - 1), *inside),
        y_title="right answers",
        y_range=(-3, 104),
    )


def _heading(table: DataFrame, cases: Sequence[str]) -> str:
    """What five heads alone answer in these cases, beside random heads and the base rate."""
    keys = {"measure": numbers.ACCURACY, "k": FEW} | STRONGEST
    parts = [
        f"{OPERATIONS[case.partition('_')[0]].sign} {value(table, case=case, **keys):.0%} "
        f"({_control(table, case)})"
        for case in cases
    ]
    model, total = display_name(table.model.iloc[0]), select(table, **STRONGEST).k.max()
    size = "two digits, " * cases[0].endswith(LARGER)
    return f"{model}, {FEW} of {total:.0f} heads alone: {size}{', '.join(parts)}"


def _control(table: DataFrame, case: str) -> str:
    """What as many random heads answer, over all draws; else the base rate."""
    random = select(table, measure=numbers.ACCURACY, case=case, k=FEW, order="random")
    if len(random):
        return f"random {random.low.min():.0%} to {random.high.max():.0%}"
    return f"base rate {_base_rate(table, case):.0%}"


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
    """What five heads alone answer where random heads were drawn, with intervals."""
    right = select(table, measure=numbers.ACCURACY, k=FEW)
    parts = [
        f"{percent_text(one)} of {words(one.case)} ({_control(table, one.case)})"
        for one in records(select(right, **STRONGEST))
        if has(right, case=one.case, order="random")
    ]
    total, model = select(table, **STRONGEST).k.max(), table.model.iloc[0]
    return (
        f"Alone at END, {FEW} of {total:.0f} heads of `{model}` answer {' and '.join(parts)}. "
        f"Solved examples stand before a problem; the lens is {display_name('digit_contrast')}, "
        "with other operands. Bands are 95% intervals over n problems that chose no heads."
    )


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        "Strongest: by C's lead, with other operands in the counterfactual. By word: with a word "
        "in place of the operator.",
        f"Near layers: other heads of the same or neighbouring layers. Grey: range of "
        f"{config['controls']} orders. Base rate: always the most frequent answer.",
    ]
