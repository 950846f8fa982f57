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
from figures.views.lines import dots
from figures.views.maps import grey
from figures.views.words import LENS, draws_text, listed, span_text

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
BASE_RATE = ("base rate", "line-ns-open")
HEADS_OUT, NO_OPERATOR = ("strongest heads out", "circle-open"), ("no operator", "square-open")
"""The name and the mark of the model as it is, of the control, and of both changes."""


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out.

    Reads a run of `experiments what_comes_instead` (by its settings, or `--run PATH`) and draws it
    without loading a model: how often the likeliest token is right, before and after, and how often
    it is still a number. The small print has one prompt that is right with every head in place.

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
    """A row for each model: right answers without the key heads, else p(C) without the operator."""
    of_models = {model: select(table, model=model) for model in keys_of(table, "model")}
    return plotting.dot_panels(
        [_model_panel(own) for own in of_models.values()],
        plotting.DotAxis((-4, 104), unit="%"),
        across=1,
        headings=[f"{model}: {_finding(own)}" for model, own in of_models.items()],
        row=34,
        notes=notes,
    )


def _model_panel(table: DataFrame) -> plotting.DotPanel:
    """The panel of one model: right answers if its table has them, else p(C)."""
    if not has(table, measure=numbers.RIGHT):
        sides = dict(zip(map(str, numbers.SIDES), (WHOLE, NO_OPERATOR), strict=True))
        p_answer = select(table, measure=numbers.P_ANSWER)
        return _panel(p_answer, "probability of the answer C", PAIR_TITLES, "side", sides)
    before, after = numbers.TIMES
    sides = {before: WHOLE, after: HEADS_OUT, numbers.RANDOM_HEADS: CONTROL}
    right = select(table, measure=numbers.RIGHT)
    panel = _panel(right, "right answers", EXERCISE_TITLES, "when", sides)
    compared = _compared(table, numbers.RIGHT).droplevel("model")
    compared = compared.reindex(_kinds(right, EXERCISE_TITLES))
    name, symbol = BASE_RATE
    level = 100 * compared.base_rate.to_numpy()
    by_chance = plotting.Dots(level, name, COLOURS["control"], symbol=symbol)
    names = zip(panel.rows, compared.is_testable, strict=True)
    is_number = _spans(_compared(table, numbers.A_NUMBER))
    return replace(
        panel,
        title=panel.title + grey(f"; still a number{is_number}"),
        rows=tuple(name + " (not testable)" * (not one) for name, one in names),
        series=(*panel.series, by_chance),
        strong=tuple(compared.is_below & compared.is_testable),
    )


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
        of_side = select(rows, **{key: side}).set_index("kind")
        colour = COLOURS["control" if (name, symbol) == CONTROL else "chosen"]
        series.append(dots(of_side, kinds, name, colour, symbol, shift))
    names = tuple(titles[kind] for kind in kinds)
    return plotting.DotPanel(f"{title}, n = {span_text(sizes, '.0f')}", names, tuple(series))


def instead_caption(table: DataFrame) -> str:
    """What the models say without the heads; else without the operator."""
    sentences = [f"Without the operator, {_without_operator(table)}."]
    if has(table, measure=numbers.RIGHT):
        by_model = {model: _tested(select(table, model=model)) for model in keys_of(table, "model")}
        findings = (
            f"{_n_below(tested)} in `{model}`{_spans(tested)}" for model, tested in by_model.items()
        )
        is_number = _compared(table, numbers.A_NUMBER)
        sentences = [
            f"Without the {_n_heads(table)} strongest heads (by {LENS}), fewer are right than in "
            f"any random draw in so many kinds: {', '.join(findings)}.",
            "A kind counts if the whole model's interval is above the base rate.",
            f"Answers are still numbers{_spans(is_number)}.",
        ]
    draws = draws_text(select(table, when=numbers.RANDOM_HEADS))
    return f"{' '.join(sentences)} Lines: 95% intervals (n prompts){draws}."


def _spans(compared: DataFrame) -> str:
    """How much is left without the strongest heads, beside random ones."""
    if not len(compared):
        return ""
    random = compared.random.dropna()
    beside = f"; random means: {span_text(random)}" * bool(len(random))
    return f" ({span_text(compared.chosen)}{beside})"


def _n_heads(table: DataFrame) -> int:
    """How many heads are knocked out."""
    return len(keys_of(select(table, model=table.model.iloc[0]), "head"))


def _finding(table: DataFrame) -> str:
    """What one model says without the heads, else without the operator, in short."""
    if not has(table, measure=numbers.RIGHT):
        return f"without the operator {_without_operator(table)}"
    draws = select(table, when=numbers.RANDOM_HEADS).n.max()
    if draws != draws:
        right = span_text(_compared(table, numbers.RIGHT).chosen)
        return f"without the {_n_heads(table)} strongest heads {right} are right"
    tested = _tested(table)
    below = (EXERCISE_TITLES[kind] for _, kind in tested.index[tested.is_below])
    names = f" ({listed(below)})" * bool(tested.is_below.any())
    return (
        f"in {_n_below(tested)} kinds{names}, fewer are right without the {_n_heads(table)} "
        "strongest heads than in any random draw"
    )


def _n_below(tested: DataFrame) -> str:
    """In how many kinds of prompts the strongest heads are below every draw of random ones."""
    return f"{tested.is_below.sum()} of {len(tested)}"


def _tested(table: DataFrame) -> DataFrame:
    """Right answers in the kinds where a loss can be seen."""
    compared = _compared(table, numbers.RIGHT)
    return DataFrame(compared[compared.is_testable])


def _compared(table: DataFrame, measure: str) -> DataFrame:
    """A measure by model and kind of prompt: without the strongest heads and without random ones,
    whether the first is below every draw of the second, the base rate, and whether the whole
    model's interval is above it."""
    by_kind = select(table, measure=measure).set_index(["model", "kind"])
    before, chosen, random = (
        select(by_kind, when=one) for one in (*numbers.TIMES, numbers.RANDOM_HEADS)
    )
    rates = select(table, measure=MAJORITY, question="what comes instead")
    rate = rates.set_index(["model", "kind"]).value.reindex(chosen.index)
    random = random.reindex(chosen.index)
    columns = {
        "chosen": chosen.value,
        "random": random.value,
        "is_below": chosen.value < random.low,
        "base_rate": rate,
        "is_testable": before.low > rate,
    }
    return DataFrame(columns)


def _without_operator(table: DataFrame) -> str:
    """How p(C) changes without the operator, and where it does not fall."""
    p_answer = select(table, measure=numbers.P_ANSWER).set_index(["kind", "model"])
    before, without = (select(p_answer, side=side) for side in numbers.SIDES)
    falls = without.high < before.low.reindex(without.index)
    parts = [f"falls to at most {without.value[falls].max():.0%}"] * bool(falls.any())
    for kind, rows in without[~falls].groupby("kind", sort=False):
        parts.append(f"does not fall in {PAIR_TITLES[str(kind)]} ({span_text(rows.value)})")
    return f"p(C) {', and '.join(parts)}"


def _notes(table: DataFrame, config: Settings) -> list[str]:
    """What was changed, with an example of each change."""
    if has(table, measure=numbers.RIGHT):
        first = select(table, model=table.model.iloc[0])
        example = _example(first, "integers", "when", numbers.TIMES, "without the heads ")
        draws = draws_text(select(table, when=numbers.RANDOM_HEADS))
        return [
            "Bold: below every random draw. Not testable: the whole model is not above the base "
            f"rate. Lines: 95% intervals{draws}.",
            f"Base rate: always the most frequent answer. {example} Heads: strongest over + − × ÷.",
        ]
    kinds = keys_of(select(table, measure=numbers.P_ANSWER, side="reference"), "kind")
    kind = EXAMPLE_KIND if EXAMPLE_KIND in kinds else kinds[0]
    return [_example(table, kind, "side", numbers.SIDES)]


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
    first, second = (part[0] for part in ends)
    texts = [f"“{one.prompt.strip()}” {one.token} ({one.value:.0%})" for one in (first, second)]
    if first.prompt == second.prompt:
        texts[1] = f"{second.token} ({second.value:.0%})"
    return f"Example: {f', {change}'.join(texts)}."
