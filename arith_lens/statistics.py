"""Means, errors, resamples and tests of numbers that come in strata and in clusters.

A stratum is a template: strata are fixed, and weigh equally. A cluster is all that was measured on
one reference prompt, and counts as one observation. Each cluster lies within one stratum. NaN means
left out.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

AT_ONCE = 2**22
"""Resampled means held at a time: 32 MB, and below what torch's quantile takes."""


def mean_over_strata(
    values: Float[Tensor, "*component pair"], strata: Int[Tensor, "pair"]
) -> Float[Tensor, "*component"]:
    """Mean over the pairs of each stratum, then over the strata that have any."""
    means = [values[..., strata == stratum].nanmean(-1) for stratum in strata.unique()]
    return torch.stack(means).nanmean(0) if means else values.nanmean(-1)


def cluster_sums(
    values: Float[Tensor, "*component pair"], clusters: Int[Tensor, "pair"]
) -> tuple[Float[Tensor, "*component cluster"], Float[Tensor, "*component cluster"]]:
    """Sum and number of the pairs of each cluster, those left out apart."""
    shape = (*values.shape[:-1], int(clusters.max()) + 1 if len(clusters) else 0)
    sums = values.new_zeros(shape).index_add(-1, clusters, values.nan_to_num(nan=0.0))
    return sums, values.new_zeros(shape).index_add(-1, clusters, (~values.isnan()).to(values))


def _strata_of_clusters(
    strata: Int[Tensor, "pair"], clusters: Int[Tensor, "pair"]
) -> Int[Tensor, "cluster"]:
    home = torch.zeros(int(clusters.max()) + 1 if len(clusters) else 0, dtype=torch.long)
    return home.scatter(0, clusters, strata)


def clustered_stderr(
    values: Float[Tensor, "*component pair"],
    strata: Int[Tensor, "pair"],
    clusters: Int[Tensor, "pair"],
) -> Float[Tensor, "*component"]:
    """Standard error of `mean_over_strata`, clusters being drawn within strata.

    A stratum of one cluster has no spread of its own; its distance from the mean over all strata
    stands in. NaN where fewer than two clusters count.
    """
    sums, counts = cluster_sums(values, clusters)
    overall, home = mean_over_strata(values, strata), _strata_of_clusters(strata, clusters)
    variance, n_used = torch.zeros_like(overall), torch.zeros_like(overall)
    for stratum in home.unique():
        total, count = sums[..., home == stratum], counts[..., home == stratum]
        size, groups = count.sum(-1), (count > 0).sum(-1)
        centre = torch.where(groups > 1, total.sum(-1) / size, overall)
        squares = (total - count * centre[..., None]).square().sum(-1) / size.square()
        variance += (squares * groups / (groups - 1).clamp(min=1)).nan_to_num(nan=0.0)
        n_used += size > 0
    enough = (counts > 0).sum(-1) > 1
    return (variance.sqrt() / n_used).masked_fill(~enough, float("nan"))


@dataclass(frozen=True)
class Sample:
    """Numbers of some components on some pairs, with the stratum and the cluster of each pair."""

    values: Float[Tensor, "component pair"]
    strata: Int[Tensor, "pair"]
    clusters: Int[Tensor, "pair"]


def bootstrap_interval(
    sample: Sample, *, less: Sample | None = None, level: float, n_resamples: int, seed: int
) -> Float[Tensor, "bound=2 component"]:
    """Percentile interval of `mean_over_strata` of a sample, less that of another without clusters
    in common. See `resampled_means`. NaN where fewer than two clusters count."""
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    at_once = max(1, AT_ONCE // max(n_resamples, len(sample.strata), 1))
    parts = []
    for start in range(0, len(sample.values), at_once):
        chosen = slice(start, start + at_once)
        means = resampled_means(sample, chosen, n_resamples, seed)
        if less is not None:
            means = means - resampled_means(less, chosen, n_resamples, seed + 1)
        parts.append(means.nanquantile(ends, -1))
    return torch.cat(parts, dim=-1)


def resampled_means(
    sample: Sample, components: slice, n_resamples: int, seed: int
) -> Float[Tensor, "component resample"]:
    """`mean_over_strata` of clusters drawn with replacement within strata, each with all its pairs.

    From n clusters n - 1 are drawn: the means then spread as `clustered_stderr` says, where n drawn
    would spread by sqrt((n - 1) / n) too little (Rao and Wu, 1988; half of the variance at n = 2).
    A stratum of one cluster moves by its distance from the mean over all, up or down.
    """
    used = ~sample.values.isnan().all(0)
    values, strata = sample.values[components, used].double(), sample.strata[used]
    clusters = torch.unique(sample.clusters[used], return_inverse=True)[1]
    (sums, counts), home = cluster_sums(values, clusters), _strata_of_clusters(strata, clusters)
    overall = mean_over_strata(values, strata)[:, None]
    rng = np.random.default_rng(seed)
    times = values.new_ones(len(home), n_resamples)
    moved = values.new_zeros(len(values), n_resamples)
    for stratum in home.unique():
        inside = home == stratum
        n = int(inside.sum())
        if n == 1:
            sign = torch.as_tensor(rng.choice((-1.0, 1.0), size=n_resamples))
            moved += ((sums[:, inside] / counts[:, inside] - overall) * sign).nan_to_num(nan=0.0)
        else:
            drawn = rng.multinomial(n - 1, np.full(n, 1 / n), size=n_resamples)
            times[inside] = torch.as_tensor(drawn, dtype=values.dtype).T
    means, n_strata = _means_of_draws(sums, counts, home, times)
    enough = (counts > 0).sum(-1, keepdim=True) > 1
    return (means + moved / n_strata).masked_fill(~enough, float("nan"))


def means_of_draws(
    sample: Sample, drawn: Bool[Tensor, "cluster draw"]
) -> Float[Tensor, "component draw"]:
    """`mean_over_strata` of the clusters that each draw takes, over the strata that it has.

    Clusters are numbered from 0 without gaps.
    """
    sums, counts = cluster_sums(sample.values.double(), sample.clusters)
    home = _strata_of_clusters(sample.strata, sample.clusters)
    return _means_of_draws(sums, counts, home, drawn.double())[0]


def _means_of_draws(
    sums: Float[Tensor, "component cluster"],
    counts: Float[Tensor, "component cluster"],
    home: Int[Tensor, "cluster"],
    times: Float[Tensor, "cluster draw"],
) -> tuple[Float[Tensor, "component draw"], Float[Tensor, "component draw"]]:
    """The means, each cluster taken so many times, and over how many strata they are."""
    total = sums.new_zeros(len(sums), times.shape[1])
    n_strata = torch.zeros_like(total)
    for stratum in home.unique():
        inside = home == stratum
        means = (sums[:, inside] @ times[inside]) / (counts[:, inside] @ times[inside])
        total += means.nan_to_num(nan=0.0)
        n_strata += ~means.isnan()
    return total / n_strata, n_strata


def sign_test(
    values: Float[Tensor, "*component pair"], clusters: Int[Tensor, "pair"]
) -> Float[Tensor, "*component"]:
    """Two-sided p-value that a cluster's sum is as likely above 0 as below; sums of 0 do not vote.

    NaN where none votes.
    """
    from scipy.stats import binom

    sums, _ = cluster_sums(values, clusters)
    below, above = (sums < 0).sum(-1).numpy(), (sums > 0).sum(-1).numpy()
    p = np.minimum(1.0, 2 * binom.cdf(np.minimum(below, above), below + above, 0.5))
    return torch.as_tensor(np.where(below + above == 0, np.nan, p), dtype=torch.float32)


def t_test(
    mean: Float[Tensor, "*component"], stderr: Float[Tensor, "*component"], n_clusters: int
) -> Float[Tensor, "*component"]:
    """Two-sided p-value that a mean with this standard error is zero, by Student's t.

    NaN where the error is not known, or where the mean and its error are both zero.
    """
    from scipy.stats import t

    statistic = (mean.double() / stderr.double()).abs()
    p = 2 * t.sf(statistic.numpy(), max(n_clusters - 1, 1))
    return torch.as_tensor(np.asarray(p)).reshape(mean.shape)


def false_discovery_control(p: Float[Tensor, "*test"]) -> Float[Tensor, "*test"]:
    """q-values of Benjamini and Hochberg over all tests given; NaN is no test."""
    from scipy import stats

    tested = ~p.isnan()
    adjusted = torch.full_like(p, float("nan"))
    if tested.any():
        q_values = stats.false_discovery_control(p[tested].double().numpy())
        adjusted[tested] = torch.as_tensor(q_values, dtype=p.dtype)
    return adjusted
