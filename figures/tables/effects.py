"""The table `effects`: what every head and every MLP does to the answer.

Keys: operation ("mean": the mean over the operations; empty: all of them together); component
("5.1" or "MLP 3"), with its layer and, for a head, its index; role ("key" or "opposing" for a head
whose effect is beyond the threshold, else empty).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from arith_lens.components import Head, Mlp
from arith_lens.effects import KEY, ComponentEffects, Effects, differs_from_zero
from arith_lens.runs import Run
from experiments import results
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import QuestionTable, Row, n_problems, row, sample_rows

EFFECT, OF_COMPUTED = "effect", "effect on computed pairs"
HELD = "effect, norm held"
"""Of an MLP, with the final norm's scale held at that of the reference prompt."""
KEY_HEADS, ALL_HEADS, KEY_SHARE = "key heads", "heads", "share of key heads"
FIRST_LAYER, LAST_LAYER = "first layer with key heads", "last layer with key heads"
NEAR_ZERO = "heads within 1% of zero"
KEY_ROLE, OPPOSING_ROLE = "key", "opposing"
MEAN = "mean"
"""The operation of the means over the operations, which have equal weights."""
RELATIVE = "relative_logit"
"""The metric for which key heads are defined."""
KEY_EFFECT = KEY[RELATIVE]
METRIC_UNITS: Mapping[str, Unit] = {
    RELATIVE: "relative",
    "logit": "logit",
    "logprob": "nats",
    "probability": "points",
    "digit_contrast": "logit",
    "share_of_total": "relative",
    "share_of_total_contrast": "relative",
    "share_of_total_probability": "relative",
}


@dataclass(frozen=True)
class Statistics:
    """The numbers of each head, or of each MLP."""

    values: Float[np.ndarray, "*component statistic=4"]
    """The mean, the ends of its 95% interval, and the mean over computed pairs (NaN if unknown)."""
    different: Bool[np.ndarray, "*component"]
    """Whether the mean differs from zero, without which no head is a key head."""
    n: int | None = None
    """How many problems the mean is over."""

    @classmethod
    def of(cls, effects: Effects, computed: Bool[torch.Tensor, " pair"] | None) -> "Statistics":
        """Mean, interval, and mean over computed pairs of each component."""
        mean = effects.mean()
        of_computed = torch.full_like(mean, torch.nan)
        if computed is not None and computed.any():
            of_computed = effects.select(computed).mean()
        values = torch.stack([mean, *effects.ci(), of_computed], dim=-1)
        return cls(values.numpy(), differs_from_zero(effects).numpy(), n_problems(effects))

    @property
    def mean(self) -> Float[np.ndarray, "*component"]:
        return self.values[..., 0]

    @property
    def is_key(self) -> Bool[np.ndarray, "*component"]:
        """Which heads are key heads, as in `arith_lens.effects.key_heads`."""
        return self.different & (self.mean < KEY_EFFECT)

    @property
    def is_opposing(self) -> Bool[np.ndarray, "*component"]:
        """Which heads have an effect as large as a key head's that raises the answer's logit."""
        return self.different & (self.mean > -KEY_EFFECT)


@dataclass(frozen=True)
class MapStatistics:
    """The numbers of one map."""

    heads: Statistics
    mlps: Statistics
    held: Statistics | None = None
    """Of the MLPs with the final norm's scale held; None: the engine does not know it."""

    @classmethod
    def of(
        cls, effects: ComponentEffects, computed: Bool[torch.Tensor, " pair"] | None
    ) -> "MapStatistics":
        """Means and intervals of a map."""
        held = None
        if effects.mlps.held_norm is not None:
            held = Statistics.of(effects.mlps.without_norm_scale(), None)
        heads, mlps = (Statistics.of(part, computed) for part in (effects.heads, effects.mlps))
        return cls(heads, mlps, held)


def table(run: Run, /, operations: Collection[str] = ()) -> QuestionTable:
    """The rows of a run of `which_heads`. Raises RunError if it is damaged.

    Args:
        operations: only these; () takes all.
    """
    metric, rows = run.config["metric"], []
    maps = {}
    for operation in results.MAP.labels(run):
        if not operations or operation in operations:
            maps[operation] = MapStatistics.of(
                results.MAP.load(run, operation), results.MAP.computed(run, operation)
            )
            rows += sample_rows(results.MAP.facts(run, operation), operation=operation)
            rows += map_rows(maps[operation], metric, operation=operation)
    if len(maps) > 1:
        rows += map_rows(_mean([*maps.values()]), metric, operation=MEAN)
    if metric == RELATIVE:
        rows += [one for name, part in maps.items() for one in _head_counts(part, name)]
        rows += _shared_counts([*maps.values()])
    return QuestionTable.of("effects", str(run.config["model"]), rows)


def map_rows(part: MapStatistics, metric: str, **keys: str) -> Iterator[Row]:
    """The effect of each head and MLP, on all pairs and on computed pairs, with its role.

    MLPs have a further row each with the final norm's scale held, where that is known.

    Args:
        keys: further keys of the rows.
    """
    unit = METRIC_UNITS[metric]
    for statistics in (part.heads, part.mlps):
        for at in np.ndindex(statistics.mean.shape):
            mean, low, high, of_computed = map(float, statistics.values[at])
            place = {"component": str(Head(*at) if len(at) == 2 else Mlp(*at)), "layer": at[0]}
            place |= {"index": at[1]} if len(at) == 2 else {}
            named = metric == RELATIVE and len(at) == 2
            role: dict[str, Any] = {"role": _role(statistics, at) if named else ""}
            spread = "" if np.isnan(low) else PROBLEMS
            number = Number(mean, low, high, spread, statistics.n, unit)
            yield row(EFFECT, number, **keys, **place, **role)
            if not np.isnan(of_computed):
                yield row(OF_COMPUTED, Number(of_computed, unit=unit), **keys, **place, **role)
    if part.held is not None:
        for layer, (mean, low, high, _) in enumerate(part.held.values.tolist()):
            spread = "" if np.isnan(low) else PROBLEMS
            number = Number(mean, low, high, spread, part.held.n, unit)
            place = {"component": str(Mlp(layer)), "layer": layer, "role": ""}
            yield row(HELD, number, **keys, **place)


def _role(statistics: Statistics, at: tuple[int, ...]) -> str:
    if statistics.is_key[at]:
        return KEY_ROLE
    return OPPOSING_ROLE if statistics.is_opposing[at] else ""


def _mean(maps: Collection[MapStatistics]) -> MapStatistics:
    """The mean over operations, with equal weights; it has no intervals."""

    def mean(parts: Collection[Statistics]) -> Statistics:
        values = np.mean([part.values for part in parts], axis=0)
        values[..., 1:3] = np.nan
        return Statistics(values, np.any([part.different for part in parts], axis=0))

    held = [part.held for part in maps if part.held is not None]
    return MapStatistics(
        mean([part.heads for part in maps]),
        mean([part.mlps for part in maps]),
        mean(held) if len(held) == len(maps) else None,
    )


def _head_counts(part: MapStatistics, operation: str) -> Iterator[Row]:
    """How many key heads an operation has, and how many heads do next to nothing."""
    n_key = Number(int(part.heads.is_key.sum()), unit="count")
    yield row(KEY_HEADS, n_key, operation=operation)
    near = Number(float(np.mean(np.abs(part.heads.mean) < 0.01)), n=part.heads.mean.size)
    yield row(NEAR_ZERO, near, operation=operation)


def _shared_counts(maps: Collection[MapStatistics]) -> Iterator[Row]:
    """How many heads are key heads in some operation, and in which layers."""
    key = np.any([part.heads.is_key for part in maps], axis=0)
    yield row(KEY_HEADS, Number(int(key.sum()), unit="count"))
    yield row(ALL_HEADS, Number(key.size, unit="count"))
    yield row(KEY_SHARE, Number(float(key.mean()), n=key.size))
    if key.any():
        layers = np.flatnonzero(key.any(axis=1))
        yield row(FIRST_LAYER, Number(int(layers[0]), unit="layers"))
        yield row(LAST_LAYER, Number(int(layers[-1]), unit="layers"))
