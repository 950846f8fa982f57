"""Differences between answers to the same questions, over trainings that differ in their seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.answers.result import Answers


@dataclass(frozen=True)
class OverSeeds:
    """A mean over questions and seeds, with its errors from the draw of either.

    Of a change of accuracy: shares, 0.1 = 10 points.
    """

    per_seed: tuple[float, ...]  # the mean over questions, a seed each
    question_error: float  # standard error of the mean, questions being drawn
    n_questions: int

    @property
    def mean(self) -> float:
        return sum(self.per_seed) / len(self.per_seed)

    @property
    def seed_error(self) -> float:
        """Standard error of the mean, seeds being drawn; 0 where there is only one."""
        n = len(self.per_seed)
        if n == 1:
            return 0.0
        return sqrt(sum((value - self.mean) ** 2 for value in self.per_seed) / (n - 1) / n)

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Interval of the mean over questions and seeds together.

        Both variances add up; Student's t has Satterthwaite's degrees of freedom, few where the
        seeds, which are few, make most of the error. Of one seed the interval is the questions'.
        """
        from scipy.stats import t

        questions, seeds = self.question_error**2, self.seed_error**2
        freedom = inf
        if seeds:
            freedom = (questions + seeds) ** 2 / (seeds**2 / (len(self.per_seed) - 1))
        half = float(t.ppf((1 + level) / 2, freedom)) * sqrt(questions + seeds)
        return self.mean - half, self.mean + half


def over_seeds(values: Float[Tensor, "seed question"]) -> OverSeeds:
    """Mean and errors of numbers that each seed has for each of the same questions.

    Raises:
        ValueError: no seed, or fewer than two questions.
    """
    n_seeds, n_questions = values.shape
    if n_seeds < 1 or n_questions < 2:
        raise ValueError(
            f"expected numbers of at least one seed for at least two questions, found {n_seeds} "
            f"and {n_questions}"
        )
    values = values.double()
    error = float(values.mean(0).std() / sqrt(n_questions))
    return OverSeeds(tuple(values.mean(1).tolist()), error, n_questions)


def change_over_seeds(
    before: Answers | Sequence[Answers],
    after: Sequence[Answers],
    chosen: Sequence[bool] | None = None,
) -> OverSeeds:
    """How much more of the same questions is right after training, question by question.

    Args:
        before: what all are set against, or a seed each.
        after: a seed each.
        chosen: of which questions; None: of all.

    Raises:
        ValueError: answers to other questions, no seed, other numbers of seeds, or fewer than two
            questions.
    """
    if not after:
        raise ValueError("expected answers of at least one seed, found none")
    befores = [before] * len(after) if isinstance(before, Answers) else before
    differences = []
    for one, other in zip(befores, after, strict=True):
        one.change_to(other)  # refuses other questions
        differences.append(other.correct.double() - one.correct.double())
    every = torch.stack(differences)
    return over_seeds(every if chosen is None else every[:, torch.tensor([*chosen])])
