"""Which heads are key heads, and how two sets of effects, or of pairs, compare."""

from typing import TYPE_CHECKING

from jaxtyping import Bool
from torch import Tensor

from arith_lens.components import Head
from arith_lens.effects.component_effects import ComponentEffects
from arith_lens.effects.effects import HEADS, Effects
from arith_lens.statistics import bootstrap_interval

if TYPE_CHECKING:
    from pandas import DataFrame


KEY = {"relative_logit": -0.05}
"""The mean effect that key heads are below, of the metric that the paper measures with."""

ERROR_RATE = 0.05
"""The share of false discoveries that is expected among heads whose mean is called non-zero."""


def key_heads(effects: Effects | ComponentEffects, threshold: float | None = None) -> list[Head]:
    """The heads whose mean effect is below `threshold`, strongest first (paper, section 5.1).

    Chance alone makes no key head: the mean must also differ from zero, by a t-test on its
    clustered standard error, with false discoveries controlled at 5% over all heads (Benjamini and
    Hochberg). Effects of fewer than two distinct prompts have no error, and so no key heads.
    Heads beyond the threshold on the other side oppose the answer; they are not key heads.

    Args:
        threshold: below 0; None: the paper's -0.05 (-5%), which is one of relative logits.

    Raises:
        ValueError: effects of another metric, and no threshold; a threshold of 0 or more.
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
    threshold = KEY[heads.metric] if threshold is None else threshold
    if threshold >= 0:
        raise ValueError(
            f"expected a threshold below 0, such as -0.05 for -5%, found {threshold}; key heads "
            "are those whose patching lowers the answer's logit"
        )
    chosen = (heads.mean() < threshold) & (heads.t_q_values() < ERROR_RATE)
    strongest = heads.top(int(chosen.numel()))
    return [head for head in strongest if isinstance(head, Head) and chosen[head.layer, head.index]]


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


def contrast(
    effects: Effects,
    mask: Bool[Tensor, "pair"],
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> "DataFrame":
    """One row a component: its mean where `mask` is True (`mean_in`), where it is not (`mean_out`),
    and the difference with the ends of its bootstrap interval.

    For instance computed answers against copied ones. References are drawn on both sides on their
    own, within templates; each side is a mean over the templates that it has.

    Raises:
        ValueError: one side is empty, or a reference prompt is on both.
    """
    from pandas import DataFrame

    if not mask.any() or mask.all():
        raise ValueError(
            f"expected pairs on both sides of a contrast, found {int(mask.sum())} of {len(mask)} "
            "on one; there is nothing to compare"
        )
    inside, outside = effects.select(mask), effects.select(~mask)
    clusters = effects.sample().clusters
    both = set(clusters[mask].tolist()) & set(clusters[~mask].tolist())
    if both:
        raise ValueError(
            f"expected each reference prompt on one side of a contrast, found {len(both)} on both; "
            "choose by what belongs to the reference, such as whether its answer is an operand"
        )
    low, high = bootstrap_interval(
        inside.sample(), less=outside.sample(), level=level, n_resamples=n_resamples, seed=seed
    )
    means = {"mean_in": inside.mean().flatten(), "mean_out": outside.mean().flatten()}
    means["difference"] = means["mean_in"] - means["mean_out"]
    columns = means | {"ci_low": low.float(), "ci_high": high.float()}
    places = effects.to_dataframe()[list(effects.axes)]
    return places.join(DataFrame({name: value.numpy() for name, value in columns.items()}))


def template_agreement(effects: Effects) -> "DataFrame":
    """Spearman's rank correlation of the components' means between each two templates.

    A square table by template names. Noise lowers it: with few references a template, look at the
    intervals before you call two templates different. Raises ValueError without templates.
    """
    from pandas import DataFrame

    means = {name: part.mean().flatten().numpy() for name, part in effects.by_template().items()}
    return DataFrame(means).corr(method="spearman")
