"""Numbers with intervals from the runs that claims are measured from.

A number is a statistic of mean effects. For its interval, the statistic is computed again for every
resample.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isnan

import numpy as np

from arith_lens.effects import Effects
from arith_lens.statistics import resampled_means
from figures.claims.claim import Measure, Measurement
from figures.claims.evidence import Evidence, NotMeasured
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import n_problems
from figures.verdicts import Finding, Within

N_RESAMPLES = 1000
"""A p-value is at least 1 / 1001, so that one of up to 50 numbers can refute a claim."""


def estimate(
    of: str,
    statistic: Callable[..., float],
    *effects: Effects,
    unit: Unit = "share",
    rule: Within | None = None,
    together: bool = False,
) -> Finding | None:
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
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist() if drawn else (None, None)
    n = n_problems(effects[0])
    number = Number(value, low, high, PROBLEMS, n, unit, resamples=tuple(drawn))
    return Finding(of, number, rule)


def resampled(statistic: Callable[..., float], *effects: Effects, together: bool) -> list[float]:
    """The statistic of each resample of the effects; empty if a single problem has no resamples."""
    drawn = [
        resampled_means(effect.sample(), slice(None), N_RESAMPLES, 0 if together else seed)
        .numpy()
        .reshape(*effect.per_pair.shape[:-1], N_RESAMPLES)
        for seed, effect in enumerate(effects)
    ]
    if any(np.isnan(effect).all() for effect in drawn):
        return []
    return [float(statistic(*(effect[..., i] for effect in drawn))) for i in range(N_RESAMPLES)]


def of_each(
    effects: Callable[[Evidence], Mapping[str, Sequence[Effects]]],
    statistic: Callable[..., float],
    missing: str,
    unit: Unit = "share",
) -> Measure:
    """Measures a statistic of the effects of each operation.

    Args:
        effects: by the number's name; those of one name have the same pairs
        statistic: a function of one array of means, [*component], per element of `effects`
        missing: what an operation without a number lacks
        unit: of the numbers
    """

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        findings = {
            name: estimate(name, statistic, *parts, rule=rule, unit=unit, together=True)
            for name, parts in effects(evidence).items()
        }
        return per_operation(findings, missing=missing)

    return measure


def per_operation(
    findings: Mapping[str, Finding | None], beside: Sequence[Finding] = (), *, missing: str
) -> Measurement:
    """The numbers of several operations; a note names the operations without a number.

    Args:
        findings: by operation; None if it cannot be measured
        beside: numbers that are reported after them
        missing: what an operation without a number lacks, such as "key heads"

    Raises:
        NotMeasured: no operation has a number.
    """
    measured = tuple(finding for finding in findings.values() if finding is not None)
    without = [name for name, finding in findings.items() if finding is None]
    if not measured:
        raise NotMeasured(
            f"none of {', '.join(findings)} has {missing}, so there is nothing to look at"
        )
    note = f"Without {missing}: {', '.join(without)}." * bool(without)
    return Measurement((*measured, *beside), note)


def measured(
    finding: Finding | None, *beside: Finding | None, missing: str, note: str = ""
) -> Measurement:
    """A number without which the claim cannot be measured, and others as far as they exist.

    Raises:
        NotMeasured: the first number is None; `missing` says why.
    """
    if finding is None:
        raise NotMeasured(f"there is nothing to look at: {missing}")
    return Measurement((finding, *(other for other in beside if other)), note)
