"""Figure 15: the large maps, every head's and MLP's effect as a number in its cell.

Reads a run of `experiments/which_heads.py` (the newest one of the model, or `--run PATH`) and draws
one map per operation, a single operation, or the mean over all the run's operations, without
loading a model. Key heads have their names in their cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from experiments import results
from figures import common, maps
from figures.exhibit import Chart

ALL_OPERATIONS, MEAN_MAP = "all", "mean"
NEAR_ZERO = 0.01  # within a percent of zero
_MANY = 16  # the most layers or heads for which cells are large
_LARGE, _MIDDLE, _SMALL = (64, 38), (42, 27), (40, 26)  # pixels of a cell


@dataclass(frozen=True)
class Options(common.Options):
    """Which run to draw, and where to."""

    operation: str = ALL_OPERATIONS
    """The operation to draw; "all" of the run, or their "mean"."""


def exhibits(options: Options) -> list[Chart]:
    """One large map. Raises RunError if there is no run, or if it lacks the operation."""
    run = common.chosen_run(options, "which_heads")
    measured = chosen_operations(run, options.operation)
    mean = options.operation == MEAN_MAP
    return [
        Chart(
            name="fig15" + ("" if options.operation == ALL_OPERATIONS else f"_{options.operation}"),
            title="Figure 15: the large maps, every number in its cell",
            look=look(measured, maps.Reading.of(run.config)),
            notes=notes(run, measured, mean=mean),
            runs=(run,),
            numbers=numbers(measured),
            figure=draw(run, measured, mean=mean),
        )
    ]


def look(measured: Sequence[maps.Measured], reading: maps.Reading) -> str:
    """What to look for, and how many heads of the run are near zero."""
    text = (
        "The same effects as numbers. In the paper's large map almost all heads are within a "
        "percent of zero."
    )
    if not reading.relative:
        return text
    shares = ", ".join(
        f"{part.name} {np.mean(np.abs(part.heads.mean) < NEAR_ZERO):.0%}" for part in measured
    )
    return f"{text} Here these shares of the heads are: {shares}."


def chosen_operations(run: Run, operation: str) -> list[maps.Measured]:
    """The operation, or all for their mean. Raises RunError if the run lacks the operation."""
    operations = results.MAP.labels(run)
    if operation not in (ALL_OPERATIONS, MEAN_MAP, *operations):
        raise RunError(
            f"expected an operation of the run, {', '.join(operations)}, {ALL_OPERATIONS} or "
            f"{MEAN_MAP}, found {operation}. Compute it: python -m experiments which_heads --model "
            f"{run.config['model']} --operations {operation}"
        )
    return [
        maps.measure(run, name)
        for name in operations
        if operation in (ALL_OPERATIONS, MEAN_MAP, name)
    ]


def averaged(measured: Sequence[maps.Measured]) -> maps.Measured:
    """The mean over operations, with equal weights; it has no intervals."""

    def mean(parts: Sequence[maps.Statistics]) -> maps.Statistics:
        values = np.mean([part.values for part in parts], axis=0)
        values[..., 1:3] = np.nan
        return maps.Statistics(values, np.any([part.different for part in parts], axis=0))

    return maps.Measured(
        name=MEAN_MAP,
        size="",
        heads=mean([part.heads for part in measured]),
        mlps=mean([part.mlps for part in measured]),
    )


def numbers(measured: Sequence[maps.Measured]) -> DataFrame:
    """The figure as a table; if there are several operations, with their mean."""
    table = maps.numbers(measured)
    return (
        table
        if len(measured) == 1
        else concat([maps.numbers([averaged(measured)]), table], ignore_index=True)
    )


def draw(run: Run, measured: Sequence[maps.Measured], *, mean: bool = False) -> plotting.Figure:
    """The figure: one map per operation, or one of their mean."""
    reading = maps.Reading.of(run.config)
    columns = [averaged(measured)] if mean else list(measured)
    parts = [maps.panel(part, reading, n_labels=0, sized=mean) for part in columns]
    everything = np.concatenate([np.append(part.values.ravel(), part.bar) for part in parts])
    limit = reading.limit or plotting.symmetric_limit(everything)
    digits = _digits(limit)
    hover = maps.hover(reading)
    if mean:
        (further, hover), (part,) = _hover(measured, reading), parts
        parts = [replace(part, title=_title(measured), hover=further[0], bar_hover=further[1])]
    small = max(parts[0].values.shape) <= _MANY
    return maps.draw(
        [
            replace(
                part,
                texts=_texts(part, digits),
                bar_texts=tuple(_number(value, digits) for value in part.bar.tolist()),
            )
            for part in parts
        ],
        reading,
        notes(run, measured, mean=mean),
        limit=limit,
        hover=hover,
        across=2 if small else 1,
        cell=_SMALL if not small else _LARGE if len(parts) == 1 else _MIDDLE,
    )


def _texts(base: plotting.Panel, digits: int) -> tuple[tuple[str, ...], ...]:
    """Each cell's number; if the head is outlined, its name stands above."""
    named = {(mark.row, mark.column) for mark in base.marks}
    return tuple(
        tuple(
            (f"<b>{layer}.{head}</b><br>" if (layer, head) in named else "")
            + _number(value, digits)
            for head, value in enumerate(row)
        )
        for layer, row in enumerate(base.values.tolist())
    )


def _digits(limit: float) -> int:
    """Digits after the point for numbers up to about `limit`: 1 for 15, 2 for 5, 3 for 0.2.

    At most 4, so that a number fits into its cell.
    """
    return min(max(2 - int(np.floor(np.log10(limit))), 1), 4)


def _number(value: float, digits: int) -> str:
    """`−13.2`, `+1.2`; `0` if it rounds to zero."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else "0"


def _title(measured: Sequence[maps.Measured]) -> str:
    names = ", ".join(part.name for part in measured)
    return f"Mean over {plotting.plain(names)}"


def _hover(
    measured: Sequence[maps.Measured], reading: maps.Reading
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[str, str]]:
    """The mean of each operation, for heads and for MLPs, and their hover templates."""
    rest = "".join(
        f"<br>{plotting.plain(part.name)}: {maps.hover_number(f'customdata[{i}]', reading)}"
        for i, part in enumerate(measured)
    )
    heads = np.stack([part.heads.mean for part in measured], axis=-1)
    mlps = np.stack([part.mlps.mean for part in measured], axis=-1)
    return (reading.scale * heads, reading.scale * mlps), maps.templates(rest, reading)


def notes(run: Run, measured: Sequence[maps.Measured], *, mean: bool = False) -> list[str]:
    """The small print: how to read the figure, what it was made from, what the paper found."""
    reading = maps.Reading.of(run.config)
    unit = "in percent" if reading.relative else "as measured"
    lines = [
        maps.reading_note(reading),
        f"Numbers in the cells: mean effects, {unit}; 0 where no digit is left."
        + " Each operation has the same weight." * mean,
        f"{maps.data_note(run.config)} {maps.sizes_note(measured)}",
    ]
    return lines + maps.paper_notes(reading.paper, [part.name for part in measured])
