"""Figure 12: the maps of several models on one colour scale, two rows per model.

Reads the newest run of `experiments/which_heads.py` of each model (or `--runs PATH PATH`) and draws
them without loading a model, with one map per operation. Each map has its own model's layers and
heads; a colour means the same in all maps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.runs import Run, RunError
from experiments import results
from figures import common, maps
from figures.exhibit import Chart

_SPAN, _ACROSS = 240, 2  # pixels of a map's longer side, and maps side by side: they fit on a page
_N_LABELS = 6
_SHARED = ("metric", "paths", "keep")  # what must not differ between models that are compared


@dataclass(frozen=True)
class ModelMaps:
    """One model's run with its numbers, by operation."""

    run: Run
    measured: dict[str, maps.Measured]


def exhibits(options: common.ModelOptions) -> list[Chart]:
    """The maps of several models. Raises RunError like `model_maps`."""
    rows = model_maps(options)
    operations = list(dict.fromkeys(name for row in rows for name in row.measured))
    return [
        Chart(
            name="fig12",
            title="Figure 12: the maps of several models on one colour scale",
            look=look(rows),
            notes=notes(rows, operations),
            runs=tuple(row.run for row in rows),
            numbers=numbers(rows),
            figure=draw(rows),
        )
    ]


def look(rows: Sequence[ModelMaps]) -> str:
    """What to look for, and how many heads of each model are key heads."""
    counts = {
        row.run.config["model"]: maps.key_head_count(
            list(row.measured.values()), maps.Reading.of(row.run.config)
        )
        for row in rows
    }
    texts = [f"{model}: {count}" for model, count in counts.items() if count]
    return (
        "Whether the picture repeats from model to model: few red heads, shared by operations, and "
        "MLPs that matter after them. Which heads they are has no meaning across models."
        + f" Here: {'; '.join(texts)}."
        * bool(texts)
    )


def model_maps(options: common.ModelOptions) -> list[ModelMaps]:
    """The runs to compare.

    Raises:
        RunError: runs are missing, or they were measured with different settings. The error names
            all missing runs, each with the command that makes it.
    """
    runs = common.chosen_runs(options, "which_heads")
    for setting in _SHARED:
        values = {run.path.name: run.config.get(setting) for run in runs}
        if len(set(values.values())) > 1:
            raise RunError(
                f"expected runs with one {setting}, found {values}. Choose some: --runs PATH PATH"
            )
    return [
        ModelMaps(run, {name: maps.measure(run, name) for name in results.MAP.labels(run)})
        for run in runs
    ]


def numbers(rows: Sequence[ModelMaps]) -> DataFrame:
    """The figure as a table, one row per model, component and operation."""
    tables = []
    for row in rows:
        table = maps.numbers(list(row.measured.values()))
        table.insert(0, "model", row.run.config["model"])
        tables.append(table)
    return concat(tables, ignore_index=True)


def draw(rows: Sequence[ModelMaps]) -> plotting.Figure:
    """One or more lines of maps per model."""
    operations = list(dict.fromkeys(name for row in rows for name in row.measured))
    readings = [maps.Reading.of(row.run.config) for row in rows]
    n_lines = -(-len(operations) // _ACROSS)
    empty = [None] * (n_lines * _ACROSS - len(operations))
    return maps.draw(
        [
            part
            for row, reading in zip(rows, readings, strict=True)
            for part in (*_panels(row, reading, operations), *empty)
        ],
        readings[0],
        notes(rows, operations),
        headings=[text for row in rows for text in (_heading(row), *[""] * (n_lines - 1))],
        across=_ACROSS,
        span=_SPAN,
    )


def _panels(
    row: ModelMaps, reading: maps.Reading, operations: Sequence[str]
) -> list[plotting.Panel | None]:
    """The maps of one model; None for an operation that its run lacks."""
    return [
        maps.panel(row.measured[name], reading, n_labels=_N_LABELS, sized=False)
        if name in row.measured
        else None
        for name in operations
    ]


def _heading(row: ModelMaps) -> str:
    n_layers, n_heads = next(iter(row.measured.values())).heads.mean.shape
    return f"{row.run.config['model']}, {n_layers} layers of {n_heads} heads"


def notes(rows: Sequence[ModelMaps], operations: Sequence[str]) -> list[str]:
    """The small print: how to read the figure, the data of each row, missing operations."""
    lines = [maps.map_note(maps.Reading.of(rows[0].run.config))]
    for row in rows:
        config = row.run.config
        sizes = maps.sizes_note(list(row.measured.values()))
        lines.append(f"{maps.data_note(config)} {sizes}")
        absent = [name for name in operations if name not in row.measured]
        if absent:
            lines.append(f"Not in the run of {config['model']}: {', '.join(absent)}.")
        lines += maps.paper_notes(maps.Reading.of(config).paper, list(row.measured))
    return lines
