"""Which MLPs carry the key heads' effects: heads x MLPs, one panel per operation.

Reads a run of `experiments/which_mlps_carry_them.py` (the newest of the model, or `--run PATH`) and
draws it without loading a model. Left: what a head's effect loses if one MLP is frozen. Middle:
what one MLP alone adds to the direct effect. Right: the direct effect and the full effect.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, Series, concat

from arith_lens import plotting
from arith_lens.effects import KEY, ComponentEffects, Effects, key_heads
from arith_lens.mediation import Mediation
from arith_lens.probes import PROBE_ROLES, curve_of
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart
from figures.maps import Reading, title

OTHER_DIGITS = PROBE_ROLES[3]
MIN_MLPS = 5  # MLPs that a rank correlation needs


@dataclass(frozen=True)
class OperationResult:
    """One operation's results."""

    name: str
    size: str
    mediation: Mediation
    effects: ComponentEffects
    writes: Effects


def exhibits(options: Options) -> list[Chart]:
    """The heads of a run and what carries their effects. Raises RunError if there is no run."""
    run = chosen_run(options, "which_mlps_carry_them")
    operations = [read(run, name) for name in results.WRITES.labels(run)]
    return [
        Chart(
            name="carriers",
            title="Which MLPs carry the key heads' effects?",
            look="Which columns are red in many rows: MLPs through which several heads act. "
            "Compare them with the MLPs that a probe sees writing C (Figure 6).",
            notes=notes(run, operations),
            runs=(run,),
            numbers=numbers(operations),
            figure=draw(run, operations),
            small_table=rank_correlations(operations),
        )
    ]


def read(run: Run, name: str) -> OperationResult:
    """The results of one operation in a run."""
    return OperationResult(
        name=name,
        size=sample_size(results.MEDIATION.facts(run, name)),
        mediation=results.MEDIATION.load(run, name),
        effects=results.MAP.load(run, name),
        writes=results.WRITES.load(run, name),
    )


def draw(run: Run, operations: list[OperationResult]) -> plotting.Figure:
    """One panel per operation, one row per head."""
    reading = Reading.of({**run.config, "paths": "via_mlps"})
    return plotting.matrix_panels(
        [_matrix(operation, reading) for operation in operations],
        colour_title=reading.colour_title,
        unit=reading.unit,
        limit=reading.limit,
        digits=1 if reading.relative else 2,
        notes=notes(run, operations),
    )


def notes(run: Run, operations: list[OperationResult]) -> list[str]:
    """How to read the figure, and what it was made from."""
    reading = Reading.of({**run.config, "paths": "via_mlps"})
    return [
        f"Model: {run.config['model']}. Prompts: distinct reference prompts, "
        f"{'answered right' if run.config['keep'] == 'correct' else 'all'}, seed "
        f"{run.config['seed']}. Rows: the {run.config['top']} heads with the strongest effects "
        f"via MLPs, key heads (below −{-KEY['relative_logit']:.0%}) in bold. "
        "Numbers: means over templates"
        f"{', in percent of the logit' if reading.relative else ''}.",
        "Held: the effect with every MLP free, less the effect with this one held at the "
        "reference run. Alone: the effect with this one free, less the direct effect. Neither "
        "adds up to the effect, because MLPs act on what earlier MLPs wrote; "
        + _interaction_note(operations, reading),
        "Small print below: cosine of what the MLP adds with the unembedding of C. Spearman's "
        "rank correlation with what is lost, over the MLPs after a head, median of heads with "
        f"at least {MIN_MLPS} of them: {_agreement_note(operations)}.",
    ]


def _matrix(operation: OperationResult, reading: Reading) -> plotting.Matrix:
    part = operation.mediation
    layers = tuple(map(str, range(part.but.per_pair.shape[1])))
    carried, conveyed = (_mean(view, reading) for view in (part.carried, part.conveyed))
    ends = np.stack([_mean(part.direct, reading), _mean(part.via_mlps, reading)], axis=1)
    cosines = curve_of(operation.writes, "C").mean()
    key = key_heads(operation.effects) if reading.relative else []
    return plotting.Matrix(
        title=title(operation.name, operation.size),
        rows=tuple(map(str, part.heads)),
        groups=(
            plotting.Columns(
                "lost when this MLP is held",
                layers,
                carried,
                tuple(f"{float(c):.2f}".replace("-", "−").replace("0.", ".") for c in cosines)
                if len(layers) <= 16
                else (),
            ),
            plotting.Columns("added by this MLP alone", layers, conveyed),
            plotting.Columns("effect", ("direct", "all"), ends),
        ),
        strong=tuple(head in key for head in part.heads),
        foot="cos" if len(layers) <= 16 else "",
    )


def _mean(effects: Effects, reading: Reading) -> Float[np.ndarray, "*place"]:
    return reading.scale * effects.mean().numpy()


def _interaction_note(operations: list[OperationResult], reading: Reading) -> str:
    interactions = np.concatenate(
        [_mean(operation.mediation.interaction, reading) for operation in operations]
    )
    effects = np.concatenate(
        [_mean(operation.mediation.via_mlps, reading) for operation in operations]
    )
    sums = (
        (effects - interactions[:, 0]).sum() / effects.sum(),
        (effects - interactions[:, 1]).sum() / effects.sum(),
    )
    return (
        f"with the direct effect, what is lost sums to {sums[0]:.1f} times the effect, what is "
        f"added to {sums[1]:.1f} times."
    )


def rank_correlations(operations: list[OperationResult]) -> DataFrame:
    """Spearman's correlations of what the MLPs carry, one row per head.

    They are over the MLPs after the head, with three other numbers of these MLPs: the cosine of
    what an MLP writes with C, this cosine less that with the other digits, and the MLP's effect.
    """
    rows = []
    for operation in operations:
        c, less = (
            curve_of(operation.writes, "C", less=other).mean().numpy()
            for other in (None, OTHER_DIGITS)
        )
        own = operation.effects.mlps.mean().numpy()
        for head, carried in zip(
            operation.mediation.heads, operation.mediation.carried.mean(), strict=True
        ):
            carried_below = Series(-carried.numpy()[head.layer :])
            measures = {"C": c, "C less others": less, "MLP's own effect": -own}
            rows.append(
                {"operation": operation.name, "head": str(head), "MLPs": len(carried_below)}
                | {name: _rank_correlation(carried_below, values[head.layer :])
                   for name, values in measures.items()}
            )  # fmt: skip
    return DataFrame(rows)


def _rank_correlation(a: Series, b: Float[np.ndarray, " layer"]) -> float:
    return float(a.rank().corr(Series(b).rank()))


def _agreement_note(operations: list[OperationResult]) -> str:
    table = rank_correlations(operations)
    medians = table[table["MLPs"] >= MIN_MLPS].groupby("operation", sort=False)["C"].median()
    return ", ".join(f"{name} {value:.2f}" for name, value in medians.items()).replace("-", "−")


def numbers(operations: list[OperationResult]) -> DataFrame:
    """One row per operation, head and layer, with intervals and the MLP's own numbers."""
    tables = []
    for operation in operations:
        table = operation.mediation.to_dataframe()
        table.insert(0, "operation", operation.name)
        for name, token in (("C", "C"), ("others", OTHER_DIGITS)):
            cosines = curve_of(operation.writes, token).mean()
            table[f"cos_write_{name}"] = [float(cosines[layer]) for layer in table["layer"]]
        own = operation.effects.mlps.mean()
        table["mlp_effect"] = [float(own[layer]) for layer in table["layer"]]
        tables.append(table)
    return concat(tables, ignore_index=True)
