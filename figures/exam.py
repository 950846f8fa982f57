"""Do the methods find circuits that are known? Errors, AUROC and the saturation dial.

Reads the runs of `experiments do_they_find_known_circuits`, one per built model, and draws them
without loading a model.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from textwrap import fill
from typing import Any, cast

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, UNSEEN_LABELS, WHOLE
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import Run, find_runs
from experiments.built_carries import CARRY_MODELS
from experiments.exam import DIAL
from experiments.finding import NotComputed, RunSettings, experiment_command, find_run
from experiments.results import EXACT
from figures.common import FREE, holds_tables, run_with
from figures.exhibit import Exhibit, chart_of, text_table_of
from figures.options import ExamOptions
from figures.tables import exam as numbers
from figures.tables.carry import MEAN, SEARCH
from figures.tables.exam import FOLLOWS, P_LABELS, ExamRun
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import line
from figures.views.words import PATHS_TITLES, display_name

EXPERIMENT = "do_they_find_known_circuits"
DIALS_ACROSS = 5
ERRORS = (
    "Error: the largest of any part and pair, in percent of the model's largest true effect; a "
    "method that gives 0 everywhere has 100%. AtP* has no signs: sizes are compared."
)
DIFFICULTIES = {
    "table": "saturation",
    "cancelling": "opposite heads",
    "clock": "cosine products",
    "deep": "chain of 3 MLPs",
    "inhibiting": "an opposing head",
    "key_composition": "key from a head",
    "query_composition": "query from a head",
    "redundant": "two equal heads",
    "sandwich": "post-norms",
    "soft": "unsharp attention",
    "thermometer": "cancelling hinges",
    "value_composition": "value from an MLP",
}
"""What a model has that a method may miss; a row of several models has that of the first one."""
FAMILIES = {
    "": (EXACT,),
    "relevance": ("relp", "attn_lrp", "gim"),
    "integrated": ("eap_ig", "ig_activations"),
    "gradients": ("clean_corrupted", "atp", "atp_star", "atp_held_norms"),
}
"""The methods of a picture in their order."""
SHORT = {"clean_corrupted": "both ends", "ig_activations": "activations"}
"""Names on a narrow page that are shorter there."""


def exhibits(options: ExamOptions) -> list[Exhibit]:
    """Charts of errors and of the dial, and two tables. Raises RunError if a model has no run."""
    if holds_tables(options.root, EXPERIMENT):
        exam_models, runs = [], [run_with(RunSettings({}), EXPERIMENT, "reference", options.root)]
    else:
        exam_models = _exam_models(options)
        runs = [paper.run for paper in exam_models]
    carries = [paper for paper in exam_models if paper.built in CARRY_MODELS]
    exam_models = [paper for paper in exam_models if paper not in carries]
    if carries and not exam_models:
        return _carry_table(carries)
    plain = [paper for paper in exam_models if paper.dial is None]
    graded = partial(numbers.grades, plain)
    dial: list[Exhibit] = []
    if len(plain) < len(exam_models) or not exam_models:
        chart = chart_of(
            lambda: numbers.dial_errors(exam_models),
            runs,
            name="exam_dial",
            title="Where do approximations fail as attention and neurons become sharp?",
            caption=f"A line is the largest error of one method. {ERRORS}",
            draw=draw_dial,
        )
        dial.append(chart)
    return [
        chart_of(
            graded,
            runs,
            name="exam",
            title="Which methods give the true effects on models whose circuit is known?",
            caption="Each row is a model built with one difficulty; in brackets: how many models "
            "have the same errors. All paths: later heads change, too; a row of its own where "
            f"errors differ. {ERRORS} Exact effects are true by construction.",
            draw=_draw,
        ),
        *dial,
        text_table_of(
            graded,
            runs,
            name="exam_summary",
            table_of="exam",
            title="What each method finds, and where it fails",
            caption="AUROC is 100% if every member of the circuit has a larger effect than every "
            f"other component. {ERRORS}",
            cells=_summary_cells,
        ),
        *_shape_table(plain, runs),
        *_carry_table(carries),
    ]


def _shape_table(exam_runs: Sequence[ExamRun], runs: Sequence[Run]) -> list[Exhibit]:
    """What swaps of A say of the models whose digits have a known shape; none without such runs."""
    tables = numbers.shapes(exam_runs)
    if not tables:
        return []
    table = text_table_of(
        tables,
        runs,
        name="exam_shapes",
        title="Do swaps of a number find the shape that was built?",
        caption="A's digit is at END after layer 0, and is used later. Unseen values: left out of "
        "the fit and written by the shape; only they tell a shape from a table. In brackets: p of "
        "permuted labels.",
        cells=_shape_cells,
    )
    return [table]


def _carry_table(exam_runs: Sequence[ExamRun]) -> list[Exhibit]:
    """What interchanges say of the models that have a carry; none without such runs."""
    tables = numbers.carries(exam_runs)
    if not tables:
        return []
    table = text_table_of(
        tables,
        [paper.run for paper in exam_runs],
        name="exam_carries",
        title="Does an interchange find the carry that was built?",
        caption="Residual stream at END. The carry is there from the exit of layer 1 on, and "
        "layer 2 reads it: as one number, or as the product of two. Percent of answers that "
        "follow.",
        cells=_carry_cells,
    )
    return [table]


def _carry_cells(table: DataFrame) -> DataFrame:
    """One line per model, fit and layer, as text."""
    lines = []
    for keys, rows in table.groupby(["model", "fit", "layer"], sort=False):
        model, fit, layer = cast("tuple[Any, Any, Any]", keys)
        line = {
            "model": str(model).replace("_", " "),
            "directions": FITS[str(fit)],
            "layer": str(layer),
        }
        for one in records(DataFrame(rows)):
            column = "exchanged" if one.space in (MEAN, SEARCH) else one.space
            line[column] = f"{one.value:.0%}"
        lines.append(line)
    return DataFrame(lines).fillna("")


FITS = {"mean": "difference of means", "das_1": "search, one", "das_2": "search, two"}
"""How the directions are fitted."""
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


def _exam_models(options: ExamOptions) -> list[ExamRun]:
    """The run of each model with the settings of the options, sorted by name and dial."""
    values = dict((options.settings or FREE).values)
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
            experiment_command(EXPERIMENT, "", (options.settings or FREE).values, options.root),
        )
    return sorted(exam_models, key=lambda paper: (paper.built, paper.dial or 0.0))


def _draw(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """The errors: models by that of the best approximation, methods by their families.

    A row has the errors with other heads frozen. The next one has those over all paths, where they
    differ.
    """
    errors = select(table, measure=numbers.ERROR)
    present = keys_of(table, "method")
    families = {name: [one for one in of if one in present] for name, of in FAMILIES.items()}
    methods = [one for of in families.values() for one in of]
    cells = {
        paths: 100 * rows.pivot(index="model", columns="method", values="value")[methods]
        for paths in PATHS_TITLES
        if len(rows := select(errors, paths=paths))
    }
    many = errors.model.nunique()
    parts = [(f"median of {many}" + " models" * (not is_narrow()), [*errors.model.unique()])]
    parts += [(_row_name(models), models[:1]) for models in _equal_models(errors)]
    lines: list[tuple[str, np.ndarray, bool]] = []
    for name, models in parts:
        own = {paths: one.loc[models].median().to_numpy() for paths, one in cells.items()}
        differ = len({tuple(np.round(one)) for one in own.values()}) > 1
        for place, (paths, values) in enumerate(own.items()):
            if place == 0 or differ:
                further = (name + ", ") * (not is_narrow()) or "– "
                further += PATHS_TITLES[paths]
                lines.append((further if place else name, values, len(models) == many))
        if len(models) == many:
            lines.append(("single models:", np.full(len(methods), np.nan), False))
    rows, values, strong = (tuple(column) for column in zip(*lines, strict=True))
    short, length = (SHORT, 20) if is_narrow() else ({}, 11)
    names = tuple(fill(short.get(name, display_name(name)), length) for name in methods)
    groups = tuple((name, len(of)) for name, of in families.items())
    part = plotting.Matrix("", rows, names, np.stack(values), strong, groups=groups, is_log=True)
    return plotting.matrix_panels([part], colour_title="largest error", notes=notes)


def _equal_models(errors: DataFrame) -> list[list[str]]:
    """Models by the error of RelP, the best of most; those with equal errors are together."""
    own = select(errors, paths=[*PATHS_TITLES])
    whole = 100 * own.pivot(index="model", columns=["paths", "method"], values="value")
    groups: dict[tuple[float, ...], list[str]] = {}
    for model in whole.sort_values([(paths, "relp") for paths in PATHS_TITLES]).index:
        groups.setdefault(tuple(whole.loc[model].round().fillna(-1)), []).append(str(model))
    return [sorted(some, key=lambda name: name not in DIFFICULTIES) for some in groups.values()]


def _row_name(models: Sequence[str]) -> str:
    """What the first of some models with equal errors has, and how many they are."""
    many = f" ({len(models)}{' models' * (not is_narrow())})" * (len(models) > 1)
    return DIFFICULTIES.get(models[0], models[0].replace("_", " ")) + many


def draw_dial(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One panel per model and method, in rows of models."""
    parts, headings = [], []
    for model, paths in DIAL.items():
        rows = select(table, measure=numbers.ERROR, model=model)
        rows = rows.assign(sharpness=np.log2(rows.dial))
        methods = sorted(keys_of(rows, "method"), key=lambda name: name != EXACT)
        n_rows = -(-len(methods) // DIALS_ACROSS)
        headings += [f"{model.replace('_', ' ')}: {PATHS_TITLES[paths]}", *[""] * (n_rows - 1)]
        top = 105 * rows.value.max()
        for method in methods:
            own = line(select(rows, method=method), method, COLOURS["verdict"], x="sharpness")
            title = plotting.plain(display_name(method))
            parts.append(plotting.CurvePanel(title, (replace(own, label=""),), y_range=(0, top)))
        parts += [None] * (n_rows * DIALS_ACROSS - len(methods))
    return plotting.curve_panels(
        parts,
        x_title="log2 of the dial",
        unit="%",
        notes=notes,
        headings=headings,
        across=DIALS_ACROSS,
        panel=(130, 64),
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
