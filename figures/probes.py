"""Figures 6, 13, 14 and 17: what MLPs read and what they write, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.plotting.page import reach
from arith_lens.runs import RunError
from figures.common import ModelOptions, Options, chosen_run, chosen_runs, runs_by_name
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import probes as numbers
from figures.tables import sums
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import line
from figures.views.words import size_text, span_text

EXPERIMENT = "what_do_mlps_add"
DIGITS = [str(digit) for digit in range(10)]
READS = {
    "mlp_in": (
        ("A", "A", COLOURS["operand"], "solid"),
        ("B", "B", COLOURS["operand"], "dot"),
        ("C", "C", COLOURS["answer"], "dash"),
        (numbers.OTHERS["mlp_in"], "others", COLOURS["control"], "solid"),
    ),
    "write": (
        ("C", "C", COLOURS["answer"], "solid"),
        (numbers.OTHERS["write"], "others", COLOURS["control"], "solid"),
    ),
}
"""The tokens of each site, their names in the figure, their colours and dashes."""


@dataclass(frozen=True)
class OperationOptions(Options):
    """Which run to draw, and where to."""

    operation: str | None = None
    """Which of the run's operations; the first, addition, if not given."""


def fig6(options: OperationOptions) -> list[Chart]:
    """Figure 6: the operands in what MLPs read, the answer in what they write, and one prompt.

    Reads a run of `experiments what_do_mlps_add` (by its settings, or `--run PATH`)
    and draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV.

    Raises:
        RunError: there is no run, or it lacks the operation.
    """
    run = chosen_run(options, EXPERIMENT)
    operation = options.operation or run.config["operations"][0]
    if operation not in run.config["operations"]:
        raise RunError(
            f"expected one of {', '.join(run.config['operations'])}, found {operation!r}"
        )
    return [
        chart_of(
            lambda: numbers.table(run),
            [run],
            name="fig6" if options.operation is None else f"fig6-{operation}",
            title=f"Figure 6: what MLPs read and what they write, {operation}",
            caption=lambda _: OPERATION_CAPTION,
            notes=partial(_notes, operation=operation),
            draw=partial(_draw_operation, operation=operation),
        )
    ]


OPERATION_CAPTION = (
    "In the paper the numbers A and B rise in what MLPs read and fall again (a), then the answer C "
    "rises in what they write (b); the layers where the one falls and the other rises agree. In a "
    "single prompt (c) operands come first, the answer last, its neighbours in between."
)


def _draw_operation(table: DataFrame, notes: Sequence[str], operation: str) -> plotting.Figure:
    """What MLPs read, what they write, and the case study."""
    rows = select(table, operation=operation)
    case = select(rows, measure=numbers.CASE_COSINE)
    (prompt,) = keys_of(case, "prompt")
    text = plotting.plain(prompt.strip())
    empty = plotting.Line(np.zeros(1), np.zeros(1), "", "white")
    titles = ("MLP input", "MLP output − input", f"“{text}”: output − input")
    figure = plotting.curve_panels(
        [
            _panel(rows, "mlp_in", titles[0], "Cosine similarity"),
            _panel(rows, "write", titles[1], ""),
            plotting.CurvePanel(titles[2], (empty,), y_range=(0, 1)),
        ],
        x_title="Layer",
        notes=notes,
        across=2,
        panel=(290, 250),
    )
    cosines = case.pivot(index="layer", columns="token", values="value")[DIGITS].to_numpy()
    plotting.add_grid(
        figure,
        2,
        plotting.Grid(
            cosines,
            rows=tuple(map(str, range(len(cosines)))),
            columns=tuple(DIGITS),
            winners=tuple(cosines.argmax(1).tolist()),
            framed=int(value(rows, measure="C")),
            axes=("Layer", "Number token"),
            colour_title="cosine (red supports the digit)",
        ),
    )
    return figure


def _notes(table: DataFrame, config: Settings, operation: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    rows = select(table, operation=operation)
    a, b, c = (value(rows, measure=name) for name in numbers.NUMBERS)
    normed = " after the final norm" if config["final_norm"] else ""
    return [
        f"Model: {config['model']}, {operation}. {_prompts_note(rows, config)} "
        "Bands: 95% intervals.",
        f"Cosines at END with columns of W_U{normed}. Others: a, digits that are neither A, B nor "
        "C; b, digits that are not C.",
        "Turning layers are of the curves as they are, the common rise of all digits in them. "
        f"In a: {TURNING_NOTE['mlp_in']} In b: {TURNING_NOTE['write']}",
        f"Turning layers with 95% intervals: a {_turning_text(rows, 'mlp_in')}; b "
        f"{_turning_text(rows, 'write')}.",
        "In c, printed: the digit that each layer writes most. Red: along the digit's column, so "
        "the write supports it, as in Figure 2; blue: against it. "
        f"A = {a:.0f}, B = {b:.0f}; framed: the answer, {c:.0f}.",
    ]


def fig13(options: ModelOptions) -> list[Chart]:
    """Figures 13 and 14: what MLPs read of the operands and write of the answer, in several models.

    Reads the run of `experiments what_do_mlps_add` of each model (or `--runs PATH PATH`)
    and draws them without loading a model.

    Raises:
        RunError: a run is missing, or the runs share no operation.
    """
    return _models(options, "fig13")


def fig14(options: ModelOptions) -> list[Chart]:
    """Figures 13 and 14, the same picture: A and B in what MLPs read, C in what they write.

    Reads the run of `experiments what_do_mlps_add` of each model (or `--runs PATH PATH`)
    and draws them without loading a model.

    Raises:
        RunError: a run is missing, or the runs share no operation.
    """
    return _models(options, "fig14")


def _panel(rows: DataFrame, site: str, title: str, y_title: str) -> plotting.CurvePanel:
    """The mean cosines of one site in one operation with 95% bands, and where they turn."""
    of_site = select(rows, site=site, less="")
    curves = select(of_site, measure=numbers.COSINE)
    points = sorted({*select(of_site, measure=numbers.POINTS).value})
    return plotting.CurvePanel(
        title=title,
        lines=tuple(
            line(select(curves, token=token), name, colour, x="layer", scale=1, dash=dash)
            for token, name, colour, dash in READS[site]
        ),
        guides=tuple((point, f"{point:.0f}") for point in points),
        y_title=y_title,
    )


def _turning_text(rows: DataFrame, site: str) -> str:
    """The turning layers of one site's main curve with their 95% intervals, in words."""
    texts = dict.fromkeys(numbers.POINTS, "none")
    for one in records(select(rows, site=site, less="", measure=numbers.POINTS)):
        interval = "" if isnan(one.low) else f" ({one.low:.0f} to {one.high:.0f})"
        texts[one.measure] = f"{one.value:.0f}{interval}"
    return ", ".join(texts.values())


def _prompts_note(table: DataFrame, config: Settings) -> str:
    """How many prompts each model has in each operation of the table, and the seed."""
    counts = []
    for model in keys_of(table, "model"):
        rows = select(table, model=model)
        sizes = [size_text(rows, operation=name) for name in keys_of(rows, "operation")]
        counts.append(f"{model} ({', '.join(sizes)})")
    return f"Distinct prompts, all answered right: {'; '.join(counts)}; seed {config['seed']}."


TURNING_NOTE = {
    "mlp_in": "dotted: of the mean of A and B, the last layer with at most a tenth of the rise, "
    "the highest, and the first with nine tenths of the fall behind it.",
    "write": "dotted: of the right answer, the last layer with at most a tenth of the rise, the "
    "first with half of it, and the first with nine tenths.",
}


def _models(options: ModelOptions, name: str) -> list[Chart]:
    """Both sites in several models."""
    runs = runs_by_name(chosen_runs(options, EXPERIMENT))
    first, *others = (run.config["operations"] for run in runs.values())
    operations = [name for name in first if all(name in of_one for of_one in others)]
    if not operations:
        raise RunError("expected an operation that all runs have, found none")
    return [
        chart_of(
            lambda: [
                replace(numbers.site_table(run, site), model=model)
                for model, run in runs.items()
                for site in numbers.SITES
            ],
            [*runs.values()],
            name=name,
            title="What do MLPs read of A and B, and write of C?",
            caption=lambda table: _models_caption(select(table, operation=operations)),
            notes=lambda table, config: _model_notes(select(table, operation=operations), config),
            draw=lambda table, notes: _draw_models(select(table, operation=operations), notes),
        )
    ]


def _models_caption(table: DataFrame) -> str:
    """What the runs show, and what a line is."""
    findings = [
        f"In `{model}`, {_peaks(select(table, model=model))}." for model in keys_of(table, "model")
    ]
    return (
        f"{' '.join(findings)} A line is the mean cosine at END with columns of W_U, less that of "
        "the other digits. Circles are maxima over layers, bands 95% intervals over n problems."
    )


def _model_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figures 13 and 14, and what they were made from."""
    return [
        "Cosine at END with a digit's column of W_U, less the mean of the other digits', so these "
        "are 0 by construction. Circles: maxima over layers. Bands: 95% intervals.",
        _prompts_note(table, config),
    ]


LINES = {
    ("mlp_in", "A and B"): ("A, B input", COLOURS["operand"], "dash"),
    ("mlp_in", "C"): ("C input", COLOURS["answer"], "dash"),
    ("write", "C"): ("C written", COLOURS["answer"], "solid"),
}
"""The site and token of each curve of Figures 13 and 14, its name, its colour and dash."""


def _curve(table: DataFrame, site: str, token: str) -> DataFrame:
    """The curve of a token at a site, less the other digits."""
    less = numbers.OTHERS["write" if token == "C" else site]
    return select(table, measure=numbers.COSINE, site=site, token=token, less=less)


def _highest(curves: DataFrame) -> DataFrame:
    """The highest layer of the curve of each operation."""
    return curves.loc[curves.groupby("operation").value.idxmax()]


def _peak_text(table: DataFrame, site: str, token: str) -> str:
    """The highest mean cosine of a curve over the operations, and in which layers it is."""
    peaks = _highest(_curve(table, site, token))
    layers = f"layer{'s' * (peaks.layer.nunique() > 1)} {span_text(peaks.layer, '.0f')}"
    return f"{span_text(peaks.value, '.2f')} ({layers})"


def _peaks(table: DataFrame) -> str:
    """The highest mean cosine of each curve over the operations, and in which layers it is."""
    texts = {curve: _peak_text(table, *curve) for curve in LINES}
    return (
        f"C in what MLPs write reaches {texts['write', 'C']}; in their input, A and B reach "
        f"{texts['mlp_in', 'A and B']}, C {texts['mlp_in', 'C']}"
    )


def _draw_models(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One row per model, one column per operation, on one scale."""
    models, operations = keys_of(table, "model"), keys_of(table, "operation")
    curves = [_curve(table, *curve)[end] for curve in LINES for end in ("low", "high")]
    low, high = reach(curve.to_numpy() for curve in curves)
    panels = []
    for model in models:
        for operation in operations:
            panel = _model_panel(select(table, model=model, operation=operation))
            named = operation == operations[-1]  # the last chart has the lines' names
            lines = (one if named else replace(one, label="") for one in panel.lines)
            y_title = "Cosine above other digits" * (operation == operations[0])
            ends = (low, high + 0.05 * (high - low))  # room for the texts of circles
            panels.append(replace(panel, lines=tuple(lines), y_title=y_title, y_range=ends))
    return plotting.curve_panels(
        panels,
        headings=models,
        x_title="Layer",
        notes=notes,
        across=len(operations),
        panel=(170, 245),
    )


def _model_panel(rows: DataFrame) -> plotting.CurvePanel:
    """What MLPs read and write in one model and operation, with the highest layer of both."""
    lines, points = [], []
    for at, ((site, token), (name, colour, dash)) in enumerate(LINES.items()):
        curve = _curve(rows, site, token)
        lines.append(line(curve, name, colour, x="layer", scale=1, dash=dash))
        (peak,) = records(_highest(curve))
        points.append(plotting.Point(peak.layer, f"{peak.value:.2f}", at))
    x = lines[0].x
    lines.append(plotting.Line(x, np.zeros(len(x)), "others = 0", COLOURS["control"]))
    (operation,), n = keys_of(rows, "operation"), curve.n.max()
    title = f"{plotting.plain(operation.capitalize())}, n = {n:.0f}"
    return plotting.CurvePanel(title, tuple(lines), tuple(points))


CLASS_COLOURS = {
    "C": COLOURS["answer"],
    "A or B": COLOURS["operand"],
    "C±1": "#a0d3f9",
    "other": COLOURS["pale control"],
}


def fig17(options: Options) -> list[Chart]:
    """Figure 17: the column addition of a computer beside what each layer of the model writes.

    Reads a run of `experiments like_a_computer` (by its settings, or `--run PATH`)
    and draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "like_a_computer")
    return [
        chart_of(
            lambda: sums.table(run),
            [run],
            name="fig17",
            title="Does the model add like a computer?",
            caption=_sums_caption,
            notes=_sums_notes,
            draw=_draw_sums,
        )
    ]


def _sums_caption(table: DataFrame) -> str:
    """From which layer on each prompt's answer stays first."""
    findings = []
    for model in keys_of(table, "model"):
        rows = select(table, model=model)
        parts = [_from_layer(select(rows, case=case)) for case in keys_of(rows, "case")]
        findings.append(f"`{model}`: {'; '.join(parts)}")
    return (
        "The right digit becomes the one that MLPs write most, and stays it, in "
        f"{'. In '.join(findings)}. A cell is one layer and the digit whose column of W_U its "
        "MLP's output is nearest to at END; below is its lead in cosine. These are single prompts, "
        "so there is no interval; the picture has the first model."
    )


def _from_layer(rows: DataFrame) -> str:
    """From which layer on all layers write the answer most."""
    text = keys_of(rows, "prompt")[0].strip()
    if not has(rows, measure=sums.FROM_LAYER):
        return f"“{text}” not in the last layer"
    return f"“{text}” from layer {value(rows, measure=sums.FROM_LAYER):.0f} on"


def _sums_notes(_: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 17, and what it was made from."""
    return [
        "Left: carries, both addends, sum; below, the number in the "
        "sum's columns after each step from the right. Right: the digit whose column of W_U has "
        "the largest cosine with what the MLP adds at END, layers from 0. C is the digit of the "
        "answer. Margin: its cosine less that of the second digit; a small one decides little.",
        "A digit that is several of these counts as the first of them; A or B means any digit of "
        "theirs.",
    ]


def _draw_sums(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One line per prompt, of the first model."""
    table = select(table, model=keys_of(table, "model")[0])
    return plotting.step_panels(
        [_steps(select(table, case=case)) for case in keys_of(table, "case")],
        cells_title="digit that each layer's MLP writes most",
        feet_title="layer; below, the digit's margin over the next one",
        legend=tuple(CLASS_COLOURS.items()),
        notes=notes,
    )


def _steps(rows: DataFrame) -> plotting.Steps:
    """One prompt: base 2 and base 10 on the left, the model's layers on the right."""
    prediction = select(rows, measure=sums.PROBABILITY)
    (one,) = records(prediction)
    right = "" if one.prediction == one.answer else f", right would be {one.answer}"
    tables = []
    for base in keys_of(rows, "base"):
        of_base = select(rows, base=base).sort_values("column")
        lines = []
        for name in sums.COLUMNS:
            digits = select(of_base, measure=name).value[::-1]
            lines.append(f"{name:<6}{''.join(f'{digit:.0f}' for digit in digits)}")
        steps = (f"{step:.0f}" for step in select(of_base, measure=sums.STEP).value)
        tables.append((f"base {base:.0f}", (*lines, f"steps {' → '.join(steps)}")))
    layers = records(select(rows, measure=sums.MARGIN).sort_values("layer"))
    return plotting.Steps(
        title=f"{one.prompt.strip()}  →  {one.prediction} ({one.value:.0%}){right}",
        tables=tuple(tables),
        cells=tuple((layer.digit, CLASS_COLOURS[layer.digit_class]) for layer in layers),
        feet=tuple(f"{layer.value:.2f}".lstrip("0") for layer in layers),
    )
