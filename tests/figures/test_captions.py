"""A caption says what its run shows: the opposite run has the opposite caption."""

from typing import get_args

import pytest
from pandas import DataFrame

from experiments.settings import Metric
from figures.robustness import stability_caption
from figures.tables.stability import stability_rows
from figures.tables.table import QuestionTable, read_back
from figures.views import maps


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
