"""Figures 2, 12 and 15, and the explorer: what every head and every MLP does, as maps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pandas import concat

from arith_lens import plotting
from arith_lens.explorer_page import Explorer
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.selection import OWN_PAIRS
from figures import maps
from figures.common import (
    ModelOptions,
    Options,
    TableOptions,
    chosen_run,
    chosen_runs,
    command_for_run,
    sample_size,
)
from figures.exhibit import Chart, Interactive


@dataclass(frozen=True)
class ModelMaps:
    """One model's run with its numbers, by operation."""

    run: Run
    measured: dict[str, maps.Measured]

    @classmethod
    def of(cls, run: Run) -> "ModelMaps":
        """All operations of a run."""
        return cls(run, {name: maps.measure(run, name) for name in results.MAP.labels(run)})

    @property
    def parts(self) -> list[maps.Measured]:
        return [*self.measured.values()]

    @property
    def reading(self) -> maps.Reading:
        return maps.Reading.of(self.run.config)

    @property
    def paper_notes(self) -> list[str]:
        """Which heads the paper names for the operations."""
        return maps.paper_notes(self.reading.paper, [*self.measured])


def fig2(options: Options) -> list[Chart]:
    """Figure 2: what every head and MLP does to the logit of the right answer, by operation.

    Reads a run of `experiments/which_heads.py` (by its settings, or `--run PATH`) and
    draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV. `python -m figures fig12` draws several models on one
    scale, `python -m figures fig15` prints every number in its cell.

    Raises:
        RunError: there is no run.
    """
    model = ModelMaps.of(chosen_run(options, "which_heads"))
    count = maps.key_head_count(model.parts, model.reading)
    return [
        Chart(
            name="fig2",
            title="Figure 2: what every head and MLP does to the logit of the right answer",
            look="Red cells: heads and MLPs whose loss lowers the logit of the answer. In the "
            "paper key heads are in the middle layers, under 5% of all, and the same ones serve "
            "several operations; MLPs matter only after the first of them."
            + f" Here {count}."
            * bool(count),
            notes=operation_notes(model),
            runs=(model.run,),
            numbers=maps.numbers(model.parts),
            figure=draw_operations(model),
        )
    ]


def draw_operations(model: ModelMaps) -> plotting.Figure:
    """One panel per operation, two in a row."""
    panels = [maps.panel(part, model.reading) for part in model.parts]
    return maps.draw(panels, model.reading, operation_notes(model))


def operation_notes(model: ModelMaps) -> list[str]:
    """How to read Figure 2, what it was made from, what the paper found."""
    return [maps.map_note(model.reading), maps.data_note(model.run.config), *model.paper_notes]


MODEL_SPAN, MODELS_ACROSS, N_MODEL_LABELS = 240, 2, 6
"""Pixels of a map's longer side in Figure 12, maps side by side, and heads that have names."""
SHARED_SETTINGS = ("metric", "paths", "keep")
"""What must not differ between models that are compared."""


def fig12(options: ModelOptions) -> list[Chart]:
    """Figure 12: the maps of several models on one colour scale, two rows per model.

    Reads the run of `experiments/which_heads.py` of each model (or `--runs PATH PATH`) and
    draws them without loading a model, with one map per operation. Each map has its own model's
    layers and heads; a colour means the same in all maps.

    Raises:
        RunError: as `compared_models`.
    """
    models = compared_models(options)
    counts = {
        model.run.config["model"]: maps.key_head_count(model.parts, model.reading)
        for model in models
    }
    texts = [f"{name}: {count}" for name, count in counts.items() if count]
    tables = [maps.numbers(model.parts) for model in models]
    for table, model in zip(tables, models, strict=True):
        table.insert(0, "model", model.run.config["model"])
    return [
        Chart(
            name="fig12",
            title="Figure 12: the maps of several models on one colour scale",
            look="Whether the picture repeats from model to model: few red heads, shared by "
            "operations, and MLPs that matter after them. Which heads they are has no meaning "
            "across models." + f" Here: {'; '.join(texts)}." * bool(texts),
            notes=model_notes(models),
            runs=tuple(model.run for model in models),
            numbers=concat(tables, ignore_index=True),
            figure=draw_models(models),
        )
    ]


def compared_models(options: ModelOptions) -> list[ModelMaps]:
    """The runs to compare.

    Raises:
        RunError: runs are missing, or they were measured with different settings. The error names
            all missing runs, each with the command that makes it.
    """
    runs = chosen_runs(options, "which_heads")
    for setting in SHARED_SETTINGS:
        values = {run.path.name: run.config.get(setting) for run in runs}
        if len(set(values.values())) > 1:
            raise RunError(
                f"expected runs with one {setting}, found {values}. Choose some: --runs PATH PATH"
            )
    return [*map(ModelMaps.of, runs)]


def _all_operations(models: Sequence[ModelMaps]) -> list[str]:
    return list(dict.fromkeys(name for model in models for name in model.measured))


def draw_models(models: Sequence[ModelMaps]) -> plotting.Figure:
    """One or more lines of maps per model; a map is empty for an operation that its run lacks."""
    operations = _all_operations(models)
    n_lines = -(-len(operations) // MODELS_ACROSS)
    empty = [None] * (n_lines * MODELS_ACROSS - len(operations))
    panels: list[plotting.Panel | None] = []
    headings: list[str] = []
    for model in models:
        n_layers, n_heads = model.parts[0].heads.mean.shape
        headings += [
            f"{model.run.config['model']}, {n_layers} layers of {n_heads} heads",
            *[""] * (n_lines - 1),
        ]
        panels += [
            maps.panel(model.measured[name], model.reading, n_labels=N_MODEL_LABELS, sized=False)
            if name in model.measured
            else None
            for name in operations
        ] + empty
    return maps.draw(
        panels,
        models[0].reading,
        model_notes(models),
        headings=headings,
        across=MODELS_ACROSS,
        span=MODEL_SPAN,
    )


def model_notes(models: Sequence[ModelMaps]) -> list[str]:
    """How to read Figure 12, the data of each model, missing operations."""
    lines = [maps.map_note(models[0].reading)]
    for model in models:
        config = model.run.config
        lines.append(f"{maps.data_note(config)} {maps.sizes_note(model.parts)}")
        if absent := [name for name in _all_operations(models) if name not in model.measured]:
            lines.append(f"Not in the run of {config['model']}: {', '.join(absent)}.")
        lines += model.paper_notes
    return lines


ALL_OPERATIONS, MEAN_MAP = "all", "mean"
NEAR_ZERO = 0.01  # within a percent of zero
MANY = 16  # the most layers or heads for which cells are large
LARGE, MIDDLE, SMALL = (64, 38), (42, 27), (40, 26)  # pixels of a cell


@dataclass(frozen=True)
class LargeMapOptions(Options):
    """Which run to draw, and where to."""

    operation: str = ALL_OPERATIONS
    """The operation to draw; "all" of the run, or their "mean"."""


def fig15(options: LargeMapOptions) -> list[Chart]:
    """Figure 15: the large maps, every head's and MLP's effect as a number in its cell.

    Reads a run of `experiments/which_heads.py` (by its settings, or `--run PATH`) and
    draws one map per operation, a single operation, or the mean over all the run's operations,
    without loading a model. Key heads have their names in their cells.

    Raises:
        RunError: there is no run, or it lacks the operation.
    """
    model = chosen_operations(chosen_run(options, "which_heads"), options.operation)
    mean = options.operation == MEAN_MAP
    look = (
        "The same effects as numbers. In the paper's large map almost all heads are within a "
        "percent of zero."
    )
    if model.reading.relative:
        shares = ", ".join(
            f"{part.name} {np.mean(np.abs(part.heads.mean) < NEAR_ZERO):.0%}"
            for part in model.parts
        )
        look += f" Here these shares of the heads are: {shares}."
    averages = [averaged(model.parts)] if len(model.parts) > 1 else []
    return [
        Chart(
            name="fig15" + ("" if options.operation == ALL_OPERATIONS else f"_{options.operation}"),
            title="Figure 15: the large maps, every number in its cell",
            look=look,
            notes=large_notes(model, mean=mean),
            runs=(model.run,),
            numbers=maps.numbers([*averages, *model.parts]),
            figure=draw_large(model, mean=mean),
        )
    ]


def chosen_operations(run: Run, operation: str) -> ModelMaps:
    """The operation, or all for their mean. Raises RunError if the run lacks the operation."""
    operations = results.MAP.labels(run)
    if operation in (ALL_OPERATIONS, MEAN_MAP):
        return ModelMaps.of(run)
    if operation not in operations:
        raise RunError(
            f"expected an operation of the run, {', '.join(operations)}, {ALL_OPERATIONS} or "
            f"{MEAN_MAP}, found {operation}. Compute it: "
            f"{command_for_run(run, operations=(operation,))}"
        )
    return ModelMaps(run, {operation: maps.measure(run, operation)})


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


def draw_large(model: ModelMaps, *, mean: bool = False) -> plotting.Figure:
    """One map per operation, or one of their mean."""
    reading = model.reading
    measured = [averaged(model.parts)] if mean else model.parts
    panels = [maps.panel(part, reading, n_labels=0, sized=mean) for part in measured]
    everything = np.concatenate([np.append(part.values.ravel(), part.bar) for part in panels])
    limit = reading.limit or plotting.symmetric_limit(everything)
    hover = maps.hover(reading)
    if mean:
        panels, hover = [_by_operation(panels[0], model)], _hover_by_operation(model)
    small = max(panels[0].values.shape) <= MANY
    return maps.draw(
        [_numbered(panel, _digits(limit)) for panel in panels],
        reading,
        large_notes(model, mean=mean),
        limit=limit,
        hover=hover,
        across=2 if small else 1,
        cell=SMALL if not small else LARGE if len(panels) == 1 else MIDDLE,
    )


def _numbered(panel: plotting.Panel, digits: int) -> plotting.Panel:
    """The panel with each cell's number; if the head is outlined, its name stands above."""

    def number(value: float) -> str:
        text = f"{value:+.{digits}f}"
        return text.replace("-", "−") if float(text) else "0"

    named = {(mark.row, mark.column) for mark in panel.marks}
    return replace(
        panel,
        texts=tuple(
            tuple(
                f"<b>{layer}.{head}</b><br>" * ((layer, head) in named) + number(value)
                for head, value in enumerate(row)
            )
            for layer, row in enumerate(panel.values.tolist())
        ),
        bar_texts=tuple(map(number, panel.bar.tolist())),
    )


def _digits(limit: float) -> int:
    """Digits after the point for numbers up to about `limit`: 1 for 15, 2 for 5, 3 for 0.2.

    At most 4, so that a number fits into its cell.
    """
    return min(max(2 - int(np.floor(np.log10(limit))), 1), 4)


def _by_operation(panel: plotting.Panel, model: ModelMaps) -> plotting.Panel:
    """The map of the mean, with the mean of each operation to hover."""
    heads, mlps = (
        model.reading.scale * np.stack([of_operation.mean for of_operation in kind], axis=-1)
        for kind in ([part.heads for part in model.parts], [part.mlps for part in model.parts])
    )
    title = f"Mean over {plotting.plain(', '.join(model.measured))}"
    return replace(panel, title=title, hover=heads, bar_hover=mlps)


def _hover_by_operation(model: ModelMaps) -> tuple[str, str]:
    """The hover templates of that map."""
    rest = "".join(
        f"<br>{plotting.plain(name)}: {maps.hover_number(f'customdata[{i}]', model.reading)}"
        for i, name in enumerate(model.measured)
    )
    return maps.templates(rest, model.reading)


def large_notes(model: ModelMaps, *, mean: bool = False) -> list[str]:
    """How to read Figure 15, what it was made from, what the paper found."""
    unit = "in percent" if model.reading.relative else "as measured"
    return [
        maps.reading_note(model.reading),
        f"Numbers in the cells: mean effects, {unit}; 0 where no digit is left."
        + " Each operation has the same weight." * mean,
        f"{maps.data_note(model.run.config)} {maps.sizes_note(model.parts)}",
        *model.paper_notes,
    ]


def explorer(options: TableOptions) -> list[Interactive]:
    """The explorer: click a head or an MLP, and see what it does.

    Reads a run of `experiments what_does_each_part_do` (by its settings, or `--run PATH`) and
    writes one page without loading a model. It needs no network. In a notebook, `al.explore(model,
    pairs)` shows the same and computes on a click.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_does_each_part_do")
    names = results.EXPLORATION.labels(run)
    names = sorted(names, key=lambda name: "-" in name)  # the operations first
    explorations = {name: results.EXPLORATION.load(run, name) for name in names}
    sizes = [f"{name}: {sample_size(results.EXPLORATION.facts(run, name))}" for name in names]
    tables = [part.to_dataframe().assign(prompts=name) for name, part in explorations.items()]
    file = Path(run.config.get("pairs") or "").name
    pages = {
        file if name == OWN_PAIRS else name.replace("-", ", ").replace("_", " "): (
            part.facts,
            part.tables,
        )
        for name, part in explorations.items()
    }
    of = f"{run.config['model']}, {file}" if file else run.config["model"]
    return [
        Interactive(
            name="explorer",
            title="Explorer: what each head and each MLP does",
            look="Click a cell of the map. Which tokens does the head look at, which digits does "
            "it write, and which MLPs carry its effect? Then knock the strongest heads out, one "
            "after another, and read what the model answers.",
            notes=[
                f"Model: {of}. {'; '.join(sizes)}.",
                "Effects and attention are means over all of them. Patterns and digits are of a "
                "sample of prompts, which the page lists; knockouts are of one prompt per problem.",
            ],
            runs=(run,),
            numbers=concat(tables, ignore_index=True),
            view=Explorer(pages, f"Explorer: {of}"),
        )
    ]
