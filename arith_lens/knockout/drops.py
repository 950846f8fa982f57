"""How far accuracy and probability fall: absolute points and relative, with paired intervals."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.knockout.outcomes import Outcomes
from arith_lens.statistics import resampled_means

N_RESAMPLES = 1000


@dataclass(frozen=True)
class Change:
    """From `before` to `after`: the difference, and the difference as a share of `before`."""

    before: float
    after: float
    absolute: float
    absolute_ci: tuple[float, float]
    relative: float
    relative_ci: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.absolute_ci
        relative_low, relative_high = self.relative_ci
        return (
            f"{self.before:.1%} to {self.after:.1%}: {100 * self.absolute:+.1f} points "
            f"({100 * low:+.1f} to {100 * high:+.1f}), {self.relative:+.1%} relative "
            f"({relative_low:+.1%} to {relative_high:+.1%})"
        )


@dataclass(frozen=True)
class Drop:
    """What a knockout cost; negative numbers are losses."""

    accuracy: Change
    probability: Change

    def __str__(self) -> str:
        return f"accuracy {self.accuracy}; p(C) {self.probability}"


def drop(before: Outcomes, after: Outcomes, *, level: float = 0.95, seed: int = 0) -> Drop:
    """What it costs to go from one knockout (such as none) to another, on the same pairs.

    Intervals are bootstraps over reference prompts, both outcomes of a prompt drawn together, so
    that what makes a prompt hard in both cancels. The relative change is of the means, and NaN
    where nothing was right before.

    Raises:
        ValueError: the outcomes are of different pairs.
    """
    _check_paired(before, after)
    stacked = torch.stack([before.effects().per_pair, after.effects().per_pair])
    both = Effects(
        stacked, ("run", "measure"), "", template=before.template, cluster=before.cluster
    )
    draws = resampled_means(both.sample(), slice(None), N_RESAMPLES, seed).unflatten(0, (2, 2))
    mean = both.mean().double()
    changes = [_change(mean[:, measure], draws[:, measure], level) for measure in (0, 1)]
    return Drop(*changes)


def _change(
    mean: Float[Tensor, "run=2"], draws: Float[Tensor, "run=2 resample"], level: float
) -> Change:
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=torch.float64)
    before, after = mean.tolist()

    def interval(values: Float[Tensor, "resample"]) -> tuple[float, float]:
        low, high = values.nanquantile(ends).tolist()
        return low, high

    return Change(
        before=before,
        after=after,
        absolute=after - before,
        absolute_ci=interval(draws[1] - draws[0]),
        relative=(after - before) / before if before else float("nan"),
        relative_ci=interval((draws[1] - draws[0]) / draws[0]),
    )


def _check_paired(before: Outcomes, after: Outcomes) -> None:
    same = before.n_pairs == after.n_pairs and before.template == after.template
    if same and before.cluster is not None and after.cluster is not None:
        same = torch.equal(before.cluster, after.cluster)
    if not same:
        raise ValueError(
            f"expected outcomes of the same pairs, found {before.n_pairs} and {after.n_pairs} "
            "pairs, or other prompts; knock out on one set of pairs"
        )
