"""What tuning gains: the numbers of claims and predictions about trainings, as rows.

Keys: method; n_mlps; base, what it is compared with ("untuned", another method, or fewer MLPs);
tasks; draws, how many seeds. `gain_row` makes one; it is None where a group has too few questions.
"""

from collections.abc import Callable, Sequence
from math import exp, inf
from typing import TypeAlias

import numpy as np

from arith_lens.answers import Answers
from figures.tables.answers import CHANGE, change_number, gain
from figures.tables.number import Number
from figures.tables.table import Row, row
from figures.tables.tuning import SPEED, TableRow

QuestionFilter: TypeAlias = Callable[[Answers], list[bool]]
"""Which questions count."""
TRAININGS_SPREAD = "95% over trainings"


def gain_row(
    before: Answers | TableRow, after: TableRow, tasks: QuestionFilter, name: str
) -> Row | None:
    """The change of accuracy on some tasks, mean over seeds; None with fewer than two questions.

    Args:
        before: the answers before tuning, or another setting, whose trainings are compared seed by
            seed.
        after: the setting.
        tasks: which questions count.
        name: what the tasks are called.
    """
    answers = before.answers if isinstance(before, TableRow) else before
    change = gain(answers, after.answers, tasks)
    if change is None:
        return None
    base = before.key[0] if isinstance(before, TableRow) else "untuned"
    method, _, n_mlps = after.key
    keys = {"method": method, "n_mlps": n_mlps, "base": base, "tasks": name}
    return row(CHANGE, change_number(change), **keys, draws=len(change.per_seed))


def speed_row(over: TableRow, under: TableRow) -> Row:
    """How many times the examples per second of a second setting the first one trains."""
    speeds = ([facts["samples_per_second"] for facts in one.facts] for one in (over, under))
    return row(SPEED, ratio(*speeds), method=over.key[0], base=under.key[0])


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
