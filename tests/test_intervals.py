"""Intervals of skewed effects and of shares, against populations whose mean is known."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.testing import assert_close

from arith_lens.effects import Effects
from arith_lens.intervals import share_interval, studentised_interval
from arith_lens.statistics import Sample

N_STUDIES = 800


def studies(values: np.ndarray) -> Effects:
    """Values [study problem wording]; each study stands as one component."""
    n, k = values.shape[1:]
    units: dict[str, Any] = {
        "template": tuple(f"addition/{i % k}" for i in range(n * k)),
        "problem": tuple(f"problem {i // k}" for i in range(n * k)),
        "cluster": torch.arange(n * k),
    }
    flat = torch.tensor(values.reshape(len(values), -1), dtype=torch.float32)
    return Effects(flat, ("layer",), "logit", **units)


def skewed(kind: str, n: int, k: int, seed: int = 0) -> Effects:
    """Studies of mean 0. Problems differ as `kind` says, and pairs of a problem a little."""
    draw = np.random.default_rng(seed)
    size = (N_STUDIES, n, 1)
    between = {
        "normal": lambda: draw.standard_normal(size),
        "log-normal": lambda: np.exp(draw.standard_normal(size)) - np.exp(0.5),
        "heavy tails": lambda: draw.standard_t(3, size),
    }[kind]()
    return studies(between + 0.3 * draw.standard_normal((N_STUDIES, n, k)))


def shares(p: float, alike: float, n: int, k: int) -> Effects:
    """Studies of right (1) and wrong answers; `alike` is the correlation within a problem."""
    draw = np.random.default_rng(1)
    a, b = p * (1 / alike - 1), (1 - p) * (1 / alike - 1)
    own = draw.beta(a, b, (N_STUDIES, n, 1))
    return studies((draw.random((N_STUDIES, n, k)) < own).astype(float))


def misses(ends: Tensor, truth: float) -> tuple[float, float]:
    """The shares of intervals that are below the truth, and above it."""
    low, high = ends
    return float((high < truth).float().mean()), float((low > truth).float().mean())


@pytest.mark.parametrize("kind", ["normal", "log-normal", "heavy tails"])
@pytest.mark.parametrize(("n", "k"), [(12, 9), (36, 9)])
def test_studentised_intervals_hold_for_skewed_effects(kind: str, n: int, k: int) -> None:
    effects = skewed(kind, n, k)
    below, above = misses(effects.ci(method="studentised"), 0.0)
    assert 0.9 < 1 - below - above < 0.985
    assert max(below, above) < (0.1 if n == 12 else 0.07)
    if kind == "log-normal":
        plain = misses(effects.ci(), 0.0)
        assert sum(plain) > below + above + 0.03
        assert plain[0] > 1.3 * below, "the percentile interval misses on the side of the tail"


@pytest.mark.parametrize(("n", "k"), [(11, 3), (36, 9)])
@pytest.mark.parametrize("p", [0.03, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("alike", [0.01, 0.3, 0.9])
def test_intervals_of_shares_hold_near_the_ends(n: int, k: int, p: float, alike: float) -> None:
    effects = shares(p, alike, n, k)
    assert sum(misses(effects.ci(method="share"), p)) < 0.11
    if (n, p) == (11, 0.03):
        assert sum(misses(effects.ci(), p)) > 0.3, "percentile intervals do not"


def test_a_share_of_independent_answers_has_wilsons_interval() -> None:
    """One pair per problem, 7 of 40 right: Wilson's formula with Student's t for 39 and 39 / 40 of
    the pairs, since the variance is estimated."""
    right = torch.zeros(1, 40)
    right[0, :7] = 1
    effects = Effects(right, ("layer",), "logit", problem=tuple(map(str, range(40))))
    p, n, z = 7 / 40, 39.0, stats.t.ppf(0.975, 39)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    width = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    expected = torch.tensor([[centre - width], [centre + width]]).float()
    assert_close(effects.ci(method="share"), expected, atol=1e-6, rtol=1e-5)


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
    assert studies(np.ones((1, 11, 3))).ci()[:, 0].tolist() == [1, 1]


def test_a_studentised_interval_draws_the_ratio_of_error_and_standard_error() -> None:
    """One wording: against a plain loop over draws with NumPy."""
    values = np.exp(np.random.default_rng(3).standard_normal(25))
    sample = Sample(torch.tensor(values)[None], *torch.zeros(3, 25).long())
    sample = Sample(sample.values, sample.strata, torch.arange(25), sample.blocks)
    low, high = studentised_interval(sample, level=0.9, n_resamples=20_000, seed=0)[:, 0].tolist()
    draw, ratios = np.random.default_rng(4), []
    for _ in range(20_000):
        drawn = values[draw.integers(0, 25, 25)]
        ratios.append((drawn.mean() - values.mean()) / stats.sem(drawn))
    error, student = stats.sem(values), stats.t.ppf(0.95, 24)
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
    with pytest.raises(ValueError, match="percentile, studentised, share, found 'bca'"):
        effects.ci(method="bca")
    with pytest.raises(ValueError, match="numbers that are 0 or 1"):
        share_interval(effects.sample(), level=0.95)
