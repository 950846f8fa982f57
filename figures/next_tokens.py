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
SYMBOLS = ("circle", "circle-open")
"""The marks before and after a change."""


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
        headings.append(model)
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
    if kinds := _measured(table, EXERCISE_TITLES, numbers.RIGHT):
        n_heads = len(keys_of(table, "head"))
        for title, measure in (("right", numbers.RIGHT), ("a number", numbers.A_NUMBER)):
            rows, title = select(table, measure=measure), f"{title}, without {n_heads} heads"
            panels.append(_panel(rows, title, EXERCISE_TITLES, kinds, "when", numbers.TIMES))
    if kinds := _measured(table, PAIR_TITLES, numbers.P_ANSWER):
        rows = select(table, measure=numbers.P_ANSWER)
        title = "p(C), without the calculation"
        panels.append(_panel(rows, title, PAIR_TITLES, kinds, "side", numbers.SIDES))
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
    sides: tuple[str, str],
) -> plotting.DotPanel:
    """One measure on both sides of the change that `key` names."""
    series = []
    for side, name, symbol in zip(sides, numbers.TIMES, SYMBOLS, strict=True):
        of_side = select(rows, **{key: side}).set_index("kind").reindex([*kinds])
        value, low, high = (100 * of_side[end].to_numpy() for end in ("value", "low", "high"))
        colour = COLOURS["chosen"] if side == sides[0] else COLOURS["answer"]
        series.append(plotting.Dots(value, name, colour, low, high, symbol))
    return plotting.DotPanel(title, tuple(titles[kind] for kind in kinds), tuple(series))


def instead_caption(table: DataFrame) -> str:
    """What the models say without the heads, and without the calculation."""
    findings = []
    for model in keys_of(table, "model"):
        rows = select(table, model=model, when="after")
        if len(rows):
            right, number = (
                span_text(select(rows, measure=measure).value)
                for measure in (numbers.RIGHT, numbers.A_NUMBER)
            )
            findings.append(f"`{model}` says a number in {number}, the right one in {right}")
    findings = [f"Without ten heads {'; '.join(findings)} of the prompts."] * bool(findings)
    findings += [_gone(select(table, model=model)) for model in keys_of(table, "model")]
    return (
        f"{' '.join(filter(None, findings))} A dot is the mean of one kind of prompt before "
        "(filled) and after (open); lines are 95% intervals over problems."
    )


def _gone(table: DataFrame) -> str:
    """How far the probability of the answer falls without the calculation."""
    p_answer = select(table, measure=numbers.P_ANSWER)
    before, after = (select(p_answer, side=side).value for side in numbers.SIDES)
    if not len(before):
        return ""
    without = select(p_answer, side="counterfactual")
    most = without.loc[without.value.idxmax()]
    return (
        f"With a word in place of the operator, p(C) of `{table.model.iloc[0]}` is "
        f"{span_text(after)} (most: {PAIR_TITLES[str(most.kind)]})."
    )


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
