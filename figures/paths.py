"""Paths and carriers: on which paths, and through which MLPs, heads change the answer."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from pandas import DataFrame, Series, concat

from arith_lens import plotting
from arith_lens.components import Mlp
from arith_lens.effects import KEY, ComponentEffects, Effects, key_heads
from arith_lens.mediation import Mediation
from arith_lens.probes import PROBE_ROLES, curve_of
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, TableOptions, chosen_run, sample_size
from figures.exhibit import Chart, Table
from figures.views.maps import Reading, title

EFFECT_PARTS = ("direct", "MLPs add", "via MLPs", "heads add", "total")


def paths(options: TableOptions) -> list[Table]:
    """The strongest heads' effects on three kinds of paths, as a table with intervals and shares.

    Reads a run of `experiments which_paths`. The total effect is the sum of what goes directly
    to the logits, what MLPs add (via MLPs less direct), and what later heads add (total less via
    MLPs). These are differences within each pair, and so are their intervals.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_paths")
    numbers = _path_numbers(run)
    return [
        Table(
            name="paths",
            title=f"Paths of the strongest heads: {run.config['model']}, {run.config['metric']}",
            look="How little a head writes to the answer itself (direct) and how much MLPs and "
            "later heads make of it.",
            notes=(
                "In brackets: 95% bootstrap intervals over problems and wordings.",
                "Shares are of the total effect, and may exceed 100% where parts have opposite "
                "signs.",
            ),
            runs=(run,),
            numbers=numbers,
            cells=_path_cells(numbers, run.config["metric"] == "relative_logit"),
        )
    ]


def _path_numbers(run: Run) -> DataFrame:
    """One row per head and operation: each part's mean, interval and share."""
    rows = []
    for operation in results.PATH_EFFECTS.labels(run, None, "total"):
        direct, via_mlps, total = (
            results.PATH_EFFECTS.load(run, operation, paths).heads
            for paths in ("direct", "via_mlps", "total")
        )
        parts = (direct, _less(via_mlps, direct), via_mlps, _less(total, via_mlps), total)
        means = {name: part.mean() for name, part in zip(EFFECT_PARTS, parts, strict=True)}
        ends = {name: part.ci() for name, part in zip(EFFECT_PARTS, parts, strict=True)}
        for head in total.top(total.per_pair[..., 0].numel()):
            at = (head.layer, head.index)  # pyright: ignore[reportAttributeAccessIssue]
            row: dict[str, object] = {"operation": operation, "head": str(head)}
            for name in EFFECT_PARTS:
                row[name] = float(means[name][at])
                row[f"{name} low"], row[f"{name} high"] = map(float, ends[name][:, *at])
                row[f"{name} share"] = float(means[name][at] / means["total"][at])
            rows.append(row)
    return DataFrame(rows)


def _less(a: Effects, b: Effects) -> Effects:
    return replace(a, per_pair=a.per_pair - b.per_pair)


def _path_cells(numbers: DataFrame, relative: bool) -> DataFrame:
    """The table as text."""
    number = "{:+.1%}".format if relative else "{:+.3g}".format
    text = DataFrame({name: numbers[name] for name in ("operation", "head")})
    for name in EFFECT_PARTS:
        text[name] = [
            f"{number(row[name])} ({number(row[f'{name} low'])}, {number(row[f'{name} high'])})"
            for _, row in numbers.iterrows()
        ]
    for name in ("direct", "MLPs add", "heads add"):
        text[f"share {name}"] = [f"{share:.0%}" for share in numbers[f"{name} share"]]
    return text


OTHER_DIGITS = PROBE_ROLES[3]
MIN_MLPS = 5  # MLPs that a rank correlation needs
MANY_MLPS = 16  # with more, cosines do not fit below the columns


@dataclass(frozen=True)
class Carriers:
    """One operation: which MLPs carry the heads' effects, and what the MLPs do themselves."""

    name: str
    size: str
    mediation: Mediation
    effects: ComponentEffects
    writes: Effects


def carriers(options: Options) -> list[Chart]:
    """Which MLPs carry the key heads' effects: heads x MLPs, one panel per operation.

    Reads a run of `experiments which_mlps_carry_them` (by its settings, or `--run PATH`)
    and draws it without loading a model. Left: what a head's effect loses if one MLP is frozen.
    Middle: what one MLP alone adds to the direct effect. Right: the direct effect and the full
    effect.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_mlps_carry_them")
    operations = [
        Carriers(
            name,
            sample_size(results.MEDIATION.facts(run, name)),
            results.MEDIATION.load(run, name),
            results.MAP.load(run, name),
            results.WRITES.load(run, name),
        )
        for name in results.WRITES.labels(run)
    ]
    reading, correlations = Reading.of(run.config), _rank_correlations(operations)
    notes = _carriers_notes(run, operations, correlations)
    return [
        Chart(
            name="carriers",
            title="Which MLPs carry the key heads' effects?",
            look="Which columns are red in many rows: MLPs through which several heads act. "
            "Compare them with the MLPs that a probe sees writing C (Figure 6).",
            notes=notes,
            runs=(run,),
            numbers=_carriers_numbers(operations),
            figure=plotting.matrix_panels(
                [_matrix(operation, reading) for operation in operations],
                colour_title=reading.colour_title,
                unit=reading.unit,
                limit=reading.limit,
                digits=1 if reading.relative else 2,
                notes=notes,
            ),
            small_table=correlations,
        )
    ]


def _carriers_notes(run: Run, operations: list[Carriers], correlations: DataFrame) -> list[str]:
    """How to read the figure, and what it was made from."""
    interactions, effects = (
        np.concatenate([part.mean().numpy() for part in parts])
        for parts in (
            [operation.mediation.interaction for operation in operations],
            [operation.mediation.via_mlps for operation in operations],
        )
    )
    lost, added = ((effects - of_one).sum() / effects.sum() for of_one in interactions.T)
    enough = correlations[correlations["MLPs"] >= MIN_MLPS]
    medians = enough.groupby("operation", sort=False)["C"].median()
    agreement = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
    return [
        f"Model: {run.config['model']}. Prompts: distinct reference prompts, "
        f"{'answered right' if run.config['keep'] == 'correct' else 'all'}, seed "
        f"{run.config['seed']}. Rows: the {run.config['top']} heads with the strongest effects "
        f"via MLPs, key heads (below −{-KEY['relative_logit']:.0%}) in bold. "
        "Numbers: means over templates"
        + ", in percent of the logit" * Reading.of(run.config).relative
        + ".",
        "Held: the effect with every MLP free, less the effect with this one held at the "
        "reference run. Alone: the effect with this one free, less the direct effect. Neither "
        "adds up to the effect, because MLPs act on what earlier MLPs wrote; with the direct "
        f"effect, what is lost sums to {lost:.1f} times the effect, what is added to {added:.1f} "
        "times.",
        "Small print below: cosine of what the MLP adds with the unembedding of C. Spearman's "
        "rank correlation with what is lost, over the MLPs after a head, median of heads with "
        f"at least {MIN_MLPS} of them: {agreement.replace('-', '−')}.",
    ]


def _matrix(operation: Carriers, reading: Reading) -> plotting.Matrix:
    """One row per head; columns: what each MLP carries in two ways, then the effects."""
    part = operation.mediation
    layers = tuple(map(str, range(part.but.per_pair.shape[1])))
    carried, conveyed, direct, every = (
        reading.scale * effects.mean().numpy()
        for effects in (part.carried, part.conveyed, part.direct, part.via_mlps)
    )
    few = len(layers) <= MANY_MLPS
    cosines = [
        f"{float(cosine):.2f}".replace("-", "−").replace("0.", ".")
        for cosine in curve_of(operation.writes, "C").mean()
    ]
    key = key_heads(operation.effects) if reading.relative else []
    lost = "lost when this MLP is held"
    return plotting.Matrix(
        title=title(operation.name, operation.size),
        rows=tuple(map(str, part.heads)),
        groups=(
            plotting.Columns(lost, layers, carried, tuple(cosines) if few else ()),
            plotting.Columns("added by this MLP alone", layers, conveyed),
            plotting.Columns("effect", ("direct", "all"), np.stack([direct, every], axis=1)),
        ),
        strong=tuple(head in key for head in part.heads),
        foot="cos" if few else "",
    )


def _rank_correlations(operations: list[Carriers]) -> DataFrame:
    """Spearman's correlations of what the MLPs carry, one row per head.

    They are over the MLPs after the head, with three other numbers of these MLPs: the cosine of
    what an MLP writes with C, this cosine less that with the other digits, and the MLP's effect.
    """
    rows = []
    for operation in operations:
        mediation, writes = operation.mediation, operation.writes
        measures: dict[str, Float[np.ndarray, " layer"]] = {
            "C": curve_of(writes, "C").mean().numpy(),
            "C less others": curve_of(writes, "C", less=OTHER_DIGITS).mean().numpy(),
            "MLP's own effect": -operation.effects.mlps.mean().numpy(),
        }
        for head, carried in zip(mediation.heads, mediation.carried.mean(), strict=True):
            after = Series(-carried.numpy()[head.layer :]).rank()
            row: dict[str, Any] = {"operation": operation.name, "head": str(head)}
            row["MLPs"] = len(after)
            for name, values in measures.items():
                row[name] = float(after.corr(Series(values[head.layer :]).rank()))
            rows.append(row)
    return DataFrame(rows)


def _carriers_numbers(operations: list[Carriers]) -> DataFrame:
    """One row per operation, head and layer, with intervals and the MLP's own numbers."""
    tables = []
    for operation in operations:
        table = operation.mediation.to_dataframe()
        table.insert(0, "operation", operation.name)
        by_layer = {
            "cos_write_C": curve_of(operation.writes, "C"),
            "cos_write_others": curve_of(operation.writes, OTHER_DIGITS),
            "mlp_effect": operation.effects.mlps,
        }
        for name, effects in by_layer.items():
            layers = [Mlp.parse(name).layer for name in table["mlp"]]
            table[name] = effects.mean().double().numpy()[layers]
        tables.append(table)
    return concat(tables, ignore_index=True)
