"""Figures 5, 7 and 16: where heads look from END, by role and on a few prompts.

They read a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from textwrap import shorten
from typing import Unpack

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting.widths import page_width
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments import results
from figures.common import chosen_run, has_tables_alone
from figures.exhibit import Chart, Words, chart_of
from figures.options import Options
from figures.tables import attention as numbers
from figures.tables.attention import MEAN, RANDOM
from figures.tables.table import QuestionTable, keys_of, records, select, value
from figures.views.words import of_width

EXPERIMENT = "where_do_they_look"
SEEN = {"BOS": "control", "operand a": "operand", "operator": "operator", "operand b": "operand"}
"""The roles with columns of their own, with their inks; all others are together."""
KINDS = {"operand": "A or B:", "operator": "operator:", "other": "neither:"}
"""What the strongest heads look at, above those that do."""
CONTROLS = ("random:", "mean", "largest")
"""The rows of as many random heads: their name, their mean, and the largest in each column."""
SMALLEST, WIDE = 10, 15
"""Smaller percentages of heads are not printed; half an interval, in points, from which on one is
in brackets."""


def fig5(options: Options) -> list[Chart]:
    """Figure 5: where operand heads and operator heads look from END, in four operations."""
    run = chosen_run(options, EXPERIMENT)
    return [
        chart_of(
            partial(numbers.table, run),
            [run],
            name="fig5",
            title="Where do the strongest heads look?",
            caption=f"Mean attention from END in percent, from {SMALLEST} on; in brackets if the "
            f"95% interval over n problems is ±{WIDE} points or wider. A head stands under A or B, "
            "or the operator, if they get at least half of its attention beyond the first token "
            "(1st). Bold: key heads. Random: mean and largest of as many other heads.",
            draw=_draw,
        )
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Heads by roles, for each operation and model; a column has room for one model."""
    parts, roles = [], select(table, question="attention")
    models, notes = of_width(keys_of(roles, "model"), notes)
    for model in models:
        of_model = select(roles, model=model)
        for number, operation in enumerate(keys_of(roles, "operation")):
            own = select(of_model, operation=operation)
            parts.append(_roles(own, operation, model * (number == 0)))
    across = max(len(keys_of(roles, "operation")), 1)
    return plotting.matrix_panels(parts, across=across, notes=notes)


def _roles(rows: DataFrame, operation: str, heading: str) -> plotting.Matrix:
    """The strongest heads of one operation by what they look at, the strongest first, and random
    ones."""
    effects = select(rows, measure=numbers.EFFECT)
    strong = DataFrame(effects[effects.kind != RANDOM]).sort_values("value")
    weights = select(rows, measure=numbers.WEIGHT)
    cells = weights.pivot_table(["value", "low", "high"], ["kind", "head"], "role") * 100
    seen = [role for role in SEEN if role in cells.value]
    values = cells.value[seen].assign(rest=cells.value.drop(columns=seen).sum(axis=1))
    halves = ((cells.high - cells.low) / 2)[seen].assign(rest=0.0)
    names, bold, parts = [], [], []
    empty = (np.full((1, values.shape[1]), np.nan),) * 2
    for kind, name in KINDS.items():
        if of_kind := records(select(strong, kind=kind)):
            at = [(kind, one.head) for one in of_kind]
            names += [name, *(one.head for one in of_kind)]
            bold += [False, *(one.key_head == "yes" for one in of_kind)]
            parts += [empty, (values.loc[at].to_numpy(), halves.loc[at].to_numpy())]
    of_random = values.loc[RANDOM]
    controls = [of_random.loc[MEAN].to_numpy(), of_random.drop(MEAN).max().to_numpy()]
    parts += [empty, (np.stack(controls), np.zeros((2, values.shape[1])))]
    shown, half = (np.concatenate(some) for some in zip(*parts, strict=True))
    return plotting.Matrix(
        f"{plotting.plain(operation.capitalize())}, n = {value(rows, measure='problems'):.0f}",
        (*names, *CONTROLS),
        ("1st", "A", OPERATIONS[operation].sign, "B", "rest")[len(SEEN) - len(seen) :],
        shown,
        strong=(*bold, *[False] * len(CONTROLS)),
        heading=heading,
        smallest=(*[SMALLEST] * len(names), *[0] * len(CONTROLS)),
        inks=tuple(plotting.COLOURS[ink] for ink in (*map(SEEN.get, seen), "control") if ink),
        bracketed=half >= WIDE,
    )


def fig7(options: Options) -> list[Chart]:
    """Figure 7: the attention of operand heads on formats that they were not found with."""
    run = chosen_run(options, EXPERIMENT)
    return _patterns_chart(
        run,
        "formats",
        partial(numbers.formats_table, run),
        name="fig7",
        title="Figure 7: operand heads on formats that they were not found with",
        caption=f"Heads that are operand heads of one operation at least. {PATTERNS_CAPTION}",
    )


def fig16(options: Options) -> list[Chart]:
    """Figure 16: the attention of operator heads on the word of each operation."""
    run = chosen_run(options, EXPERIMENT)
    return _patterns_chart(
        run,
        "words",
        partial(numbers.words_table, run),
        name="fig16",
        title="Figure 16: operator heads on the word of each operation",
        caption=f"Heads that are operator heads of one operation at least. {PATTERNS_CAPTION}",
    )


PATTERNS_CAPTION = (
    "A cell is the weight in percent that END, the last token, gives to a token, printed from 1% "
    "on. Pieces of a word are one cell with their sum; digits and blanks (·) are cells of their "
    "own; digits and operators have their colours. Heads are in the order of their effects on the "
    "answer."
)
CELL, LEFT_OF_WORDS = 20, 60
"""Pixels of a cell with a number, at least, and left of the words of a prompt."""


def _patterns_chart(
    run: Run, result: str, table: Callable[[], QuestionTable], **words: Unpack[Words]
) -> list[Chart]:
    """One panel per prompt, one row per head, one column per word."""
    chart = chart_of(table, [run], draw=_draw_words, **words)
    if has_tables_alone(run):
        return [chart]
    patterns = results.PATTERNS.load(run, result)
    views = tuple(patterns.view(index) for index in range(len(patterns.prompts)))
    return [replace(chart, views=views)]


def _draw_words(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Each prompt, with the weight in percent from END to each word; a long one goes on below."""
    words = select(table, measure=numbers.WORD_WEIGHT)
    most, parts = (page_width() - LEFT_OF_WORDS) // CELL, []
    for prompt, rows in words.groupby("prompt", sort=False):
        weights = rows.pivot(index="head", columns="position", values="value")
        heads = keys_of(rows, "head")
        names = [*select(rows, head=heads[0]).sort_values("position").token.str.replace("␣", "·")]
        each = ceil(len(names) / ceil(len(names) / most))
        for start in range(0, len(names), each):
            some = tuple(names[start : start + each])
            ink = tuple(plotting.COLOURS[_meaning(name)] for name in some)
            text = shorten(str(prompt), page_width() // 6 - 4, placeholder=" …")
            title = plotting.plain(f"“{text}”") * (start == 0)
            values = 100 * weights.loc[heads].to_numpy()[:, start : start + each]
            parts.append(plotting.Matrix(title, tuple(heads), some, values, smallest=1, inks=ink))
    return plotting.matrix_panels(parts, across=2, notes=notes)


OPERATORS = {one.word for group in TEMPLATES.values() for one in group} | {*"+-−*/×÷"}


def _meaning(word: str) -> str:
    """Whose colour the column of a word has."""
    return "operand" if word.isdecimal() else "operator" if word in OPERATORS else "verdict"
