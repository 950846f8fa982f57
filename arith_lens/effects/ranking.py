"""Which heads are key heads, and how two sets of effects rank the same components."""

from typing import TYPE_CHECKING

from arith_lens.components import Head
from arith_lens.effects.component_effects import ComponentEffects
from arith_lens.effects.effects import HEADS, Effects

if TYPE_CHECKING:
    from pandas import DataFrame


KEY = {"relative_logit": -0.05}
"""The mean effect that key heads are below, of the metric that the paper measures with."""


def key_heads(effects: Effects | ComponentEffects, threshold: float | None = None) -> list[Head]:
    """The heads whose mean effect is below `threshold`, strongest first (paper, section 5.1).

    Heads beyond the threshold on the other side oppose the answer; they are not key heads.

    Args:
        threshold: None: the paper's -0.05 (-5%), which is one of relative logits.

    Raises:
        ValueError: effects of another metric, and no threshold.
    """
    heads = effects.heads if isinstance(effects, ComponentEffects) else effects
    if heads.axes != HEADS:
        raise TypeError(f"expected effects of heads {HEADS}, found the axes {heads.axes}")
    if threshold is None and heads.metric not in KEY:
        raise ValueError(
            f"expected a threshold for effects of the metric {heads.metric!r}, found none; the "
            f"paper's {KEY['relative_logit']:.0%} is of relative_logit. Give threshold= in units "
            "of your metric, or take .top(k)"
        )
    means = heads.mean()
    count = int((means < (KEY[heads.metric] if threshold is None else threshold)).sum())
    return [head for head in heads.top(count) if isinstance(head, Head)]


def compare(a: Effects, b: Effects) -> "DataFrame":
    """One row a component: its mean and rank (0 is the most negative) in `a` and in `b`."""
    from pandas import DataFrame

    if a.axes != b.axes or a.per_pair.shape[:-1] != b.per_pair.shape[:-1]:
        raise ValueError(
            f"expected two sets of the same components, found {a.axes} "
            f"{tuple(a.per_pair.shape[:-1])} and {b.axes} {tuple(b.per_pair.shape[:-1])}; "
            "compare heads with heads of one model's shape"
        )
    if a.metric != b.metric or a.paths != b.paths:
        raise ValueError(
            f"expected one metric and one meaning of paths, found {a.metric!r} over {a.paths!r} "
            f"and {b.metric!r} over {b.paths!r}; recompute one of them"
        )
    left, right = a.to_dataframe(), b.to_dataframe()
    table = {axis: left[axis] for axis in a.axes}
    for name, side in (("a", left), ("b", right)):
        table |= {name: side["mean"], f"stderr_{name}": side["stderr"]}
        table[f"rank_{name}"] = side["mean"].rank(method="first") - 1
    return DataFrame(table | {"difference": right["mean"] - left["mean"]})
