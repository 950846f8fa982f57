"""The table `carriers`: which MLPs carry the heads' effects, and what these MLPs do themselves.

Keys: operation; component, a head; role ("key" for a key head); mlp, which MLP. What an MLP does
itself has no component. A rank correlation is over the MLPs after a head, of what is lost when each
is held with the number of it that the key `compared` names; a median is over heads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from pandas import Series

from arith_lens.components import Mlp
from arith_lens.effects import ComponentEffects, Effects, key_heads
from arith_lens.mediation import Mediation
from arith_lens.probes import PROBE_ROLES, curve_of
from arith_lens.runs import Run
from experiments import results
from figures.tables.effects import KEY_ROLE, METRIC_UNITS, RELATIVE
from figures.tables.number import Number, Unit
from figures.tables.table import QuestionTable, Row, interval_numbers, row, sample_rows

LOST, ADDED = "effect lost when held", "effect added alone"
DIRECT, VIA_MLPS = "direct effect", "effect via MLPs"
WRITES_C, WRITES_OTHERS = "cosine with C", "cosine with other digits"
MLP_EFFECT = "effect of the MLP"
CORRELATION, MEDIAN = "rank correlation", "median rank correlation"
COMPARED = ("C", "C less others", "MLP's own effect")
"""With what the lost effect is correlated."""
LOST_SUM, ADDED_SUM = "lost effects, sum in effects", "direct and added effects, sum in effects"
OTHER_DIGITS = PROBE_ROLES[3]
MIN_MLPS = 5
"""A median of rank correlations is over heads with so many MLPs after them."""


@dataclass(frozen=True)
class OperationMediation:
    """One operation: which MLPs carry the heads' effects, and what the MLPs do themselves."""

    name: str
    mediation: Mediation
    effects: ComponentEffects
    writes: Effects


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `which_mlps_carry_them`. Raises RunError if it is damaged."""
    operations = [
        OperationMediation(
            name,
            results.MEDIATION.load(run, name),
            results.MAP.load(run, name),
            results.WRITES.load(run, name),
        )
        for name in results.WRITES.labels(run)
    ]
    rows: list[Row] = []
    for part in operations:
        rows += sample_rows(results.MEDIATION.facts(run, part.name), operation=part.name)
        rows += _head_rows(part, run.config["metric"])
        rows += _mlp_rows(part, METRIC_UNITS[run.config["metric"]])
        rows += _correlation_rows(part)
    rows += _sums(operations)
    return QuestionTable.of("carriers", str(run.config["model"]), rows)


def _head_rows(part: OperationMediation, metric: str) -> Iterator[Row]:
    """A head's direct effect and its effect via MLPs, and what each MLP does for it."""
    mediation, unit = part.mediation, METRIC_UNITS[metric]
    key = key_heads(part.effects) if metric == RELATIVE else []
    lost, added, direct, via = (
        interval_numbers(effects, unit)
        for effects in (
            mediation.mediated,
            mediation.mediated_alone,
            mediation.direct,
            mediation.via_mlps,
        )
    )
    n_layers = len(lost) // len(direct)
    for i, head in enumerate(mediation.heads):
        role = KEY_ROLE if head in key else ""
        keys = {"operation": part.name, "component": str(head), "role": role}
        yield row(DIRECT, direct[i], **keys)
        yield row(VIA_MLPS, via[i], **keys)
        for layer in range(n_layers):
            mlp = str(Mlp(layer))
            yield row(LOST, lost[i * n_layers + layer], **keys, mlp=mlp)
            yield row(ADDED, added[i * n_layers + layer], **keys, mlp=mlp)


def _mlp_rows(part: OperationMediation, unit: Unit) -> Iterator[Row]:
    """What each MLP writes, and its own effect."""
    measures: dict[str, tuple[Effects, Unit]] = {
        WRITES_C: (curve_of(part.writes, "C"), "cosine"),
        WRITES_OTHERS: (curve_of(part.writes, OTHER_DIGITS), "cosine"),
        MLP_EFFECT: (part.effects.mlps, unit),
    }
    for measure, (effects, of_unit) in measures.items():
        for layer, number in enumerate(interval_numbers(effects, of_unit)):
            yield row(measure, number, operation=part.name, mlp=str(Mlp(layer)))


def _correlation_rows(part: OperationMediation) -> Iterator[Row]:
    """Spearman's correlations of what the MLPs after each head carry, and their medians.

    They are with three other numbers of these MLPs: the cosine of what an MLP writes with C, this
    cosine less that with the other digits, and the MLP's effect.
    """
    mediation, writes = part.mediation, part.writes
    values = (
        curve_of(writes, "C").mean().numpy(),
        curve_of(writes, "C", less=OTHER_DIGITS).mean().numpy(),
        -part.effects.mlps.mean().numpy(),
    )
    measures: Mapping[str, Float[np.ndarray, " layer"]] = dict(zip(COMPARED, values, strict=True))
    enough: dict[str, list[float]] = {name: [] for name in measures}
    for head, mediated in zip(mediation.heads, mediation.mediated.mean(), strict=True):
        after = Series(-mediated.numpy()[head.layer :]).rank()
        for name, of_mlps in measures.items():
            correlation = float(after.corr(Series(of_mlps[head.layer :]).rank()))
            number = Number(correlation, n=len(after), unit="correlation")
            keys = {"operation": part.name, "component": str(head), "compared": name}
            yield row(CORRELATION, number, **keys)
            if len(after) >= MIN_MLPS:
                enough[name].append(correlation)
    for name, correlations in enough.items():
        if correlations:
            median = Number(float(np.median(correlations)), n=len(correlations), unit="correlation")
            yield row(MEDIAN, median, operation=part.name, compared=name)


def _sums(operations: Sequence[OperationMediation]) -> Iterator[Row]:
    """How many effects the MLPs' shares add up to, over all heads and operations."""
    interactions, effects = (
        np.concatenate([part.mean().numpy() for part in parts])
        for parts in (
            [part.mediation.interaction for part in operations],
            [part.mediation.via_mlps for part in operations],
        )
    )
    for measure, of_one in zip((LOST_SUM, ADDED_SUM), interactions.T, strict=True):
        total = float((effects - of_one).sum() / effects.sum())
        yield row(measure, Number(total, unit="ratio"))
