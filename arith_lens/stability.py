"""How the set of strongest components becomes stable as problems are added."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.effects import KEY, Effects
from arith_lens.statistics import means_of_draws

if TYPE_CHECKING:
    from pandas import DataFrame


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
    sizes = _checked(sizes, total, k, len(sample.values), n_draws)
    sets: dict[str, Callable[[Tensor], Tensor]] = {f"top {k}": lambda means: _top(means, k)}
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
                agreement = _jaccard(members(first), members(means))
                low, high = np.percentile(agreement, [10, 90])
                rows.append((size, name, which, agreement.mean(), low, high))
    return DataFrame(rows, columns=["n", "set", "with", "mean", "low", "high"])


def _checked(
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


def _top(means: Float[Tensor, "component draw"], k: int) -> Bool[Tensor, "component draw"]:
    order = means.nan_to_num(nan=float("inf")).argsort(dim=0, stable=True)[:k]
    return torch.zeros_like(means, dtype=torch.bool).scatter(0, order, True) & ~means.isnan()


def _jaccard(
    a: Bool[Tensor, "component draw"], b: Bool[Tensor, "component draw"]
) -> Float[np.ndarray, " draw"]:
    shared, either = (a & b).sum(0).double(), (a | b).sum(0).double()
    return torch.where(either > 0, shared / either.clamp(min=1), 1.0).numpy()
