"""Means, errors, resamples and tests of numbers that come in clusters and in strata.

A cluster is the unit that counts as one observation: a problem, such as 3 + 5, or a reference
prompt. A stratum is a wording (a template); strata weigh equally in every mean. A block holds the
strata that ask the same kind of problem, such as the wordings of addition; blocks are fixed. NaN
means left out.

Within a block both the clusters and the strata are a sample: of other problems, and of other
wordings of its kind. So both are drawn (the two-way bootstrap of crossed factors; Owen, 2007).
Where each stratum is a block of its own, wordings are fixed and only clusters are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MEANS_AT_ONCE = 2**22
"""Resampled means held at a time: 32 MB, and below what torch's quantile takes."""


class Units(TypedDict):
    """What each pair belongs to; None where it is not known."""

    template: tuple[str, ...] | None
    """The wording: `addition/2`. What is before the slash is the same for wordings of one kind."""
    cluster: Int[Tensor, " pair"] | None
    """The reference prompt: the same number for the same prompt."""
    problem: tuple[str, ...] | None
    """What is asked, in whatever wording: `3 + 5`."""


class HasUnits:
    """A result or a set of pairs that knows the units of its pairs."""

    template: Any
    cluster: Any
    problem: Any

    @property
    def units(self) -> Units:
        """Template, reference prompt and problem of each pair."""
        return Units(template=self.template, cluster=self.cluster, problem=self.problem)


def chosen_units(units: Units, rows: Int[Tensor, " chosen"]) -> Units:
    """The units of some of the pairs."""
    template, cluster, problem = units["template"], units["cluster"], units["problem"]
    return Units(
        template=template and tuple(template[i] for i in rows.tolist()),
        cluster=None if cluster is None else cluster[rows],
        problem=problem and tuple(problem[i] for i in rows.tolist()),
    )


def joined_units(a: Units, b: Units) -> Units:
    """The units of two sets of pairs, one after the other; what one of them lacks is None.

    A problem of both is one problem; the reference prompts of the two sets count as different.
    """
    cluster = None
    if a["cluster"] is not None and b["cluster"] is not None:
        first_new = int(a["cluster"].max()) + 1 if len(a["cluster"]) else 0
        cluster = torch.cat([a["cluster"], b["cluster"] + first_new])
    return Units(
        template=_joined(a["template"], b["template"]),
        cluster=cluster,
        problem=_joined(a["problem"], b["problem"]),
    )


def _joined(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if a is None or b is None else a + b


def mean_over_strata(
    values: Float[Tensor, "*component pair"], strata: Int[Tensor, " pair"]
) -> Float[Tensor, "*component"]:
    """Mean over the pairs of each stratum, then over the strata that have any."""
    means = [values[..., strata == stratum].nanmean(-1) for stratum in strata.unique()]
    return torch.stack(means).nanmean(0) if means else values.nanmean(-1)


@dataclass(frozen=True)
class Sample:
    """Numbers of some components on some pairs, with the cluster, stratum and block of each pair.

    Each stratum lies within one block, and so does each cluster.
    """

    values: Float[Tensor, "component pair"]
    strata: Int[Tensor, " pair"]
    clusters: Int[Tensor, " pair"]
    blocks: Int[Tensor, " pair"]

    @classmethod
    def of(cls, values: Float[Tensor, "component pair"], units: Units, over: str) -> "Sample":
        """The sample whose clusters are problems or reference prompts.

        Over prompts, wordings are fixed: each template is a block. Over problems, the templates of
        one kind are a block, unless none of its problems occurs in two of them: then what differs
        between wordings cannot be told from what differs between problems, and they are fixed.
        Where problems are not known, reference prompts are the clusters; where those are not
        known either, each pair is one.

        Raises:
            ValueError: another `over`.
        """
        if over not in ("problem", "prompt"):
            raise ValueError(f"expected over='problem' or over='prompt', found {over!r}")
        n_pairs = values.shape[-1]
        strata = strata_of(units["template"], n_pairs)
        if over == "prompt" or units["problem"] is None:
            cluster = units["cluster"]
            if cluster is None:
                return cls(values, strata, torch.arange(n_pairs), strata)
            return cls(values, strata, _together(strata, cluster.cpu().long()), strata)
        problems, blocks = _numbers(units["problem"]), strata
        if units["template"] is not None:
            kinds = _numbers([name.partition("/")[0] for name in units["template"]])
            crossed = _crossed(_together(kinds, problems), strata)
            is_crossed = torch.zeros(int(kinds.max()) + 1 if n_pairs else 0, dtype=torch.bool)
            is_crossed[kinds[crossed]] = True
            first = torch.where(is_crossed[kinds], 0, 1 + strata)
            blocks = _together(kinds, first)
        return cls(values, strata, _together(blocks, problems), blocks)


def strata_of(template: tuple[str, ...] | None, n_pairs: int) -> Int[Tensor, " pair"]:
    """The template of each pair as a number; all 0 where templates are not known."""
    return _numbers(template or ("",) * n_pairs)


def _numbers(names: Sequence[str]) -> Int[Tensor, " pair"]:
    """Names as numbers from 0 without gaps, in the order of the alphabet."""
    return torch.as_tensor(np.unique(np.array(names, dtype=str), return_inverse=True)[1])


def _together(a: Int[Tensor, " pair"], b: Int[Tensor, " pair"]) -> Int[Tensor, " pair"]:
    """One number per combination of two, from 0 without gaps."""
    ranks = torch.unique(b, return_inverse=True)[1]
    n = int(ranks.max()) + 1 if len(ranks) else 1
    return torch.unique(a * n + ranks, return_inverse=True)[1]  # 25 times as fast as dim=1


def _crossed(clusters: Int[Tensor, " pair"], strata: Int[Tensor, " pair"]) -> Bool[Tensor, " pair"]:
    """Whether each pair's cluster occurs in two strata or more."""
    n_strata = int(strata.max()) + 1 if len(strata) else 1
    cells = torch.unique(clusters * n_strata + strata) // n_strata
    return torch.bincount(cells, minlength=1)[clusters] > 1


@dataclass(frozen=True)
class _Block:
    """The numbers of one block, by cluster and stratum."""

    sums: Float[Tensor, "component cluster stratum"]
    counts: Float[Tensor, "component cluster stratum"]
    clusters: Int[Tensor, " cluster"]
    """Which clusters of the sample these are."""

    @property
    def n_clusters(self) -> int:
        return self.sums.shape[1]

    @property
    def n_strata(self) -> int:
        return self.sums.shape[2]

    def means(self) -> Float[Tensor, "component stratum"]:
        """The mean of each stratum; NaN where it has no pair."""
        return self.sums.sum(1) / self.counts.sum(1)

    def resampled_totals(
        self, times: Float[Tensor, "cluster draw"]
    ) -> tuple[Float[Tensor, "component draw"], Int[Tensor, "#component draw"]]:
        """The sum of the strata's means, its clusters taken so many times; how many strata it has.

        A stratum without a pair in a draw does not count there.
        """
        if torch.equal(self.counts, self.counts[:1].expand_as(self.counts)):  # one product for all
            sampled = self.counts[0].T @ times
            weights = torch.where(sampled > 0, times[:, None] / sampled, 0.0)
            return self.sums.flatten(1) @ weights.flatten(0, 1), (sampled > 0).sum(0, keepdim=True)
        total = self.sums.new_zeros(len(self.sums), times.shape[1])
        n_strata = torch.zeros_like(total, dtype=torch.long)
        for sums, counts in zip(self.sums.unbind(-1), self.counts.unbind(-1), strict=True):
            sampled = counts @ times
            total += torch.where(sampled > 0, (sums @ times) / sampled, 0.0)
            n_strata += sampled > 0
        return total, n_strata


def _blocks(sample: Sample) -> list[_Block]:
    values, parts = sample.values, []
    for block in sample.blocks.unique():
        inside = (sample.blocks == block).nonzero()[:, 0]
        clusters, cluster = torch.unique(sample.clusters[inside], return_inverse=True)
        strata, stratum = torch.unique(sample.strata[inside], return_inverse=True)
        shape = (len(values), len(clusters), len(strata))
        cell, chosen = cluster * len(strata) + stratum, values[:, inside]
        empty = values.new_zeros(len(values), len(clusters) * len(strata))
        sums = empty.index_add(1, cell, chosen.nan_to_num(nan=0.0)).reshape(shape)
        counts = empty.index_add(1, cell, (~chosen.isnan()).to(values)).reshape(shape)
        parts.append(_Block(sums, counts, clusters))
    return parts


@dataclass(frozen=True)
class _Spread:
    """What one block adds to the variance of its own mean."""

    share: Float[Tensor, " component"]
    """Of the block in the mean over all strata."""
    clusters: Float[Tensor, " component"]
    """Variance since other clusters could have been drawn."""
    strata: Float[Tensor, " component"]
    """Variance since other strata could have been drawn, beyond what `clusters` explains."""
    strata_share: Float[Tensor, " component"]
    """Of the observed variance of the strata's means: the rest is the clusters' noise."""


def _spread(block: _Block, overall: Float[Tensor, " component"], n_strata: Tensor) -> _Spread:
    means = block.means()
    valid = ~means.isnan()
    n_valid, n_used = valid.sum(1), (block.counts.sum(2) > 0).sum(1)
    own = means.nanmean(1)
    moved = (block.sums - block.counts * means.nan_to_num()[:, None]) / block.counts.sum(1)[:, None]
    moved = moved.nan_to_num(nan=0.0)
    together, factor = moved.sum(2), n_used / (n_used - 1).clamp(min=1)
    clusters = factor * (together / n_valid[:, None]).square().sum(1)
    clusters = torch.where(n_used > 1, clusters, (own - overall).square())
    pairs_of_strata = (n_valid * (n_valid - 1)).clamp(min=1)
    apart = moved.square().sum(2) - together.square() / n_valid[:, None]
    noise = factor * apart.sum(1) / pairs_of_strata
    between = (means - own[:, None]).square().nansum(1) / pairs_of_strata
    strata = (between - noise).clamp(min=0.0)
    return _Spread(
        (n_valid / n_strata).nan_to_num(nan=0.0),
        clusters.nan_to_num(nan=0.0),
        strata.nan_to_num(nan=0.0),
        (strata / between).nan_to_num(nan=0.0),
    )


@dataclass(frozen=True)
class _Design:
    """The blocks of a sample, and what each adds to the variance of the mean."""

    blocks: list[_Block]
    mean: Float[Tensor, " component"]
    spreads: list[_Spread]
    enough: Bool[Tensor, " component"]
    """Whether two clusters or more count."""

    @classmethod
    def of(cls, sample: Sample) -> "_Design":
        blocks = _blocks(sample)
        empty = sample.values.new_zeros(len(sample.values), 0)
        means = torch.cat([empty, *(block.means() for block in blocks)], dim=1)
        overall, n_strata = means.nanmean(1), (~means.isnan()).sum(1)
        used = [(block.counts.sum(2) > 0).sum(1) for block in blocks]
        enough = torch.stack([torch.zeros_like(n_strata), *used]).sum(0) > 1
        spreads = [_spread(block, overall, n_strata) for block in blocks]
        return cls(blocks, overall, spreads, enough)

    @property
    def freedom(self) -> tuple[int, int]:
        """Degrees of freedom of the clusters and of the strata."""
        sizes = [block.n_clusters for block in self.blocks]
        clusters = sum(size - 1 for size in sizes) + max(0, sizes.count(1) - 1)
        return max(1, clusters), max(1, sum(block.n_strata - 1 for block in self.blocks))


def clustered_stderr(
    sample: Sample,
) -> tuple[Float[Tensor, " component"], Float[Tensor, " component"]]:
    """Standard error of `mean_over_strata`, and its degrees of freedom (Satterthwaite).

    Clusters are a sample within their block, and so are strata: the variance between the strata's
    means counts as far as the clusters' noise does not explain it. A block of one cluster has no
    spread of its own; its distance from the mean over all is used. NaN where fewer than two
    clusters count.
    """
    design = _Design.of(sample)
    clusters, strata = torch.zeros_like(design.mean), torch.zeros_like(design.mean)
    for spread in design.spreads:
        clusters += spread.share.square() * spread.clusters
        strata += spread.share.square() * spread.strata
    variance, (free_clusters, free_strata) = clusters + strata, design.freedom
    freedom = variance.square() / (
        clusters.square() / free_clusters + strata.square() / free_strata
    )
    return variance.sqrt().masked_fill(~design.enough, float("nan")), freedom.nan_to_num(
        nan=free_clusters
    )


def bootstrap_interval(
    sample: Sample, *, less: Sample | None = None, level: float, n_resamples: int, seed: int
) -> Float[Tensor, "bound=2 component"]:
    """Percentile interval of `mean_over_strata` of a sample, less that of another without clusters
    in common. See `resampled_means`. NaN where fewer than two clusters count."""
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    at_once = max(1, MEANS_AT_ONCE // max(n_resamples, len(sample.strata), 1))
    parts = []
    for start in range(0, len(sample.values), at_once):
        chosen = slice(start, start + at_once)
        means = resampled_means(sample, chosen, n_resamples, seed)
        if less is not None:
            means -= resampled_means(less, chosen, n_resamples, seed + 1, strata_seed=seed)
        parts.append(means.nanquantile(ends, -1))
    return torch.cat(parts, dim=-1)


def resampled_means(
    sample: Sample,
    components: slice,
    n_resamples: int,
    seed: int,
    *,
    strata_seed: int | None = None,
) -> Float[Tensor, "component resample"]:
    """`mean_over_strata` of clusters drawn with replacement within blocks, and of strata drawn so.

    A drawn cluster comes with all its pairs, in all its strata. From n, n - 1 are drawn: the means
    then spread as `clustered_stderr` says, where n drawn would spread by sqrt((n - 1) / n) too
    little (Rao and Wu, 1988). The two draws are added up. Each is widened by the ratio of Student's
    t to the normal distribution at 97.5%, and that of the strata is narrowed to the variance that
    the clusters' noise does not explain, since both draws would count that noise. A block of one
    cluster moves by its distance from the mean over all, up or down. No mean leaves the range of
    the values.

    Args:
        strata_seed: of the strata's draw, where two samples share it; None: `seed`.
    """
    used = ~sample.values.isnan().all(0)
    chosen = Sample(
        sample.values[components, used].double(),
        sample.strata[used],
        sample.clusters[used],
        sample.blocks[used],
    )
    design, rng = _Design.of(chosen), np.random.default_rng(seed)
    total = chosen.values.new_zeros(len(chosen.values), n_resamples)
    n_strata, moved = total.new_zeros(1, n_resamples), total.new_zeros(len(total), 1)
    for block, spread in zip(design.blocks, design.spreads, strict=True):
        if block.n_clusters == 1:
            sign = torch.as_tensor(rng.choice((-1.0, 1.0), size=n_resamples))
            moved = moved + (spread.share * spread.clusters.sqrt())[:, None] * sign
            times = torch.ones(1, n_resamples, dtype=total.dtype)
        else:
            times = _draws(rng, block.n_clusters, n_resamples)
        of_block, n_of_block = block.resampled_totals(times)
        total += of_block
        n_strata = n_strata + n_of_block
    mean = design.mean[:, None]
    by_clusters = total / n_strata - mean + moved
    by_strata = moved.new_zeros(len(moved), 1)
    wordings = np.random.default_rng([seed if strata_seed is None else strata_seed, 1])
    for block, spread in zip(design.blocks, design.spreads, strict=True):
        if block.n_strata > 1:
            times = _draws(wordings, block.n_strata, n_resamples)
            means, own = block.means(), block.means().nanmean(1)[:, None]
            sampled = (means.nan_to_num() @ times) / ((~means.isnan()).double() @ times) - own
            narrowed = (spread.share * spread.strata_share.sqrt())[:, None]
            by_strata = by_strata + narrowed * sampled.nan_to_num(nan=0.0)
    clusters, strata = (_student_over_normal(freedom) for freedom in design.freedom)
    draws = mean + clusters * by_clusters + strata * by_strata
    if chosen.values.numel():
        lowest = chosen.values.nan_to_num(nan=torch.inf).amin(1, keepdim=True)
        highest = chosen.values.nan_to_num(nan=-torch.inf).amax(1, keepdim=True)
        draws = draws.clamp(lowest, highest)
    return draws.masked_fill(~design.enough[:, None], float("nan"))


def _draws(rng: np.random.Generator, n: int, n_resamples: int) -> Float[Tensor, "one resample"]:
    """How often each of n is drawn, n - 1 draws with replacement."""
    sampled = rng.multinomial(n - 1, np.full(n, 1 / n), size=n_resamples)
    return torch.as_tensor(sampled, dtype=torch.float64).T


@cache
def _student_over_normal(freedom: int) -> float:
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(freedom, 0.975) / ndtri(0.975))


def means_of_draws(
    sample: Sample, sampled: Bool[Tensor, "cluster draw"]
) -> Float[Tensor, "component draw"]:
    """`mean_over_strata` of the clusters that each draw takes, over the strata that it has.

    Clusters are numbered from 0 without gaps.
    """
    total = sample.values.new_zeros(len(sample.values), sampled.shape[1], dtype=torch.float64)
    n_strata = total.new_zeros(1, sampled.shape[1])
    for block in _blocks(replace(sample, values=sample.values.double())):
        of_block, n_of_block = block.resampled_totals(sampled[block.clusters].double())
        total += of_block
        n_strata = n_strata + n_of_block
    return total / n_strata


def sign_test(
    values: Float[Tensor, "*component pair"], clusters: Int[Tensor, " pair"]
) -> Float[Tensor, "*component"]:
    """Two-sided p-value that a cluster's sum is as likely above 0 as below; sums of 0 do not vote.

    NaN where none votes.
    """
    from scipy.special import bdtr

    n_clusters = int(clusters.max()) + 1 if len(clusters) else 0
    empty = values.new_zeros(*values.shape[:-1], n_clusters)
    sums = empty.index_add(-1, clusters, values.nan_to_num(nan=0.0))
    below, above = (sums < 0).sum(-1).numpy(), (sums > 0).sum(-1).numpy()
    p = np.minimum(1.0, 2 * bdtr(np.minimum(below, above), below + above, 0.5))
    return torch.as_tensor(np.where(below + above == 0, np.nan, p), dtype=torch.float32)


def t_test(
    mean: Float[Tensor, "*component"],
    stderr: Float[Tensor, "*component"],
    freedom: Float[Tensor, "*component"],
) -> Float[Tensor, "*component"]:
    """Two-sided p-value that a mean with this standard error is zero, by Student's t.

    NaN where the error is not known, or where the mean and its error are both zero.
    """
    from scipy.special import stdtr

    statistic = (mean.double() / stderr.double()).abs()
    p = 2 * stdtr(freedom.double().clamp(min=1).numpy(), -statistic.numpy())
    return torch.as_tensor(np.asarray(p)).reshape(mean.shape)


ROUNDING = 1e-9
"""A draw that is below a number by no more than this is as large: the order of a sum decided it."""


def permutation_p_value(
    null: Float[Tensor, "draw ..."], own: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """The share of draws of a null that reach a number, where the number itself is one draw."""
    return (1 + (null >= own - ROUNDING).sum(0)).double() / (1 + len(null))


def false_discovery_control(p: Float[Tensor, "*test"]) -> Float[Tensor, "*test"]:
    """q-values of Benjamini and Hochberg over all tests given; NaN: no test."""
    tested = ~p.isnan()
    known, order = p[tested].double().sort(descending=True)
    ranks = torch.arange(len(known), 0, -1)
    adjusted = torch.full_like(p, float("nan"))
    if len(known):
        q_values = (known * len(known) / ranks).cummin(0).values.clamp(max=1)
        adjusted[tested] = torch.empty_like(q_values).scatter(0, order, q_values).to(p.dtype)
    return adjusted
