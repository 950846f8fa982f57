"""Numbers made of effects, with intervals: the statistic is made anew of every resample."""

from collections.abc import Callable, Sequence
from math import isnan

import numpy as np

from arith_lens.claims.claim import Number, Unit, Within
from arith_lens.effects import Effects
from arith_lens.statistics import resampled_means

N_RESAMPLES = 1000
TAIL = 0.025
Statistic = Callable[..., float]


def estimate(
    of: str,
    statistic: Statistic,
    *effects: Effects,
    unit: Unit = "%",
    rule: Within | None = None,
    together: bool = False,
) -> Number | None:
    """A statistic of mean effects with its 95% percentile interval; None where it is NaN.

    Reference prompts are drawn within templates, each with all its pairs. Whatever the statistic
    chooses (such as which heads are key heads) it chooses again in every resample; resamples in
    which it is NaN are left out.

    Args:
        statistic: of as many arrays of means, [*component], as there are effects
        together: whether the effects are of the same pairs, drawn alike
    """
    value = statistic(*(one.mean().double().numpy() for one in effects))
    if isnan(value):
        return None
    drawn = [
        resampled_means(one.sample(), slice(None), N_RESAMPLES, 0 if together else place)
        .numpy()
        .reshape(*one.per_pair.shape[:-1], N_RESAMPLES)
        for place, one in enumerate(effects)
    ]
    values = [
        statistic(*(one[..., i] for one in drawn))
        for i in range(N_RESAMPLES)
        if not any(np.isnan(one[..., i]).all() for one in drawn)
    ]
    low, high = interval(values)
    return Number(of, float(value), low, high, unit, rule)


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The middle 95% of resampled values, those that are NaN left out; None where none are left."""
    there = np.array(values, dtype=float)
    there = there[~np.isnan(there)]
    if not len(there):
        return None, None
    low, high = np.quantile(there, [TAIL, 1 - TAIL])
    return float(low), float(high)


def numbers(found: Sequence[Number | None]) -> tuple[Number, ...]:
    """Those that are there."""
    return tuple(number for number in found if number is not None)
