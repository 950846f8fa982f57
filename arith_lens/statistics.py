"""Means, errors and resamples of numbers that come in strata and in clusters.

A stratum is a template, and strata weigh equally. A cluster is all that was measured on one
reference prompt, and counts as one observation. Each cluster lies within one stratum. NaN means
left out.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


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


def resampled_means(
    values: Float[Tensor, "component pair"],
    strata: Int[Tensor, "pair"],
    clusters: Int[Tensor, "pair"],
    n_resamples: int,
    seed: int,
) -> Float[Tensor, "component resample"]:
    """`mean_over_strata` of clusters drawn with replacement, each with all its pairs."""
    sums, counts = cluster_sums(values, clusters)
    home = _strata_of_clusters(strata, clusters)
    if not len(home):
        return values.new_full((len(values), n_resamples), float("nan"))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(home), np.full(len(home), 1 / len(home)), size=n_resamples)
    times = torch.as_tensor(drawn, dtype=values.dtype).T
    total = values.new_zeros(len(values), n_resamples)
    present = torch.zeros_like(total)
    for stratum in home.unique():
        here = home == stratum
        means = (sums[:, here] @ times[here]) / (counts[:, here] @ times[here])
        total += means.nan_to_num(nan=0.0)
        present += ~means.isnan()
    return total / present
