"""Figures 5, 7 and 16: where heads look from END, by role and on a few prompts.

They read a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.attention import MAJORITY
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import Run
from arith_lens.views import HeadMap, head_map
from experiments import results
from figures.common import chosen_run, has_tables_alone
from figures.exhibit import Chart, Settings, chart_of
from figures.options import Options
from figures.tables import attention as numbers
from figures.tables.attention import MEAN, RANDOM
from figures.tables.table import QuestionTable, keys_of, records, select, value
from figures.views import maps
from figures.views.words import LENS, span_text

EXPERIMENT = "where_do_they_look"
ROLE_NAMES = {
    "operand a": "A",
    "operator": "operator",
    "operand b": "B",
    "BOS": "start",
    "blank before B": "blank",
    "other": "others",
    "END": "END",
}
"""The columns, with their names."""
ROLE_COLOURS = {
    "operand a": plotting.RUST,
    "operand b": plotting.RUST,
    "operator": plotting.TEAL,
}
OPERAND, OPERATOR = "▲", "◆"
MARKS = {"operand": f"{OPERAND} ", "operator": f"{OPERATOR} "}
"""What stands before the names of the heads that look mostly at A and B, or at the operator."""
CONTROLS, SHORT_CONTROLS = ("random", "mean", "largest"), ("random", "mean", "max")
"""The rows of as many random heads: an empty one, their mean, and the largest in each column."""
SMALLEST, WIDE = 25, 15
"""Smaller percentages are not printed; half an interval, in points, from which on one is in
brackets."""


def fig5(options: Options) -> list[Chart]:
    """Figure 5: where operand heads and operator heads look from END, in four operations.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV. It also writes a page of every head.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    chart = chart_of(
        lambda: numbers.table(run),
        [run],
        name="fig5",
        title="Where do the key heads look?",
        caption=_caption,
        notes=_role_notes,
        draw=_draw,
    )
    if has_tables_alone(run):
        return [chart]
    return [replace(chart, views=(_head_patterns(run),), views_name="heads")]


def _caption(table: DataFrame) -> str:
    """How many of the strongest heads, and of random ones, look at operands and at the operator."""
    models = keys_of(select(table, measure=numbers.HEADS), "model")
    (operands, operators, of_random, n), *others = (
        _counts(select(table, model=name)) for name in models
    )
    findings = [
        f"in `{models[0]}` {operands} look mostly at A and B and {operators} at the operator "
        f"(random: {' and '.join(of_random)})"
    ]
    findings += (
        f"in `{name}` {operands} and {operators} ({' and '.join(of_random)})"
        for name, (operands, operators, of_random, _) in zip(models[1:], others, strict=True)
    )
    return (
        f"Of the {n} strongest heads (by {LENS}), {'; '.join(findings)}. Mostly: half or more of "
        "the attention outside the first token. A cell is the mean attention from END to one "
        f"role. {_width_of_intervals(table)}"
    )


def _counts(table: DataFrame) -> tuple[str, str, list[str], int]:
    """How many heads of a model look at operands, and at the operator; and of random ones.

    Returns:
        Both counts over the operations in words, both of random heads, and of how many heads.
    """
    weights = DataFrame(select(table, measure=numbers.WEIGHT).query(f"head != '{MEAN}'"))
    by_role = weights.pivot_table("value", ["operation", "head", "kind"], "role").reset_index()
    free = 1 - by_role["BOS"]
    on_operands = (by_role["operand a"] + by_role["operand b"]) / free >= MAJORITY
    majorities = (on_operands, by_role["operator"] / free >= MAJORITY)
    own = {name: by_role.operation == name for name in keys_of(by_role, "operation")}
    random = by_role.kind == RANDOM
    operands, operators, *of_random = (
        span_text([float((majority & kind & rows).sum()) for rows in own.values()], ".0f")
        for kind in (~random, random)
        for majority in majorities
    )
    n = max(int((rows & ~random).sum()) for rows in own.values())
    return operands, operators, of_random, n


def _width_of_intervals(table: DataFrame) -> str:
    """How wide the intervals of half of the cells, and of all, are."""
    rows = select(table, measure=numbers.WEIGHT)
    half = 50 * (rows.high - rows.low).dropna()
    if half.empty:
        return "Intervals are not known."
    return (
        f"95% intervals over problems are ±{half.median():.0f} points in the median, "
        f"±{half.max():.0f} at most."
    )


def _head_patterns(run: Run) -> HeadMap:
    """A map of the first operation's effects; a click shows where that head looks."""
    operation = run.config["operations"][0]
    effects = results.MAP.load(run, operation).heads.mean()
    patterns = results.PATTERNS.load(run, "all")
    from_end = patterns.weights[0][:, -1].reshape(*effects.shape, -1)
    return head_map(
        100 * effects.numpy(),
        from_end.numpy(),
        patterns.tokens[0],
        title=f"Effects on the answer's logit in {operation}, and the attention from END in "
        f"“{patterns.prompts[0].strip()}”",
        values_title="effect, %",
    )


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Heads by roles, for each operation and model; a column has room for one model."""
    parts, roles = [], select(table, question="attention")
    for model in keys_of(roles, "model")[: 1 if is_narrow() else None]:
        of_model = select(roles, model=model)
        operands, operators, of_random, n = _counts(of_model)
        random = ",\u00a0".join(of_random)
        heading = (
            f"{model}: {operands} of {n} strongest heads look at A and B ({OPERAND}), "
            f"{operators} at the operator ({OPERATOR}); random:\u00a0{random}"
        )
        for number, operation in enumerate(keys_of(roles, "operation")):
            own = select(of_model, operation=operation)
            parts.append(_roles(own, operation, heading * (number == 0)))
    return plotting.matrix_panels(
        parts,
        colour_title="attention from END",
        unit="%",
        limit=100,
        names="all",
        rising=True,
        across=max(len(keys_of(roles, "operation")), 1),
        notes=notes,
    )


def _roles(rows: DataFrame, operation: str, heading: str) -> plotting.Matrix:
    """The strongest heads of one operation, the strongest first; below a gap, random ones."""
    effects = select(rows, measure=numbers.EFFECT)
    strong = DataFrame(effects[effects.kind != RANDOM]).sort_values("value")
    weights = select(rows, measure=numbers.WEIGHT)
    cells = weights.pivot_table(["value", "low", "high"], ["kind", "head"], "role") * 100
    of_random = cells.value.loc[RANDOM]
    controls = [np.nan * of_random.loc[MEAN], of_random.loc[MEAN], of_random.drop(MEAN).max()]
    names = (MARKS.get(one.kind, "") + one.head for one in records(strong))
    cells = cells.loc[[*zip(strong.kind, strong["head"], strict=True)]]
    values = [cells.value, *(one.to_frame().T for one in controls)]
    half = (cells.high - cells.low).reindex(columns=[*ROLE_NAMES]).to_numpy() / 2
    columns = plotting.Columns(
        "",
        tuple(ROLE_NAMES.values()),
        np.concatenate([one.reindex(columns=[*ROLE_NAMES]).to_numpy() for one in values]),
        inks=tuple(ROLE_COLOURS.get(role, plotting.DARK) for role in ROLE_NAMES),
        bracketed=np.concatenate([half >= WIDE, np.zeros((len(controls), half.shape[1]), bool)]),
    )
    return plotting.Matrix(
        maps.title(operation.capitalize(), f"n = {value(rows, measure='problems'):.0f}"),
        (*names, *(SHORT_CONTROLS if is_narrow() else CONTROLS)),
        (columns,),
        strong=(*(strong.key_head == "yes"), *[False] * len(controls)),
        heading=heading,
        smallest=SMALLEST,
    )


def _role_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the picture; in a column in short."""
    if is_narrow():
        sizes = select(table, model=table.model.iloc[0], measure="problems").value
        return [
            f"{OPERAND} ({OPERATOR}): half or more of the attention outside the first token is on "
            f"A and B (the operator). Bold: key heads. In brackets: ±{WIDE} points or wider. "
            f"Start: the first token. n = {span_text(sizes, '.0f')}."
        ]
    return [
        f"{OPERAND} ({OPERATOR}): half or more of the attention outside the first token is on A "
        "and B (the operator). Bold: key heads. Random: mean and largest of "
        f"{config['top']} heads. Printed from {SMALLEST}% on, in brackets: 95% interval of ±{WIDE} "
        "points or wider. Start: the first token; blank: before B. n: problems.",
    ]


def fig7(options: Options) -> list[Chart]:
    """Figure 7: the attention of operand heads on formats that they were not found with.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    return _patterns_chart(
        run,
        "formats",
        lambda: numbers.formats_table(run),
        name="fig7",
        title="Figure 7: operand heads on formats that they were not found with",
        caption=_formats_caption,
        says="Operand heads of one operation at least, on formats that they were not found with.",
    )


def _formats_caption(table: DataFrame) -> str:
    """What to look for, and how much of each head's attention goes to digits."""
    shares = records(select(table, measure=numbers.DIGIT_WEIGHT, prompt=MEAN))
    parts = [f"{one.head} {one.value:.0%}" for one in shares]
    return (
        "Whether the heads found in single-digit calculations still look at the numbers of "
        "word problems, time spans and decimals. In the paper they do. Here digits have this share "
        f"of their attention, on average over the prompts: {', '.join(parts)}."
    )


def fig16(options: Options) -> list[Chart]:
    """Figure 16: the attention of operator heads on the word of each operation.

    Reads a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and
    draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, EXPERIMENT)
    return _patterns_chart(
        run,
        "words",
        lambda: numbers.words_table(run),
        name="fig16",
        title="Figure 16: operator heads on the word of each operation",
        caption=_words_caption,
        says="Heads that are operator heads in one operation at least, on one sentence with each "
        "word.",
    )


def _words_caption(table: DataFrame) -> str:
    """What to look for, and the word that each head looks at most in each prompt."""
    words = select(table, measure=numbers.WORD_WEIGHT)
    parts = []
    for head, rows in words.groupby("head", sort=False):
        largest = [
            str(of_prompt.loc[of_prompt.value.idxmax(), "token"])
            for _, of_prompt in rows.groupby("prompt", sort=False)
        ]
        parts.append(f"{head} {', '.join(largest)}")
    return (
        "Whether one head looks at the operation in whichever words it comes. In the paper "
        "the same heads look at plus, minus, times and divided by. Here the words with the largest "
        f"weights are, in order of the prompts: {'; '.join(parts)}."
    )


def _patterns_chart(
    run: Run,
    result: str,
    table: Callable[[], QuestionTable],
    *,
    name: str,
    title: str,
    caption: Callable[[DataFrame], str],
    says: str,
) -> list[Chart]:
    """One panel per prompt, one row per head, one column per word. `says` begins the notes."""

    def notes(_: DataFrame, config: Settings) -> list[str]:
        return [
            says,
            f"Model: {config['model']}. Heads by the strength of their effect on the answer's "
            f"logit in single-digit calculations, seed {config['seed']}. Blue and printed: the "
            "weight in percent that END, the last token, gives to each token, from 1% on. Pieces "
            "of a word are one cell with their sum; digits (framed) and blanks (␣) are cells of "
            "their own.",
        ]

    chart = chart_of(
        table, [run], name=name, title=title, caption=caption, notes=notes, draw=_draw_words
    )
    if has_tables_alone(run):
        return [chart]
    patterns = results.PATTERNS.load(run, result)
    views = tuple(patterns.view(index) for index in range(len(patterns.prompts)))
    return [replace(chart, views=views, views_name=f"{name}-patterns")]


def _draw_words(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Each prompt, with the weight in percent from END to each word."""
    words = select(table, measure=numbers.WORD_WEIGHT)
    sentences = []
    for prompt, rows in words.groupby("prompt", sort=False):
        weights = rows.pivot(index="head", columns="position", values="value")
        heads = keys_of(rows, "head")
        names = select(rows, head=heads[0]).sort_values("position").token
        sentences.append(
            plotting.Sentence(
                title=f"“{str(prompt).strip()}”",
                rows=tuple(heads),
                words=tuple(names),
                values=100 * weights.loc[heads].to_numpy(),
                marked=tuple(name.isdecimal() for name in names),
            )
        )
    return plotting.sentence_panels(sentences, legend="Attention from END", notes=notes)
