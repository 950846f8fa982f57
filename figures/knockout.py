"""Figure 3 and sufficiency: accuracy without the strongest heads and MLPs, and with them alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import Effects, key_heads
from arith_lens.knockout import CircuitCurve, KnockoutCurve, KnockoutCurves
from arith_lens.knockout.curves import range_line
from arith_lens.runs import Run
from experiments import results
from experiments.circuits import CURVE_KINDS, enough
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart

MEASURE_NAMES = ("accuracy", "mean p(C)")
CONTROL_LINES = {"random": ("random", plotting.NOTE), "matched": ("same layers", plotting.BLUE)}
ABLATION_LINES = {  # (name, colour, dash)
    "END": ("END only", plotting.RUST, "dot"),
    "resample": ("resample", plotting.VIOLET, "dot"),
    "zero": ("zero", plotting.VIOLET, "dot"),
    "mean": ("mean", plotting.VIOLET, "dot"),
    "iterative": ("iterative", plotting.DARK, "dash"),
}
SECOND = {
    "resample": "Violet: by effect, each output replaced by one of a counterfactual (resample).",
    "zero": "Violet: by effect, each output replaced by zero.",
    "mean": "Violet: by effect, each output replaced by its mean over counterfactuals.",
}
RANDOM_MLPS = "MLPs random "
N_COMPARED = 10
"""The caption compares knockouts of so many heads, the number of the paper's Table 4."""


def fig3(options: Options) -> list[Chart]:
    """Figure 3: accuracy and p(C) as heads and MLPs are knocked out, by effect and at random.

    Reads a run of `experiments/are_they_needed.py` (by its settings, or `--run PATH`)
    and draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "are_they_needed")
    names = run.config["operations"]
    curves = {name: results.KNOCKOUT_CURVES.load(run, name) for name in names}
    effects = {name: results.MAP.load(run, name).heads for name in names}
    tables = {name: both.to_dataframe() for name, both in curves.items()}
    notes = _knockout_notes(run, curves)
    return [
        Chart(
            name="fig3",
            title="Figure 3: accuracy and p(C) as heads and MLPs are knocked out",
            look=knockout_look(curves),
            notes=notes,
            runs=(run,),
            numbers=concat(tables, names=["operation"]).reset_index("operation").round(5),
            figure=_draw_knockout(curves, effects, notes),
        )
    ]


def knockout_look(curves: Mapping[str, KnockoutCurves]) -> str:
    """What to look for, and how the strongest heads of this run compare with its controls."""
    ks = {k for both in curves.values() for k in both["effect"].ks if results.controls_at(both, k)}
    k = max((k for k in ks if k <= N_COMPARED), default=0)
    parts, lower = [], 0
    for name, both in curves.items():
        draws = results.controls_at(both, k)
        accuracy = float(both["effect"].at(k).accuracy())
        controls = {kind: [float(one.accuracy()) for one in of] for kind, of in draws.items()}
        lower += all(accuracy < min(values) for values in controls.values())
        means = ", ".join(
            f"{CONTROL_LINES[kind][0]} {np.mean(values):.0%}" for kind, values in controls.items()
        )
        parts.append(f"{name} {accuracy:.0%} ({means})")
    return (
        "How fast the red curve falls beside the grey and blue ones. In the paper accuracy falls "
        "by about 70% while random heads cost at most 2%. Here the share of right answers without "
        f"the {k} strongest heads, and without {k} others on average, is: {'; '.join(parts)}. In "
        f"{lower} of {len(curves)} operations it is lower than in every draw of both controls."
        + _look_of_mlps(curves)
    )


def _look_of_mlps(curves: Mapping[str, KnockoutCurves]) -> str:
    """How the strongest third of the MLPs compares with as many random ones."""
    if not all(both.starting(RANDOM_MLPS) for both in curves.values()):
        return ""
    first = next(iter(curves.values()))
    third = first["MLPs"].ks[-1] / 3
    k = min(first.starting(RANDOM_MLPS)[0].ks, key=lambda k: abs(k - third))
    parts, lower = [], 0
    for name, both in curves.items():
        accuracy = float(both["MLPs"].at(k).accuracy())
        mean = float(np.mean([float(c.at(k).accuracy()) for c in both.starting(RANDOM_MLPS)]))
        lower += accuracy < mean
        parts.append(f"{name} {accuracy:.0%} (random {mean:.0%})")
    return (
        f" Without the {k} strongest MLPs it is: {'; '.join(parts)}. In {lower} of {len(curves)} "
        "operations that is lower than without random ones on average."
    )


def _draw_knockout(
    curves: Mapping[str, KnockoutCurves], effects: Mapping[str, Effects], notes: Sequence[str]
) -> plotting.Figure:
    """One row per operation: accuracy and p(C) without heads, and accuracy without MLPs."""
    n_heads = next(iter(effects.values())).mean().numel()
    with_mlps = all("MLPs" in both for both in curves.values())
    panels = []
    for name, both in curves.items():
        title = plotting.plain(name.capitalize())
        panels += [
            _head_panel(f"{title}: {measure}", both, effects[name], row)
            for row, measure in enumerate(MEASURE_NAMES)
        ]
        if with_mlps:
            panels.append(_mlp_panel(f"{title}: accuracy, MLPs", both))
    figure = plotting.curve_panels(
        panels,
        x_title=f"Heads knocked out (of {n_heads})",
        unit="%",
        notes=notes,
        across=2 + with_mlps,
        panel=(232, 190) if with_mlps else (300, 190),
    )
    if with_mlps:
        n_mlps = next(iter(curves.values()))["MLPs"].ks[-1]
        figure.layout[f"xaxis{len(panels)}"].title.text = f"MLPs knocked out (of {n_mlps})"
    return figure


def _head_panel(
    title: str, curves: KnockoutCurves, effects: Effects, row: int
) -> plotting.CurvePanel:
    """One measure without heads. The first measure has the lines' names and the marked points."""
    lines = _lines(curves, row)
    if row:
        return _unnamed(title, lines)
    last = max(line.x[-1] for line in lines)
    ends = [
        plotting.Point(int(line.x[-1]), line.name, line=index)
        for index, line in enumerate(lines)
        if line.x[-1] < last
    ]
    points = (*_points(curves["effect"], effects, len(lines) - 1), *ends)
    return plotting.CurvePanel(title, tuple(lines), points, y_range=(0, 104))


def _mlp_panel(title: str, curves: KnockoutCurves) -> plotting.CurvePanel:
    draws = curves.starting(RANDOM_MLPS)
    lines = [range_line(draws, "random", plotting.NOTE)] if draws else []
    return _unnamed(title, [*lines, curves["MLPs"].line("by effect", plotting.RED)])


def _unnamed(title: str, lines: Sequence[plotting.Line]) -> plotting.CurvePanel:
    """A panel whose lines have no names, because those of the first panel have them."""
    unnamed = tuple(replace(line, label="") for line in lines)
    return plotting.CurvePanel(title, unnamed, y_range=(0, 104))


def _lines(curves: KnockoutCurves, row: int) -> list[plotting.Line]:
    """The curves of one measure. The controls come first, so that the effect order is on top."""
    last = curves["effect"].ks[-1]
    return [
        *_control_lines(curves, row),
        *(
            plotting.Line(
                np.array(curves[key].ks),
                100 * curves[key].effects().mean()[row].numpy(),
                name,
                colour,
                dash=dash,
                label=None if curves[key].ks[-1] == last else "",
            )
            for key, (name, colour, dash) in ABLATION_LINES.items()
            if key in curves
        ),
        curves["effect"].line("by effect", plotting.RED, measure=row),
    ]


def _control_lines(curves: KnockoutCurves, row: int) -> list[plotting.Line]:
    """The mean of each kind of control over its draws. The band contains all draws."""
    before = 100 * curves["effect"].effects().mean()[row, :1].numpy()
    draws = {k: results.controls_at(curves, k) for k in curves["effect"].ks if k}
    lines = []
    for kind, (name, colour) in CONTROL_LINES.items():
        by_k = {0: before} | {
            k: np.array([100 * float(one.effects().mean()[row]) for one in of_k[kind]])
            for k, of_k in draws.items()
            if kind in of_k
        }
        if len(by_k) > 1:
            mean, low, high = (
                np.array([of(values) for values in by_k.values()])
                for of in (np.mean, np.min, np.max)
            )
            lines.append(plotting.Line(np.array([*by_k]), mean, name, colour, low=low, high=high))
    return lines


def _points(curve: KnockoutCurve, effects: Effects, line: int) -> list[plotting.Point]:
    """The number of key heads, and the number of heads that cause 90% of the drop."""
    n_key, n_heads = len(key_heads(effects)), effects.mean().numel()
    accuracy = curve.accuracy()
    done = float(accuracy[0] - 0.9 * (accuracy[0] - accuracy.min()))
    complete = curve.ks[int(torch.nonzero(accuracy <= done)[0])]
    texts = {complete: f"{complete} heads ({complete / n_heads:.1%})"}
    if n_key:
        texts |= {n_key: f"{n_key} key head{'s' * (n_key > 1)} ({n_key / n_heads:.1%})"}
    return [plotting.Point(k, text, line=line) for k, text in sorted(texts.items())]


def _knockout_notes(run: Run, curves: Mapping[str, KnockoutCurves]) -> list[str]:
    """How to read Figure 3, and what it was made from."""
    config = run.config
    first = next(iter(curves.values()))
    sizes = "; ".join(
        f"{name}: {sample_size(results.KNOCKOUT_CURVES.facts(run, name))}" for name in curves
    )
    lines = [
        f"Model: {config['model']}. Prompts: {sizes}; all answered right "
        f"with every head in place, seed {config['seed']}. Knockout: {config['ablation']} over "
        f"counterfactuals ({first['effect'].means}), every position but BOS.",
        "Red: in the order of the effect on the answer's logit (band: 95% interval). Grey: drawn "
        "from all heads, or all MLPs. Blue: for the strongest k heads, others of the same layers, "
        f"drawn from all heads but these k (mean and range of {config['controls']} draws).",
        "Rust, dotted: by effect, at END alone. Marked: the key heads (effect below −5%), and nine "
        "tenths of the drop. The other charts have the same colours.",
    ]
    lines += [text for name, text in SECOND.items() if name in first]
    if "iterative" in first:
        lines.append(
            "Dashed: iterative masking, each next head by what its knockout costs. It stops at "
            f"{first['iterative'].ks[-1]} heads, because each step tries all that are left of the "
            f"{config['candidates']} strongest heads."
        )
    if "MLPs" not in first:
        lines.append("MLPs are not in this run. A newer run has them.")
    return lines


KIND_TITLES = {"keep_only": "only the first k kept", "knock_out": "the first k knocked out"}
CIRCUIT_LINES = {  # order: (name, colour, dash)
    "weights": ("by weight norm", plotting.NOTE, "dot"),
    "growing": ("growing", plotting.DARK, "dash"),
    "iterative": ("iterative masking", plotting.RUST, "dot"),
    "effect": ("by effect", plotting.RED, "solid"),
}
RANDOM = "random-"


def sufficiency(options: Options) -> list[Chart]:
    """Do the strongest heads suffice? Accuracy with the first k heads only, and without them.

    Reads a run of `experiments do_they_suffice`. The orders were chosen on half of the problems;
    the curves are drawn on the other half.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_they_suffice")
    notes = _sufficiency_notes(run)
    return [
        Chart(
            name="sufficiency",
            title="Do the strongest heads suffice?",
            look=_sufficiency_look(run),
            notes=notes,
            runs=(run,),
            numbers=_circuit_table(run),
            figure=_draw_circuits(run, notes),
        )
    ]


def _curves(run: Run, *keys: str) -> dict[str, CircuitCurve]:
    """The curve of each order; `keys`: operation, heads or MLPs, positions, kept or knocked out."""
    labels = results.CIRCUIT_CURVE.labels(run, *keys, None)
    return {label: results.CIRCUIT_CURVE.load(run, *keys, label) for label in labels}


def _circuit_table(run: Run) -> DataFrame:
    """One row per curve and size: faithfulness and accuracy with intervals, CPR and CMD.

    The random orders are one curve, their mean; its "intervals" are the range over the orders.
    """
    parts = []
    for keys in product(run.config["operations"], ("heads", "mlps"), ("all", "end"), CURVE_KINDS):
        tables = {
            label: curve.to_dataframe().drop(columns="share").assign(cpr=curve.cpr, cmd=curve.cmd)
            for label, curve in _curves(run, *keys).items()
        }
        controls = [tables.pop(label) for label in [*tables] if label.startswith(RANDOM)]
        if controls:
            tables["random"] = _mean(controls)
        names = ("operation", "among", "positions", "kind")
        setting: dict[str, Any] = dict(zip(names, keys, strict=True))
        parts += [table.assign(**setting, order=label) for label, table in tables.items()]
    return concat(parts, ignore_index=True).round(4)


def _mean(curves: Sequence[DataFrame]) -> DataFrame:
    """The mean of several curves, with the least and the most of them; no interval."""
    measures = ("faithfulness", "accuracy")
    ends = [f"{measure}_{end}" for measure in measures for end in ("low", "high")]
    sizes: Any = concat(curves).drop(columns=ends).groupby("size")
    mean: Any = sizes.mean()
    for measure in measures:
        mean[f"{measure}_least"] = sizes[measure].min()
        mean[f"{measure}_most"] = sizes[measure].max()
    return mean.reset_index()


def _draw_circuits(run: Run, notes: Sequence[str]) -> plotting.Figure:
    """Kept on the left, knocked out on the right; one row per operation."""
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title=plotting.plain(f"{operation.capitalize()}: {KIND_TITLES[kind]}"),
                lines=tuple(_circuit_lines(run, operation, kind)),
                y_title="right" if kind == CURVE_KINDS[0] else "",
                y_range=(0, 104),
            )
            for operation, kind in product(run.config["operations"], CURVE_KINDS)
        ],
        x_title="k heads",
        unit="%",
        notes=notes,
        across=len(CURVE_KINDS),
        panel=(300, 170),
    )


def _circuit_lines(run: Run, operation: str, kind: str) -> list[plotting.Line]:
    """The random orders as a band that holds all of them, then each chosen order."""
    curves = _curves(run, operation, "heads", "all", kind)
    lines = []
    if controls := [curve for label, curve in curves.items() if label.startswith(RANDOM)]:
        percent = np.stack([100 * curve.accuracy().numpy() for curve in controls])
        sizes, low, high = np.array(controls[0].sizes), percent.min(0), percent.max(0)
        lines.append(plotting.Line(sizes, percent.mean(0), "random", plotting.NOTE, low, high))
    for label, (name, colour, dash) in CIRCUIT_LINES.items():
        if label in curves:
            line = replace(curves[label].line(name, colour), dash=dash)
            lines.append(line if label == "effect" else replace(line, low=None, high=None))
    at_end = results.CIRCUIT_CURVE.load(run, operation, "heads", "end", kind, "effect")
    return [*lines, at_end.line("by effect, END only", plotting.BLUE)]


def _sufficiency_look(run: Run) -> str:
    """What the run's own numbers say."""
    parts = []
    for operation in run.config["operations"]:
        ends, everywhere = (
            results.CIRCUIT_CURVE.load(run, operation, "heads", positions, "keep_only", "effect")
            for positions in ("end", "all")
        )
        row = min(range(len(ends.sizes)), key=lambda i: abs(ends.sizes[i] - 5))
        parts.append(
            f"{operation} {100 * float(ends.accuracy()[row]):.0f}% with {ends.sizes[row]} heads, "
            f"90% from {enough(ends)} heads on (from {enough(everywhere)} if the others are "
            "replaced at every position)"
        )
    return (
        "How many heads answer as the whole model does. With the others replaced at END: "
        f"{'; '.join(parts)}."
    )


def _sufficiency_notes(run: Run) -> list[str]:
    """How to read the figure, and what it was made from."""
    config = run.config
    searched = (
        " Dashed: each next head is the one that raises p(C) most when added; dotted, dark: the "
        "one whose knockout costs most."
    )
    random = f"mean and range of {config['controls']} random orders"
    return [
        f"Model: {config['model']}. Orders are chosen on half of the problems, curves are drawn on "
        f"the other half (seed {config['seed']}). A head that is out gives its "
        f"{config['ablation']} over counterfactuals, at every position but BOS or (blue) at END "
        "alone; MLPs stay.",
        "Red: heads in the order of their effect (band: 95% interval over problems)."
        + searched * (config["candidates"] > 0),
        f"Grey: {random if config['controls'] > 1 else 'one random order'}; grey dots: by the norm "
        "of the weights.",
    ]
