"""Changes over seeds, against simulation and hand computation."""

from math import sqrt

import numpy as np
import pytest
import torch

from arith_lens.answers import Answers, change_over_seeds, over_seeds


def answers(correct: list[bool], task: str = "groups") -> Answers:
    n = len(correct)
    return Answers(torch.tensor(correct), ("",) * n, ("8",) * n, (task,) * n)


def test_a_change_is_the_mean_over_seeds_of_paired_differences() -> None:
    before = answers([True, True, False, False])
    after = [answers([True, False, True, True]), answers([True, True, True, False])]
    found = change_over_seeds(before, after)
    assert found.per_seed == pytest.approx((0.25, 0.25))
    assert found.seed_error == 0
    of_questions = np.array([0, -0.5, 1, 0.5])
    assert found.question_error == pytest.approx(of_questions.std(ddof=1) / sqrt(4))
    half = 1.959964 * found.question_error
    assert found.ci() == pytest.approx((0.25 - half, 0.25 + half))


def test_each_seed_may_have_its_own_before_and_some_questions_alone_count() -> None:
    before = [answers([True, False, False]), answers([False, False, True])]
    after = [answers([True, True, True]), answers([False, True, False])]
    found = change_over_seeds(before, after, [True, True, False])
    assert found.per_seed == pytest.approx((0.5, 0.5)) and found.n_questions == 2
    with pytest.raises(ValueError):
        change_over_seeds(before, after[:1])


def test_seeds_that_differ_widen_the_interval_by_few_degrees_of_freedom() -> None:
    values = torch.tensor([0.0, 0.1, 0.2])[:, None] + torch.zeros(3, 50)
    found = over_seeds(values)
    half = 4.302653 * 0.1 / sqrt(3)  # Student's t with two degrees of freedom
    assert found.mean == pytest.approx(0.1)
    assert found.ci() == pytest.approx((0.1 - half, 0.1 + half))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Simulated: seeds vary by 3 points, questions by chance; three seeds, 200 questions."""
    rng, held, n = np.random.default_rng(0), 0, 600
    for _ in range(n):
        levels = 0.5 + rng.normal(0, 0.03, (3, 1))
        easy = rng.normal(0, 0.2, (1, 200))
        right = rng.random((3, 200)) < levels + easy
        low, high = over_seeds(torch.tensor(right, dtype=torch.float64)).ci()
        held += low <= 0.5 <= high
    assert 0.92 < held / n < 0.995


def test_other_questions_are_refused() -> None:
    before = answers([True, False])
    with pytest.raises(ValueError, match="same questions"):
        change_over_seeds(before, [answers([True, False], "compare")])
    with pytest.raises(ValueError, match="at least one seed"):
        change_over_seeds(before, [])
    with pytest.raises(ValueError, match="at least two questions"):
        over_seeds(torch.zeros(3, 1))
