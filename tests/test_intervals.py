"""Intervals of skewed effects and of shares, against populations whose mean is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.coverage import answers, by_problem, misses, redrawn, skewed, studies
from torch.testing import assert_close

from arith_lens.answers import Answers, change_over_seeds
from arith_lens.effects import Effects, crossed_draws
from arith_lens.effects.effects import SHARES
from arith_lens.intervals import change_interval, share_interval, studentised_interval
from arith_lens.knockout import CircuitCurve, Outcomes, drop
from arith_lens.statistics import Sample

N_STUDIES = 800


@pytest.mark.parametrize("kind", ["normal", "log-normal", "heavy tails"])
@pytest.mark.parametrize(("n", "k"), [(12, 9), (36, 9)])
def test_studentised_intervals_hold_for_skewed_effects(kind: str, n: int, k: int) -> None:
    effects = skewed(kind, n, k, n_studies=N_STUDIES)
    below, above = misses(effects.ci(), 0.0)
    assert 0.9 < 1 - below - above < 0.985
    assert max(below, above) < (0.1 if n == 12 else 0.07)
    if kind == "log-normal":
        plain = misses(effects.ci(method="percentile"), 0.0)
        assert sum(plain) > below + above + 0.03
        assert plain[0] > 1.3 * below, "the percentile interval misses on the side of the tail"
        assert n > 12 or below > 0.05, "the documented limit: few problems and skewed effects"


@pytest.mark.parametrize(("n", "k"), [(11, 3), (36, 9)])
@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("alike", [0.01, 0.3, 0.9])
def test_intervals_of_shares_hold_near_the_ends(n: int, k: int, p: float, alike: float) -> None:
    right = answers(p, alike, n, k, n_studies=N_STUDIES)
    assert sum(misses(right.ci(), p)) < 0.13
    if n == 11 and p in (0.02, 0.98):
        plain = misses(right.ci(method="percentile"), p)
        assert sum(plain) > 0.3, "percentile intervals do not"


EFFECTS = [
    *(-6.1, -11.1, -36.0, -39.3, -37.5, -9.1, -10.6, -16.6, -18.3, -9.6, -6.2, -25.3),
    *(-20.2, -9.4, -1.8, -15.0, -7.1, -10.9, -11.4, -6.7, -1.4, -45.3, -16.7, -8.1),
    *(-3.1, 1.2, -27.7, -8.0, -7.5, 0.5, -10.9, -5.5, -2.4, -8.5, -5.6, -7.6),
]
HEAD_5_5 = np.array(EFFECTS)[:, None]
"""Head 5.5 of `reference` in the 36 one-digit sums: change of C's logit in percent, mean of the
nine wordings (`word`)."""
RIGHT = [
    *(0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0),
    *(0, 0, 1, 0, 0, 0, 0, 0, 0, 8, 0, 1, 9, 1, 1, 0, 1, 4),
]
"""Wordings that `reference` answers right in each of these sums, without its ten strongest heads
(means of `word`)."""


def test_intervals_of_measured_effects_miss_on_one_side() -> None:
    """Few of the 36 sums carry most of the effect. Studies draw 12 of them."""
    drawn, truth = redrawn(HEAD_5_5, 12, n_studies=N_STUDIES), float(HEAD_5_5.mean())
    below, above = misses(drawn.ci(), truth)
    plain = misses(drawn.ci(method="percentile"), truth)
    assert below < 0.03 and 0.04 < above < 0.11, "the documented limit"
    assert plain[1] > above + 0.01 and plain[1] > 0.07, "the percentile interval misses more"


def test_intervals_of_measured_answers_hold_near_the_ends() -> None:
    """Right answers in nine wordings of each problem, from few of 36 sums, and from most."""
    for answered in (RIGHT, 9 - np.array(RIGHT)):
        right = (np.arange(9) < np.array(answered)[:, None]).astype(float)
        drawn, truth = redrawn(right, 11, "correct", n_studies=N_STUDIES), float(right.mean())
        assert max(misses(drawn.ci(), truth)) < 0.06
        plain = max(misses(drawn.ci(method="percentile"), truth))
        assert plain > 0.075, "the percentile interval misses three times as often as it says"


def test_problems_are_told_from_wordings() -> None:
    effects = studies(np.arange(24.0).reshape(1, 4, 6))
    assert np.array_equal(by_problem(effects)[0], np.arange(24).reshape(4, 6))
    some = effects.select(torch.arange(1, 24))  # the first problem lacks a wording
    assert np.array_equal(by_problem(some)[0], np.arange(6, 24).reshape(3, 6))


def test_numbers_of_answers_have_the_interval_of_a_share() -> None:
    """Also where accuracies stand beside other measures, and not where effects are all zero."""
    right = np.ones((2, 11, 3))
    right[1] = 0.25
    both = studies(right)
    mixed = Effects(both.per_pair, ("measure",), "after knockout", **both.units,
                    labels={"measure": ("correct", "probability")})  # fmt: skip
    (low, of_other), (high, _) = mixed.ci().tolist()
    assert (low, high) == tuple(studies(right[:1]).ci(method="share")[:, 0].tolist())
    assert of_other == 0.25 and low < 0.75
    assert studies(0 * right).ci().abs().max() == 0, "effects that are zero in every pair"
    assert studies(0 * right, "answers_other").ci()[1].min() > 0.2


@pytest.mark.parametrize(("before", "after"), [(1, 0.03), (1, 0.95), (0.8, 0.76), (0.8, 0.03)])
def test_intervals_of_changes_of_accuracy_hold(before: float, after: float) -> None:
    """11 problems in three wordings. After the change, some of the right answers are wrong."""
    draw, missed = np.random.default_rng(0), 0

    def right(p: float) -> np.ndarray:
        return draw.random((11, 3)) < (draw.beta(3 * p, 3 * (1 - p), (11, 1)) if p < 1 else 1)

    for _ in range(200):
        was = right(before)
        values = np.stack([was, was & right(after / before)]).astype(float)
        low, high = change_interval(studies(values, "correct").sample(), level=0.95)
        missed += not low <= after - before <= high
    assert missed < 0.08 * 200


def test_the_interval_of_a_change_is_newcombes() -> None:
    """40 questions, of which 9 become right and 4 wrong: Wilson's ends and numpy's correlation."""
    after = np.array([1] * 20 + [0] * 20)
    before = after.copy()
    before[:9], before[20:24] = 0, 1
    problems = torch.arange(40)
    one = torch.zeros(40).long()
    sample = Sample(torch.tensor(np.stack([before, after])).float(), one, problems, one)
    found = change_interval(sample, level=0.9)
    changed = [after > before, after < before]
    parts = replace(sample, values=torch.tensor(np.stack(changed)).float())
    (low, low_lost), (high, high_lost) = share_interval(parts, level=0.9).tolist()
    gained, lost = 9 / 40, 4 / 40
    alike = np.corrcoef(changed[0], changed[1])[0, 1]

    def reach(a: float, b: float) -> float:
        return (a**2 + b**2 - 2 * alike * a * b) ** 0.5

    wanted = (
        gained - lost - reach(gained - low, high_lost - lost),
        gained - lost + reach(high - gained, lost - low_lost),
    )
    assert found == pytest.approx(wanted, abs=1e-6)
    assert alike < -0.1 and wanted[1] - (gained - lost) != pytest.approx(gained - lost - wanted[0])


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_a_share_of_independent_answers_has_wilsons_interval(level: float) -> None:
    """One pair per problem, 7 of 40 right: Wilson's formula with Student's t for 39 and 39 / 40 of
    the pairs, since the variance is estimated."""
    right = torch.zeros(1, 40)
    right[0, :7] = 1
    effects = Effects(right, ("layer",), "logit", problem=tuple(map(str, range(40))))
    p, n, z = 7 / 40, 39.0, stats.t.ppf((1 + level) / 2, 39)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    width = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    expected = torch.tensor([[centre - width], [centre + width]]).float()
    assert_close(effects.ci(level, method="share"), expected, atol=1e-6, rtol=1e-5)


def test_a_share_counts_problems_and_not_wordings() -> None:
    """Nine equal wordings of each of 40 problems say no more than one wording."""
    right = np.zeros((1, 40, 1))
    right[0, :7] = 1
    one, nine = (studies(np.repeat(right, k, axis=2)) for k in (1, 9))
    assert_close(nine.ci(method="share"), one.ci(method="share"), atol=1e-6, rtol=1e-5)


def test_all_right_is_not_certain() -> None:
    """11 problems, all right: the lower end of Wilson's interval for 11 of 11."""
    low, high = studies(np.ones((1, 11, 3))).ci(method="share")[:, 0].tolist()
    square = stats.t.ppf(0.975, 10) ** 2
    assert high == 1 and low == pytest.approx(1 / (1 + square / 11), abs=1e-3)
    assert studies(np.ones((1, 11, 3))).ci(method="percentile")[:, 0].tolist() == [1, 1]


def test_a_studentised_interval_draws_the_ratio_of_error_and_standard_error() -> None:
    """One wording: against SciPy's standard error of each draw, which has a least size.

    The interval of one event ends at 4.74 times its mean for 90% (Poisson).
    """
    values = np.random.default_rng(3).exponential(size=25) ** 2
    sample = Sample(torch.tensor(values)[None], *torch.zeros(3, 25).long())
    sample = Sample(sample.values, sample.strata, torch.arange(25), sample.blocks)
    low, high = studentised_interval(sample, level=0.9, n_resamples=20_000, seed=0)[:, 0].tolist()
    drawn = values[np.random.default_rng(4).integers(0, 25, (20_000, 25))]
    error, student = stats.sem(values), stats.t.ppf(0.95, 24)
    errors = np.maximum(stats.sem(drawn, axis=1), error / (stats.chi2.ppf(0.95, 4) / 2 - 1))
    ratios = (drawn.mean(1) - values.mean()) / errors
    expected_high = values.mean() - error * np.quantile(ratios, 0.05)
    expected_low = values.mean() - error * max(np.quantile(ratios, 0.95), student)
    assert high == pytest.approx(expected_high, rel=0.02) and high > values.mean() + student * error
    assert low == pytest.approx(expected_low, rel=0.02)


def test_studentised_intervals_speak_of_other_wordings_too() -> None:
    """Wordings differ by much more than problems do; each study draws nine of them."""
    draw = np.random.default_rng(5)
    wordings = draw.standard_normal((N_STUDIES, 1, 9))
    effects = studies(wordings + 0.3 * draw.standard_normal((N_STUDIES, 36, 9)))
    below, above = misses(effects.ci(method="studentised"), 0.0)
    assert 0.92 < 1 - below - above < 0.985
    below, above = misses(effects.ci(method="studentised", over="prompt"), 0.0)
    assert 1 - below - above < 0.5, "over prompts, wordings are fixed"


def test_wordings_widen_a_studentised_interval_on_the_side_of_the_tail() -> None:
    """The same problems, with and without wordings that differ by 0.7 of the problems' error."""
    draw = np.random.default_rng(6)
    values = np.exp(draw.standard_normal((N_STUDIES, 36, 1))) + 0.01 * draw.random((1, 36, 9))
    wordings = draw.standard_normal((N_STUDIES, 1, 9))
    wordings -= wordings.mean(2, keepdims=True)
    size = 0.7 * 3 * values.std((1, 2), keepdims=True) / 6  # 3 and 6: roots of 9 and 36
    plain, worded = studies(values), studies(values + size * wordings)
    reach = [e.ci(method="studentised")[1] - e.mean() for e in (plain, worded)]
    assert 1.05 < float((reach[1] / reach[0]).median()) < 1.5


def test_a_share_is_worth_no_more_answers_than_it_has_pairs() -> None:
    """Of 30 problems in two wordings, 28 are right in one of them, and two in both or in none. So
    problems differ less than independent answers would."""
    right = np.zeros((1, 30, 2))
    right[0, ::2, 0] = right[0, 1::2, 1] = 1
    right[0, 0], right[0, 1] = 1, 0
    low, high = studies(right).ci(method="share")[:, 0].tolist()
    square = stats.t.ppf(0.975, 29) ** 2
    width = (square / 60 * 0.25 + (square / 60) ** 2 / 4) ** 0.5 / (1 + square / 60)
    assert (low, high) == pytest.approx((0.5 - width, 0.5 + width), abs=0.005)


def shapes(draw: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Effects of n problems that have broken an interval somewhere, or could."""
    first = np.arange(n) < max(1, n // 12)
    normal = draw.standard_normal(n)
    return {
        "rare": -0.5 * first,
        "rare, with noise": -0.5 * first + 1e-7 * normal,
        "rare, of unequal size": -draw.exponential(0.5, n) * first,
        "two clusters": np.arange(n) % 2 - 0.5 + 1e-9 * normal,
        "left out": np.where(np.arange(n) < max(1, n - 2), normal, np.nan),
        "heavy tails": draw.standard_t(1.1, n),
        "log-normal": np.exp(2 * normal),
        "0 or 1": (np.arange(n) % 3 == 0) * 1.0,
        "the same": np.full(n, 0.25),
        "none": np.zeros(n),
        "all": np.ones(n),
    }


@pytest.mark.parametrize("n", [2, 3, 5, 12, 30, 36])
@pytest.mark.parametrize("wordings", [1, 3])
def test_no_interval_is_infinite_or_leaves_its_mean_or_what_is_possible(
    n: int, wordings: int
) -> None:
    """Of effects of any shape. A share also has a width, whatever was seen."""
    draw = np.random.default_rng(n)
    made = shapes(draw, n)
    values = np.repeat(np.stack([*made.values()])[:, :, None], wordings, axis=2)
    effects, least, most = studies(values), np.nanmin(values, (1, 2)), np.nanmax(values, (1, 2))
    mean, known = effects.mean().numpy(), np.array([name != "left out" or n > 3 for name in made])
    for method in ("studentised", "percentile"):
        low, high = effects.ci(method=method).double().numpy()
        assert np.isfinite([low, high])[:, known].all(), method
        inside = (low <= mean + 1e-6) & (mean <= high + 1e-6)
        assert inside[known].all(), method
        varies = known & (least < most)
        if method == "studentised":
            assert (high > low)[varies].all()
            student = stats.t.ppf(0.975, n - 1) * effects.stderr().numpy()
            beyond = np.maximum(mean - low, high - mean)
            # a twentieth of the variance: 4.6 times the error of a draw, which is within the range
            assert (beyond <= np.maximum(1.01 * student, 4.6 * (most - least)) + 1e-5)[known].all()
        else:
            assert ((low >= least - 1e-5) & (high <= most + 1e-5))[known].all()
    right = (values[[*made].index("0 or 1") :][[0, 2, 3]] > 0).astype(float)
    for metric in SHARES:
        low, high = studies(right, metric).ci().numpy()
        assert ((low >= 0) & (high <= 1) & (high - low > 0.09)).all(), metric
    how: Any = {"ablation": "mean", "positions": "end", "means": "template"}
    outcomes = Outcomes(
        correct=torch.tensor(right[0].reshape(-1)) == 1,
        probability=torch.tensor(right[0].reshape(-1)).float(),
        top=torch.zeros(n * wordings, 1).long(),
        components=(),
        **how,
        **studies(right).units,
    )
    curve = CircuitCurve(
        value=torch.tensor(right.reshape(3, -1)).float(),
        correct=torch.tensor(right.reshape(3, -1)) == 1,
        sizes=(0, 1, 2),
        order=(),
        kind="keep_only",
        metric="logit",
        **how,
        **studies(right).units,
    )
    same, ends_of_curve = drop(outcomes, outcomes), curve.effects().measure("correct").ci().T
    for ends in (outcomes.ci(), same.accuracy.absolute_ci, *ends_of_curve.tolist()):
        assert -1 <= ends[0] < ends[1] <= 1 and np.isfinite(ends).all()
    answered = Answers(torch.tensor(right[2, :, 0]) == 1, ("",) * n, ("",) * n, ("",) * n)
    alike = change_over_seeds(answered, [answered, answered])
    for ends in (answered.ci(), answered.change_to(answered).ci(), alike.ci()):
        assert -1 <= ends[0] < ends[1] <= 1.0001


def test_one_problem_of_many_reaches_as_far_as_one_event_of_a_poisson_count() -> None:
    """One of 30 problems has the whole effect: the upper Poisson limit of one event is 5.57."""
    values = np.zeros((1, 30, 1))
    values[0, 0] = -0.5
    low, high = studies(values).ci()[:, 0].tolist()
    of_one = stats.chi2.ppf(0.975, 2 * (1 + 1)) / 2
    assert low == pytest.approx(-0.5 / 30 * of_one, rel=0.01) and 0 < high < 0.02
    exact = stats.binomtest(1, 30).proportion_ci().high
    assert low == pytest.approx(-0.5 * exact, rel=0.1), "the exact interval of 1 of 30"
    nearly = values + 1e-9 * np.random.default_rng(0).standard_normal(values.shape)
    assert studies(nearly).ci()[0, 0] == pytest.approx(low, rel=1e-3), "the same with noise"


def test_intervals_of_rare_effects_hold_where_each_study_sees_some() -> None:
    """A tenth of the problems have -0.5. Of 36, one study in 44 sees none."""
    draw = np.random.default_rng(1)
    effects = studies(-0.5 * (draw.random((N_STUDIES, 36, 1)) < 0.1))
    below, above = misses(effects.ci(), -0.05)
    assert below + above < 0.06
    plain = misses(effects.ci(method="percentile"), -0.05)
    assert sum(plain) > 0.09, "the percentile interval does not"


def test_the_interval_of_a_random_control_is_over_draws_and_problems() -> None:
    """Draws differ, problems do not: what is sure over problems is not over draws."""
    right = torch.zeros(1, 20, 100)
    right[:, :4] = 1
    like = studies(np.full((1, 100, 1), 0.2), "right")
    low, high = crossed_draws(right, like).ci()[:, 0].tolist()
    exact = stats.binomtest(4, 20).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=0.03)
    over_problems = like.ci(method="studentised")[:, 0]
    assert float(over_problems[1] - over_problems[0]) < 0.01


def test_pairs_left_out_and_single_problems_are_handled() -> None:
    effects = skewed("normal", 12, 3)
    holes = torch.rand(effects.per_pair.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    holed = Effects(
        effects.per_pair.masked_fill(holes, float("nan")), ("layer",), "logit", **effects.units
    )
    below, above = misses(holed.ci(method="studentised"), 0.0)
    assert 0.9 < 1 - below - above < 0.99
    one = effects.select(torch.arange(3))  # a single problem
    for method in ("studentised", "share"):
        right = Effects(torch.ones(2, 3), ("layer",), "logit", **one.units)
        assert right.ci(method=method).isnan().all()


def test_other_methods_and_other_numbers_are_refused() -> None:
    effects = skewed("normal", 4, 3)
    with pytest.raises(ValueError, match="auto, studentised, share, percentile, found 'bca'"):
        effects.ci(method="bca")
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        share_interval(effects.sample(), level=0.95)
