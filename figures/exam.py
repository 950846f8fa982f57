"""Do the methods find circuits that are known? Errors, AUROC and the saturation dial.

Reads the runs of `experiments do_they_find_known_circuits`, one per built model, and draws them
without loading a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from arith_lens.plotting import COLOURS, Width
from arith_lens.runs import Run, find_runs
from experiments.approximations import DIAL
from experiments.finding import RESULTS, NotComputed, RunSettings, experiment_command, find_run
from experiments.results import EXACT
from figures.common import FREE, Formats
from figures.exhibit import Exhibit, Settings, chart_of, text_table_of
from figures.tables import exam as numbers
from figures.tables.exam import ExamRun
from figures.tables.numbers import FOLLOWS, P_LABELS
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import line
from figures.views.words import display_name

EXPERIMENT = "do_they_find_known_circuits"
DIALS_ACROSS = 5
PATHS_TITLES = {"via_mlps": "Heads frozen (via MLPs)", "total": "All paths (total)"}


@dataclass(frozen=True)
class Options:
    """Which runs to show, and where the files go."""

    out: Path = Path("figures") / "built_models"
    """Where the files go."""
    root: Path = RESULTS
    """The folder of all runs."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""
    width: Width = "screen"
    """A column (3.3 in) or a page (6.9 in) of a paper, in files of their own; or a screen."""
    settings: tyro.conf.Suppress[RunSettings] = FREE
    """The settings of the runs; the command line has those of their experiment."""


def exhibits(options: Options) -> list[Exhibit]:
    """Charts of errors and of the dial, and two tables. Raises RunError if a model has no run."""
    exam_models = _exam_models(options)
    plain = [paper for paper in exam_models if paper.dial is None]
    runs, graded = [paper.run for paper in exam_models], numbers.grades(plain)
    dial: list[Exhibit] = []
    if of_dial := numbers.dial_errors(exam_models):
        chart = chart_of(
            of_dial,
            runs,
            name="exam_dial",
            title="The error of approximations as attention and neurons become sharp",
            caption=lambda _: (
                "A method is right where its line lies at 0. Elsewhere it misses the circuit."
            ),
            notes=_notes,
            draw=draw_dial,
        )
        dial.append(chart)
    return [
        chart_of(
            graded,
            runs,
            name="exam",
            title="The largest error of each method on models whose circuit is known",
            caption=lambda _: (
                "White: the number is the true effect. The first row, the exact method, is white "
                "everywhere. But a true effect can miss a head of the circuit (next table)."
            ),
            notes=_notes,
            draw=_draw,
        ),
        *dial,
        text_table_of(
            graded,
            runs,
            name="exam_summary",
            title="What each method finds, and where it fails",
            caption=lambda _: (
                "AUROC is 100% if every member of the circuit has a larger effect than every "
                "other component."
            ),
            notes=_notes,
            cells=_summary_cells,
        ),
        *_shape_table(plain, runs),
        text_table_of(
            numbers.shares(plain),
            runs,
            name="exam_shares",
            title="Effects of three components, as shares of the exact ones",
            caption=lambda _: "100% is right. docs/known_circuits.md has what was expected.",
            notes=_notes,
            cells=_share_cells,
        ),
    ]


def _shape_table(exam_runs: Sequence[ExamRun], runs: Sequence[Run]) -> list[Exhibit]:
    """What swaps of A say of the models whose digits have a known shape; none without such runs."""
    tables = numbers.shapes(exam_runs)
    if not tables:
        return []
    return [
        text_table_of(
            tables,
            runs,
            name="exam_shapes",
            title="Do swaps of a number find the shape that was built?",
            caption=lambda _: (
                "Only values that were not fitted tell a shape from a table: permuted labels fail "
                "there."
            ),
            notes=lambda *_: [
                "A's digit is at END after layer 0, and is used later. Unseen values: left out of "
                "the fit and written by the shape. In brackets: p of permuted labels."
            ],
            cells=_shape_cells,
        )
    ]


SHAPE_COLUMNS = {
    UNSEEN: "unseen values",
    UNSEEN_LABELS: "unseen, labels permuted",
    OWN: "swap",
    CONTROLS["labels"]: "swap, labels permuted",
    CONTROLS["pca"]: "PCA",
    CONTROLS["span"]: "random in the span",
    CONTROLS["means"]: "all class means",
    WHOLE: "whole vector",
    CONTROLS["stream"]: "random (cannot fail)",
}


def _shape_cells(table: DataFrame) -> DataFrame:
    """One line per model and shape, as text."""
    lines = []
    for model in keys_of(table, "model"):
        for shape in keys_of(select(table, model=model), "shape"):
            rows = select(table, model=model, shape=shape)
            line = {"model": model, "shape": str(shape).replace("_", " ")}
            for space, column in SHAPE_COLUMNS.items():
                own = select(rows, space=space)
                text = f"{value(own, measure=FOLLOWS):.0%}"
                if has(own, measure=P_LABELS):
                    text += f" [{value(own, measure=P_LABELS):.2f}]"
                line[column] = text
            lines.append(line)
    return DataFrame(lines)


def _exam_models(options: Options) -> list[ExamRun]:
    """The run of each model with the settings of the options, sorted by name and dial."""
    values = dict(options.settings.values)
    names, dial = values.pop("models", None) or None, values.pop("dial", None)
    configs = {run.config["model"]: run.config for run in find_runs(EXPERIMENT, root=options.root)}
    exam_models = [
        ExamRun(config["built"], config["dial"], run)
        for model, config in configs.items()
        if (config["dial"] is None and (names is None or config["built"] in names))
        or (config["dial"] is not None and (dial is None or config["dial"] in dial))
        for run in [find_run(EXPERIMENT, model, RunSettings(values), (options.root,))]
    ]
    if not exam_models:
        raise NotComputed(
            f"expected finished runs under {options.root / EXPERIMENT}, found none",
            experiment_command(EXPERIMENT, "", options.settings.values, options.root),
        )
    return sorted(exam_models, key=lambda model: (model.built, model.dial or 0.0))


def _methods(rows: DataFrame) -> list[str]:
    """The methods, the exact one first."""
    return sorted(keys_of(rows, "method"), key=lambda name: name != EXACT)


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The errors: methods by their median error, models by their largest, a panel per paths."""
    parts = []
    for paths, title in PATHS_TITLES.items():
        rows = select(table, measure=numbers.ERROR, paths=paths)
        errors = {(one.method, one.model): one.value for one in records(rows)}
        median = {name: part.value.median() for name, part in rows.groupby("method")}
        methods = sorted(keys_of(rows, "method"), key=lambda name: (name != EXACT, median[name]))
        worst = {name: part.value.max() for name, part in rows.groupby("model")}
        models = sorted(keys_of(rows, "model"), key=lambda name: worst[name])
        values = [[100 * errors.get((name, model), np.nan) for model in models] for name in methods]
        columns = plotting.Columns("", tuple(models), np.array(values))
        parts.append(
            plotting.Matrix(plotting.plain(title), tuple(map(display_name, methods)), (columns,))
        )
    return plotting.matrix_panels(
        parts,
        colour_title="largest error",
        unit="%",
        limit=200,
        upright=True,
        rising=True,
        notes=notes,
    )


def draw_dial(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One panel per model and method, in rows of models."""
    parts, headings = [], []
    for model, paths in DIAL.items():
        rows = select(table, measure=numbers.ERROR, model=model)
        rows = rows.assign(sharpness=np.log2(rows.dial))
        methods = _methods(rows)
        n_rows = -(-len(methods) // DIALS_ACROSS)
        headings += [f"{model}: {PATHS_TITLES[paths]}", *[""] * (n_rows - 1)]
        top = 105 * rows.value.max()
        for method in methods:
            own = line(select(rows, method=method), method, COLOURS["chosen"], x="sharpness")
            title = plotting.plain(display_name(method))
            one = plotting.CurvePanel(title, (replace(own, label=""),), y_range=(0, top))
            parts.append(one)
        empty = n_rows * DIALS_ACROSS - len(methods)
        parts += [None] * empty
    return plotting.curve_panels(
        parts,
        x_title="log2 of the dial",
        unit="%",
        notes=notes,
        headings=headings,
        across=DIALS_ACROSS,
        panel=(130, 90),
    )


AUROC_COLUMNS = {
    "AUROC heads": numbers.AUROC_HEADS,
    "AUROC MLPs": numbers.AUROC_MLPS,
    "AUROC edges": numbers.AUROC_EDGES,
}


def _summary_cells(table: DataFrame) -> DataFrame:
    """One line per kind of paths and method, as text."""
    lines = []
    for paths in keys_of(table, "paths"):
        for method in keys_of(select(table, paths=paths), "method"):
            rows = select(table, paths=paths, method=method)
            of_all = select(rows, model=numbers.ALL_MODELS)
            errors = records(select(rows, measure=numbers.ERROR))
            heads = records(select(rows, measure=numbers.AUROC_HEADS))
            largest, median = (
                value(of_all, measure=f"{numbers.ERROR}, {which}")
                for which in (numbers.LARGEST, numbers.MEDIAN)
            )
            line: dict[str, Any] = {"paths": paths, "method": display_name(method)}
            line |= {"largest error": f"{largest:.2g}"}
            line |= {"in": max(errors, key=lambda one: one.value).model}
            line |= {"median error": f"{median:.2g}"}
            for column, measure in AUROC_COLUMNS.items():
                mean = f"{measure}, {numbers.MEAN}"
                known = has(of_all, measure=mean)
                line[column] = f"{value(of_all, measure=mean):.0%}" if known else "-"
            missed = [one.model for one in heads if one.value < 1]
            lines.append(line | {"heads missed in": ", ".join(missed) or "-"})
    return DataFrame(lines)


def _share_cells(table: DataFrame) -> DataFrame:
    """One line per method, one column per component, as text."""
    rows = records(select(table, measure=numbers.SHARE))
    columns = dict.fromkeys(f"{one.model}, {one.paths}: {one.component}" for one in rows)
    lines: dict[str, dict[str, str]] = {}
    for one in rows:
        line = lines.setdefault(
            one.method, {"method": display_name(one.method)} | dict.fromkeys(columns, "-")
        )
        line[f"{one.model}, {one.paths}: {one.component}"] = f"{one.value:.0%}"
    return DataFrame([*lines.values()])


def _notes(table: DataFrame, _: Settings) -> list[str]:
    """How many models and pairs there are, and what an error is."""
    pairs = select(table, measure=numbers.PAIRS)
    models, sizes = keys_of(pairs, "model"), sorted(keys_of(pairs, "value"))
    return [
        f"{len(models)} models, {'/'.join(f'{size:.0f}' for size in sizes)} pairs each; the metric "
        "is C's logit. The error is the largest one of any component and pair, as a share of the "
        "model's largest true effect. AtP* has no sign: it is compared with sizes.",
    ]
