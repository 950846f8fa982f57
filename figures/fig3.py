"""Figure 3: accuracy and p(C) as heads and MLPs are knocked out, by effect and at random.

Reads a run of `experiments/are_they_needed.py` (the newest one of the model, or `--run PATH`) and
draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium
is found, and the numbers as CSV.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from pandas import concat

from arith_lens import plotting
from arith_lens.effects import Effects, key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves
from arith_lens.knockout.curves import range_line
from arith_lens.runs import Run
from experiments import results
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


def exhibits(options: Options) -> list[Chart]:
    """The curves of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "are_they_needed")
    names = run.config["operations"]
    curves = {name: results.KNOCKOUT_CURVES.load(run, name) for name in names}
    effects = {name: results.MAP.load(run, name).heads for name in names}
    tables = {name: both.to_dataframe() for name, both in curves.items()}
    return [
        Chart(
            name="fig3",
            title="Figure 3: accuracy and p(C) as heads and MLPs are knocked out",
            look=look(curves),
            notes=notes(run, curves),
            runs=(run,),
            numbers=concat(tables, names=["operation"]).reset_index("operation").round(5),
            figure=draw(run, curves, effects),
        )
    ]


def look(curves: Mapping[str, KnockoutCurves]) -> str:
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


def draw(
    run: Run, curves: Mapping[str, KnockoutCurves], effects: Mapping[str, Effects]
) -> plotting.Figure:
    """One row per operation: accuracy and p(C) without heads, and accuracy without MLPs."""
    n_heads = next(iter(effects.values())).mean().numel()
    with_mlps = all("MLPs" in both for both in curves.values())
    panels = []
    for name, both in curves.items():
        title = plotting.plain(name.capitalize())
        panels += [
            _panel(f"{title}: {measure}", both, effects[name], row)
            for row, measure in enumerate(MEASURE_NAMES)
        ]
        if with_mlps:
            panels.append(_mlp_panel(f"{title}: accuracy, MLPs", both))
    figure = plotting.curve_panels(
        panels,
        x_title=f"Heads knocked out (of {n_heads})",
        unit="%",
        notes=notes(run, curves),
        across=2 + with_mlps,
        panel=(232, 190) if with_mlps else (300, 190),
    )
    if with_mlps:
        n_mlps = next(iter(curves.values()))["MLPs"].ks[-1]
        figure.layout[f"xaxis{len(panels)}"].title.text = f"MLPs knocked out (of {n_mlps})"
    return figure


def _panel(title: str, curves: KnockoutCurves, effects: Effects, row: int) -> plotting.CurvePanel:
    """One measure without heads. The first measure has the lines' names and the marked points."""
    lines = _lines(curves, row)
    points = (*_points(curves["effect"], effects, len(lines) - 1), *_ends(lines))
    return plotting.CurvePanel(
        title=title,
        lines=lines if row == 0 else tuple(replace(line, label="") for line in lines),
        points=points if row == 0 else (),
        y_range=(0, 104),
    )


def _ends(lines: Sequence[plotting.Line]) -> list[plotting.Point]:
    """Names where lines end before the others."""
    last = max(line.x[-1] for line in lines)
    return [
        plotting.Point(int(line.x[-1]), line.name, line=index)
        for index, line in enumerate(lines)
        if line.x[-1] < last
    ]


def _mlp_panel(title: str, curves: KnockoutCurves) -> plotting.CurvePanel:
    draws = curves.starting(RANDOM_MLPS)
    lines = [range_line(draws, "random", plotting.NOTE)] if draws else []
    lines.append(curves["MLPs"].line("by effect", plotting.RED))
    return plotting.CurvePanel(
        title=title,
        lines=tuple(replace(line, label="") for line in lines),
        y_range=(0, 104),
    )


def _lines(curves: KnockoutCurves, row: int) -> tuple[plotting.Line, ...]:
    """The curves of one measure. The controls come first, so that the effect order is on top."""
    last = curves["effect"].ks[-1]
    lines = control_lines(curves, row)
    lines += [
        plotting.Line(
            _ks(curves[key]),
            _percent(curves[key], row),
            name,
            colour,
            dash=dash,
            label=None if curves[key].ks[-1] == last else "",
        )
        for key, (name, colour, dash) in ABLATION_LINES.items()
        if key in curves
    ]
    return (*lines, curves["effect"].line("by effect", plotting.RED, measure=row))


def control_lines(curves: KnockoutCurves, row: int) -> list[plotting.Line]:
    """The mean of each kind of control over its draws. The band contains all draws."""
    percent: dict[str, dict[int, np.ndarray]] = {kind: {} for kind in CONTROL_LINES}
    for k in curves["effect"].ks:
        draws = results.controls_at(curves, k) if k else {}
        for kind, outcomes in draws.items():
            percent[kind][k] = np.array(
                [100 * float(one.effects().mean()[row]) for one in outcomes]
            )
    before = 100 * curves["effect"].effects().mean()[row, :1].numpy()
    lines = []
    for kind, (name, colour) in CONTROL_LINES.items():
        if percent[kind]:
            by_k = {0: before, **percent[kind]}
            mean, low, high = (
                np.array([of(values) for values in by_k.values()])
                for of in (np.mean, np.min, np.max)
            )
            lines.append(plotting.Line(np.array([*by_k]), mean, name, colour, low=low, high=high))
    return lines


def _ks(curve: KnockoutCurve) -> np.ndarray:
    return np.array(curve.ks)


def _percent(curve: KnockoutCurve, row: int) -> np.ndarray:
    return 100 * curve.effects().mean()[row].numpy()


def _points(curve: KnockoutCurve, effects: Effects, line: int) -> tuple[plotting.Point, ...]:
    """The number of key heads, and the number of heads that cause 90% of the drop."""
    n_key, n_heads = len(key_heads(effects)), effects.mean().numel()
    accuracy = curve.accuracy()
    done = float(accuracy[0] - 0.9 * (accuracy[0] - accuracy.min()))
    complete = curve.ks[int(torch.nonzero(accuracy <= done)[0])]
    texts = {complete: f"{complete} heads ({complete / n_heads:.1%})"}
    if n_key:
        texts |= {n_key: f"{n_key} key head{'s' * (n_key > 1)} ({n_key / n_heads:.1%})"}
    return tuple(plotting.Point(k, text, line=line) for k, text in sorted(texts.items()))


def notes(run: Run, curves: Mapping[str, KnockoutCurves]) -> list[str]:
    """How to read the figure, and what it was made from."""
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
