"""What Figures 6, 13 and 14 share: panels with a probe's curves over layers."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import Effects
from arith_lens.probes import curve_of, turning_layers
from arith_lens.runs import Run, RunError
from experiments import results
from figures.common import ModelOptions, chosen_runs, sample_size
from figures.exhibit import Chart

EXPERIMENT = "what_do_mlps_add"
READS = {
    "mlp_in": (
        ("A", "A", plotting.OCHRE),
        ("B", "B", plotting.VIOLET),
        ("others without A, B, C", "others", plotting.NOTE),
    ),
    "write": (
        ("C", "right answer", plotting.BLUE),
        ("others without C", "others", plotting.NOTE),
    ),
}
"""The tokens of each probe, their names in the figure, their colours."""
TURNING = {"mlp_in": (("A", "B"), "rise_and_fall"), "write": (("C",), "rise")}


def panel(
    run: Run, operation: str, read: str, *, title: str, relative: bool = False, first: bool = True
) -> plotting.CurvePanel:
    """The mean cosines of one probe with 95% bands, and where they turn.

    Args:
        run, operation: whose probe.
        read: "mlp_in" or "write".
        title: of the panel.
        relative: show layers as percent of the depth, to compare models of different depths.
        first: whether the axis has a title.
    """
    probe = results.PROBE.load(run, operation, read)
    depth = len(probe.per_pair) - 1
    layers = np.arange(depth + 1) * (100 / depth if relative else 1.0)
    lines = [
        _line(curve_of(probe, token), layers, name, colour) for token, name, colour in READS[read]
    ]
    tokens, shape = TURNING[read]
    turning = turning_layers(curve_of(probe, *tokens), shape)
    return plotting.CurvePanel(
        title=title,
        lines=tuple(lines),
        guides=_guides(turning.points, layers),
        y_title="Cosine similarity" if first else "",
    )


def _line(curve: Effects, layers: np.ndarray, name: str, colour: str) -> plotting.Line:
    low, high = curve.ci().numpy().astype(float)
    return plotting.Line(layers, curve.mean().double().numpy(), name, colour, low=low, high=high)


def turning_text(run: Run, operation: str, read: str) -> str:
    """The turning layers of one probe with their 95% intervals, in words."""
    tokens, shape = TURNING[read]
    turning = turning_layers(curve_of(results.PROBE.load(run, operation, read), *tokens), shape)
    texts = [
        "none"
        if point is None or interval is None
        else f"{point} ({interval[0]:.0f} to {interval[1]:.0f})"
        for point, interval in zip(turning.points, turning.intervals, strict=True)
    ]
    return ", ".join(texts)


def _guides(
    points: Sequence[int | None], layers: np.ndarray
) -> tuple[tuple[plotting.Number, str], ...]:
    """A dotted line at each turning layer, without duplicates."""
    turning = sorted({point for point in points if point is not None})
    return tuple((float(layers[point]), str(point)) for point in turning)


def numbers(runs: Sequence[Run], read: str) -> DataFrame:
    """Means with intervals and turning layers, one row per model, operation, layer and token."""
    tables = []
    for run in runs:
        for operation in run.config["operations"]:
            probe = results.PROBE.load(run, operation, read)
            tokens, shape = TURNING[read]
            turning = turning_layers(curve_of(probe, *tokens), shape)
            table = probe.to_dataframe()
            table.insert(0, "operation", operation)
            table.insert(0, "model", run.config["model"])
            for point in ("start", "inflection", "end"):
                table[point] = getattr(turning, point)
            tables.append(table)
    return concat(tables, ignore_index=True)


def prompts_note(runs: Sequence[Run], operations: Sequence[str]) -> str:
    """How many prompts each model has, and the seed."""
    counts_by_model = []
    for run in runs:
        counts = ", ".join(
            sample_size(results.PROBE.facts(run, name, "mlp_in")) for name in operations
        )
        counts_by_model.append(f"{run.config['model']} ({counts})")
    return (
        f"Distinct prompts, all answered right: {'; '.join(counts_by_model)}; seed "
        f"{runs[0].config['seed']}. Bands: 95% intervals."
    )


TURNING_NOTE = {
    "mlp_in": "Dotted: of the mean of A and B, the last layer with at most a tenth of the rise, "
    "the highest, and the first with nine tenths of the fall behind it.",
    "write": "Dotted: of the right answer, the last layer with at most a tenth of the rise, the "
    "first with half of it, and the first with nine tenths.",
}


def models_chart(options: ModelOptions, read: str, *, name: str, title: str, look: str) -> Chart:
    """One probe in several models.

    Raises:
        RunError: a run is missing, or the runs share no operation.
    """
    runs = chosen_runs(options, EXPERIMENT)
    operations = [
        name
        for name in runs[0].config["operations"]
        if all(name in run.config["operations"] for run in runs)
    ]
    if not operations:
        raise RunError("expected an operation that all runs have, found none")
    small_print = [
        prompts_note(runs, operations),
        "Cosines at END with columns of W_U. Numbers above: layers.",
        TURNING_NOTE[read],
    ]
    return Chart(
        name=name,
        title=title,
        look=look,
        notes=small_print,
        runs=tuple(runs),
        numbers=numbers(runs, read),
        figure=_draw_models(runs, read, operations, small_print),
    )


def _draw_models(
    runs: Sequence[Run], read: str, operations: Sequence[str], notes: Sequence[str]
) -> plotting.Figure:
    """One row per model, one column per operation."""
    depths = {len(results.PROBE.load(run, operations[0], read).per_pair) for run in runs}
    relative = len(depths) > 1
    panels = [
        panel(
            run,
            operation,
            read,
            title=plotting.plain(f"{run.config['model']}: {operation}"),
            relative=relative,
            first=operation == operations[0],
        )
        for run in runs
        for operation in operations
    ]
    return plotting.curve_panels(
        panels,
        x_title="Depth (% of the layers)" if relative else "Layer",
        notes=notes,
        across=len(operations),
        panel=(210, 180),
    )
