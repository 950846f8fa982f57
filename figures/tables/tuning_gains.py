"""What the claims about tuning compare: rows of the table `tuning`, beside those of its settings.

Keys: those of a setting at a chosen rate, chosen_for, group, and compared_with
("untuned" or another setting of the table); draws, how many seeds; freedom, of Student's t.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, inf
from typing import Any

import numpy as np

from arith_lens.answers import Answers, OverSeeds
from experiments.does_tuning_help import generic_to_report, is_mathematics
from figures.tables.answers import change_number, gain
from figures.tables.number import Number
from figures.tables.table import Row, row

GAIN, SPEED_RATIO = "change less that of the base", "examples per second, of those of the base"
UNTUNED = "untuned"
GROUPS: Mapping[str, Callable[[Answers], list[bool]]] = {
    "word problems": is_mathematics,
    "generic tasks": generic_to_report,
}
TRAININGS_SPREAD = "95% over trainings"


def gain_rows(
    before: Answers | Sequence[Answers], after: Sequence[Answers], **keys: Any
) -> Iterator[Row]:
    """The change of accuracy on each group, mean over seeds; no row with fewer than two questions.

    Args:
        before: the answers before tuning, or another setting, whose trainings are compared seed by
            seed.
        after: the setting's answers, one per seed.
    """
    for group, questions in GROUPS.items():
        change: OverSeeds | None = gain(before, after, questions)
        if change is not None:
            number = change_number(change)
            yield row(GAIN, number, **keys, group=group, **_sampling(number, len(change.per_seed)))


def speed_row(over: Sequence[float], under: Sequence[float], **keys: Any) -> Row:
    """How many times the examples per second of a second setting the first one trains."""
    number = ratio(over, under)
    return row(SPEED_RATIO, number, **keys, **_sampling(number, len(over)))


def _sampling(number: Number, draws: int) -> dict[str, float]:
    """How many seeds a number is over, and its freedom if that is finite."""
    return {"draws": draws} | ({"freedom": number.freedom} if number.freedom < inf else {})


def ratio(over: Sequence[float], under: Sequence[float]) -> Number:
    """The ratio of geometric means, with Welch's interval of its logarithm.

    There is no interval if either side has a single number.
    """
    from scipy.stats import t

    logs = [np.log(np.array(values)) for values in (over, under)]
    middle = float(logs[0].mean() - logs[1].mean())
    if min(map(len, logs)) < 2:
        return Number(exp(middle), unit="ratio", freedom=inf)
    errors = [float(values.var(ddof=1)) / len(values) for values in logs]
    error = sum(errors)
    if not error:
        return Number(exp(middle), exp(middle), exp(middle), TRAININGS_SPREAD, unit="ratio")
    squares = (
        variance**2 / (len(values) - 1) for variance, values in zip(errors, logs, strict=True)
    )
    freedom = error**2 / sum(squares)
    half = float(t.ppf(0.975, freedom)) * error**0.5
    ends = exp(middle - half), exp(middle + half)
    return Number(exp(middle), *ends, TRAININGS_SPREAD, unit="ratio", freedom=freedom)
