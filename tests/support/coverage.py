"""Studies of populations whose mean is known, and how often intervals miss it.

A population is a distribution of effects, a distribution of right and wrong answers, or what was
measured on all problems of a model. Each study draws problems from it, each in several wordings.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects import Effects

N_STUDIES = 1000


def studies(values: Float[np.ndarray, "study problem wording"], metric: str = "logit") -> Effects:
    """Each study stands as one component."""
    n, k = values.shape[1:]
    units: dict[str, Any] = {
        "template": tuple(f"addition/{i % k}" for i in range(n * k)),
        "problem": tuple(f"problem {i // k}" for i in range(n * k)),
        "cluster": torch.arange(n * k),
    }
    flat = torch.tensor(values.reshape(len(values), -1), dtype=torch.float32)
    return Effects(flat, ("layer",), metric, **units)


def skewed(kind: str, n: int, k: int, *, n_studies: int = N_STUDIES, seed: int = 0) -> Effects:
    """Studies of mean 0. Problems differ as `kind` says, and pairs of a problem a little.

    Args:
        kind: "normal", "log-normal", "heavy tails" (Student's t with three degrees of freedom),
            "rare" (a tenth of the problems have -50 times the pairs' deviation, the others none) or
            "rare, unequal" (the same on average, of exponential size).
        n, k: how many problems a study has, and how many wordings.
        n_studies: how many studies.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)
    size = (n_studies, n, 1)
    if kind.startswith("rare"):
        strength = draw.exponential(0.5, size) if "unequal" in kind else 0.5
        between = 0.05 - strength * (draw.random(size) < 0.1)
        return studies(between + 0.01 * draw.standard_normal((n_studies, n, k)))
    between = {
        "normal": lambda: draw.standard_normal(size),
        "log-normal": lambda: np.exp(draw.standard_normal(size)) - np.exp(0.5),
        "heavy tails": lambda: draw.standard_t(3, size),
    }[kind]()
    return studies(between + 0.3 * draw.standard_normal((n_studies, n, k)))


def answers(
    p: float, alike: float, n: int, k: int, *, n_studies: int = N_STUDIES, seed: int = 1
) -> Effects:
    """Studies of right (1) and wrong answers.

    Args:
        p: the share of right answers.
        alike: the correlation of the answers to one problem.
        n, k: how many problems a study has, and how many wordings.
        n_studies: how many studies.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)
    a, b = p * (1 / alike - 1), (1 - p) * (1 / alike - 1)
    own = draw.beta(a, b, (n_studies, n, 1))
    return studies((draw.random((n_studies, n, k)) < own).astype(float), "correct")


def misses(ends: Float[Tensor, "bound=2 study"], truth: float) -> tuple[float, float]:
    """The shares of intervals that are below the truth, and above it."""
    low, high = ends
    return float((high < truth).float().mean()), float((low > truth).float().mean())


def redrawn(
    values: Float[np.ndarray, "problem wording"],
    n: int,
    metric: str = "logit",
    *,
    n_studies: int = N_STUDIES,
    seed: int = 0,
) -> Effects:
    """Studies that draw `n` problems of a measured population, with replacement.

    Args:
        values: what was measured, of each problem in each wording.
        n: how many problems a study draws, each in all its wordings.
        metric: of the numbers; "correct" of right and wrong answers.
        n_studies: how many studies.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)
    return studies(values[draw.integers(0, len(values), (n_studies, n))], metric)


def by_problem(effects: Effects) -> Float[np.ndarray, "component problem wording"]:
    """The problems that have all wordings."""
    values = effects.per_pair.reshape(-1, effects.n_pairs).double().numpy()
    wordings = sorted({*(effects.template or ())})
    column = {
        pair: i
        for i, pair in enumerate(zip(effects.problem or (), effects.template or (), strict=True))
    }
    complete = [
        [column[problem, wording] for wording in wordings]
        for problem in dict.fromkeys(effects.problem or ())
        if all((problem, wording) in column for wording in wordings)
    ]
    return values[:, np.array(complete, dtype=int)]
