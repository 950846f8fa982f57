"""Figures 4 and 9: what the model says after a knockout, and without the calculation.

They read runs of one model (by their settings, or `--run PATH`) and are drawn without loading a
model.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from arith_lens import plotting
from arith_lens.operations import FOUR
from figures.common import chosen_run
from figures.exhibit import Chart, chart_of
from figures.options import Options
from figures.tables import next_tokens as numbers
from figures.tables.base_rates import MAJORITY
from figures.views import marks
from figures.views.marks import LEVEL, DotChart, Marks

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
BEFORE, AFTER = numbers.TIMES
REFERENCE, COUNTERFACTUAL = numbers.SIDES
SIDES = (
    Marks({"when": BEFORE}, "whole model"),
    Marks({"when": AFTER}, "strongest heads out", "circle-open"),
    Marks({"when": numbers.RANDOM_HEADS}, "random heads out", "diamond", "control"),
)
RIGHT = tuple(replace(one, where={**one.where, "measure": numbers.RIGHT}) for one in SIDES)
BASE_RATE = Marks({"measure": MAJORITY}, "base rate", LEVEL, "control")
EXERCISES: dict[str, Any] = {"names": "kind", "titles": EXERCISE_TITLES}
ANSWERS = [
    DotChart(
        {"measure": [numbers.RIGHT, MAJORITY], "kind": [*EXERCISE_TITLES]},
        (*RIGHT, BASE_RATE),
        title="right answers, n = {n}",
        **EXERCISES,
    ),
    DotChart({"measure": numbers.A_NUMBER}, SIDES, title="answers that are numbers", **EXERCISES),
]
PROBABILITIES = [
    DotChart(
        {"measure": numbers.P_ANSWER},
        (
            Marks({"side": REFERENCE}, "whole model"),
            Marks({"side": COUNTERFACTUAL}, "no operator", "square-open"),
        ),
        title="probability of the answer C, n = {n}",
        names="kind",
        titles=PAIR_TITLES,
    )
]
SHARES = plotting.DotAxis((-4, 104), unit="%")


def fig4(options: Options) -> list[Chart]:
    """Figure 4: the likeliest next tokens before and after the key heads are knocked out."""
    run = chosen_run(options, "what_comes_instead")
    chart = chart_of(
        partial(numbers.instead_table, run),
        [run],
        name="fig4",
        title="What comes instead of the answer?",
        caption="The heads with the strongest mean effects over + − × ÷ are knocked out, or as "
        "many random ones. Lines: 95% intervals over n prompts; of random heads the range of "
        "draws. Base rate: always the most frequent answer. A kind whose whole model is not above "
        "it tests nothing.",
        draw=partial(marks.draw, charts=ANSWERS, axis=SHARES, row=34),
    )
    return [chart]


def fig9(options: Options) -> list[Chart]:
    """Figure 9: the likeliest next tokens with the calculation, and without it."""
    run = chosen_run(options, "what_the_calculation_does")
    chart = chart_of(
        partial(numbers.calculation_table, run),
        [run],
        name="fig9",
        title="What does the model say without the calculation?",
        caption="A mark is the probability of the answer C, on average over n problems, in prompts "
        "with an operator and in the same prompts with another word in its place. Lines: 95% "
        "intervals.",
        draw=partial(marks.draw, charts=PROBABILITIES, axis=SHARES, row=34),
    )
    return [chart]
