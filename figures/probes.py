"""Figures 6, 13, 14 and 17: what MLPs read and what they write, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.effects import Effects
from arith_lens.probes import Turning, case_study, curve_of, turning_layers
from arith_lens.problems import column_addition
from arith_lens.runs import Run, RunError
from experiments import results
from figures.common import ModelOptions, Options, chosen_run, chosen_runs, sample_size
from figures.exhibit import Chart

EXPERIMENT = "what_do_mlps_add"
DIGITS = tuple(str(digit) for digit in range(10))
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
OTHER_DIGITS = {read: lines[-1][0] for read, lines in READS.items()}
"""The other digits of each probe, to compare with."""
TURNING = {"mlp_in": (("A", "B"), "rise_and_fall"), "write": (("C",), "rise")}


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
    tables = {read: _numbers([run], read) for read in READS}
    notes = _notes(run, operation)
    return [
        Chart(
            name="fig6" if options.operation is None else f"fig6-{operation}",
            title=f"Figure 6: what MLPs read and what they write, {operation}",
            look="In the paper the numbers A and B rise in what MLPs read and fall again (a), then "
            "the answer C rises in what they write (b); the layers where the one falls and the "
            "other rises agree. In a single prompt (c) operands come first, the answer last, its "
            "neighbours in between.",
            notes=notes,
            runs=(run,),
            numbers=concat(tables, names=["read"]).reset_index("read"),
            figure=_draw_operation(run, operation, notes),
        )
    ]


def _draw_operation(run: Run, operation: str, notes: Sequence[str]) -> plotting.Figure:
    """What MLPs read, what they write, and the case study."""
    case = results.DIGIT_COSINES.facts(run, operation)["case"]
    text = plotting.plain(case["text"].strip())
    empty = plotting.Line(np.zeros(1), np.zeros(1), "", "white")
    titles = ("MLP input", "MLP output − input", f"“{text}”: output − input")
    figure = plotting.curve_panels(
        [
            panel(run, operation, "mlp_in", title=titles[0]),
            panel(run, operation, "write", title=titles[1], first=False),
            plotting.CurvePanel(titles[2], (empty,), y_range=(0, 1)),
        ],
        x_title="Layer",
        notes=notes,
        across=2,
        panel=(290, 250),
    )
    cosines, best = case_study(results.DIGIT_COSINES.load(run, operation), case["pair"])
    plotting.add_grid(
        figure,
        2,
        plotting.Grid(
            cosines.numpy(),
            rows=tuple(map(str, range(len(cosines)))),
            columns=DIGITS,
            winners=tuple(best),
            framed=case["c"],
            axes=("Layer", "Number token"),
            colour_title="cosine (red supports the digit)",
        ),
    )
    return figure


def _notes(run: Run, operation: str) -> list[str]:
    """How to read the figure, and what it was made from."""
    case = results.DIGIT_COSINES.facts(run, operation)["case"]
    normed = " after the final norm" if run.config["final_norm"] else ""
    return [
        f"Model: {run.config['model']}, {operation}. {_prompts_note([run], [operation])}",
        f"Cosines at END with columns of W_U{normed}. Others: a, digits that are neither A, B nor "
        "C; b, digits that are not C.",
        "Turning layers are of the curves as they are, the common rise of all digits in them. "
        f"a. {TURNING_NOTE['mlp_in']} b. {TURNING_NOTE['write']}",
        f"Turning layers with 95% intervals: a {_turning_text(run, operation, 'mlp_in')}; b "
        f"{_turning_text(run, operation, 'write')}.",
        f"c. Printed: the digit that each layer writes most. Red: along the digit's column, so the "
        "write supports it, as in Figure 2; blue: against it. "
        f"A = {case['a']}, B = {case['b']}; framed: the answer, {case['c']}.",
    ]


def fig13(options: ModelOptions) -> list[Chart]:
    """Figure 13: the operands in what MLPs read, in several models and operations.

    Reads the run of `experiments what_do_mlps_add` of each model (or `--runs PATH PATH`)
    and draws them without loading a model, on relative depth if the models' depths differ.

    Raises:
        RunError: a run is missing, or the runs share no operation.
    """
    return _models(
        options,
        "mlp_in",
        name="fig13",
        title="Figure 13: the operands in what MLPs read, in several models",
        look="Whether A and B rise above the other digits and fall again in each model and "
        "operation, and in which layers. In the paper they do in all models.",
    )


def fig14(options: ModelOptions) -> list[Chart]:
    """Figure 14: the answer in what MLPs write, in several models and operations.

    Reads the run of `experiments what_do_mlps_add` of each model (or `--runs PATH PATH`)
    and draws them without loading a model, on relative depth if the models' depths differ.

    Raises:
        RunError: a run is missing, or the runs share no operation.
    """
    return _models(
        options,
        "write",
        name="fig14",
        title="Figure 14: the answer in what MLPs write, in several models",
        look="Whether the answer C rises in each model and operation where the operands fall "
        "(Figure 13), and other numbers fall. In the paper they do in all models.",
    )


def panel(
    run: Run,
    operation: str,
    read: str,
    *,
    title: str,
    less_others: bool = False,
    relative: bool = False,
    first: bool = True,
) -> plotting.CurvePanel:
    """The mean cosines of one probe with 95% bands, and where they turn.

    Args:
        run, operation: whose probe.
        read: "mlp_in" or "write".
        title: of the panel.
        less_others: the cosines less those of the other digits, per pair.
        relative: show layers as percent of the depth, to compare models of different depths.
        first: whether the axis has a title.
    """
    probe = results.PROBE.load(run, operation, read)
    depth = len(probe.per_pair) - 1
    layers = np.arange(depth + 1) * (100 / depth if relative else 1.0)
    lines = []
    for token, name, colour in READS[read][:-1] if less_others else READS[read]:
        curve = curve_of(probe, token, less=OTHER_DIGITS[read] if less_others else None)
        low, high = curve.ci().numpy().astype(float)
        mean = curve.mean().double().numpy()
        lines.append(plotting.Line(layers, mean, token if less_others else name, colour, low, high))
    points = {p for p in _turning(probe, read, less_others=less_others).points if p is not None}
    y_title = "Cosine, less others" if less_others else "Cosine similarity"
    return plotting.CurvePanel(
        title=title,
        lines=tuple(lines),
        guides=tuple((float(layers[point]), str(point)) for point in sorted(points)),
        y_title=y_title * first,
    )


def _turning(probe: Effects, read: str, *, less_others: bool = False) -> Turning:
    """Where the curve of a probe's main tokens turns."""
    tokens, shape = TURNING[read]
    less = OTHER_DIGITS[read] if less_others else None
    return turning_layers(curve_of(probe, *tokens, less=less), shape)


def _turning_text(run: Run, operation: str, read: str) -> str:
    """The turning layers of one probe with their 95% intervals, in words."""
    turning = _turning(results.PROBE.load(run, operation, read), read)
    texts = [
        "none"
        if point is None or interval is None
        else f"{point} ({interval[0]:.0f} to {interval[1]:.0f})"
        for point, interval in zip(turning.points, turning.intervals, strict=True)
    ]
    return ", ".join(texts)


def _numbers(runs: Sequence[Run], read: str) -> DataFrame:
    """Means with intervals and turning layers, one row per model, operation, layer and token."""
    tables = []
    for run in runs:
        for operation in run.config["operations"]:
            probe = results.PROBE.load(run, operation, read)
            turning, less_others = _turning(probe, read), _turning(probe, read, less_others=True)
            table = probe.to_dataframe()
            table.insert(0, "operation", operation)
            table.insert(0, "model", run.config["model"])
            for point in ("start", "inflection", "end"):
                table[point] = getattr(turning, point)
                table[f"{point}_less_others"] = getattr(less_others, point)
            tables.append(table)
    return concat(tables, ignore_index=True)


def _prompts_note(runs: Sequence[Run], operations: Sequence[str]) -> str:
    """How many prompts each model has, and the seed."""
    counts = [
        f"{run.config['model']} ("
        + ", ".join(sample_size(results.PROBE.facts(run, name, "mlp_in")) for name in operations)
        + ")"
        for run in runs
    ]
    return (
        f"Distinct prompts, all answered right: {'; '.join(counts)}; seed "
        f"{runs[0].config['seed']}. Bands: 95% intervals."
    )


TURNING_NOTE = {
    "mlp_in": "Dotted: of the mean of A and B, the last layer with at most a tenth of the rise, "
    "the highest, and the first with nine tenths of the fall behind it.",
    "write": "Dotted: of the right answer, the last layer with at most a tenth of the rise, the "
    "first with half of it, and the first with nine tenths.",
}


def _models(options: ModelOptions, read: str, *, name: str, title: str, look: str) -> list[Chart]:
    """One probe in several models. The run's highest values are added to `look`."""
    runs = chosen_runs(options, EXPERIMENT)
    operations = [
        name
        for name in runs[0].config["operations"]
        if all(name in run.config["operations"] for run in runs)
    ]
    if not operations:
        raise RunError("expected an operation that all runs have, found none")
    names = " and ".join(token for token, _, _ in READS[read][:-1])
    small_print = [
        _prompts_note(runs, operations),
        f"Cosines at END with columns of W_U: {names} less the mean of the other digits, per pair. "
        "Every panel has the same y axis. Numbers above: layers.",
        TURNING_NOTE[read],
    ]
    return [
        Chart(
            name=name,
            title=title,
            look=f"{look} {_peaks(runs, operations, read)}",
            notes=small_print,
            runs=tuple(runs),
            numbers=_numbers(runs, read),
            figure=_draw_models(runs, read, operations, small_print),
        )
    ]


def _peaks(runs: Sequence[Run], operations: Sequence[str], read: str) -> str:
    """The highest mean difference of each model and its layer, over the operations."""
    tokens, _ = TURNING[read]
    texts = []
    for run in runs:
        peaks = []
        for operation in operations:
            probe = results.PROBE.load(run, operation, read)
            curve = curve_of(probe, *tokens, less=OTHER_DIGITS[read]).mean()
            peaks.append((float(curve.max()), int(curve.argmax())))
        values, layers = zip(*peaks, strict=True)
        texts.append(
            f"{run.config['model']} {_span(sorted(values), '.2f')} in "
            f"layer{'s' * (len({*layers}) > 1)} {_span(sorted(layers), 'd')}"
        )
    names = " and ".join(tokens)
    of_mean = f"the mean of {names}" if len(tokens) > 1 else names
    return f"Highest cosine of {of_mean} less others, over operations: {'; '.join(texts)}."


def _span(values: Sequence[float], form: str) -> str:
    low, high = (format(value, form).replace("-", "−") for value in (values[0], values[-1]))
    return low if low == high else f"{low} to {high}"


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
            title=plotting.plain(operation.capitalize()),
            less_others=True,
            relative=relative,
            first=operation == operations[0],
        )
        for run in runs
        for operation in operations
    ]
    drawn = [a for part in panels for line in part.lines for a in (line.low, line.high)]
    values = np.concatenate([a for a in drawn if a is not None])
    low, high = min(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    margin = 0.05 * (high - low or 1.0)
    return plotting.curve_panels(
        [replace(part, y_range=(low - margin, high + margin)) for part in panels],
        headings=[run.config["model"] for run in runs],
        x_title="Depth (% of the layers)" if relative else "Layer",
        notes=notes,
        across=len(operations),
        panel=(140, 150),
    )


CLASS_COLOURS = {
    "C": plotting.BLUE,
    "A or B": plotting.OCHRE,
    "C±1": "#a0d3f9",
    "other": plotting.PALE,
}


def fig17(options: Options) -> list[Chart]:
    """Figure 17: the column addition of a computer beside what each layer of the model writes.

    Reads a run of `experiments like_a_computer` (by its settings, or `--run PATH`)
    and draws it without loading a model.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "like_a_computer")
    facts = {name: results.SUM_COSINES.facts(run, name) for name in results.SUM_COSINES.labels(run)}
    winners = {name: layer_winners(run, name) for name in facts}
    told = ("text", "answer", "said", "probability")
    notes = [
        f"Model: {run.config['model']}. Left: carries, both addends, sum; below, the number in the "
        "sum's columns after each step from the right. Right: the digit whose column of W_U has "
        "the largest cosine with what the MLP adds at END, layers from 0. C is the digit of the "
        "answer. Margin: its cosine less that of the second digit; a small one decides little.",
        "A digit that is several of these counts as the first of them; A or B means any digit of "
        "theirs.",
    ]
    return [
        Chart(
            name="fig17",
            title="Figure 17: the column addition of a computer beside the model's layers",
            look="Whether the layers go through carries and partial sums as a computer does. In "
            "the paper they do not: for 3 + 4 they write an operand, then a neighbour of the "
            "answer, then the answer. Here the answer C stays the first digit: "
            + "; ".join(_from_layer(facts[name], of_one) for name, of_one in winners.items())
            + ".",
            notes=notes,
            runs=(run,),
            numbers=DataFrame(
                {key: facts[name][key] for key in told}
                | {"layer": layer, "winner": digit, "class": kind, "margin": margin}
                for name, of_one in winners.items()
                for layer, (digit, kind, margin) in enumerate(of_one)
            ),
            figure=plotting.step_panels(
                [_steps(facts[name], of_one) for name, of_one in winners.items()],
                cells_title="digit that each layer's MLP writes most",
                feet_title="layer; below, the digit's margin over the next one",
                legend=tuple(CLASS_COLOURS.items()),
                notes=notes,
            ),
        )
    ]


Winners = Sequence[tuple[int, str, float]]


def layer_winners(run: Run, name: str) -> Winners:
    """The digit that each layer writes most, its class, and its margin over the next digit."""
    facts, cosines = results.SUM_COSINES.facts(run, name), results.SUM_COSINES.load(run, name)
    of_prompt = cosines.per_pair[..., 0]
    first, second = of_prompt.topk(2, dim=1).values.T
    digits, margins = of_prompt.argmax(1).tolist(), (first - second).tolist()
    return [
        (digit, _kind(digit, facts), margin) for digit, margin in zip(digits, margins, strict=True)
    ]


def _kind(digit: int, facts: results.SumFacts) -> str:
    answer = int(facts["answer"])
    if digit == answer:
        return "C"
    if str(digit) in f"{facts['a']}{facts['b']}":
        return "A or B"
    return "C±1" if abs(digit - answer) == 1 else "other"


def _from_layer(facts: results.SumFacts, winners: Winners) -> str:
    """From which layer on all layers write the answer most."""
    kinds = [kind for _, kind, _ in winners]
    first = max((layer + 1 for layer, kind in enumerate(kinds) if kind != "C"), default=0)
    text = facts["text"].strip()
    if first == len(kinds):
        return f"“{text}” not in the last layer"
    before = kinds[:first].count("other")
    return (
        f"“{text}” from layer {first} on ({before} of the {first} layers before write none of A, "
        "B, C and C±1)"
    )


def _steps(facts: results.SumFacts, winners: Winners) -> plotting.Steps:
    """One prompt: base 2 and base 10 on the left, the model's layers on the right."""
    right = "" if facts["said"] == facts["answer"] else f", right would be {facts['answer']}"
    tables = []
    for base in (2, 10):
        added = column_addition(facts["a"], facts["b"], base)
        rows = {"carry": added.carries, "A": added.a, "B": added.b, "sum": added.result}
        lines = [f"{name:<6}{''.join(map(str, row))}" for name, row in rows.items()]
        steps = f"steps {' → '.join(map(str, added.steps))}"
        tables.append((f"base {base}", (*lines, steps)))
    return plotting.Steps(
        title=f"{facts['text'].strip()}  →  {facts['said']} ({facts['probability']:.0%}){right}",
        tables=tuple(tables),
        cells=tuple((str(digit), CLASS_COLOURS[kind]) for digit, kind, _ in winners),
        feet=tuple(f"{margin:.2f}".lstrip("0") for _, _, margin in winners),
    )
