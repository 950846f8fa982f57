"""Outcomes of predictions: numbers by hand, and verdicts that can be all three."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.made_predictions import maps

from arith_lens.answers import Answers
from arith_lens.effects import Effects
from arith_lens.runs import load_run
from figures import tuning
from figures.tables import predictions
from figures.tables.agreement import resampled_cells
from figures.tables.number import Number
from figures.tables.table import Row
from figures.tables.tuning import rows_at_chosen_rates
from figures.verdicts import Finding, Within, judge_by_interval

SHIPPED_TUNING = Path(tuning.__file__).parent / "gallery" / "runs" / tuning.EXPERIMENT
WORD_PROBLEMS = ("gain_lose", "compare", "groups", "two_step")


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((-0.1, 0.2), "holds here"),
        ((-0.25, 0.25), "holds here"),
        ((0.3, 0.4), "does not hold here"),
        ((-0.9, -0.3), "does not hold here"),
        ((0.1, 0.4), "not decided"),
        ((-1.0, 1.0), "not decided"),
        ((float("nan"), float("nan")), "not decided"),
    ],
)
def test_an_interval_holds_inside_and_fails_outside(
    interval: tuple[float, float], verdict: str
) -> None:
    finding = Finding("x", Number(0.0, *interval), Within(-0.25, 0.25, closed=True))
    assert judge_by_interval(finding) == verdict


def test_a_bound_that_is_open_is_outside() -> None:
    number = Number(0.6, 0.5, 0.7)
    above = [
        judge_by_interval(Finding("x", number, Within(above=0.5, closed=closed)))
        for closed in (True, False)
    ]
    assert above == ["holds here", "not decided"]
    below = [
        judge_by_interval(Finding("x", number, Within(below=0.5, closed=closed)))
        for closed in (True, False)
    ]
    assert below == ["not decided", "does not hold here"]


def value(row: Row) -> float:
    """The number of a row."""
    return row.number.value


def test_heads_in_common_are_counted() -> None:
    same = [value(outcome) for outcome in predictions.shared(maps([[*range(10)]] * 2))]
    apart = list(predictions.shared(maps([[*range(10)], [*range(5, 15)]])))
    of_ten = [one for one in apart if "strongest 10" in one.measure]
    assert same == [1.0] * 4 and [value(one) for one in of_ten] == [0.5, 0.5]
    assert {one.keys["verdict"] for one in of_ten} == {"does not hold here"}
    few = list(predictions.shared(maps([[*range(7)], [*range(3, 10)]])))
    of_seven = [value(one) for one in few if "strongest 7" in one.measure]
    assert of_seven == [4 / 7, 4 / 7]


def test_the_mean_layer_is_weighted_by_what_heads_take_away() -> None:
    mean, early = list(predictions.middle_layers(maps([[4, 12], [4, 12]])))[:2]
    assert value(mean) == pytest.approx((1 + 3) / 2, abs=1e-3)
    assert mean.keys["condition"] == "between 2 and 4 of 6"
    assert value(early) == pytest.approx(0.5, abs=1e-3)
    assert early.keys["verdict"] == "does not hold here"


def test_the_norms_part_is_a_share_of_the_late_mlps_effect() -> None:
    made: Any = maps([[20], [20]])
    (one, _) = predictions.norm_parts(made)
    assert one.measure.endswith("layer 5")
    assert value(one) == pytest.approx(0.2, abs=1e-6) and one.keys["verdict"] == "holds here"


def test_the_interval_holds_the_number() -> None:
    for one in predictions.middle_layers(maps([[4, 12], [4, 13]])):
        low, high = one.number.low, one.number.high
        assert low is not None and high is not None
        assert low <= value(one) + 1e-9 and value(one) <= high + 1e-9


def test_resampling_keeps_the_order_of_cells() -> None:
    effects = Effects(
        torch.arange(6.0).view(2, 3)[..., None].repeat(1, 1, 8), ("layer", "head"), "logit", "x"
    )
    drawn = resampled_cells(effects)
    assert np.allclose(drawn, np.arange(6.0)[:, None])


def test_the_gain_of_tuned_heads_is_a_difference_of_accuracies() -> None:
    for folder in SHIPPED_TUNING.iterdir():
        run = load_run(folder)
        full, random, before = predictions.tuning_outcomes(run)
        accuracy = {row.key[0]: _accuracy(row.answers) for row in rows_at_chosen_rates(run, 1)}
        assert value(full) == pytest.approx(accuracy["precise"] - accuracy["full"])
        assert value(random) == pytest.approx(accuracy["precise"] - accuracy["random"])
        assert full.keys["verdict"] == "does not hold here"
        assert full.number.high is not None and full.number.high < -0.031
        low, high = before.number.low, before.number.high
        assert low is not None and high is not None
        assert before.keys["verdict"] in ("holds here", "does not hold here")
        assert (before.keys["verdict"] == "holds here") == (low >= -0.02 and high <= 0.02)


def _accuracy(trained: tuple[Answers, ...]) -> float:
    """The share of right answers to word problems of the test parts, over all trainings."""
    right = [
        float(correct)
        for answers in trained
        for task, correct in zip(answers.task, answers.correct, strict=True)
        if task.split("/")[0] in WORD_PROBLEMS
    ]
    return sum(right) / len(right)
