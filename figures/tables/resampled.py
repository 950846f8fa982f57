"""Numbers whose interval is made of resamples: a statistic of mean effects, computed anew in each.

The rows of `statistic_rows` have the key operation; what they are of, such as the names of heads,
is the key heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan

import numpy as np

from arith_lens.effects import Effects
from arith_lens.statistics import resampled_means
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import Row, n_problems, row

N_RESAMPLES = 1000
"""A p-value is at least 1 / 1001, so that one of up to 50 numbers can refute a claim."""
NAN = float("nan")
"""A statistic that does not exist, such as one of key heads where there is none."""


def resampled_number(
    statistic: Callable[..., float],
    *effects: Effects,
    unit: Unit = "share",
    together: bool = False,
) -> Number | None:
    """A statistic of mean effects with its 95% percentile interval; None if it is NaN.

    Problems are drawn, each in all its wordings, and wordings are drawn too; where the effects do
    not know their problems, reference prompts are drawn within wordings. What the statistic
    chooses, such as the key heads, it chooses again in every resample. Resamples in which it is
    NaN are left out.

    Args:
        statistic: a function of one array of means, [*component], per element of `effects`
        effects: what the statistic is of
        together: whether the effects have the same pairs, which are then drawn together
    """
    value = float(statistic(*(effect.mean().double().numpy() for effect in effects)))
    if isnan(value):
        return None
    draws = [draw for draw in resampled(statistic, *effects, together=together) if not isnan(draw)]
    low, high = np.quantile(draws, [0.025, 0.975]).tolist() if draws else (None, None)
    n = n_problems(effects[0])
    return Number(value, low, high, PROBLEMS, n, unit, resamples=tuple(draws))


def resampled(statistic: Callable[..., float], *effects: Effects, together: bool) -> list[float]:
    """The statistic of each resample of the effects; empty if a single problem has no resamples."""
    draws = [
        resampled_means(effect.sample(), slice(None), N_RESAMPLES, 0 if together else seed)
        .numpy()
        .reshape(*effect.per_pair.shape[:-1], N_RESAMPLES)
        for seed, effect in enumerate(effects)
    ]
    if any(np.isnan(effect).all() for effect in draws):
        return []
    return [float(statistic(*(effect[..., i] for effect in draws))) for i in range(N_RESAMPLES)]


def statistic_rows(
    measure: str,
    statistic: Callable[..., float],
    samples: Mapping[str, Sequence[Effects]],
    heads: Mapping[str, str] | None = None,
    *,
    unit: Unit = "share",
) -> Iterator[Row]:
    """A statistic of each operation; an operation in which it is NaN has no row.

    Args:
        measure: the name of the statistic.
        statistic: a function of one array of means, [*component], per element of a sample.
        samples: the effects of each operation, which have the same pairs.
        heads: which heads the number of an operation is of, in words.
    """
    for operation, effects in samples.items():
        number = resampled_number(statistic, *effects, unit=unit, together=True)
        if number is not None:
            yield row(measure, number, operation=operation, heads=(heads or {}).get(operation, ""))
