"""How often 95% intervals hold the truth, on populations whose mean is known.

A population is a distribution of effects, a distribution of right and wrong answers, or what was
measured on all problems of a model: effects of heads, and answers without heads. Each study draws
problems from it, each in several wordings. tests/test_intervals.py repeats a part of the tables of
docs/knockout.md.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.knockout import KnockoutCurve
from arith_lens.runs import Run, find_runs
from experiments.command import exit_on_user_error
from experiments.results import KNOCKOUT_CURVES, MAP

SHARES = (0.02, 0.05, 0.1, 0.5, 0.9, 0.95, 0.98)
METHODS = ("percentile", "auto")
"""The rule that was the default before, and the default."""
N_STUDIES = 1000
N_STRONGEST = 10
"""Heads whose measured effects are populations."""


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
    whole = [
        [column[problem, wording] for wording in wordings]
        for problem in dict.fromkeys(effects.problem or ())
        if all((problem, wording) in column for wording in wordings)
    ]
    return values[:, np.array(whole, dtype=int)]


def coverage(*, roots: tuple[Path, ...] = (Path("results"),), n_studies: int = N_STUDIES) -> None:
    """Print how often intervals hold the truth, by the old default and by the present one.

    Args:
        roots: folders with runs of `which_heads` and `are_they_needed`; the effects of their
            strongest heads, and the answers without heads, are populations, too.
        n_studies: how many studies of each simulated population.
    """
    print("population | missed below and above, " + " | ".join(METHODS))
    with exit_on_user_error():
        for name, rows in _table(roots, n_studies):
            numbers = (f"{100 * low:.1f}% {100 * high:.1f}%" for low, high in rows)
            print(f"{name} | {' | '.join(numbers)}", flush=True)


def _table(
    roots: tuple[Path, ...], n_studies: int
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    for kind in ("normal", "log-normal", "heavy tails", "rare", "rare, unequal"):
        for n, k in ((12, 9), (36, 9)):
            effects = skewed(kind, n, k, n_studies=n_studies)
            yield f"{kind}, {n} problems", [misses(effects.ci(method=m), 0.0) for m in METHODS]
    for n, k in ((11, 3), (36, 9)):
        for p in SHARES:
            right = answers(p, 0.3, n, k, n_studies=n_studies)
            missed = [misses(right.ci(method=m), p) for m in METHODS]
            yield f"{p:.0%} right, {n} problems in {k} wordings", missed
    for run in (run for root in roots for run in find_runs("which_heads", root=root)):
        for operation in MAP.labels(run):
            yield from _rows_of_heads(run, operation, n_studies)
    for run in (run for root in roots for run in find_runs("are_they_needed", root=root)):
        yield from _rows_of_answers(run, n_studies)


def _rows_of_heads(
    run: Run, operation: str, n_studies: int
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The mean over the strongest heads, then the head whose default interval misses most.

    A problem counts with its mean over wordings: what is redrawn are problems alone.
    """
    heads = MAP.load(run, operation).heads
    strongest = heads.top(N_STRONGEST)
    means = [by_problem(heads[head]).mean(2)[0][:, None] for head in strongest]
    name = f"{run.config['model']}, {operation}, {len(means[0])} problems"
    for n in (12, 36):
        drawn = [redrawn(one, n, n_studies=n_studies) for one in means]
        missed = np.array(
            [
                [misses(of.ci(method=m), float(one.mean())) for m in METHODS]
                for one, of in zip(means, drawn, strict=True)
            ]
        )
        worst = int(missed[:, -1].max(1).argmax())
        for title, numbers in (
            (f"mean of {len(strongest)} heads", missed.mean(0)),
            (f"head {strongest[worst]}", missed[worst]),
        ):
            ends = [(float(low), float(high)) for low, high in numbers]
            yield f"{name}, {title}, {n} drawn", ends


def _rows_of_answers(run: Run, n_studies: int) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Accuracies without heads, together by their size."""
    right = [
        values
        for operation in KNOCKOUT_CURVES.labels(run)
        for values in by_problem(_right(KNOCKOUT_CURVES.load(run, operation)["effect"]))
        if 0 < values.mean() < 1
    ]
    for n, (low, high) in product((11, 36), ((0.0, 0.1), (0.1, 0.9), (0.9, 1.0))):
        chosen = [one for one in right if low < one.mean() < high]
        missed = [
            [misses(of.ci(method=m), float(one.mean())) for m in METHODS]
            for one in chosen
            for of in [redrawn(one, n, "correct", n_studies=n_studies)]
        ]
        if chosen:
            ends = [(float(a), float(b)) for a, b in np.mean(missed, axis=0)]
            title = f"{len(chosen)} accuracies from {low:.0%} to {high:.0%}, {n} drawn"
            yield f"{run.config['model']}, {title}", ends


def _right(curve: KnockoutCurve) -> Effects:
    """Whether each answer is right, [k pair]."""
    effects = curve.effects()
    return replace(effects, per_pair=effects.per_pair[0], axes=effects.axes[1:], labels=None)


def interval_rules(*, n_studies: int = N_STUDIES, n_resamples: int = 2000) -> None:
    """Print how often other rules for a mean hold the truth, beside the default of `Effects.ci`.

    Each problem counts once, with the mean of its nine wordings.

    Args:
        n_studies: how many studies of each simulated population.
        n_resamples: the draws of the bootstraps.
    """
    print("population | missed below and above: " + " | ".join([*RULES, "default"]))
    for kind in ("normal", "log-normal", "heavy tails"):
        for n in (12, 23, 36, 100):
            effects = skewed(kind, n, 9, n_studies=n_studies)
            means = effects.per_pair.double().reshape(n_studies, n, 9).mean(2).numpy()
            draw = np.random.default_rng(0)
            cells = []
            for rule in RULES.values():
                ends = np.array([rule(one, draw, n_resamples) for one in means]).T
                cells.append(misses(torch.tensor(ends), 0.0))
            cells.append(misses(effects.ci(), 0.0))
            numbers = (f"{100 * low:.1f}% {100 * high:.1f}%" for low, high in cells)
            print(f"{kind}, {n} problems | {' | '.join(numbers)}", flush=True)


def _student(values: np.ndarray, draw: np.random.Generator, n_resamples: int) -> np.ndarray:
    from scipy import stats

    reach = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return values.mean() + np.array([-reach, reach])


def _bca(values: np.ndarray, draw: np.random.Generator, n_resamples: int) -> np.ndarray:
    """Bias-corrected and accelerated (Efron, 1987)."""
    from scipy.stats import norm

    n = len(values)
    drawn = values[draw.integers(0, n, (n_resamples, n))].mean(1)
    bias = norm.ppf(np.clip((drawn < values.mean()).mean(), 1e-4, 1 - 1e-4))
    without = (values.sum() - values) / (n - 1)
    apart = without.mean() - without
    bent = (apart**3).sum() / (6 * (apart**2).sum() ** 1.5)
    z = bias + norm.ppf([0.025, 0.975])
    return np.quantile(drawn, norm.cdf(bias + z / (1 - bent * z)))


def _hall(values: np.ndarray, draw: np.random.Generator, n_resamples: int) -> np.ndarray:
    """Student's interval after a cubic transformation that removes skew (Hall, 1992)."""
    from scipy import stats

    n = len(values)
    bent = stats.skew(values, bias=False) / np.sqrt(n)
    q = stats.t.ppf([0.975, 0.025], n - 1)
    if abs(bent) > 1e-6:
        q = 3 / bent * (np.cbrt(1 + bent * (q - bent / 6)) - 1)
    return values.mean() - stats.sem(values) * q


def _plain_t(values: np.ndarray, draw: np.random.Generator, n_resamples: int) -> np.ndarray:
    """The bootstrap-t without a lower limit of its width."""
    from scipy import stats

    n = len(values)
    drawn = values[draw.integers(0, n, (n_resamples, n))]
    spread = drawn.std(1, ddof=1)
    ratio = (drawn.mean(1) - values.mean())[spread > 0] / spread[spread > 0] * np.sqrt(n)
    return values.mean() - stats.sem(values) * np.quantile(ratio, [0.975, 0.025])


RULES = {"Student": _student, "BCa": _bca, "Hall": _hall, "bootstrap-t": _plain_t}
"""Other rules for the interval of a mean: values, a generator and the number of draws."""
