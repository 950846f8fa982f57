"""A caption says what its run shows: the opposite run has the opposite caption."""

from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from pandas import DataFrame
from support.made_claims import curve

from arith_lens.components import Head, Mlp
from arith_lens.effects import Effects
from arith_lens.knockout import KnockoutCurves
from experiments.settings import Metric
from figures.knockout import knockout_caption
from figures.next_tokens import PAIR_TITLES, instead_caption
from figures.robustness import stability_caption
from figures.tables.knockout import curve_rows
from figures.tables.next_tokens import answer_rows
from figures.tables.stability import stability_rows
from figures.tables.table import QuestionTable, read_back
from figures.views import maps

HEADS = [Head(4, index) for index in range(8)] + [Head(5, index) for index in range(4)]
MLPS: list[Mlp] = [Mlp(layer) for layer in range(12)]


def knockouts(without: float, without_random: float) -> KnockoutCurves:
    """So many are right without ten heads or four MLPs, and without random ones."""
    order: Sequence = HEADS
    curves = {"effect": curve([*order], {0: 1.0, 10: without})}
    for seed in range(2):
        curves[f"random {seed}"] = curve([*order], {0: 1.0, 10: without_random})
        curves[f"matched 10 {seed}"] = curve([*order], {0: 1.0, 10: without_random})
        curves[f"MLPs random {seed}"] = curve([*MLPS], {0: 1.0, 4: without_random})  # pyright: ignore
    curves["MLPs"] = curve([*MLPS], {0: 1.0, 4: without, 12: 0.0})  # pyright: ignore
    return KnockoutCurves(curves)


def knockout_rows(curves: dict[str, KnockoutCurves]) -> DataFrame:
    """The table as its CSV file has it."""
    rows = [row for name, both in curves.items() for row in curve_rows(name, both)]
    return read_back(QuestionTable.of("knockout", "made", rows))


def test_figure_3_says_whether_the_strongest_heads_cost_more_than_others() -> None:
    both = {name: knockouts(0.0, 1.0) for name in ("addition", "division")}
    text = knockout_caption(knockout_rows(both))
    assert text.startswith("Without the 10 strongest heads, `made` answers 0% right (random: 100%")
    assert "100% on average; below every draw in 2 of 2 operations)." in text
    opposite = knockout_caption(knockout_rows({name: knockouts(1.0, 0.0) for name in both}))
    assert "`made` answers 100% right (random: 0% on average; below every" in opposite


def calculation_rows(p_without: float, p_with: float = 1.0) -> DataFrame:
    """The table of Figure 9: p(C), and how often C is likeliest, with the operator and without."""
    values = torch.full((2, 2, 18), p_with)
    values[1] = p_without
    outcomes = Effects(values, ("side", "measure"), "share")
    rows = [row for kind in PAIR_TITLES for row in answer_rows(kind, outcomes)]
    return read_back(QuestionTable.of("with the calculation", "made", rows))


def test_figure_9_says_whether_the_answer_goes_with_the_calculation() -> None:
    falls = instead_caption(calculation_rows(0.0))
    assert falls.startswith("Without the operator, p(C) falls to at most 0%. ")
    stays = instead_caption(calculation_rows(1.0))
    assert "falls to" not in stays and "p(C) does not fall in addition (100%), and does" in stays


def agreement(last: float) -> DataFrame:
    return DataFrame(
        [(n, "top 5", which, mean, mean, mean)
         for which in ("rest", "another") for n, mean in ((2, 0.1), (18, last))],
        columns=["n", "set", "with", "mean", "low", "high"],
    )  # fmt: skip


@pytest.mark.parametrize(("last", "says"), [(0.95, "Every curve reaches 90%"), (0.4, "in 2 of 2")])
def test_stability_says_whether_its_curves_reach_the_top(last: float, says: str) -> None:
    names = ("addition", "division")
    rows = [row for name in names for row in stability_rows(agreement(last), name, 200)]
    text = stability_caption(read_back(QuestionTable.of("stability", "made", rows)))
    assert says in text and f"addition {last:.0%} at 18 problems" in text
    assert ("(90% from 18 on)" in text) == (last > 0.9)


def test_every_metric_has_a_title_of_its_colours() -> None:
    assert {*maps.COLOUR_TITLES} >= {*get_args(Metric)}
