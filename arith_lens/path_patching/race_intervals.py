"""Intervals of a mean over all pairs, from the pairs that a race has seen.

`student_interval` needs no bound. It is approximate: nothing that was seen tells of an effect that
only the unseen pairs have. So it holds for effects that look alike on most pairs, and not for rare
strong ones. docs/path_patching.md has its measured coverage.

`betting_interval` needs a bound on every effect, and holds for all effects within the bound, at all
times together (Waudby-Smith and Ramdas, 2024, sections 4 and 5.2: betting on values that are drawn
without replacement). Imagine a player who bets, pair by pair, that the mean is larger than m. If it
is not, the player's capital grows to 1 / tail with a probability of at most `tail`. So each m at
which the capital has grown that much is left out of the interval.
"""

from math import log

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.statistics import mean_over_strata

Interval = Float[Tensor, "bound=2 component"]

STAKES = (1.0, 0.5, 0.2, 0.08)
"""The shares of the capital that the player bets. The capital is spread evenly over them."""
HALVINGS = 16
"""How often the range of an end is halved. What is not excluded then is inside."""


def student_interval(
    values: Float[Tensor, "component pair"],
    seen: Int[Tensor, " seen"],
    strata: Int[Tensor, " pair"],
    tail: float,
) -> Interval:
    """Student's interval of the mean over all pairs, for a sample without replacement.

    The variance is that of all seen pairs, which is at least that within the templates.

    Args:
        values: the effects; NaN for pairs that were not seen or have no ratio.
        seen: the pairs that were seen.
        strata: the template of each pair, as a number.
        tail: the nominal probability that the mean is beyond one end.
    """
    from scipy.special import stdtrit

    seen_values, seen_strata = values[:, seen].double(), strata[seen]
    mean = mean_over_strata(seen_values, seen_strata)
    valid = ~seen_values.isnan()
    n = valid.sum(1)
    apart = (seen_values - seen_values.nanmean(1, keepdim=True)).square().nansum(1) / (n - 1)
    share = torch.zeros_like(mean)
    kinds = seen_strata.unique()
    for stratum in kinds:
        inside = seen_strata == stratum
        left = 1 - inside.sum() / (strata == stratum).sum()
        share += left / valid[:, inside].sum(1)
    width = (apart * share).sqrt() / len(kinds)
    width *= torch.as_tensor(-stdtrit((n - 1).clamp(min=1).numpy(), tail))
    if len(seen) == len(strata):
        return exact_interval(values, strata)
    # nothing is known of a template without pairs, or from one pair
    known = (n > 1) & (len(kinds) == len(strata.unique()))
    width = torch.where(known, width, torch.inf).nan_to_num(nan=torch.inf)
    mean = mean.nan_to_num(nan=0.0)
    return torch.stack([mean - width, mean + width])


def betting_interval(
    values: Float[Tensor, "component pair"],
    seen: Int[Tensor, " seen"],
    strata: Int[Tensor, " pair"],
    tail: float,
    bound: float,
) -> Interval:
    """The interval of the mean over all pairs, if no effect is beyond +-bound.

    With a probability of at least 1 - 2 * tail, the intervals of one component hold after all
    numbers of pairs together. A component with a seen effect beyond the bound, or with a pair
    without a ratio, has no interval before all pairs are seen.

    Args:
        values: the effects; NaN for pairs that were not seen or have no ratio.
        seen: the pairs that were seen, in their order, which is a uniform draw from all orders.
        strata: the template of each pair, as a number. Templates weigh equally in the mean.
        tail: the probability that the mean is beyond one end at some time.
        bound: the largest size of an effect.
    """
    if len(seen) == len(strata):
        return exact_interval(values, strata)
    _, kind, counts = strata.unique(return_inverse=True, return_counts=True)
    weight = len(strata) / (len(counts) * counts[kind].double())  # the mean over pairs is then that
    largest = bound * float(weight.max())  # over templates
    seen_values = values[:, seen].double()
    shares = (1 + (weight[seen] * seen_values) / largest) / 2  # from 0 to 1
    usable = within(seen_values, bound)
    shares = shares.nan_to_num(nan=0.5).clamp(0, 1)
    low = _lower_end(shares, len(strata), tail)
    high = 1 - _lower_end(1 - shares, len(strata), tail)
    ends = largest * (2 * torch.stack([low, high]) - 1)
    unknown = torch.tensor([[-torch.inf], [torch.inf]], dtype=ends.dtype)
    return torch.where(usable, ends, unknown)


def within(values: Float[Tensor, "component pair"], bound: float) -> Bool[Tensor, " component"]:
    """The components whose effects are all known and at most as large as the bound."""
    return (values.abs() <= bound).all(1)


def exact_interval(
    values: Float[Tensor, "component pair"], strata: Int[Tensor, " pair"]
) -> Interval:
    """Both ends are the mean over all pairs. Without any ratio it is infinite: never settled."""
    mean = mean_over_strata(values.double(), strata).nan_to_num(nan=torch.inf)
    return torch.stack([mean, mean])


def _lower_end(
    shares: Float[Tensor, "component seen"], n_pairs: int, tail: float
) -> Float[Tensor, " component"]:
    """The smallest mean of all pairs at which the player's capital stays below 1 / tail.

    The capital falls where the mean rises, so the end is found by halving.
    """
    total = shares.cumsum(1)
    before = total - shares
    left = n_pairs - torch.arange(shares.shape[1], dtype=shares.dtype)
    low, high = total[:, -1] / n_pairs, shares.mean(1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        of_unseen = (n_pairs * middle[:, None] - before) / left  # the next value's expectation
        gain = shares / of_unseen.clamp(min=1e-12) - 1
        capital = torch.stack([(1 + stake * gain).log().cumsum(1) for stake in STAKES])
        grown = capital.logsumexp(0).amax(1) - log(len(STAKES)) >= -log(tail)
        excluded = grown | (of_unseen <= 0).any(1)
        low, high = torch.where(excluded, middle, low), torch.where(excluded, high, middle)
    return low
