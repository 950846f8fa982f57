"""Figures 5, 7 and 16: where heads look from END, by role and on a few prompts.

They read a run of `experiments where_do_they_look` (by its settings, or `--run PATH`) and are
drawn without loading a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.runs import Run
from arith_lens.views import HeadMap, head_map
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import attention as numbers
from figures.tables.attention import MEAN, RANDOM
from figures.tables.table import QuestionTable, has, keys_of, records, select, value
from figures.views.words import sizes_text

EXPERIMENT = "where_do_they_look"
HEAD_GROUPS = {
    "operand": ("Operand heads", COLOURS["operand"], ("operand a", "operand b")),
    "operator": ("Operator heads", COLOURS["operator"], ("operator",)),
    "other": ("Other strong heads", COLOURS["control"], ()),
    RANDOM: ("Random heads", COLOURS["control"], ()),
}
"""The name and colour of each row, and the roles that define its heads."""
ROLE_NAMES = {"operand a": "A", "operand b": "B", "other": "other words"}
N_NAMED = 4
"""Heads whose names are in a title."""


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
        numbers.table(run),
        [run],
        name="fig5",
        title="Figure 5: where the key heads look from END",
        caption=_caption,
        notes=_role_notes,
        draw=_draw_roles,
    )
    return [replace(chart, views=(_head_patterns(run),), views_name="heads")]


def _caption(table: DataFrame) -> str:
    """What to look for, and what the run's own heads look at."""
    counts = select(table, measure=numbers.HEADS)
    parts = []
    for operation in keys_of(counts, "operation"):
        of_kind = {kind: value(counts, operation=operation, kind=kind) for kind in numbers.KINDS}
        n_heads = sum(of_kind.values())
        parts.append(
            f"{operation} {of_kind['operand']:.0f} and {of_kind['operator']:.0f} of {n_heads:.0f}"
        )
    shares = select(table, measure=numbers.PROBLEM_WEIGHT, kind=RANDOM).value
    return (
        "Operand heads look at A and B, operator heads at the word or sign of the operation. The "
        "paper finds both kinds, and little attention elsewhere. Here the strongest heads hold "
        f"operand heads and operator heads as follows: {'; '.join(parts)}. Random heads give A, B "
        f"and the operator {shares.min():.0%} to {shares.max():.0%} together."
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


def _draw_roles(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One row per kind of heads, one column per operation."""
    panels = []
    operations = keys_of(table, "operation")
    for kind, (title, colour, known_by) in HEAD_GROUPS.items():
        for operation in operations:
            of_operation = select(table, operation=operation)
            roles: list[str] = keys_of(of_operation, "role")
            means = select(of_operation, kind=kind, measure=numbers.WEIGHT, head=MEAN)
            by_role = means.set_index("role").reindex(roles)  # without heads: no bars
            mean, low, high = (by_role[end].to_numpy() for end in ("value", "low", "high"))
            bars = plotting.Bars(
                mean,
                low,
                high,
                colour=colour,
                strong=np.array([role in known_by for role in roles]),
            )
            panels.append(
                plotting.BarPanel(
                    title=_title(operation, kind, select(of_operation, kind=kind)),
                    names=tuple(ROLE_NAMES.get(role, role) for role in roles),
                    series=(bars,),
                    y_title=title * (operation == operations[0]),
                    ink=colour,
                )
            )
    return plotting.bar_panels(
        panels,
        y_range=(0, 1.0),
        notes=notes,
        across=len(operations),
        panel=(190, 120),
        names_below=True,
    )


def _title(operation: str, kind: str, rows: DataFrame) -> str:
    """The heads, key heads in bold; in the first row after the operation."""
    heads = records(select(rows, measure=numbers.EFFECT))
    if kind == RANDOM:
        return f"<span style='font-size:11px'>{len(heads)} heads</span>"
    names = [f"<b>{one.head}</b>" if one.key_head == "yes" else one.head for one in heads]
    if len(heads) > N_NAMED:
        names = [*names[:N_NAMED], f"{len(heads) - N_NAMED} more"]
    text = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"
    heads_text = f"<span style='font-size:11px'>{text}</span>"
    name = plotting.plain(operation.capitalize())
    return f"{name}<br>{heads_text}" if kind == next(iter(HEAD_GROUPS)) else heads_text


def _role_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 5, and what it was made from."""
    without = ", ".join(
        name
        for name in keys_of(table, "operation")
        if not has(table, operation=name, key_head="yes")
    )
    return [
        f"Model: {config['model']}. Prompts: {sizes_text(table)}; all "
        f"answered right, seed {config['seed']}. Mean attention weight from END over heads and "
        "prompts, summed within a role, nothing renormalised; bars: 95% intervals.",
        f"The {config['top']} heads with the strongest effect on the answer's logit, key heads "
        "(effect below −5%) in bold. Operand head: of its weight outside BOS at least half goes to "
        "A and B; operator head: to the operator. Random: as many other heads. Above each chart: "
        "its heads, the strongest first." + f" No key heads: {without}." * bool(without),
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
        numbers.formats_table(run),
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
        numbers.words_table(run),
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
    table: QuestionTable,
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
