"""Statistics of effects with intervals: the statistic is computed again for every resample."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan

import numpy as np

from arith_lens.effects import Effects
from arith_lens.statistics import resampled_means
from figures.claims.claim import Measure, Measurement, Number, Unit, Within
from figures.claims.evidence import Evidence, NotMeasured

N_RESAMPLES = 1000
"""A p-value is at least 1 / 1001, so that one of up to 50 numbers can refute a claim."""
TAIL = 0.025


def estimate(
    of: str,
    statistic: Callable[..., float],
    *effects: Effects,
    unit: Unit = "%",
    rule: Within | None = None,
    together: bool = False,
) -> Number | None:
    """A statistic of mean effects with its 95% percentile interval; None if it is NaN.

    Problems are drawn, each in all its wordings, and wordings are drawn too; where the effects do
    not know their problems, reference prompts are drawn within wordings. What the statistic
    chooses, such as the key heads, it chooses again in every resample. Resamples in which it is
    NaN are left out.

    Args:
        of: the number's name
        statistic: a function of one array of means, [*component], per element of `effects`
        effects: what the statistic is of
        unit, rule: of the number
        together: whether the effects have the same pairs, which are then drawn together
    """
    value = float(statistic(*(effect.mean().double().numpy() for effect in effects)))
    if isnan(value):
        return None
    drawn = [draw for draw in resampled(statistic, *effects, together=together) if not isnan(draw)]
    return Number(of, value, *interval(drawn), unit, rule, tuple(drawn))


def resampled(
    statistic: Callable[..., float], *effects: Effects, together: bool = False
) -> list[float]:
    """The statistic of each resample of the effects."""
    drawn = [
        resampled_means(effect.sample(), slice(None), N_RESAMPLES, 0 if together else seed)
        .numpy()
        .reshape(*effect.per_pair.shape[:-1], N_RESAMPLES)
        for seed, effect in enumerate(effects)
    ]
    if any(np.isnan(effect).all() for effect in drawn):  # a single problem has no interval
        return []
    return [float(statistic(*(effect[..., i] for effect in drawn))) for i in range(N_RESAMPLES)]


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The middle 95% of the values; None if there are none."""
    if not values:
        return None, None
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    return float(low), float(high)


def of_each(
    effects: Callable[[Evidence], Mapping[str, Sequence[Effects]]],
    statistic: Callable[..., float],
    missing: str,
    unit: Unit = "%",
) -> Measure:
    """Measures a statistic of the effects of each operation.

    Args:
        effects: by the number's name; those of one name have the same pairs
        statistic: a function of one array of means, [*component], per element of `effects`
        missing: what an operation without a number lacks
        unit: of the numbers
    """

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        numbers = {
            name: estimate(name, statistic, *parts, rule=rule, unit=unit, together=True)
            for name, parts in effects(evidence).items()
        }
        return per_operation(numbers, missing=missing)

    return measure


def per_operation(
    numbers: Mapping[str, Number | None], beside: Sequence[Number] = (), *, missing: str
) -> Measurement:
    """The numbers of several operations; a note names the operations without a number.

    Args:
        numbers: by operation; None if it cannot be measured
        beside: numbers that are reported after them
        missing: what an operation without a number lacks, such as "key heads"

    Raises:
        NotMeasured: no operation has a number.
    """
    measured = tuple(number for number in numbers.values() if number is not None)
    without = [name for name, number in numbers.items() if number is None]
    if not measured:
        raise NotMeasured(
            f"none of {', '.join(numbers)} has {missing}, so there is nothing to look at"
        )
    note = f"Without {missing}: {', '.join(without)}." if without else ""
    return Measurement((*measured, *beside), note)


def measured(
    number: Number | None, *beside: Number | None, missing: str, note: str = ""
) -> Measurement:
    """A number without which the claim cannot be measured, and others as far as they exist.

    Raises:
        NotMeasured: the first number is None; `missing` says why.
    """
    if number is None:
        raise NotMeasured(f"there is nothing to look at: {missing}")
    return Measurement((number, *(other for other in beside if other)), note)
