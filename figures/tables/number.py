"""A number with its interval, and what its unit allows."""

from dataclasses import dataclass, field
from math import inf, isnan
from typing import Literal, TypeAlias

import numpy as np

Unit: TypeAlias = Literal[
    "share",
    "relative",
    "points",
    "layers",
    "count",
    "ratio",
    "correlation",
    "cosine",
    "logit",
    "nats",
    "milliseconds",
    "rate",
    "per second",
    "seconds",
    "p",
]


@dataclass(frozen=True)
class _Style:
    """How a unit is printed, and the least and the largest value that it has."""

    factor: float
    form: str
    after: str = ""
    least: float = -inf
    most: float = inf


_STYLES: dict[Unit, _Style] = {
    "share": _Style(100, ".1f", "%", 0, 1),
    "relative": _Style(100, ".1f", "%"),
    "points": _Style(100, "+.1f", " points", -1, 1),
    "layers": _Style(1, ".0f"),
    "count": _Style(1, ".0f"),
    "ratio": _Style(1, ".2f"),
    "correlation": _Style(1, ".2f", least=-1, most=1),
    "cosine": _Style(1, ".3f", least=-1, most=1),
    "logit": _Style(1, "+.2f"),
    "nats": _Style(1, ".3f"),
    "milliseconds": _Style(1, ".3g", " ms"),
    "rate": _Style(1, "g"),
    "per second": _Style(1, ".1f", " per second", least=0),
    "seconds": _Style(1, ".1f", " seconds", least=0),
    "p": _Style(1, ".2g", least=0, most=1),
}
PROBLEMS = "95% over problems"
"""The `spread` of a number whose ends are a 95% interval over problems."""
QUESTIONS = "95% over questions"
"""The same over what was drawn besides."""


@dataclass(frozen=True)
class Number:
    """One number. Shares, points and relative changes are fractions: 0.05 is 5%."""

    value: float
    low: float | None = None
    high: float | None = None
    """The ends of its interval or range, not cut at what is possible; None if it has none."""
    spread: str = ""
    """What the ends are, such as `PROBLEMS` or "range of 20 draws"; empty without ends."""
    n: int | None = None
    """How many units it is over: problems, or what the spread names."""
    unit: Unit = "share"
    resamples: tuple[float, ...] = field(default=(), repr=False, compare=False)
    """The number in each resample that its interval is made of; empty if it has none."""
    freedom: float = inf
    """Of Student's t, if the interval is one of t; infinite for the normal distribution."""
    possible: tuple[float, float] | None = None
    """The least and the largest value that it can have, where these are not the unit's."""

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """`low` and `high`, cut at what is possible. The one place that cuts them."""
        style = _STYLES[self.unit]
        least, most = self.possible or (style.least, style.most)
        low, high = (
            None if end is None or isnan(end) else min(max(end, least), most)
            for end in (self.low, self.high)
        )
        return low, high

    def __str__(self) -> str:
        style = _STYLES[self.unit]
        text = f"{style.factor * self.value:{style.form}}{style.after}"
        low, high = self.ends
        if low is not None and high is not None:
            form = ".1f" if self.unit == "count" else style.form
            text += f" [{style.factor * low:{form}}, {style.factor * high:{form}}]"
        return text


def over_draws(
    values: "np.ndarray | list[float]",
    *,
    unit: Unit,
    what: str = "draws",
    middle: Literal["mean", "median"] = "mean",
) -> Number:
    """A control over its draws, with the least and the largest. The one place for it.

    Args:
        values: the number in each draw.
        what: what a draw is, in the plural.
        middle: what stands for all draws. With few strong draws, the mean is of them.
    """
    sampled = np.asarray(values, dtype=float)
    spread, value = f"range of {len(sampled)} {what}", float(sampled.mean())
    if middle == "median":
        spread, value = f"median and {spread}", float(np.median(sampled))
    low, high = float(sampled.min()), float(sampled.max())
    return Number(value, low, high, spread, len(sampled), unit)
