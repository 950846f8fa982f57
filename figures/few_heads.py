"""How few heads suffice after solved examples: the curves of each case, and the predictions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.predictions import cells
from figures.tables import few_heads as numbers
from figures.tables.table import keys_of, records, select, value
from figures.views.lines import base_rate, line
from figures.views.words import display_name, percent_text, span_text

FEW = 5
"""Headings and caption say what so many heads do alone."""
STRONGEST = {"order": "effect", "counterfactual": "operands"}
LINES = {
    ("random", "operands"): ("random heads", plotting.COLOURS["control"], "solid"),
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
    """The cases that have controls, side by side; the table has the others."""
    cases = _compared(table)
    return plotting.curve_panels(
        [_panel(table, case) for case in cases],
        x_title="heads kept at END",
        unit="%",
        notes=notes,
        headings=[_heading(table, cases)],
        across=len(cases),
        panel=(300, 170),
    )


def _compared(table: DataFrame) -> list[str]:
    """The cases with random heads; all cases if none has them."""
    right = select(table, measure=numbers.ACCURACY, prediction="")
    return keys_of(select(right, order="random"), "case") or keys_of(right, "case")


def _panel(table: DataFrame, case: str) -> plotting.CurvePanel:
    """A case's accuracy by size, with the result of five heads."""
    rows = select(table, measure=numbers.ACCURACY, prediction="", case=case)
    lines = (*_lines(rows, _base_rate(table, case)),)
    strongest = select(rows, **STRONGEST)
    share = f"{value(strongest, k=FEW):.0%}"
    return plotting.CurvePanel(
        title=f"{words(case).capitalize()}, n = {strongest.n.max():.0f}",
        lines=lines,
        points=(plotting.Point(FEW, share, len(lines) - 1),),
        y_title="right answers",
        y_range=(-3, 104),
    )


def _heading(table: DataFrame, cases: Sequence[str]) -> str:
    """In which cases five heads alone answer more than every draw of random heads, and how much."""
    above, others = [], []
    for case in cases:
        chosen, random = _alone(table, case)
        sign, share = _sign(case), f"{chosen.value:.0%}"
        if chosen.low > max([0, *random.high]):
            above.append(f"{share} of {sign}" + f" (random {_range(random)})" * bool(len(random)))
        else:
            control = f", random {_range(random)}" * bool(len(random))
            others.append(f"{sign} ({share}{control})")
    model, total = display_name(table.model.iloc[0]), select(table, **STRONGEST).k.max()
    parts = [f"{FEW} of {total:.0f} heads answer {', '.join(above)}"] * bool(above)
    parts += [f"not shown for {', '.join(others)}"] * bool(others)
    return f"{model}: {'; '.join(parts)}"


def _alone(table: DataFrame, case: str) -> tuple[Any, DataFrame]:
    """What five heads alone answer in a case, and the rows of as many random ones."""
    right = select(table, measure=numbers.ACCURACY, case=case, k=FEW)
    (chosen,) = records(select(right, **STRONGEST))
    return chosen, select(right, order="random")


def _range(random: DataFrame) -> str:
    """What random heads answer, over all draws."""
    return span_text((*random.low, *random.high))


def _sign(case: str) -> str:
    """The sign of a case's operation."""
    return OPERATIONS[case.partition("_")[0]].sign


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
    parts = []
    for case in _compared(table):
        chosen, random = _alone(table, case)
        control = f"random heads {_range(random)}, " * bool(len(random))
        base_rate_text = f"base rate {_base_rate(table, case):.0%}"
        parts.append(f"{percent_text(chosen)} of {words(case)} ({control}{base_rate_text})")
    total, model = select(table, **STRONGEST).k.max(), display_name(table.model.iloc[0])
    return (
        f"Alone at END, {FEW} of {total:.0f} heads of {model} answer {' and '.join(parts)}. "
        f"Solved examples stand before a problem; the lens is {display_name('digit_contrast')}, "
        "with other operands. Bands are 95% intervals over n problems that chose no heads, or the "
        "range of draws."
    )


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    right = select(table, measure=numbers.ACCURACY, prediction="")
    sizes = []
    for case in _compared(table):
        all_k, k = (select(right, case=case, **one).k for one in (STRONGEST, {"order": "random"}))
        if k.nunique() and k.max() < sorted({*all_k})[-2]:  # the last size is all heads
            sizes.append(f" ({k.min():.0f} to {k.max():.0f} heads in {_sign(case)})")
    return [
        "Strongest: by C's lead, with other operands in the counterfactual. By word: with a word "
        "in place of the operator.",
        "Near layers: heads of the same or neighbouring layers. Grey: range of "
        f"{config['controls']} orders{''.join(sizes)}. Base rate: the most frequent answer.",
    ]
