"""Figures 5, 7 and 16: where heads look from END, by role and on a few prompts.

They read a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import Run
from arith_lens.views import HeadMap, head_map
from experiments import results
from figures.common import Options, chosen_run, has_tables_alone
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import attention as numbers
from figures.tables.attention import MEAN, RANDOM
from figures.tables.table import QuestionTable, keys_of, records, select
from figures.views import maps
from figures.views.words import LENS, span_text

EXPERIMENT = "where_do_they_look"
ROLE_NAMES = {
    "operand a": "A",
    "operator": "op",
    "operand b": "B",
    "BOS": "BOS",
    "blank before B": "␣",
    "other": "rest",
    "END": "END",
}
"""The columns, with their names."""
ROLE_COLOURS = {
    "operand a": plotting.RUST,
    "operand b": plotting.RUST,
    "operator": plotting.TEAL,
}
ALL_RANDOM, WORDS_QUESTION = "rand.", "attention on operation words"
UNSEEN = ("<s>", "␣", "END")
"""Tokens that the sentences leave out."""


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
    """How many heads look at operands and at the operator, and what random ones give them."""
    models = keys_of(select(table, measure=numbers.HEADS), "model")
    findings = [f"In `{name}` {_finding(select(table, model=name))}." for name in models]
    return (
        f"{' '.join(findings)} A cell is the mean attention from END to one role, in percent; "
        f"heads are ordered by {LENS}. {_width_of_intervals(table)}"
    )


def _finding(table: DataFrame) -> str:
    """How many heads of one model look at operands and at the operator."""
    counts = select(table, measure=numbers.HEADS)
    operands, operators = (
        span_text(select(counts, kind=kind).value, ".0f") for kind in ("operand", "operator")
    )
    of = counts[counts.kind != RANDOM].groupby("operation").value.sum().max()
    random = select(table, measure=numbers.PROBLEM_WEIGHT, kind=RANDOM).value
    return (
        f"{operands} of the {of:.0f} strongest heads look mostly at A and B, {operators} at the "
        f"operator; random heads give all three {span_text(random)}"
    )


def _width_of_intervals(table: DataFrame) -> str:
    """How wide the intervals of half of the cells, and of all, are."""
    rows = select(table, measure=numbers.WEIGHT)
    half = 50 * (rows.high - rows.low).dropna()
    if half.empty:
        return "Intervals are not known."
    return (
        f"95% intervals over problems are ±{half.median():.0f} points wide in the median cell, and "
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
    """Heads by roles for each operation and model, and one sentence with each operation's word."""
    parts, roles = [], select(table, question="attention")
    models = keys_of(roles, "model")[: 1 if is_narrow() else None]  # a column has room for one
    for model in models:
        of_model = select(roles, model=model)
        for number, operation in enumerate(keys_of(roles, "operation")):
            heading = f"{model}: {_finding(of_model)}" * (number == 0)
            parts.append(_roles(select(of_model, operation=operation), operation, heading))
    across = max(len(keys_of(roles, "operation")), 1)
    heads = _operator_heads(select(roles, model=models[:1]))
    words = select(table, question=WORDS_QUESTION, head=heads)
    parts += map(_sentence, _prompts(words))
    return plotting.matrix_panels(
        parts,
        colour_title="attention from END",
        unit="%",
        limit=100,
        upright=True,
        rising=True,
        across=across,
        notes=notes,
    )


def _operator_heads(rows: DataFrame) -> list[str]:
    """The heads that give the operator more than half of their attention in some operation."""
    weights = select(rows, measure=numbers.WEIGHT, role="operator")
    return keys_of(DataFrame(weights[(weights.value > 0.5) & (weights.kind != RANDOM)]), "head")


def _roles(rows: DataFrame, operation: str, heading: str) -> plotting.Matrix:
    """The strongest heads of one operation, the strongest first, and the mean of random ones."""
    effects = select(rows, measure=numbers.EFFECT)
    strong = DataFrame(effects[effects.kind != RANDOM]).sort_values("value")
    names = [*strong["head"]]
    weights = select(rows, measure=numbers.WEIGHT)
    cells = [select(weights, head=name) for name in names]
    cells.append(select(weights, kind=RANDOM, head=MEAN))
    values = [
        100 * one.drop_duplicates("role").set_index("role").value.reindex([*ROLE_NAMES]).to_numpy()
        for one in cells
    ]
    inks = tuple(ROLE_COLOURS.get(role, plotting.DARK) for role in ROLE_NAMES)
    return plotting.Matrix(
        maps.title(operation, ""),
        (*names, ALL_RANDOM),
        (plotting.Columns("", tuple(ROLE_NAMES.values()), np.stack(values), inks=inks),),
        strong=(*(strong.key_head == "yes"), False),
        heading=heading,
    )


def _prompts(words: DataFrame) -> list[DataFrame]:
    """The weights of words in each prompt of the first model."""
    first = keys_of(words, "model")[:1]
    weights = select(words, model=first, measure=numbers.WORD_WEIGHT)
    if not len(weights):
        return []
    weights = DataFrame(weights[~weights.token.isin(UNSEEN)])
    return [select(weights, prompt=prompt) for prompt in keys_of(weights, "prompt")]


def _sentence(rows: DataFrame) -> plotting.Matrix:
    """One prompt with the attention of heads to its words."""
    heads, places = keys_of(rows, "head"), sorted(keys_of(rows, "position"))
    weights = rows.pivot(index="head", columns="position", values="value").loc[heads, places]
    words = {one.position: one.token for one in records(rows)}
    names = tuple(words[at] for at in places)
    inks = _inks_of_words(names)
    columns = plotting.Columns("", names, 100 * weights.to_numpy(), inks=inks)
    title = plotting.plain(f"“{rows.prompt.iloc[0].strip()}”")
    return plotting.Matrix(title, tuple(heads), (columns,))


def _inks_of_words(words: Sequence[str]) -> tuple[str, ...]:
    """Rust for numbers, teal for the words between them, and grey for others."""
    numerals = [at for at, word in enumerate(words) if word.isdecimal()]
    between = range(numerals[0] + 1, numerals[-1]) if numerals else ()
    inks = {at: plotting.TEAL for at in between} | {at: plotting.RUST for at in numerals}
    return tuple(inks.get(at, plotting.DARK) for at in range(len(words)))


def _role_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the picture, and what it was made from."""
    return [
        f"Rows: the {config['top']} heads with the strongest effect, key heads in bold; "
        "rand.: mean of as many others. Rust: operands A and B; teal: operator (op). Others: BOS, "
        "the blank before B (␣), all other words (rest), END. Below: one prompt of each "
        "operation, with the heads that give an operator over half of their attention."
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
