"""Figures 2, 12 and 15: what every head and every MLP does, as maps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import Run, RunError
from experiments import results
from figures.common import chosen_run, chosen_runs, command_for_run, has_tables_alone, runs_by_name
from figures.exhibit import Chart, chart_of
from figures.options import ALL_OPERATIONS, LargeMapOptions, ModelOptions, Options
from figures.tables import effects
from figures.tables.table import keys_of, select
from figures.views import maps
from figures.views.words import of_width

CAPTION = (
    "A cell: the mean change when a part has its output of the counterfactual. Framed: key heads{} "
    "(mean below −5%; dashed: the 95% interval reaches it). {}Held: the final norm keeps its "
    "scale. An MLP that is red if free, blue if held, helps only through the norm."
)
FRAMED_MLPS = CAPTION.format(" and MLPs", "Dots: heads that the paper names. ")
SMALL_MODELS = "Numbers: from 2% on; bold: MLPs whose interval is below −5%. "
CAPTIONS = {True: FRAMED_MLPS, False: CAPTION.format("", SMALL_MODELS)}
"""By whether the paper names heads of a model that is drawn."""


def _names_heads(*configs: Mapping[str, Any]) -> bool:
    """Whether the paper names heads of a model of these runs."""
    return any(maps.EffectScale.of(one).paper for one in configs)


def fig2(options: Options) -> list[Chart]:
    """Figure 2: what every head and MLP does to the logit of the right answer, by operation."""
    run = chosen_run(options, "which_heads")
    return [
        chart_of(
            partial(effects.table, run),
            [run],
            name="fig2",
            title="Figure 2: what every head and MLP does to the logit of the right answer",
            caption=CAPTIONS[_names_heads(run.config)],
            draw=partial(_draw_operations, reading=maps.EffectScale.of(run.config)),
        )
    ]


def _operations(table: DataFrame) -> list[str]:
    """The operations of a table, without their mean."""
    return [name for name in keys_of(table, "operation") if name != effects.MEAN]


def _operation_panel(
    table: DataFrame, reading: maps.EffectScale, operation: str, *, n_labels: int = maps.N_LABELS
) -> plotting.Panel:
    """One operation's map, with dots at the heads that the paper names."""
    return maps.panel(
        select(table, operation=operation),
        reading,
        maps.title(operation),
        dots=reading.paper_heads(operation),
        n_labels=n_labels,
    )


ACROSS, MOST_OF_FOUR = 4, 16
"""Maps in a row where a model has at most so many heads in a layer; else, and with numbers, two."""
NUMBERED, LEAST_NUMBER = {False: (39, 14), True: (32, 16)}, 1.5
"""Pixels of a cell with a number, by whether the page is narrow; the smallest number in percent."""


def _row_of_maps(panels: Sequence[plotting.Panel], reading: maps.EffectScale) -> dict[str, Any]:
    """How many maps stand in a row, and their cells: those of a small model have numbers."""
    many = max(panel.values.shape[1] for panel in panels) > MOST_OF_FOUR
    small = reading.relative and not many
    return {
        "across": 2 if many or small else ACROSS,
        "size": NUMBERED[is_narrow()] if small else plotting.PANEL_SPAN,
    }


def _map_with_numbers(rows: DataFrame, reading: maps.EffectScale, operation: str) -> plotting.Panel:
    """One operation's map, its key heads or their number, and its n; effects of a small model are
    printed from two percent on, and its heads are named in the title."""
    panel = _operation_panel(rows, reading, operation)
    own = select(rows, measure=effects.EFFECT, operation=operation)
    keys = select(own, role=effects.KEY_ROLE).sort_values("value").component
    is_small = reading.relative and panel.values.shape[1] <= MOST_OF_FOUR
    named = is_small and 0 < len(keys) <= maps.N_LABELS
    heads = ", ".join(keys) if named else f"{len(keys)} key head{'s' * (len(keys) != 1)}"
    title = plotting.plain(operation.capitalize()) + f": {heads}" * reading.relative
    panel = replace(panel, title=f"{title}, n = {own.n.max():.0f}")
    if not is_small:
        return panel
    cells = (panel.values, panel.strips)
    texts, strip_texts = (_numbers(part, 0, LEAST_NUMBER) for part in cells)
    bold = {mark.at for mark in panel.strip_marks if mark.strong and mark.certain}
    strip_texts = tuple(
        tuple(f"<b>{text}</b>" * ((r, c) in bold) or text for c, text in enumerate(row))
        for r, row in enumerate(strip_texts)
    )
    marks = tuple(replace(mark, text=mark.text * (not named)) for mark in panel.marks)
    return replace(panel, texts=texts, strip_texts=strip_texts, marks=marks, strip_marks=())


def _draw_operations(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale
) -> plotting.Figure:
    """One panel per operation in one row."""
    panels = [_map_with_numbers(table, reading, name) for name in _operations(table)]
    layout = _row_of_maps(panels, reading)
    return maps.draw(panels, reading, notes, **layout)


SHARED_SETTINGS = ("metric", "paths", "keep")
"""What must not differ between models that are compared."""


def fig12(options: ModelOptions) -> list[Chart]:
    """Figure 12: the maps of several models on one colour scale, two rows per model."""
    runs = _compared_runs(options)
    configs: dict[str, Mapping[str, Any]] = {name: run.config for name, run in runs.items()}
    return [
        chart_of(
            lambda: [replace(effects.table(run), model=name) for name, run in runs.items()],
            [*runs.values()],
            name="fig12",
            title="Which heads and MLPs does the answer depend on?",
            caption=CAPTIONS[_names_heads(*configs.values())],
            draw=lambda table, notes: _draw_models(table, notes, configs),
        )
    ]


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


def _draw_models(
    table: DataFrame, notes: Sequence[str], configs: Mapping[str, Mapping[str, Any]]
) -> plotting.Figure:
    """One or more lines of maps per model; a map is empty for an operation that its run lacks. A
    column has room for the first model."""
    models = [name for name in keys_of(table, "model") if name in configs]
    models, notes = of_width(models, notes)
    configs = {name: configs[name] for name in models}
    operations = _operations(table)
    first = maps.EffectScale.of(next(iter(configs.values())))
    by_model: dict[str, dict[str, plotting.Panel]] = {}
    for model, config in configs.items():
        rows, reading = select(table, model=model), maps.EffectScale.of(config)
        by_model[model] = {
            name: _map_with_numbers(rows, reading, name) for name in _operations(rows)
        }
    every = [panel for of_model in by_model.values() for panel in of_model.values()]
    layout = _row_of_maps(every, first)
    across = min(layout["across"], len(operations))
    n_lines = -(-len(operations) // across)
    empty = [None] * (n_lines * across - len(operations))
    panels: list[plotting.Panel | None] = []
    headings: list[str] = []
    for model, of_model in by_model.items():
        headings += [model, *[""] * (n_lines - 1)]
        panels += [of_model.get(name) for name in operations] + empty
    return maps.draw(panels, first, notes, headings=headings, **layout | {"across": across})


MANY = 16  # the most layers or heads for which cells are large
LARGE, MIDDLE, SMALL = (64, 38), (33, 27), (30, 26)  # pixels of a cell


def fig15(options: LargeMapOptions) -> list[Chart]:
    """Figure 15: the large maps, every head's and MLP's effect as a number in its cell."""
    run = chosen_run(options, "which_heads")
    mean = options.operation == effects.MEAN
    operations = _chosen_operations(run, options.operation)
    return [
        chart_of(
            partial(effects.table, run, operations),
            [run],
            name="fig15" + ("" if options.operation == ALL_OPERATIONS else f"_{options.operation}"),
            table_of="fig2" if options.operation == ALL_OPERATIONS else "",
            title="Figure 15: the large maps, every number in its cell",
            caption="Numbers: mean effects, in percent if relative. " + FRAMED_MLPS,
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
    texts = [[*row] for row in _numbers(panel.values, digits)]
    for mark in panel.marks:
        name = f"<b>{mark.row}.{mark.column}</b><br>"
        texts[mark.row][mark.column] = name + texts[mark.row][mark.column]
    strip_texts = _numbers(panel.strips, digits)
    return replace(panel, texts=tuple(map(tuple, texts)), strip_texts=strip_texts)


def _numbers(values: np.ndarray, digits: int, least: float = 0) -> tuple[tuple[str, ...], ...]:
    """The texts of cells, for numbers of this size at least."""

    def number(value: float) -> str:
        text = f"{value:+.{digits}f}"
        return (text.replace("-", "−") if float(text) else "0") * (abs(value) >= least)

    return tuple(tuple(map(number, row)) for row in values.tolist())


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
