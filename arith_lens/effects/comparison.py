"""Comparing effects: before and after, two sets of them, two methods, templates, samples.

`BeforeAfter` holds effects on the same pairs before and after a change. `compare` sets two maps
side by side, `contrast` two sides of one map's pairs, `agreement` an approximation and the exact
effects, `template_agreement` the wordings. `stability_of` says how much samples of problems agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.effects.component_effects import KEY, ComponentEffects, joined_tables
from arith_lens.effects.effects import Effects
from arith_lens.statistics import (
    bootstrap_interval,
    mean_over_strata,
    means_of_draws,
    resampled_means,
)

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """Effects on the same pairs, such as those of a model as it was and as it was tuned.

    Raises:
        ValueError: other components, metrics, paths or pairs on the two sides
    """

    before: ComponentEffects
    after: ComponentEffects

    def __post_init__(self) -> None:
        for name in ("heads", "mlps"):
            _check_same(getattr(self.before, name), getattr(self.after, name))

    @property
    def heads(self) -> Effects:
        """What changed at each head, after less before, pair by pair [layer, head, pair].

        A pair that is left out on either side is left out here. Means and intervals are those of
        the difference within a pair: what both sides share, such as a hard prompt, drops out.
        """
        return self.after.heads.combined(self.before.heads, torch.sub)

    @property
    def mlps(self) -> Effects:
        """The same at each MLP [layer, pair]."""
        return self.after.mlps.combined(self.before.mlps, torch.sub)

    @property
    def computation(self) -> Mapping[str, Any]:
        """How both sides were computed."""
        return {"before": dict(self.before.computation), "after": dict(self.after.computation)}

    def to_arrays(self) -> Arrays:
        """For a file: both sides."""
        sides = {"before": self.before.to_arrays(), "after": self.after.to_arrays()}
        return joined_arrays("before_after", sides, header={"computation": dict(self.computation)})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "BeforeAfter":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("before_after")
        sides = (ComponentEffects.from_arrays(arrays.part(name)) for name in ("before", "after"))
        return cls(*sides)

    def to_dataframe(self) -> "DataFrame":
        """One row per component: its name, head and index (empty for an MLP), layer, mean before
        and after, their difference within pairs with the ends of its 95% bootstrap interval, and
        pairs used."""
        table = joined_tables(self.heads, self.mlps).rename(columns={"mean": "difference"})
        at = [*table.columns].index("difference")
        for column, side in enumerate(("before", "after")):
            effects = getattr(self, side)
            means = torch.cat([effects.heads.mean().flatten(), effects.mlps.mean()])
            table.insert(at + column, side, means.numpy())
        return table


def _check_comparable(a: Effects, b: Effects) -> None:
    """Raise ValueError for effects of other components, or measured in another way."""
    if a.axes != b.axes or a.per_pair.shape[:-1] != b.per_pair.shape[:-1]:
        raise ValueError(
            f"expected the same components on both sides, found {a.axes} "
            f"{tuple(a.per_pair.shape[:-1])} and {b.axes} {tuple(b.per_pair.shape[:-1])}; compare "
            "heads with heads, of one model's shape"
        )
    if a.metric != b.metric or a.paths != b.paths:
        raise ValueError(
            f"expected one metric and one meaning of paths, found {a.metric!r} over {a.paths!r} "
            f"and {b.metric!r} over {b.paths!r}; recompute one of them"
        )


def _check_same(a: Effects, b: Effects) -> None:
    _check_comparable(a, b)
    clusters = [None if side.cluster is None else side.cluster.tolist() for side in (a, b)]
    same = a.n_pairs == b.n_pairs and a.template == b.template and a.problem == b.problem
    if not same or clusters[0] != clusters[1]:
        raise ValueError(
            f"expected effects on the same pairs, found {a.n_pairs} and {b.n_pairs} that are not "
            "the same; patch both models on one set of pairs"
        )


def compare(a: Effects | ComponentEffects, b: Effects | ComponentEffects) -> "DataFrame":
    """One row per component: its mean and rank (0 is the most negative) in `a` and in `b`.

    With `ComponentEffects` on both sides, heads and MLPs are in one table and have one ranking.

    Raises:
        TypeError: the sides are of two kinds, or are not effects.
        ValueError: effects of other components, or measured in another way.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols", counterfactual="operands")
        >>> effects = al.path_patch(model, pairs, metric="logit", progress=False)
        >>> rows = al.compare(effects, al.attribute(model, pairs, metric="logit", progress=False))
    """
    from pandas import DataFrame

    if isinstance(a, ComponentEffects) and isinstance(b, ComponentEffects):
        for name in ("heads", "mlps"):
            _check_comparable(getattr(a, name), getattr(b, name))
        names = ["component", *a.heads.places()]
    elif isinstance(a, Effects) and isinstance(b, Effects):
        _check_comparable(a, b)
        names = [*a.places()]
    else:
        raise TypeError(
            f"expected Effects or ComponentEffects on both sides, found {type(a).__name__} and "
            f"{type(b).__name__}; compare maps with maps, or a.heads with b.heads"
        )
    left, right = a.to_dataframe(), b.to_dataframe()
    table = {name: left[name] for name in names}
    for name, side in (("a", left), ("b", right)):
        table |= {name: side["mean"], f"stderr_{name}": side["stderr"]}
        table[f"rank_{name}"] = side["mean"].rank(method="first") - 1
    return DataFrame(table | {"difference": right["mean"] - left["mean"]})


def contrast(
    effects: Effects,
    mask: Bool[Tensor, " pair"],
    *,
    level: float = 0.95,
    over: str = "problem",
    n_resamples: int = 1000,
    seed: int = 0,
) -> "DataFrame":
    """One row per component: its mean where `mask` is True (`mean_in`) and False (`mean_out`),
    and the difference with the ends of its bootstrap interval.

    For instance computed answers against copied ones. Problems are drawn on both sides on their
    own, and wordings for both together; each side is a mean over the templates that it has.

    Raises:
        ValueError: one side is empty, or a problem (over prompts: a reference prompt) is on both.
    """
    from pandas import DataFrame

    if not mask.any() or mask.all():
        raise ValueError(
            f"expected pairs on both sides of a contrast, found {int(mask.sum())} of {len(mask)} "
            "on one; there is nothing to compare"
        )
    inside, outside = effects.select(mask), effects.select(~mask)
    clusters = effects.sample(over=over).clusters
    both = set(clusters[mask].tolist()) & set(clusters[~mask].tolist())
    if both:
        raise ValueError(
            f"expected each {over} on one side of a contrast, found {len(both)} on both; choose by "
            f"what belongs to the {over}, such as whether its answer is an operand"
        )
    low, high = bootstrap_interval(
        inside.sample(over=over),
        less=outside.sample(over=over),
        level=level,
        n_resamples=n_resamples,
        seed=seed,
    )
    means = {"mean_in": inside.mean().flatten(), "mean_out": outside.mean().flatten()}
    means["difference"] = means["mean_in"] - means["mean_out"]
    columns = means | {"ci_low": low.float(), "ci_high": high.float()}
    return DataFrame(effects.places() | {name: value.numpy() for name, value in columns.items()})


def template_agreement(effects: Effects) -> "DataFrame":
    """Spearman's rank correlation of the components' means between each two templates.

    A square table by template names. Noise lowers it: with few references per template, look at the
    intervals before you call two templates different.

    Raises:
        ValueError: the pairs have no templates.
    """
    from pandas import DataFrame

    means = {name: part.mean().flatten().numpy() for name, part in effects.by_template().items()}
    return DataFrame(means).corr(method="spearman")


RECALL_KS = (5, 10, 20)
"""The numbers of strongest components whose recall is computed."""

DrawnMeans = Float[Tensor, "component draw"]


def agreement(
    approximate: ComponentEffects | Effects,
    exact: ComponentEffects | Effects,
    *,
    ks: Sequence[int] = RECALL_KS,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> "DataFrame":
    """Compare the mean effects of components, for heads and for MLPs; or of edges.

    Problems and wordings are drawn again as in `Effects.ci`, the same ones for both sides, so that
    the intervals are clustered by problem. Pairs that one side leaves out are left out of both.
    Against an approximation without a sign, the exact effects count by their size.

    Args:
        approximate: from `attribute` or `attribute_edges`.
        exact: from `path_patch` or `edge_effects` on the same pairs, with the same paths and
            metric.
        ks: the numbers of strongest components or edges whose recall is computed.
        level: the level of the intervals.
        n_resamples: the number of draws.
        seed: the seed of the draws.

    Returns:
        One row per part (`heads`, `MLPs`; or `edges`) and measure, with the columns `value`, `low`
        and `high`: `pearson` and `spearman` correlate the means. `recall 5` is the share of the
        five strongest components (the largest means, of either sign) that are among the
        approximation's five.
        `missed 5` is the share of the exact effects' mass that this misses: 1 less the sum of
        the sizes of the exact means over the approximation's five, divided by the largest such sum.
        `slope` is that of the exact means on the approximate ones, through zero: 1 if the sizes
        are right. Measures of k components are there if there are more than k.

    Raises:
        ValueError: the two are not of the same components, pairs, paths and metric.
    """
    from pandas import DataFrame

    signed = True
    if isinstance(approximate, Effects) and isinstance(exact, Effects):
        _check_same(approximate, exact)
        parts = {"edges": (approximate, exact)}
    elif isinstance(approximate, ComponentEffects) and isinstance(exact, ComponentEffects):
        BeforeAfter(approximate, exact)  # checks that the two fit
        signed = bool(approximate.computation.get("signed", True))
        parts = {"heads": (approximate.heads, exact.heads), "MLPs": (approximate.mlps, exact.mlps)}
    else:
        raise ValueError(
            f"expected two ComponentEffects or two Effects, found {type(approximate).__name__} "
            f"and {type(exact).__name__}; compare results of one kind"
        )
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    rows = []
    for part, sides in parts.items():
        values = torch.stack([side.per_pair.flatten(0, -2).double() for side in sides])
        values = values.masked_fill(values.isnan().any(0), float("nan"))
        values = values[:, ~values[0].isnan().all(-1)].flatten(0, 1)
        sample = replace(sides[1].sample(), values=values)
        means = mean_over_strata(values, sample.strata)[:, None]
        sampled = resampled_means(sample, slice(None), n_resamples, seed)
        estimates, draws = (
            _measures(*each.chunk(2), ks=ks, signed=signed) for each in (means, sampled)
        )
        for name, value in estimates.items():
            low, high = draws[name].nanquantile(tails).tolist()
            rows.append((part, name, float(value), low, high))
    return DataFrame(rows, columns=["part", "measure", "value", "low", "high"])


def _measures(
    approximate: DrawnMeans, exact: DrawnMeans, *, ks: Sequence[int], signed: bool
) -> Mapping[str, Tensor]:
    """Each measure, [draw]."""
    exact = exact if signed else exact.abs()
    ranks = (part.argsort(0).argsort(0).double() for part in (approximate, exact))
    measures = {
        "pearson": _correlation(approximate, exact),
        "spearman": _correlation(*ranks),
        "slope": (approximate * exact).sum(0) / approximate.square().sum(0),
    }
    size = exact.abs()
    for k in (k for k in ks if k < len(exact)):
        best, ours = (part.abs().topk(k, dim=0).indices for part in (exact, approximate))
        among = (ours[:, None] == best[None]).any(0).double()
        measures[f"recall {k}"] = among.mean(0)
        mass = size.gather(0, ours).sum(0) / size.gather(0, best).sum(0)
        measures[f"missed {k}"] = 1 - mass
    return measures


def _correlation(a: DrawnMeans, b: DrawnMeans) -> Float[Tensor, " draw"]:
    a, b = (part - part.mean(0) for part in (a, b))
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt()


class StabilityError(ValueError):
    """There are too few effects, or the settings do not fit them."""


def stability_of(
    effects: Effects,
    *,
    k: int = 5,
    sizes: Sequence[int] | None = None,
    threshold: float | None = None,
    n_draws: int = 200,
    seed: int = 0,
) -> "DataFrame":
    """How much samples of n problems agree on the strongest components.

    Problems are drawn without replacement, each with all its pairs (reference prompts, if problems
    are not known). Means give the templates of a draw equal weight. Sets are compared by the
    Jaccard index, the share of their union that is in both. Two empty sets agree.

    Args:
        effects: one effect per component and pair.
        k: the size of the top-k set, the k most negative means.
        sizes: the numbers of problems; None: ten numbers up to half of all, in equal ratios.
        threshold: the threshold of the key set; None: the metric's own; without one, there is no
            key set.
        n_draws: the number of samples of each size.
        seed: the seed of the draws.

    Returns:
        One row per size, set (`top 5`, `key`) and comparison. Column `with`: samples are compared
        with the `rest`, all problems that are not in the sample, or with `another` sample of their
        size without common problems. Neither has a problem of the sample, so that sets agree only
        if the problems do. The columns `mean`, `low` and `high` (10th and 90th percentile) are over
        the draws.

    Raises:
        StabilityError: `k`, a size or `n_draws` is not valid, or there are too few problems.
    """
    from pandas import DataFrame

    sample = effects.sample()
    total = int(sample.clusters.max()) + 1 if effects.n_pairs else 0
    sizes = _checked_sizes(sizes, total, k, len(sample.values), n_draws)
    sets: dict[str, Callable[[Tensor], Tensor]] = {f"top {k}": lambda means: _strongest(means, k)}
    limit = KEY.get(effects.metric) if threshold is None else threshold
    if limit is not None:
        sets["key"] = lambda means: means < limit
    rng, rows = np.random.default_rng(seed), []
    for size in sizes:
        order = torch.as_tensor(rng.random((total, n_draws)).argsort(0).argsort(0))
        first = means_of_draws(sample, order < size)
        others = {
            "rest": means_of_draws(sample, order >= size),
            "another": means_of_draws(sample, (order >= size) & (order < 2 * size)),
        }
        for name, members in sets.items():
            for which, means in others.items():
                index = _jaccard(members(first), members(means))
                low, high = np.percentile(index, [10, 90])
                rows.append((size, name, which, index.mean(), low, high))
    return DataFrame(rows, columns=["n", "set", "with", "mean", "low", "high"])


def _checked_sizes(
    sizes: Sequence[int] | None, total: int, k: int, n_components: int, n_draws: int
) -> list[int]:
    if not 0 < k <= n_components or n_draws < 1:
        raise StabilityError(
            f"expected k from 1 to {n_components} components and at least one draw, found k={k} "
            f"and n_draws={n_draws}"
        )
    if total < 2:
        raise StabilityError(f"expected at least 2 problems, found {total}; sample more")
    half = total // 2
    if sizes is None:
        return [int(size) for size in np.unique(np.geomspace(min(2, half), half, 10).round())]
    if not sizes or min(sizes) < 1 or max(sizes) > half:
        raise StabilityError(
            f"expected sizes from 1 to {half}, half of the problems, found {sizes}"
        )
    return list(sizes)


def _strongest(means: Float[Tensor, "component draw"], k: int) -> Bool[Tensor, "component draw"]:
    order = means.nan_to_num(nan=float("inf")).argsort(dim=0, stable=True)[:k]
    return torch.zeros_like(means, dtype=torch.bool).scatter(0, order, True) & ~means.isnan()


def _jaccard(
    a: Bool[Tensor, "component draw"], b: Bool[Tensor, "component draw"]
) -> Float[np.ndarray, " draw"]:
    shared, either = (a & b).sum(0).double(), (a | b).sum(0).double()
    return torch.where(either > 0, shared / either.clamp(min=1), 1.0).numpy()
