"""Paths and carriers: on which paths, and through which MLPs, heads change the answer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from figures.common import chosen_run
from figures.exhibit import Chart, Table, chart_of, text_table_of
from figures.options import Options, TableOptions
from figures.tables import carriers as carrier_numbers
from figures.tables import paths as path_numbers
from figures.tables.effects import KEY_ROLE
from figures.tables.table import has, keys_of, records, select, value
from figures.views.maps import EffectScale, title
from figures.views.words import size_text


def paths(options: TableOptions) -> list[Table]:
    """The strongest heads' effects on three kinds of paths, as a table with intervals and shares.

    Reads a run of `experiments which_paths`. The total effect is the sum of what goes directly
    to the logits, what MLPs add (via MLPs less direct), and what later heads add (total less via
    MLPs). These are differences within each pair, and so are their intervals.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_paths")
    return [
        text_table_of(
            partial(path_numbers.table, run),
            [run],
            name="paths",
            title=f"Paths of the strongest heads: {run.config['model']}, {run.config['metric']}",
            caption="Direct: what a head writes to the answer itself; MLPs and later heads add the "
            "rest. In brackets: 95% bootstrap intervals over problems and wordings. Shares are of "
            "the total effect, and may exceed 100% where parts have opposite signs.",
            cells=partial(_path_cells, relative=EffectScale.of(run.config).relative),
        )
    ]


def _path_cells(table: DataFrame, relative: bool) -> DataFrame:
    """One line per head and operation: each part with its interval, and shares."""
    number, lines = "{:+.1%}" if relative else "{:+.3g}", []
    for (operation, head), rows in table.groupby(["operation", "component"], sort=False):  # pyright: ignore
        line = {"operation": operation, "head": head}
        for one in records(select(rows, measure=path_numbers.EFFECT)):
            ends = ", ".join(map(number.format, (one.low, one.high)))
            line[one.part] = f"{number.format(one.value)} ({ends})"
        for part in ("direct", "MLPs add", "heads add"):
            line[f"share {part}"] = f"{value(rows, measure=path_numbers.SHARE, part=part):.0%}"
        lines.append(line)
    return DataFrame(lines)


MANY_MLPS = 16  # with more, cosines do not fit below the columns


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
    return [
        chart_of(
            partial(carrier_numbers.table, run),
            [run],
            name="carriers",
            title="Which MLPs carry the key heads' effects?",
            caption="Rows: the heads with the strongest effects via MLPs, key heads in bold. Held: "
            "the effect with every MLP free, less that with this one held at the reference run. "
            "Alone: the effect with this one free, less the direct effect. Neither adds up to the "
            "effect. Cos: the cosine of what the MLP adds with the unembedding of C.",
            draw=partial(_draw_carriers, reading=EffectScale.of(run.config)),
            small_table=_correlations,
        )
    ]


def _draw_carriers(table: DataFrame, notes: Sequence[str], reading: EffectScale) -> plotting.Figure:
    """One panel per operation."""
    return plotting.matrix_panels(
        [_matrix(table, operation, reading) for operation in keys_of(table, "operation")],
        colour_title=reading.colour_title,
        unit=reading.unit,
        limit=reading.limit,
        digits=1 if reading.relative else 2,
        notes=notes,
    )


def _matrix(table: DataFrame, operation: str, reading: EffectScale) -> plotting.Matrix:
    """One row per head; columns: what each MLP carries in two ways, then the effects."""
    rows = select(table, operation=operation)
    heads, mlps = (keys_of(rows, name) for name in ("component", "mlp"))
    layers = tuple(name.removeprefix("MLP ") for name in mlps)
    mediated, mediated_alone = (
        reading.scale * select(rows, measure=measure).value.to_numpy().reshape(-1, len(mlps))
        for measure in (carrier_numbers.LOST, carrier_numbers.ADDED)
    )
    ends = [
        reading.scale * select(rows, measure=measure).value.to_numpy()
        for measure in (carrier_numbers.DIRECT, carrier_numbers.VIA_MLPS)
    ]
    few = len(layers) <= MANY_MLPS
    cosines = [
        f"{cosine:.2f}".replace("-", "−").replace("0.", ".")
        for cosine in select(rows, measure=carrier_numbers.WRITES_C).value
    ]
    lost = "lost when this MLP is held"
    return plotting.Matrix(
        title=title(operation, size_text(rows)),
        rows=tuple(heads),
        groups=(
            plotting.Columns(lost, layers, mediated, tuple(cosines) if few else ()),
            plotting.Columns("added by this MLP alone", layers, mediated_alone),
            plotting.Columns("effect", ("direct", "all"), np.stack(ends, axis=1)),
        ),
        strong=tuple(has(rows, component=head, role=KEY_ROLE) for head in heads),
        foot="cos" if few else "",
    )


def _correlations(table: DataFrame) -> DataFrame:
    """The rank correlations, one row per head."""
    lines = []
    correlations = select(table, measure=carrier_numbers.CORRELATION)
    for (operation, head), rows in correlations.groupby(["operation", "component"], sort=False):  # pyright: ignore
        line: dict[str, Any] = {"operation": operation, "head": head, "MLPs": int(rows.n.iloc[0])}
        lines.append(line | {one.compared: one.value for one in records(rows)})
    return DataFrame(lines)
