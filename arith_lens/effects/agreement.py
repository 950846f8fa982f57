"""`agreement`: how well approximate effects agree with exact ones on the same pairs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects.component_effects import BeforeAfter, ComponentEffects
from arith_lens.effects.effects import Effects
from arith_lens.statistics import mean_over_strata, resampled_means

if TYPE_CHECKING:
    from pandas import DataFrame

RECALL_KS = (5, 10, 20)
"""The numbers of strongest components whose recall is computed."""

DrawnMeans = Float[Tensor, "component draw"]


def agreement(
    approximate: ComponentEffects,
    exact: ComponentEffects,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> "DataFrame":
    """Compare the mean effects of components, for heads and for MLPs.

    Problems and wordings are drawn again as in `Effects.ci`, the same ones for both sides, so that
    the intervals are clustered by problem. Pairs that one side leaves out are left out of both.
    Against an approximation without a sign, the exact effects count by their size.

    Args:
        approximate: from `attribute`.
        exact: from `path_patch` on the same pairs, with the same paths and metric.
        level: the level of the intervals.
        n_resamples: the number of draws.
        seed: the seed of the draws.

    Returns:
        One row per part (`heads`, `MLPs`) and measure, with the columns `value`, `low` and `high`:
        `pearson` and `spearman` correlate the means. `recall 5` is the share of the five strongest
        components (the largest means, of either sign) that are among the approximation's five.
        `missed 5` is the share of the exact effects' mass that this misses: 1 less the sum of
        the sizes of the exact means over the approximation's five, divided by the largest such sum.
        `slope` is that of the exact means on the approximate ones, through zero: 1 if the sizes
        are right. Measures of k components are there if there are more than k.

    Raises:
        ValueError: the two are not of the same components, pairs, paths and metric.
    """
    from pandas import DataFrame, concat

    both = BeforeAfter(approximate, exact)  # checks that the two fit
    signed = bool(approximate.computation.get("signed", True))
    settings = {"level": level, "n_resamples": n_resamples, "seed": seed}
    tables = []
    for part in ("heads", "mlps"):
        pair = (getattr(both.before, part), getattr(both.after, part))
        table = DataFrame(_compared(*pair, signed=signed, **settings))
        table.insert(0, "part", {"heads": "heads", "mlps": "MLPs"}[part])
        tables.append(table)
    return concat(tables, ignore_index=True)


def _compared(
    approximate: Effects, exact: Effects, *, signed: bool, level: float, n_resamples: int, seed: int
) -> list[dict[str, object]]:
    values = torch.stack([part.per_pair.flatten(0, -2).double() for part in (approximate, exact)])
    values = values.masked_fill(values.isnan().any(0), float("nan"))
    values = values[:, ~values[0].isnan().all(-1)].flatten(0, 1)
    sample = replace(exact.sample(), values=values)
    means = mean_over_strata(values, sample.strata)[:, None]
    drawn = resampled_means(sample, slice(None), n_resamples, seed)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    rows: list[dict[str, object]] = []
    estimates, draws = (_measures(*part.chunk(2), signed=signed) for part in (means, drawn))
    for name, value in estimates.items():
        low, high = draws[name].nanquantile(tails).tolist()
        rows.append({"measure": name, "value": float(value), "low": low, "high": high})
    return rows


def _measures(approximate: DrawnMeans, exact: DrawnMeans, *, signed: bool) -> Mapping[str, Tensor]:
    """Each measure, [draw]."""
    exact = exact if signed else exact.abs()
    ranks = (part.argsort(0).argsort(0).double() for part in (approximate, exact))
    measures = {
        "pearson": _correlation(approximate, exact),
        "spearman": _correlation(*ranks),
        "slope": (approximate * exact).sum(0) / approximate.square().sum(0),
    }
    size = exact.abs()
    for k in (k for k in RECALL_KS if k < len(exact)):
        best, ours = (part.abs().topk(k, dim=0).indices for part in (exact, approximate))
        among = (ours[:, None] == best[None]).any(0).double()
        measures[f"recall {k}"] = among.mean(0)
        mass = size.gather(0, ours).sum(0) / size.gather(0, best).sum(0)
        measures[f"missed {k}"] = 1 - mass
    return measures


def _correlation(a: DrawnMeans, b: DrawnMeans) -> Float[Tensor, " draw"]:
    a, b = (part - part.mean(0) for part in (a, b))
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt()
