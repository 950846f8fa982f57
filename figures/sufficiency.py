"""Do the strongest heads suffice? Accuracy with only the first k heads, beside that without them.

Reads a run of `experiments/do_they_suffice.py`. The orders were chosen on half of the problems; the
curves are drawn on the other half.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.knockout import CircuitCurve
from arith_lens.runs import Run
from experiments import results
from experiments.do_they_suffice import CURVE_KINDS, enough
from figures.common import Options, chosen_run
from figures.exhibit import Chart

KIND_TITLES = {"keep_only": "only the first k kept", "knock_out": "the first k knocked out"}
STYLES = {  # order: (name, colour, dash)
    "weights": ("by weight norm", plotting.NOTE, "dot"),
    "growing": ("growing", plotting.DARK, "dash"),
    "iterative": ("iterative masking", plotting.RUST, "dot"),
    "effect": ("by effect", plotting.RED, "solid"),
}
RANDOM = "random-"


def exhibits(options: Options) -> list[Chart]:
    """The curves of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "do_they_suffice")
    numbers = table(run)
    return [
        Chart(
            name="sufficiency",
            title="Do the strongest heads suffice?",
            look=_look(run),
            notes=notes(run),
            runs=(run,),
            numbers=numbers,
            figure=draw(run),
        )
    ]


def table(run: Run) -> DataFrame:
    """One row per curve and size: faithfulness and accuracy with intervals, CPR and CMD.

    The random orders are one curve, their mean; its "intervals" are the range over the orders.
    """
    parts = []
    for operation in run.config["operations"]:
        for among in ("heads", "mlps"):
            for positions in ("all", "end"):
                for kind in CURVE_KINDS:
                    keys = (operation, among, positions, kind)
                    names = ("operation", "among", "positions", "kind")
                    setting: dict[str, Any] = dict(zip(names, keys, strict=True))
                    labels = results.CIRCUIT_CURVE.labels(run, *keys, None)
                    parts += [
                        _numbers(_curve(run, *keys, label)).assign(**setting, order=label)
                        for label in labels
                        if not label.startswith(RANDOM)
                    ]
                    controls = [
                        _numbers(_curve(run, *keys, label))
                        for label in labels
                        if label.startswith(RANDOM)
                    ]
                    if controls:
                        parts.append(_mean(controls).assign(**setting, order="random"))
    return concat(parts, ignore_index=True).round(4)


def _numbers(curve: CircuitCurve) -> DataFrame:
    """A curve's table with its two areas."""
    return curve.to_dataframe().drop(columns="share").assign(cpr=curve.cpr, cmd=curve.cmd)


def _mean(curves: Sequence[DataFrame]) -> DataFrame:
    """The mean of several curves, with their range."""
    sizes: Any = concat(curves).groupby("size")
    mean: Any = sizes.mean()
    for measure in ("faithfulness", "accuracy"):
        mean[f"{measure}_low"] = sizes[measure].min()
        mean[f"{measure}_high"] = sizes[measure].max()
    return mean.reset_index()


def draw(run: Run) -> plotting.Figure:
    """Kept on the left, knocked out on the right; one row per operation."""
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title=plotting.plain(f"{operation.capitalize()}: {KIND_TITLES[kind]}"),
                lines=_lines(run, operation, kind),
                y_title="right" if kind == CURVE_KINDS[0] else "",
                y_range=(0, 104),
            )
            for operation in run.config["operations"]
            for kind in CURVE_KINDS
        ],
        x_title="k heads",
        unit="%",
        notes=notes(run),
        across=len(CURVE_KINDS),
        panel=(300, 170),
    )


def _lines(run: Run, operation: str, kind: str) -> tuple[plotting.Line, ...]:
    keys = (operation, "heads", "all", kind)
    labels = results.CIRCUIT_CURVE.labels(run, *keys, None)
    controls = [_curve(run, *keys, label) for label in labels if label.startswith(RANDOM)]
    lines = [_band(controls)] if controls else []
    for label, (name, colour, dash) in STYLES.items():
        if label in labels:
            line = _curve(run, *keys, label).line(name, colour)
            low, high = (line.low, line.high) if label == "effect" else (None, None)
            lines.append(plotting.Line(line.x, line.y, name, colour, dash=dash, low=low, high=high))
    at_end = _curve(run, operation, "heads", "end", kind, "effect")
    return (*lines, at_end.line("by effect, END only", plotting.BLUE))


def _curve(run: Run, *keys: str) -> CircuitCurve:
    return results.CIRCUIT_CURVE.load(run, *keys)


def _band(curves: list[CircuitCurve]) -> plotting.Line:
    """The mean of several curves; the band holds all of them."""
    percent = np.stack([100 * curve.accuracy().numpy() for curve in curves])
    sizes = np.array(curves[0].sizes)
    low, high = percent.min(0), percent.max(0)
    return plotting.Line(sizes, percent.mean(0), "random", plotting.NOTE, low, high)


def _look(run: Run) -> str:
    """What the run's own numbers say."""
    parts = []
    for operation in run.config["operations"]:
        ends, everywhere = (
            _curve(run, operation, "heads", positions, "keep_only", "effect")
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


def notes(run: Run) -> list[str]:
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
