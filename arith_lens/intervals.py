"""Intervals that hold for skewed effects, and for shares near 0 and 1.

The percentile interval of `arith_lens.statistics` takes its shape from the draws. If effects are
skewed, it is too short on the side of the long tail. `studentised_interval` (bootstrap-t; Efron and
Tibshirani, 1993, chapter 12.5) draws the ratio of the error to the standard error instead.
`share_interval` (Wilson, 1927) is for numbers that are 0 or 1. If all answers are right, draws do
not differ, and a percentile interval has no width. Wilson's interval has. `change_interval` is for
the change between two answers to each question. It combines the intervals of its parts (Newcombe,
1998).
"""

from dataclasses import replace
from math import sqrt

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.statistics import Sample, bootstrap_interval, clustered_stderr, mean_over_strata

DRAWS_AT_ONCE = 2**22
"""The number of draws that are held at a time: 32 MB."""

Ends = Float[Tensor, "bound=2 component"]


def studentised_interval(sample: Sample, *, level: float, n_resamples: int, seed: int) -> Ends:
    """The bootstrap-t interval of `mean_over_strata`, over clusters.

    Clusters are drawn within their block. In each draw, the error of the mean is divided by the
    standard error in this draw. What the clusters do not explain (the draw of the strata, and
    blocks of one cluster) is added as Student's t. Neither end is closer to the mean than in
    Student's interval or in the percentile interval: with heavy tails, or with clusters of unequal
    sizes, draws of few clusters would make it too short. NaN where fewer than two clusters count.

    If few clusters differ from the rest, a draw may have none of them. Its standard error is then
    too small or zero, and tells nothing of the true one. So no draw's variance counts as less than
    `least_variance` of the sample's (about a twentieth for 95%): if one cluster of many has the
    whole effect, the interval reaches as far as the Poisson interval of one event. Numbers that
    are all the same have an interval without width, since nothing tells how far others would be;
    for shares, take `share_interval`.

    With up to 36 clusters whose numbers are as skewed as a log-normal distribution, the end on
    the side of the long tail comes too early in 6 to 9% of simulated studies instead of 2.5%, and
    more often for rare effects of unequal size (docs/knockout.md). No rule that was tried holds
    there.

    Examples:
        One of 30 problems at -0.5, all others at 0:

        >>> import torch
        >>> values, one = torch.zeros(1, 30), torch.zeros(30).long()
        >>> values[0, 0] = -0.5
        >>> sample = Sample(values, strata=one, clusters=torch.arange(30), blocks=one)
        >>> studentised_interval(sample, level=0.95, n_resamples=1000, seed=0).T
        tensor([[-0.0929,  0.0174]], dtype=torch.float64)

    Args:
        sample: the numbers, with clusters, strata and blocks.
        n_resamples: the number of draws.
    """
    from scipy.special import stdtrit

    used = ~sample.values.isnan().all(0)
    sample = Sample(
        sample.values[:, used].double(),
        *(units[used] for units in (sample.strata, sample.clusters, sample.blocks)),
    )
    if not sample.values.numel():
        return torch.full((2, len(sample.values)), float("nan"), dtype=torch.float64)
    mean = mean_over_strata(sample.values, sample.strata)
    stderr, freedom = clustered_stderr(sample)
    quantile = torch.as_tensor(-stdtrit(freedom.clamp(min=1).numpy(), (1 - level) / 2))
    student = torch.stack([mean - quantile * stderr, mean + quantile * stderr])
    influence, block = _influence(sample)
    blocks = [chosen for b in block.unique() if len(chosen := (block == b).nonzero()[:, 0]) > 1]
    if not blocks:
        return student
    rng = np.random.default_rng(seed)
    times = [
        torch.as_tensor(rng.multinomial(len(c), np.full(len(c), 1 / len(c)), n_resamples)).double()
        for c in blocks
    ]
    n_free = max(1, len(sample.strata.unique()) - len(sample.blocks.unique()))
    rest = torch.as_tensor(rng.standard_t(n_free, n_resamples))
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    least, ends = least_variance(level), []
    for part in torch.arange(len(mean)).split(max(1, DRAWS_AT_ONCE // n_resamples)):
        error, variance = torch.zeros(2, len(part), n_resamples, dtype=torch.float64)
        of_clusters = torch.zeros(len(part), dtype=torch.float64)
        for chosen, sampled in zip(blocks, times, strict=True):
            own, n = influence[part][:, chosen], len(chosen)
            moved = own @ sampled.T
            error += moved
            variance += n / (n - 1) * (own.square() @ sampled.T - moved.square() / n).clamp(min=0)
            of_clusters += n / (n - 1) * own.square().sum(1)
        variance = variance.maximum(least * of_clusters[:, None])
        ratio = (error / variance.sqrt()).nan_to_num(nan=0.0)  # 0 / 0: all clusters agree
        beyond = (stderr[part].square() - of_clusters).clamp(min=0).sqrt()
        draws = beyond[:, None] * rest - of_clusters.sqrt()[:, None] * ratio
        ends.append(mean[part] + draws.nan_to_num(nan=0.0).quantile(tails, -1))
    studentised = torch.cat(ends, dim=-1)
    plain = bootstrap_interval(sample, level=level, n_resamples=n_resamples, seed=seed)
    low = studentised[0].minimum(student[0]).minimum(plain[0])
    high = studentised[1].maximum(student[1]).maximum(plain[1])
    return torch.stack([low, high]).masked_fill(stderr.isnan(), float("nan"))


def least_variance(level: float) -> float:
    """The least variance of a draw, as a share of the sample's.

    If one of many clusters has the whole effect, the mean is as large as its standard error, and so
    is the error of a draw without it. The interval of this level that one event allows ends at c
    times the mean (Poisson: c = 5.6 for 95%). The draw's ratio must be c - 1 to reach it.
    """
    from scipy.special import chdtri

    return min(1.0, float(chdtri(4, (1 - level) / 2) / 2 - 1) ** -2)


def _influence(
    sample: Sample,
) -> tuple[Float[Tensor, "component cluster"], Float[Tensor, " cluster"]]:
    """How much each cluster moves the mean over strata, and the block of each cluster."""
    values, n_components = sample.values, len(sample.values)
    _, cluster = sample.clusters.unique(return_inverse=True)
    _, stratum = sample.strata.unique(return_inverse=True)
    n_clusters, n_strata = int(cluster.max()) + 1, int(stratum.max()) + 1
    valid = (~values.isnan()).double()
    known = values.nan_to_num(nan=0.0)
    counts = valid.new_zeros(n_components, n_strata).index_add(1, stratum, valid)
    sums = valid.new_zeros(n_components, n_strata).index_add(1, stratum, known)
    means = (sums / counts).nan_to_num(nan=0.0)
    weight = 1 / (counts.clamp(min=1) * (counts > 0).sum(1, keepdim=True).clamp(min=1))
    moved = (known - means[:, stratum]) * valid * weight[:, stratum]
    influence = valid.new_zeros(n_components, n_clusters).index_add(1, cluster, moved)
    block = torch.zeros(n_clusters).index_put((cluster,), sample.blocks.float())
    return influence, block


def share_interval(sample: Sample, *, level: float) -> Ends:
    """Wilson's interval of a share, with the number of observations that the clusters are worth.

    If p is the share (`mean_over_strata`) and e its standard error over clusters, the pairs are
    worth p (1 - p) / e² independent ones, at most one per pair. If all numbers are the same, each
    cluster counts as one. Student's t replaces the normal quantile. NaN where fewer than two
    clusters count.

    Examples:
        30 of 30 problems right:

        >>> import torch
        >>> one = torch.zeros(30).long()
        >>> sample = Sample(torch.ones(1, 30), strata=one, clusters=torch.arange(30), blocks=one)
        >>> share_interval(sample, level=0.95).T
        tensor([[0.8776, 1.0000]], dtype=torch.float64)

    Args:
        sample: numbers that are 0 or 1, shares of draws of a control, or NaN.

    Raises:
        ValueError: a number below 0 or above 1.
    """
    from scipy.special import stdtrit

    values = sample.values.double()
    if not (((values >= 0) & (values <= 1)) | values.isnan()).all():
        raise ValueError(
            "expected numbers from 0 to 1 for the interval of a share, found others; use "
            "method='studentised' for means"
        )
    sample = Sample(values, sample.strata, sample.clusters, sample.blocks)
    share = mean_over_strata(values, sample.strata)
    stderr, freedom = clustered_stderr(sample)
    _, cluster = sample.clusters.unique(return_inverse=True)
    valid = (~values.isnan()).double()
    n_clusters = int(cluster.max()) + 1 if len(cluster) else 0
    used = valid.new_zeros(len(values), n_clusters).index_add(1, cluster, valid) > 0
    worth = share * (1 - share) / stderr.square()
    worth = torch.where(stderr > 0, worth.minimum(valid.sum(1)), used.sum(1).double())
    quantile = torch.as_tensor(-stdtrit(freedom.clamp(min=1).numpy(), (1 - level) / 2))
    square = quantile.square() / worth
    centre = (share + square / 2) / (1 + square)
    width = (square * share * (1 - share) + square.square() / 4).sqrt() / (1 + square)
    ends = torch.stack([centre - width, centre + width]).clamp(0, 1)
    return ends.masked_fill(stderr.isnan(), float("nan"))


def change_interval(sample: Sample, *, level: float) -> tuple[float, float]:
    """The interval of a change of accuracy, from those of its parts and their correlation.

    The change is the share of answers that became right less the share that became wrong. Each
    share has Wilson's interval, so that answers that all stay the same are no certainty. If all
    answers before were right, this is taken as a fact and not as a draw (the pairs were selected
    so). Then the interval is that of the accuracy after, less 1. NaN where fewer than two clusters
    count.

    Args:
        sample: whether the answers were right (0 or 1), [time=2 pair]: before, after.
    """
    values = sample.values.double()
    if bool((values[0] == 1).all()):
        low, high = (share_interval(sample, level=level)[:, 1] - 1).tolist()
        return low, high
    change = values[1] - values[0]
    parts = replace(sample, values=torch.stack([change > 0, change < 0]).double())
    (gained, lost), (low, high) = _means(parts), share_interval(parts, level=level).tolist()
    alike = _correlation(parts)
    return (
        gained - lost - _reach(gained - low[0], high[1] - lost, alike),
        gained - lost + _reach(high[0] - gained, lost - low[1], alike),
    )


def _means(sample: Sample) -> tuple[float, float]:
    """Of both components."""
    first, second = mean_over_strata(sample.values.double(), sample.strata).tolist()
    return first, second


def _correlation(sample: Sample) -> float:
    """Of the two components' means, over draws of clusters; 0 if one of them has no error."""
    values = sample.values.double()
    three = replace(sample, values=torch.cat([values, values[1:] - values[:1]]))
    first, second, apart = clustered_stderr(three)[0].tolist()
    product = 2 * first * second
    return min(max((first**2 + second**2 - apart**2) / product, -1.0), 1.0) if product else 0.0


def _reach(of_first: float, of_second: float, alike: float) -> float:
    """How far the difference of two numbers goes, if they go so far in opposite directions."""
    squares = of_first**2 + of_second**2 - 2 * alike * of_first * of_second
    return sqrt(max(squares, 0.0))
