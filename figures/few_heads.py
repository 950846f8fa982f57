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
from figures.tables.table import keys_of, records, select, value
from figures.views.lines import base_rate, line
from figures.views.words import span_text

LINES = {
    ("random", "operands"): ("random heads", plotting.COLOURS["control"], "solid"),
    ("same layers", "operands"): ("others, near layers", plotting.COLOURS["control"], "dash"),
    ("effect", "word"): ("strongest by word", plotting.COLOURS["chosen"], "dash"),
    ("effect", "operands"): ("strongest heads", plotting.COLOURS["answer"], "solid"),
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
    """One panel per case."""
    right = select(table, measure=numbers.ACCURACY, prediction="")
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title=_title(table, case),
                lines=tuple(_lines(select(right, case=case), _base_rate(table, case))),
                y_title="right",
                y_range=(0, 104),
            )
            for case in keys_of(right, "case")
        ],
        x_title="k heads kept at END",
        unit="%",
        notes=notes,
        panel=(300, 170),
    )


def _title(table: DataFrame, case: str) -> str:
    """A case, with its accuracy with five heads in the order of other operands."""
    keys = {"case": case, "order": "effect", "counterfactual": "operands", "k": 5}
    five = value(table, measure=numbers.ACCURACY, **keys)
    return f"{words(case).capitalize()}: {five:.0%} with 5 heads"


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
    """What the run's own numbers say."""
    parts = []
    for case in keys_of(table, "case"):
        keys = {"case": case, "order": "effect", "counterfactual": "operands"}
        rows = select(table, measure=numbers.ACCURACY, **keys)
        at = {one.k: one.value for one in records(rows)}
        parts.append(
            f"{words(case)} {at[0]:.0%} with no head, {at[5]:.0%} with 5, {at[7]:.0%} with 7"
        )
    return (
        "How fast the blue line rises: the model with the strongest heads alone at END, in the "
        f"order and with the means of other operands. Right: {'; '.join(parts)}."
    )


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    problems = span_text(select(table, measure=numbers.ACCURACY, order="effect").n, ".0f")
    return [
        f"Model: {config['model']}. At END, other heads have their means over counterfactuals. "
        "Ordered with other operands (dashed: with a word in place of the operator) on half of "
        f"the problems, drawn on the other ({problems}): 95% intervals; grey: ranges of "
        f"{config['controls']} orders.",
    ]
