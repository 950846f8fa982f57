"""Does accuracy drift while a model answers question after question?"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import torch
from jaxtyping import Bool
from torch import Tensor

AT_LEAST = 3  # answers that a line with an error needs


@dataclass(frozen=True)
class Trend:
    """Change of accuracy with every thousand answers, as a share: -0.01 is a point lost."""

    slope: float
    error: float  # standard error

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """Normal interval of the slope."""
        half = NormalDist().inv_cdf((1 + level) / 2) * self.error
        return self.slope - half, self.slope + half

    @property
    def flat(self) -> bool:
        """Whether the 95% interval holds 0. It shows no trend; it proves none that is smaller."""
        low, high = self.ci()
        return low <= 0 <= high


def trend(correct: Bool[Tensor, "question"]) -> Trend:
    """The straight line through right (1) and wrong (0) answers, in the order they were given.

    Questions must be in random order, or their difficulty passes for a drift. The error allows for
    the unequal variance of shares (White, 1980).

    Raises:
        ValueError: fewer than three answers.
    """
    n = len(correct)
    if n < AT_LEAST:
        raise ValueError(f"expected at least {AT_LEAST} answers to see a trend, found {n}")
    at = torch.arange(n, dtype=torch.float64) / 1000
    at, right = at - at.mean(), correct.double()
    spread = at.square().sum()
    slope = (at * right).sum() / spread
    rest = right - right.mean() - slope * at
    variance = (at * rest).square().sum() / spread.square() * n / (n - 2)
    return Trend(float(slope), sqrt(float(variance)))
