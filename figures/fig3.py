"""Figure 3: accuracy and p(C) as heads are knocked out, in the order of effect and at random.

Reads a run of `experiments/are_they_needed.py` (the newest one of the model, or `--run PATH`) and
draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium
is found, and the numbers as CSV.
"""

from collections.abc import Mapping

import numpy as np
import torch
from pandas import concat

from arith_lens import plotting
from arith_lens.effects import Effects, key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves
from arith_lens.runs import Run
from experiments import results
from figures.command import command
from figures.common import Options, chosen_run, sample_size
from figures.exhibit import Chart, command_for

MEASURES = ("Accuracy", "Mean p(C)")
CONTROLS = {"random": ("random", plotting.NOTE), "matched": ("same layers", plotting.BLUE)}
ALONE = {  # (name, colour, dash)
    "END": ("END only", plotting.RUST, "dot"),
    "iterative": ("iterative", plotting.DARK, "dash"),
}


def exhibits(options: Options) -> list[Chart]:
    """The curves of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "are_they_needed")
    names = run.config["operations"]
    curves = {name: results.CURVES.load(run, name) for name in names}
    effects = {name: results.MAP.load(run, name).heads for name in names}
    tables = {name: both.to_dataframe() for name, both in curves.items()}
    return [
        Chart(
            name="fig3",
            title="Figure 3: accuracy and p(C) as heads are knocked out",
            look="How fast the red curve falls, and that the grey and blue ones do not: the "
            "answer hangs on these heads, not on any heads. In the paper accuracy falls by "
            "about 70% while random heads cost at most 2%.",
            notes=notes(run, curves),
            runs=(run,),
            numbers=concat(tables, names=["operation"]).reset_index("operation"),
            figure=draw(run, curves, effects),
        )
    ]


def draw(
    run: Run, curves: Mapping[str, KnockoutCurves], effects: Mapping[str, Effects]
) -> plotting.Figure:
    """Accuracy above, p(C) below, one column per operation."""
    n_heads = next(iter(effects.values())).mean().numel()
    return plotting.curve_panels(
        [
            _panel(name, both, effects[name], row, first=name == next(iter(curves)))
            for row in range(len(MEASURES))
            for name, both in curves.items()
        ],
        x_title=f"Heads knocked out (of {n_heads})",
        unit="%",
        notes=notes(run, curves),
        across=len(curves),
        panel=(250, 190),
    )


def _panel(
    name: str, curves: KnockoutCurves, effects: Effects, row: int, *, first: bool
) -> plotting.CurvePanel:
    lines = _lines(curves, row)
    return plotting.CurvePanel(
        title=plotting.plain(name.capitalize()) if row == 0 else "",
        lines=lines,
        points=_points(curves["effect"], effects, len(lines) - 1) if row == 0 else (),
        y_title=MEASURES[row] if first else "",
        y_range=(0, 104),
    )


def _lines(curves: KnockoutCurves, row: int) -> tuple[plotting.Line, ...]:
    """The curves of one measure. The controls come first, so that the effect order is on top."""
    lines = control_lines(curves, row)
    lines += [
        plotting.Line(_ks(curves[key]), _percent(curves[key], row), name, colour, dash=dash)
        for key, (name, colour, dash) in ALONE.items()
        if key in curves
    ]
    return (*lines, curves["effect"].line("by effect", plotting.RED, measure=row))


def control_lines(curves: KnockoutCurves, row: int) -> list[plotting.Line]:
    """The mean of each kind of control over its draws. The band contains all draws."""
    percent: dict[str, dict[int, np.ndarray]] = {kind: {} for kind in CONTROLS}
    for k in sorted({k for curve in curves.values() for k in curve.ks}):
        draws = results.controls_at(curves, k) if k else {}
        for kind, outcomes in draws.items():
            percent[kind][k] = np.array(
                [100 * float(one.effects().mean()[row]) for one in outcomes]
            )
    before = 100 * curves["effect"].effects().mean()[row, :1].numpy()
    lines = []
    for kind, (name, colour) in CONTROLS.items():
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
    effect = next(iter(curves.values()))["effect"]
    sizes = ", ".join(sample_size(results.CURVES.facts(run, name)) for name in curves)
    return [
        f"Model: {config['model']}. Prompts: {sizes}, all answered right "
        f"with every head in place, seed {config['seed']}. Knockout: {config['ablation']} over "
        f"counterfactuals ({effect.means}), every position but BOS.",
        "Red: heads in the order of their effect on the answer's logit (band: 95% interval). Grey: "
        "heads drawn from all heads; blue: for the strongest k heads, others of the same layers, "
        f"drawn from all heads but these k (mean and range of {config['controls']} draws).",
        "Dotted: by effect, at END alone. Dashed: iterative masking, each next head by what its "
        "knockout costs. Marked: the key heads (effect below −5%), and nine tenths of the drop.",
    ]


main = command_for(exhibits)

if __name__ == "__main__":
    command(main, "fig3", __doc__)
