"""Figures 4 and 9: what the model says after a knockout, and without the calculation.

They read runs of one model (by their settings, or `--run PATH`) and are drawn without loading a
model.
"""

from collections.abc import Mapping, Sequence

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.operations import FOUR
from arith_lens.plotting import COLOURS
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import next_tokens as numbers
from figures.tables.table import has, keys_of, records, select
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
    return [
        chart_of(
            lambda: numbers.instead_table(run),
            [run],
            name="fig4",
            title="What comes instead of the answer?",
            caption=instead_caption,
            notes=_notes,
            draw=_draw,
        )
    ]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it.

    Reads a run of `experiments what_the_calculation_does` (by its settings, or `--run PATH`) and
    draws it without loading a model. For each kind of prompt, it shows one pair, which is drawn at
    random by the run's seed.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_the_calculation_does")
    return [
        chart_of(
            lambda: numbers.calculation_table(run),
            [run],
            name="fig9",
            title="What does the model say without the calculation?",
            caption=instead_caption,
            notes=_notes,
            draw=_draw,
        )
    ]


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row for each model: what changes without the key heads, and without the calculation."""
    panels, headings = [], []
    for model in keys_of(table, "model"):
        own = select(table, model=model)
        panels += _panels(own)
        headings.append(f"{model}: {'; '.join(_findings(own))}")
    return plotting.dot_panels(
        panels,
        plotting.DotAxis((-4, 104), unit="%"),
        across=len(panels) // len(headings),
        headings=headings,
        joined=True,
        notes=notes,
    )


def _panels(table: DataFrame) -> list[plotting.DotPanel]:
    """The panels of one model, as far as its table has their numbers."""
    panels = []
    sides = dict(zip(numbers.TIMES, (WHOLE, HEADS_OUT), strict=True))
    for title, measure in (("answered right", numbers.RIGHT), ("any number", numbers.A_NUMBER)):
        if kinds := _measured(table, EXERCISE_TITLES, measure):
            rows, every = select(table, measure=measure), sides | {numbers.RANDOM_HEADS: CONTROL}
            panels.append(_panel(rows, title, EXERCISE_TITLES, kinds, "when", every))
    if kinds := _measured(table, PAIR_TITLES, numbers.P_ANSWER):
        rows = select(table, measure=numbers.P_ANSWER)
        sides = dict(zip(map(str, numbers.SIDES), (WHOLE, NO_OPERATOR), strict=True))
        panels.append(_panel(rows, "p(C)", PAIR_TITLES, kinds, "side", sides))
    return panels


def _measured(table: DataFrame, titles: Mapping[str, str], measure: str) -> list[str]:
    """The kinds of prompts that a table has this measure of."""
    return [kind for kind in titles if has(table, kind=kind, measure=measure)]


def _panel(
    rows: DataFrame,
    title: str,
    titles: Mapping[str, str],
    kinds: Sequence[str],
    key: str,
    sides: Mapping[str, tuple[str, str]],
) -> plotting.DotPanel:
    """One measure on both sides of the change that `key` names, and without random heads."""
    series = []
    for side, (name, symbol) in sides.items():
        if has(rows, **{key: side}):
            of_side = select(rows, **{key: side}).set_index("kind").reindex([*kinds])
            value, low, high = (100 * of_side[end].to_numpy() for end in ("value", "low", "high"))
            colour = COLOURS["control" if (name, symbol) == CONTROL else "chosen"]
            series.append(plotting.Dots(value, name, colour, low, high, symbol))
    return plotting.DotPanel(title, tuple(titles[kind] for kind in kinds), tuple(series))


def instead_caption(table: DataFrame) -> str:
    """What the models say without the heads, and without the calculation."""
    findings = [
        f"In `{model}`, {text}."
        for model in keys_of(table, "model")
        if (text := "; ".join(_findings(select(table, model=model))))
    ]
    return (
        f"{' '.join(findings)} A mark is the mean of one kind of prompt; right and a number are of "
        "the likeliest token. Lines are 95% intervals over prompts or problems, and around random "
        "heads the range of all draws."
    )


def _findings(table: DataFrame) -> list[str]:
    """What one model says without the heads, and without the calculation."""
    texts = []
    after = select(table, when=numbers.TIMES[1])
    if len(after):
        right, number = (
            span_text(select(after, measure=measure).value)
            for measure in (numbers.RIGHT, numbers.A_NUMBER)
        )
        random = select(table, when=numbers.RANDOM_HEADS, measure=numbers.RIGHT).value
        beside = f" (without random ones {span_text(random)})" if len(random) else ""
        n_heads = len(keys_of(table, "head"))
        texts.append(
            f"without {n_heads} heads {right} are right{beside}, {number} still get a number"
        )
    p_answer = select(table, measure=numbers.P_ANSWER)
    before, without = (select(p_answer, side=side).set_index("kind") for side in numbers.SIDES)
    if len(before):
        falls = without.high < before.low.reindex(without.index)
        most = without.value[falls].max()
        parts = [f"falls to at most {most:.0%}"] * bool(falls.any())
        parts += [
            f"is as before in {PAIR_TITLES[str(kind)]} ({one.value:.0%})"
            for kind, one in without[~falls].iterrows()
        ]
        texts.append(f"without the operator p(C) {', and '.join(parts)}")
    return texts


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """What was changed, with an example of each change."""
    lines = []
    if has(table, measure=numbers.RIGHT):
        first = select(table, model=keys_of(table, "model")[0])
        heads = "; ".join(
            f"{model}: {', '.join(keys_of(select(table, model=model), 'head'))}"
            for model in keys_of(table, "model")
        )
        lines += [
            f"{_example(first, 'integers', 'when', numbers.TIMES)} "
            f"Knocked out, by mean effect over the four operations: {heads}."
        ]
    pairs = select(table, measure=numbers.P_ANSWER, side="reference")
    if len(pairs):
        kinds = keys_of(pairs, "kind")
        kind = EXAMPLE_KIND if EXAMPLE_KIND in kinds else kinds[0]
        lines.append(_example(table, kind, "side", numbers.SIDES))
    return lines


EXAMPLE_KIND = "two_digits"
"""The kind of prompt whose example is printed, if it was measured."""


def _example(table: DataFrame, kind: str, key: str, sides: tuple[str, str]) -> str:
    """The likeliest token of one prompt, on both sides of a change."""
    rows = select(table, kind=kind, measure=numbers.PROBABILITY, rank=1.0)
    ends = [records(select(rows, **{key: side})) for side in sides]
    if not all(ends):
        return ""
    texts = [
        f"“{one.prompt.strip()}” {one.token} ({one.value:.0%})"
        for one in (part[0] for part in ends)
    ]
    return f"Example, with the likeliest token: {' → '.join(texts)}."
