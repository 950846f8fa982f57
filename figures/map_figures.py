"""Figures 2, 12 and 15, and the explorer: what every head and every MLP does, as maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.exploration import Exploration
from arith_lens.explorer_page import Explorer, SetFacts, Tables
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.selection import OWN_PAIRS
from figures.common import (
    ModelOptions,
    Options,
    TableOptions,
    chosen_run,
    chosen_runs,
    command_for_run,
    has_tables_alone,
    runs_by_name,
    sample_size,
)
from figures.exhibit import Chart, Interactive, Settings, chart_of
from figures.tables import effects
from figures.tables import explorer as explorer_numbers
from figures.tables.table import joined, keys_of, read_back, records, select
from figures.views import maps
from figures.views.words import sizes_text


def fig2(options: Options) -> list[Chart]:
    """Figure 2: what every head and MLP does to the logit of the right answer, by operation.

    Reads a run of `experiments/which_heads.py` (by its settings, or `--run PATH`) and
    draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV. `python -m figures fig12` draws several models on one
    scale, `python -m figures fig15` prints every number in its cell.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "which_heads")
    return [
        chart_of(
            lambda: effects.table(run),
            [run],
            name="fig2",
            title="Figure 2: what every head and MLP does to the logit of the right answer",
            caption=_operations_caption,
            notes=_operation_notes,
            draw=partial(_draw_operations, reading=maps.EffectScale.of(run.config)),
        )
    ]


def _operations_caption(table: DataFrame) -> str:
    """What to look for, and how many key heads this run has."""
    count = maps.key_head_count(table)
    return (
        "Red cells: heads and MLPs whose loss lowers the logit of the answer. In the "
        "paper key heads are in the middle layers, under 5% of all, and the same ones serve "
        "several operations; MLPs matter only after the first of them."
        + f" Here {count}."
        * bool(count)
    )


def _operations(table: DataFrame) -> list[str]:
    """The operations of a table, without their mean."""
    return [name for name in keys_of(table, "operation") if name != effects.MEAN]


def _operation_panel(
    table: DataFrame,
    reading: maps.EffectScale,
    operation: str,
    *,
    n_labels: int = maps.N_LABELS,
) -> plotting.Panel:
    """One operation's map, with dots at the heads that the paper names."""
    return maps.panel(
        select(table, operation=operation),
        reading,
        maps.title(operation, ""),
        dots=reading.paper_heads(operation),
        n_labels=n_labels,
    )


ACROSS, MOST_OF_FOUR = 4, 16
"""Maps in a row where a model has at most so many heads in a layer; else two."""
NUMBERED, LEAST_NUMBER = (17, 15), 1.0
"""Pixels of a cell with a number, and the smallest percentage that is printed in it."""


def _row_of_maps(panels: Sequence[plotting.Panel], reading: maps.EffectScale) -> dict[str, Any]:
    """How many maps stand in a row, and their cells: those of a small model have numbers."""
    many = max(panel.values.shape[1] for panel in panels) > MOST_OF_FOUR
    small = reading.relative and not many
    return {"across": 2 if many else ACROSS, "size": NUMBERED if small else plotting.PANEL_SPAN}


def _with_numbers(panel: plotting.Panel, reading: maps.EffectScale) -> plotting.Panel:
    """The panel of a small model with its effects from one percent as whole numbers."""
    if not reading.relative or panel.values.shape[1] > MOST_OF_FOUR:
        return panel

    def texts(values: np.ndarray) -> tuple[tuple[str, ...], ...]:
        rows = values.tolist()
        return tuple(
            tuple(f"{x:+.0f}".replace("-", "−") if abs(x) >= LEAST_NUMBER else "" for x in row)
            for row in rows
        )

    return replace(panel, texts=texts(panel.values), strip_texts=texts(panel.strips))


def _draw_operations(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale
) -> plotting.Figure:
    """One panel per operation in one row."""
    panels = [
        _with_numbers(_operation_panel(table, reading, name), reading)
        for name in _operations(table)
    ]
    return maps.draw(panels, reading, notes, **_row_of_maps(panels, reading))


def _operation_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 2, what it was made from, what the paper found."""
    reading = maps.EffectScale.of(config)
    paper_notes = maps.paper_notes(reading.paper, _operations(table))
    data = f"{maps.data_note(config)} {sizes_text(table)}."
    return [maps.map_note(reading), *paper_notes, data]


SHARED_SETTINGS = ("metric", "paths", "keep")
"""What must not differ between models that are compared."""


def fig12(options: ModelOptions) -> list[Chart]:
    """Figure 12: the maps of several models on one colour scale, two rows per model.

    Reads the run of `experiments/which_heads.py` of each model (or `--runs PATH PATH`) and
    draws them without loading a model, with one map per operation. Each map has its own model's
    layers and heads; a colour means the same in all maps.

    Raises:
        RunError: runs are missing, or they were measured with different settings. The error names
            all missing runs, each with the command that makes it.
    """
    runs = _compared_runs(options)
    configs: dict[str, Settings] = {name: run.config for name, run in runs.items()}
    return [
        chart_of(
            lambda: [replace(effects.table(run), model=name) for name, run in runs.items()],
            [*runs.values()],
            name="fig12",
            title="Which heads and MLPs does the answer depend on?",
            caption=_models_caption,
            notes=lambda table, _: _model_notes(table, _of_table(configs, table)),
            draw=lambda table, notes: _draw_models(table, notes, _of_table(configs, table)),
        )
    ]


def _of_table(configs: Mapping[str, Settings], table: DataFrame) -> dict[str, Settings]:
    """The settings of the models that a table has."""
    return {name: configs[name] for name in keys_of(table, "model") if name in configs}


def _compared_runs(options: ModelOptions) -> dict[str, Run]:
    """The runs to compare, by their model; runs of one model have their folder's name, too."""
    runs = chosen_runs(options, "which_heads")
    for setting in SHARED_SETTINGS:
        values = {run.path.name: run.config.get(setting) for run in runs}
        if len(set(values.values())) > 1:
            raise RunError(
                f"expected runs with one {setting}, found {values}. Choose some: --runs PATH PATH"
            )
    return runs_by_name(runs)


def _models_caption(table: DataFrame) -> str:
    """What each model depends on."""
    findings = [
        f"In `{name}`, {_model_finding(select(table, model=name))}."
        for name in keys_of(table, "model")
    ]
    return (
        f"{' '.join(findings)} A cell is the mean change of C's logit, in percent, when one part "
        "gets its output from the same prompt with a word in place of the operator; held: with "
        "the final norm's scale held. An outline is solid where the whole 95% interval over n "
        "problems is beyond 5%, as in this count, and dashed where only the mean is."
    )


def _model_finding(rows: DataFrame) -> str:
    """The heads and MLPs that a model depends on, by one rule."""
    whole, mlps = select(rows, measure=effects.EFFECT), select(rows, measure=effects.HELD)
    is_head = whole["index"].notna()
    texts = [
        _below(DataFrame(whole[is_head]), "head"),
        f"{_below(DataFrame(whole[~is_head]), 'MLP')} are below "
        f"−{-effects.KEY_EFFECT:.0%} in some operation",
    ]
    held = f"; with the norm held, {_below(mlps, 'MLP')}" if len(mlps) else ""
    return " and ".join(texts) + held


def _below(rows: DataFrame, kind: str) -> str:
    """How many components have their whole interval below the threshold in some operation."""
    names = rows.component.str.removeprefix("MLP ")
    below = names[(rows.high < effects.KEY_EFFECT) & rows.operation.isin(_operations(rows))]
    names_below = sorted(set(below), key=lambda name: [*map(int, name.split("."))])
    some = f" ({', '.join(names_below)})" if 0 < len(names_below) <= MOST_NAMES else ""
    return f"{len(names_below)} of {names.nunique():,} {kind}s{some}"


MOST_NAMES = 8
"""The most components that are named."""


def _draw_models(
    table: DataFrame, notes: Sequence[str], configs: Mapping[str, Settings]
) -> plotting.Figure:
    """One or more lines of maps per model; a map is empty for an operation that its run lacks."""
    operations = _operations(table)
    first = maps.EffectScale.of(next(iter(configs.values())))
    by_model: dict[str, dict[str, plotting.Panel]] = {}
    for model, config in configs.items():
        rows, reading = select(table, model=model), maps.EffectScale.of(config)
        by_model[model] = {
            name: replace(
                _with_numbers(_operation_panel(rows, reading, name), reading),
                title=f"{plotting.plain(name.capitalize())}, n = {_n(rows, name)}",
            )
            for name in _operations(rows)
        }
    every = [panel for of_model in by_model.values() for panel in of_model.values()]
    layout = _row_of_maps(every, first)
    across = min(layout["across"], len(operations))
    n_lines = -(-len(operations) // across)
    empty = [None] * (n_lines * across - len(operations))
    panels: list[plotting.Panel | None] = []
    headings: list[str] = []
    for model, of_model in by_model.items():
        heading = f"{model}: {_model_finding(select(table, model=model))}"
        headings += [heading, *[""] * (n_lines - 1)]
        panels += [of_model.get(name) for name in operations] + empty
    return maps.draw(panels, first, notes, headings=headings, **layout | {"across": across})


def _model_notes(table: DataFrame, configs: Mapping[str, Settings]) -> list[str]:
    """How to read Figure 12, missing operations, the data of each model."""
    lines = [maps.map_note(maps.EffectScale.of(next(iter(configs.values()))))]
    for model, config in configs.items():
        rows, reading = select(table, model=model), maps.EffectScale.of(config)
        if absent := [name for name in _operations(table) if name not in _operations(rows)]:
            lines.append(f"Not in the run of {model}: {', '.join(absent)}.")
        lines += maps.paper_notes(reading.paper, _operations(rows))
    return [*lines, "n: problems, in all wordings, answered right."]


def _n(rows: DataFrame, operation: str) -> str:
    """The problems of an operation."""
    return f"{select(rows, measure=effects.EFFECT, operation=operation).n.max():.0f}"


ALL_OPERATIONS = "all"
MANY = 16  # the most layers or heads for which cells are large
LARGE, MIDDLE, SMALL = (64, 38), (33, 27), (30, 26)  # pixels of a cell


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
    run = chosen_run(options, "which_heads")
    mean = options.operation == effects.MEAN
    operations = _chosen_operations(run, options.operation)
    return [
        chart_of(
            lambda: effects.table(run, operations),
            [run],
            name="fig15" + ("" if options.operation == ALL_OPERATIONS else f"_{options.operation}"),
            title="Figure 15: the large maps, every number in its cell",
            caption=_large_caption,
            notes=partial(_large_notes, mean=mean),
            draw=partial(_draw_large, reading=maps.EffectScale.of(run.config), mean=mean),
        )
    ]


def _chosen_operations(run: Run, operation: str) -> Sequence[str]:
    """The operation, or all for their mean. Raises RunError if the run lacks the operation."""
    operations = run.config["operations"] if has_tables_alone(run) else results.MAP.labels(run)
    if operation in (ALL_OPERATIONS, effects.MEAN):
        return operations
    if operation not in operations:
        raise RunError(
            f"expected an operation of the run, {', '.join(operations)}, {ALL_OPERATIONS} or "
            f"{effects.MEAN}, found {operation}. Compute it: "
            f"{command_for_run(run, operations=(operation,))}"
        )
    return [operation]


def _large_caption(table: DataFrame) -> str:
    """What to look for, and the share of the heads that is within a percent of zero."""
    near = records(select(table, measure=effects.NEAR_ZERO))
    shares = ", ".join(f"{one.operation} {one.value:.0%}" for one in near)
    return (
        "The same effects as numbers. In the paper's large map almost all heads are within a "
        "percent of zero." + f" Here these shares of the heads are: {shares}." * bool(near)
    )


def _draw_large(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale, *, mean: bool
) -> plotting.Figure:
    """One map per operation, or one of their mean."""
    operations = _operations(table)
    if mean:
        panels, hover = [_mean_panel(table, reading)], _hover_by_operation(operations, reading)
    else:
        hover = maps.hover(reading)
        panels = [_operation_panel(table, reading, name, n_labels=0) for name in operations]
    everything = np.concatenate([np.append(part.values, part.strips) for part in panels])
    limit = reading.limit or plotting.symmetric_limit(everything)
    small = max(panels[0].values.shape) <= MANY
    return maps.draw(
        [_numbered(panel, _digits(limit)) for panel in panels],
        reading,
        notes,
        colours=plotting.ColourScale(reading.colour_title, reading.unit, limit),
        hover=hover,
        across=2 if small else 1,
        size=SMALL if not small else LARGE if len(panels) == 1 else MIDDLE,
    )


def _numbered(panel: plotting.Panel, digits: int) -> plotting.Panel:
    """The panel with each cell's number; if the head is outlined, its name stands above."""

    def number(value: float) -> str:
        if value != value:
            return ""
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
        strip_texts=tuple(tuple(map(number, row)) for row in panel.strips.tolist()),
        needs_texts=True,
    )


def _digits(limit: float) -> int:
    """Digits after the point for numbers up to about `limit`: 1 for 15, 2 for 5, 3 for 0.2.

    At most 4, so that a number fits into its cell.
    """
    return min(max(2 - int(np.floor(np.log10(limit))), 1), 4)


def _mean_panel(table: DataFrame, reading: maps.EffectScale) -> plotting.Panel:
    """The map of the mean, with the effect in each operation to hover."""
    operations = _operations(table)
    parts = [_operation_panel(table, reading, name) for name in operations]
    name = effects.MEAN if len(parts) > 1 else operations[0]
    return replace(
        _operation_panel(table, reading, name, n_labels=0),
        title=f"Mean over {plotting.plain(', '.join(operations))}",
        hover=np.stack([part.values for part in parts], axis=-1),
        strip_hover=np.stack([part.strips for part in parts], axis=-1),
    )


def _hover_by_operation(operations: Sequence[str], reading: maps.EffectScale) -> tuple[str, ...]:
    """The hover templates of that map."""
    rest = "".join(
        f"<br>{plotting.plain(name)}: {maps.hover_number(f'customdata[{i}]', reading)}"
        for i, name in enumerate(operations)
    )
    head, mlp = maps.templates(rest, reading)
    return head, mlp, mlp.replace("</b>", "</b>, norm held", 1)


def _large_notes(table: DataFrame, config: Mapping[str, Any], *, mean: bool) -> list[str]:
    """How to read Figure 15, what it was made from, what the paper found."""
    reading = maps.EffectScale.of(config)
    unit = "in percent" if reading.relative else "as measured"
    return [
        maps.reading_note(reading),
        f"Numbers in the cells: mean effects, {unit}; 0 where no digit is left."
        + " Each operation has the same weight." * mean,
        f"{maps.data_note(config)} {sizes_text(table)}.",
        *maps.paper_notes(reading.paper, _operations(table)),
    ]


@dataclass(frozen=True)
class ExplorerOptions(TableOptions):
    """Which run to show, and beside which other models."""

    compare: tuple[str, ...] = ()
    """Other models, such as the same one after tuning, whose runs have the same settings. The page
    begins with the first one beside the model."""


def explorer(options: ExplorerOptions) -> list[Interactive]:
    """The explorer: click a head or an MLP, and see what it does.

    Reads a run of `experiments what_does_each_part_do` (by its settings, or `--run PATH`) and
    writes one page without loading a model. It needs no network. In a notebook, `al.explore(model,
    pairs)` shows the same and computes on a click. `--compare MODEL` adds the run of another model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "what_does_each_part_do")
    others = {
        Path(other).name: chosen_run(
            replace(options, model=other, run=None), "what_does_each_part_do"
        )
        for other in options.compare
    }
    rows = joined(read_back(explorer_numbers.table(one)) for one in (run, *others.values()))
    names = explorer_numbers.set_names(run)
    file = Path(run.config.get("pairs") or "").name
    sizes = [
        f"{_set_title(name, file)}: {sample_size(results.EXPLORATION.facts(run, name))}"
        for name in names
    ]
    pages = _pages(run, rows)
    model = Path(run.config["model"]).name
    of = f"{model}, {file}" if file and [*pages] != [file] else model
    if others:  # each set has its model's name
        names = [*pages]
        pages = {f"{name}, {model}": page for name, page in pages.items()}
        for label, other in others.items():
            pages |= {f"{name}, {label}": page for name, page in _pages(other, rows).items()}
        label = next(iter(others))
        for name in names:
            if (beside := f"{name}, {label}") in pages:
                facts, tables = pages[f"{name}, {model}"]
                pages[f"{name}, {model}"] = {**facts, "beside": beside}, tables
    return [
        Interactive(
            name="explorer",
            title="Explorer: what each head and each MLP does",
            caption="The circuit of each operation. Click a part to see what it looks at, what it "
            "writes and what feeds it. Knock it out to see what the model still answers.",
            notes=[
                f"Model: {of}. {'; '.join(sizes)}.",
                "Effects and attention are means over all of them. Patterns and digits are of a "
                "sample of prompts, which the page lists; knockouts are of one prompt per problem.",
            ],
            runs=(run, *others.values()),
            numbers=rows,
            view=Explorer(pages, "Explorer" if others else f"Explorer: {of}"),
        )
    ]


def _pages(run: Run, rows: DataFrame) -> dict[str, tuple[SetFacts, Tables]]:
    """What the page has of a run: its sets of prompts, by the names that the reader sees."""
    own = select(rows, model=str(run.config["model"]))
    file = Path(run.config.get("pairs") or "").name
    return {
        _set_title(name, file): _page(results.EXPLORATION.load(run, name), own, name)
        for name in explorer_numbers.set_names(run)
    }


def _set_title(name: str, file: str) -> str:
    """The name of a set of prompts that the reader sees: that of one's own file, or the task."""
    return file if name == OWN_PAIRS else name.replace("-", ", ").replace("_", " ")


def _page(stored: Exploration, rows: DataFrame, prompts: str) -> tuple[SetFacts, Tables]:
    """What the page has of a set of prompts: tables from the rows, and what has no rows."""
    from_rows = {
        name: explorer_numbers.page_table(rows, name, prompts)
        for name in explorer_numbers.PAGE_TABLES
        if name in stored.tables
    }
    return stored.facts, {**stored.tables, **from_rows}
