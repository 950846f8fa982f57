"""Figures 4 and 9: what the model says after a knockout, and without the calculation.

They read runs of one model (by their settings, or `--run PATH`) and are drawn without loading a
model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import FOUR
from arith_lens.plotting import COLOURS
from arith_lens.runs import Run
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import next_tokens as numbers
from figures.tables.base_rates import MAJORITY
from figures.tables.table import QuestionTable, has, keys_of, records, select
from figures.views.words import span_text

EXERCISE_TITLES = {
    "word_problem": "word problems",
    "integers": "three-digit sums",
    "time_span": "time spans",
    "decimals": "decimals",
}
"""The kinds of prompts that are asked without the key heads, with their titles."""
PAIR_TITLES = {
    **{name: name for name in FOUR},
    "two_digits": "two-digit sums",
    "stories": "stories of objects",
}
"""The kinds of pairs with and without the calculation, with their titles."""
WHOLE, CONTROL = ("whole model", "circle"), ("random heads out", "diamond")
BASE_RATE = ("always the most frequent answer", "line-ns-open")
HEADS_OUT, NO_OPERATOR = ("strongest heads out", "circle-open"), ("no operator", "square-open")
"""The name and the mark of the model as it is, of the control, and of both changes."""


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out.

    Reads a run of `experiments what_comes_instead` (by its settings, or `--run PATH`) and draws it
    without loading a model: how often the likeliest token is right, and how often a number, before
    and after. The small print has one prompt that is answered right with every head in place.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_comes_instead")
    title = "What comes instead of the answer?"
    return [_chart(partial(numbers.instead_table, run), run, "fig4", title)]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it.

    Reads a run of `experiments what_the_calculation_does` (by its settings, or `--run PATH`) and
    draws it without loading a model. For each kind of prompt, it shows one pair, which is drawn at
    random by the run's seed.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_the_calculation_does")
    title = "What does the model say without the calculation?"
    return [_chart(partial(numbers.calculation_table, run), run, "fig9", title)]


def _chart(table: Callable[[], QuestionTable], run: Run, name: str, title: str) -> Chart:
    """One of both figures, or both as one picture."""
    words = {"caption": instead_caption, "notes": _notes}
    return chart_of(table, [run], name=name, title=title, draw=_draw, **words)


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row for each model: what changes without the key heads, else without the operator."""
    panels, headings = [], []
    for model in keys_of(table, "model"):
        own = select(table, model=model)
        panels += _panels(own)
        headings.append(f"{model}: {_findings(own)[0][0]}")
    return plotting.dot_panels(
        panels,
        plotting.DotAxis((-4, 104), unit="%"),
        across=len(panels) // len(headings),
        headings=headings,
        row=32,
        notes=notes,
    )


def _panels(table: DataFrame) -> list[plotting.DotPanel]:
    """The panel of one model: right answers if its table has them, else p(C)."""
    before, after = numbers.TIMES
    exercises = {before: WHOLE, after: HEADS_OUT, numbers.RANDOM_HEADS: CONTROL}
    pairs = dict(zip(map(str, numbers.SIDES), (WHOLE, NO_OPERATOR), strict=True))
    panels = [
        _panel(rows, title, titles, key, sides)
        for title, measure, titles, key, sides in (
            ("right answers", numbers.RIGHT, EXERCISE_TITLES, "when", exercises),
            ("probability of the answer C", numbers.P_ANSWER, PAIR_TITLES, "side", pairs),
        )
        if len(rows := select(table, measure=measure))
    ]
    base_rates = select(table, measure=MAJORITY, question="what comes instead")
    if len(base_rates):
        rates = base_rates.set_index("kind").value.reindex(_kinds(base_rates, EXERCISE_TITLES))
        name, symbol = BASE_RATE
        dots = plotting.Dots(100 * rates.to_numpy(), name, COLOURS["control"], symbol=symbol)
        panels[0] = replace(panels[0], series=(*panels[0].series, dots))
    return panels[:1]


def _kinds(rows: DataFrame, titles: Mapping[str, str]) -> list[str]:
    """The kinds of prompts that rows have, in the order of their titles."""
    return [kind for kind in titles if has(rows, kind=kind)]


def _panel(
    rows: DataFrame,
    title: str,
    titles: Mapping[str, str],
    key: str,
    sides: Mapping[str, tuple[str, str]],
) -> plotting.DotPanel:
    """One measure with a mark for each side of the change that `key` names, one below the other."""
    kinds = _kinds(rows, titles)
    sizes = select(rows, **{key: next(iter(sides))}).n
    present = {side: mark for side, mark in sides.items() if has(rows, **{key: side})}
    shifts = 0.27 * (np.arange(len(present)) - (len(present) - 1) / 2)
    series = []
    for shift, (side, (name, symbol)) in zip(shifts.tolist(), present.items(), strict=True):
        of_side = select(rows, **{key: side}).set_index("kind").reindex(kinds)
        value, low, high = (100 * of_side[end].to_numpy() for end in ("value", "low", "high"))
        colour = COLOURS["control" if (name, symbol) == CONTROL else "chosen"]
        series.append(plotting.Dots(value, name, colour, low, high, symbol, shift))
    names = tuple(titles[kind] for kind in kinds)
    return plotting.DotPanel(f"{title}, n = {span_text(sizes, '.0f')}", names, tuple(series))


def instead_caption(table: DataFrame) -> str:
    """What the models say without the heads, and without the operator."""
    findings = [
        f"In `{model}`, "
        f"{'; '.join(map(''.join, _findings(select(table, model=model), short=at > 0)))}."
        for at, model in enumerate(keys_of(table, "model"))
    ]
    has_heads = has(table, measure=numbers.RIGHT)
    draws = select(table, when=numbers.RANDOM_HEADS).n.max()
    around = f", and around random heads the range of {draws:.0f} draws" * has_heads
    mark = "the share of right likeliest tokens" if has_heads else "the mean p(C)"
    return (
        f"{' '.join(findings)} A mark is {mark} of one kind of prompt. Lines are 95% intervals "
        f"over prompts or problems (n){around}."
    )


def _findings(table: DataFrame, *, short: bool = False) -> list[tuple[str, str]]:
    """What one model says without the heads, and without the operator: in short, and the rest.

    Args:
        table: the rows of the model.
        short: fewer words, for the second model of a caption.
    """
    texts = []
    after = select(table, when=numbers.TIMES[1])
    if len(after):
        right, number = (
            select(after, measure=measure).set_index("kind")
            for measure in (numbers.RIGHT, numbers.A_NUMBER)
        )
        controls = select(table, when=numbers.RANDOM_HEADS)
        random = select(controls, measure=numbers.RIGHT).set_index("kind")
        without_heads = f" without the {len(keys_of(table, 'head'))} strongest heads"
        beside, rest, numbers_text = "", "", ""
        by_chance = select(controls, measure=numbers.A_NUMBER)
        if len(random):
            below = right.value < random.low.reindex(right.index)
            beside = f", {span_text(random.value)} without random ones"
            rest = f" (below every draw in {below.sum()} of {len(below)} kinds of prompts)"
            numbers_text = f" (without random heads {span_text(by_chance.value)})"
            if short:
                without_heads = ""
                beside = f" ({span_text(random.value)} without random ones; "
                rest = f"{below.sum()} of {len(below)})"
                numbers_text = f" ({span_text(by_chance.value)})"
        texts.append(
            (
                f"{span_text(right.value)} are right{without_heads}{beside}",
                f"{rest}, and {span_text(number.value)} still get a number{numbers_text}",
            )
        )
    p_answer = select(table, measure=numbers.P_ANSWER)
    before, without = (select(p_answer, side=side).set_index("kind") for side in numbers.SIDES)
    if len(before):
        likeliest = select(table, measure=numbers.ANSWER_LIKELIEST, side=numbers.SIDES[0])
        is_known = likeliest.set_index("kind").value > 0.5
        falls = without.high < before.low.reindex(without.index)
        parts = [f"falls to at most {without.value[falls].max():.0%}"] * bool(falls.any())
        parts += [
            f"{'is as before' if is_known[kind] else 'is low with and without it'} in "
            f"{PAIR_TITLES[str(kind)]} ({one.value:.0%})"
            for kind, one in without[~falls].iterrows()
        ]
        texts.append((f"without the operator p(C) {', and '.join(parts)}", ""))
    return texts


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """What was changed, with an example of each change."""
    lines = []
    if has(table, measure=numbers.RIGHT):
        first = select(table, model=keys_of(table, "model")[0])
        heads = ", in ".join(
            f"{model} {', '.join(keys_of(select(table, model=model), 'head'))}"
            for model in keys_of(table, "model")
        )
        lines += [
            f"{_example(first, 'integers', 'when', numbers.TIMES, 'with the heads out ')} "
            f"Knocked out, by mean effect over the four operations, in {heads}."
        ]
    pairs = select(table, measure=numbers.P_ANSWER, side="reference")
    if len(pairs) and not lines:
        kinds = keys_of(pairs, "kind")
        kind = EXAMPLE_KIND if EXAMPLE_KIND in kinds else kinds[0]
        lines.append(_example(table, kind, "side", numbers.SIDES))
    return lines


EXAMPLE_KIND = "two_digits"
"""The kind of prompt whose example is printed, if it was measured."""


def _example(
    table: DataFrame, kind: str, key: str, sides: tuple[str, str], change: str = ""
) -> str:
    """The likeliest token of one prompt, on both sides of a change, which may have a name."""
    rows = select(table, kind=kind, measure=numbers.PROBABILITY, rank=1.0)
    ends = [records(select(rows, **{key: side})) for side in sides]
    if not all(ends):
        return ""
    texts = [
        f"“{one.prompt.strip()}” {one.token} ({one.value:.0%})"
        for one in (part[0] for part in ends)
    ]
    return f"Example, with the likeliest token: {f' → {change}'.join(texts)}."
