"""Figures 6, 13, 14 and 17: what MLPs read and what they write, layer by layer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from arith_lens.runs import RunError
from figures.common import chosen_run, chosen_runs, runs_by_name
from figures.exhibit import Chart, chart_of
from figures.options import ModelOptions, OperationOptions, Options
from figures.tables import probes as numbers
from figures.tables import sums
from figures.tables.table import keys_of, records, select, value
from figures.views import curves
from figures.views.curves import CurveChart, Series

EXPERIMENT = "what_do_mlps_add"
DIGITS = [str(digit) for digit in range(10)]
SITES = {
    "mlp_in": (
        ("A", "A", "operand"),
        ("B", "B", "operand dot"),
        ("C", "C", "answer"),
        (numbers.OTHERS["mlp_in"], "others", "control"),
    ),
    "write": (("C", "C", "answer"), (numbers.OTHERS["write"], "others", "control")),
}
"""The tokens of each site, their names in the figure, and their looks."""
TITLES = {"mlp_in": "MLPs read", "write": "MLPs write"}
LAYERS: dict[str, Any] = {"x": "layer", "x_title": "layer", "scale": 1}


ONE_OPERATION = CurveChart(
    {"measure": numbers.COSINE, "less": ""},
    tuple(
        Series({"site": TITLES[site], "token": token}, name, style, end=f"{name} {{:.2f}}")
        for site, tokens in SITES.items()
        for token, name, style in tokens[::-1]
    ),
    columns="site",
    title="{site}, n = {n}",
    y_title="cosine similarity",
    **LAYERS,
)


SEVERAL_MODELS = [
    CurveChart(
        {"measure": numbers.COSINE},
        tuple(
            Series(
                {"site": site, "token": token, "less": numbers.OTHERS[less]},
                name,
                style,
                end="{:.2f}",
            )
            for site, token, less, name, style in (
                ("mlp_in", "A and B", "mlp_in", "reads A, B", "operand dash"),
                ("mlp_in", "C", "write", "reads C", "answer dash"),
                ("write", "C", "write", "writes C", "answer"),
            )
        ),
        rows="model",
        columns="operation",
        heading="{model}",
        title="{operation}, n = {n}",
        y_title="cosine minus other digits' mean",
        **LAYERS,
    )
]


def fig6(options: OperationOptions) -> list[Chart]:
    """Figure 6: the operands in what MLPs read, the answer in what they write, and one prompt."""
    run = chosen_run(options, EXPERIMENT)
    operation = options.operation or run.config["operations"][0]
    if operation not in run.config["operations"]:
        raise RunError(
            f"expected one of {', '.join(run.config['operations'])}, found {operation!r}"
        )
    return [
        chart_of(
            partial(numbers.table, run),
            [run],
            name="fig6" if options.operation is None else f"fig6-{operation}",
            title=f"Figure 6: what MLPs read and what they write, {operation}",
            caption="Cosine of what the MLP of a layer reads (a) or writes (b, c) at END with the "
            "digits' unembedding vectors. a, b: means over problems with 95% intervals; numbers: "
            "the last layer. Others: all digits but A, B and C (a), or but C (b). "
            "c: one prompt; printed: the digit that a layer writes most; framed: the answer.",
            draw=partial(_draw_operation, operation=operation),
        )
    ]


def _draw_operation(table: DataFrame, notes: Sequence[str], operation: str) -> plotting.Figure:
    """What MLPs of the first model read, what they write, and the case study."""
    rows = select(table, operation=operation, model=keys_of(table, "model")[0])
    case = select(rows, measure=numbers.CASE_COSINE)
    (prompt,) = keys_of(case, "prompt")
    empty = plotting.Line(np.zeros(1), np.zeros(1), "", "white")
    title = f"one prompt: “{plotting.plain(prompt.strip())}”"
    ((_, sites),) = curves.curve_panels(rows.replace({"site": TITLES}), ONE_OPERATION)
    figure = plotting.curve_panels(
        [*sites, plotting.CurvePanel(title, (empty,), y_range=(0, 1))],
        x_title="layer",
        notes=notes,
        across=3,
        panel=(190, 250),
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
            axes=("layer", "digit"),
            colour_title="cosine (violet: towards the digit)",
        ),
    )
    return figure


def fig13(options: ModelOptions) -> list[Chart]:
    """Figures 13 and 14: what MLPs read of the operands and write of the answer, by model."""
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
            name="fig13",
            title="Do MLPs read A and B, and write C?",
            caption="Cosine of what the MLP of a layer reads (dashed) or writes (solid) at END "
            "with a digit's unembedding vector, less the mean over other digits (for A and B, "
            "without C). Numbers: the last layer. Bands: 95% intervals over n problems.",
            draw=lambda table, notes: curves.draw(
                select(table, operation=operations),
                notes,
                charts=SEVERAL_MODELS,
                panel=(180, 210),
                shared_y=True,
            ),
        )
    ]


CLASS_COLOURS = {
    "C": COLOURS["answer"],
    "A or B": COLOURS["operand"],
    "C±1": plotting.tint(COLOURS["answer"], 0.4),
    "other": plotting.PALE,
}


def fig17(options: Options) -> list[Chart]:
    """Figure 17: the column addition of a computer beside what each layer of the model writes."""
    run = chosen_run(options, "like_a_computer")
    return [
        chart_of(
            partial(sums.table, run),
            [run],
            name="fig17",
            title="Does the model add like a computer?",
            caption="Left: carries, both addends, sum; below, the number in the sum's columns "
            "after each step from the right. Right: the digit whose column of W_U has the largest "
            "cosine with what the MLP of a layer adds at END; below, its lead over the second "
            "digit, a small one decides little. A digit that is several of C, A or B counts as "
            "the first of them. These are single prompts of one model, so there is no interval.",
            draw=_draw_sums,
        )
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
