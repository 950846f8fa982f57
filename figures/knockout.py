"""Figure 3 and sufficiency: accuracy without the strongest heads and MLPs, and with them alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from pandas import DataFrame

from arith_lens import plotting
from experiments.circuits import CURVE_KINDS
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import knockout as numbers
from figures.tables import sufficiency as sufficiency_numbers
from figures.tables.base_rates import base_rate_note
from figures.tables.table import has, keys_of, records, select, value
from figures.views.lines import line
from figures.views.words import sizes_text

ORDER_LINES = {  # the first is drawn first: (name, colour, dash)
    "random": ("random", plotting.NOTE, "solid"),
    "same layers": ("same layers", plotting.BLUE, "solid"),
    "END": ("END only", plotting.RUST, "dot"),
    "resample": ("resample", plotting.VIOLET, "dot"),
    "zero": ("zero", plotting.VIOLET, "dot"),
    "mean": ("mean", plotting.VIOLET, "dot"),
    "iterative": ("iterative", plotting.DARK, "dash"),
    "effect": ("by effect", plotting.RED, "solid"),
}
CONTROLS = ("random", "same layers")
SECOND = {
    "resample": "Violet: by effect, each output replaced by one of a counterfactual (resample).",
    "zero": "Violet: by effect, each output replaced by zero.",
    "mean": "Violet: by effect, each output replaced by its mean over counterfactuals.",
}
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
    return [
        chart_of(
            numbers.table(run),
            [run],
            name="fig3",
            title="Figure 3: accuracy and p(C) as heads and MLPs are knocked out",
            look=knockout_look,
            notes=_knockout_notes,
            draw=_draw_knockout,
        )
    ]


def knockout_look(table: DataFrame) -> str:
    """What to look for, and how the strongest heads of this run compare with its controls."""
    right = select(table, measure="accuracy", components="heads")
    k = select(right, order=CONTROLS, k=range(N_COMPARED + 1)).k.max()
    parts, lower = [], 0
    for operation, rows in select(right, k=k).groupby("operation", sort=False):
        accuracy = value(rows, order="effect")
        controls = select(rows, order=CONTROLS)
        lower += bool((accuracy < controls.low).all())
        means = ", ".join(f"{c.order} {c.value:.0%}" for c in records(controls))
        parts.append(f"{operation} {accuracy:.0%} ({means})")
    return (
        "How fast the red curve falls beside the grey and blue ones. In the paper accuracy falls "
        "by about 70% while random heads cost at most 2%. Here the share of right answers without "
        f"the {k:.0f} strongest heads, and without {k:.0f} others on average, is: "
        f"{'; '.join(parts)}. In {lower} of {len(parts)} operations it is lower than in every draw "
        "of both controls." + _look_of_mlps(table)
    )


def _look_of_mlps(table: DataFrame) -> str:
    """How the strongest third of the MLPs compares with as many random ones."""
    right = select(table, measure="accuracy", components="MLPs")
    random = select(right, order="random")
    if {*keys_of(random, "operation")} != {*keys_of(table, "operation")}:
        return ""
    third = select(right, order="effect").k.max() / 3
    k = min(random.k, key=lambda k: abs(k - third))
    parts, lower = [], 0
    for operation, rows in select(right, k=k).groupby("operation", sort=False):
        accuracy, mean = (value(rows, order=order) for order in ("effect", "random"))
        lower += accuracy < mean
        parts.append(f"{operation} {accuracy:.0%} (random {mean:.0%})")
    return (
        f" Without the {k:.0f} strongest MLPs it is: {'; '.join(parts)}. In {lower} of "
        f"{len(parts)} operations that is lower than without random ones on average."
    )


def _draw_knockout(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One row per operation: accuracy and p(C) without heads, and accuracy without MLPs."""
    totals = {
        name: select(table, measure=numbers.OF, components=name).value.max()
        for name in ("heads", "MLPs")
    }
    mlps = select(table, measure="accuracy", components="MLPs")
    with_mlps = {*keys_of(mlps, "operation")} == {*keys_of(table, "operation")}
    charts = (("accuracy", "heads"), ("p(C)", "heads"), ("accuracy", "MLPs"))[: 2 + with_mlps]
    panels = []
    for operation, (measure, components) in product(keys_of(table, "operation"), charts):
        rows = select(table, operation=operation)
        lines = _lines(select(rows, measure=measure, components=components))
        title, points = f"{plotting.plain(operation.capitalize())}: {measure}", ()
        if (measure, components) == charts[0]:
            points = (*_points(rows, totals["heads"], lines),)
        else:  # the first chart has the lines' names
            lines = [replace(one, label="") for one in lines]
        title += ", MLPs" * (components == "MLPs")
        panels.append(plotting.CurvePanel(title, tuple(lines), points, y_range=(0, 104)))
    figure = plotting.curve_panels(
        panels,
        x_title=f"Heads knocked out (of {totals['heads']:.0f})",
        unit="%",
        notes=notes,
        across=len(charts),
        panel=(232, 190) if with_mlps else (300, 190),
    )
    if with_mlps:
        title = f"MLPs knocked out (of {totals['MLPs']:.0f})"
        figure.layout[f"xaxis{len(panels)}"].title.text = title
    return figure


def _lines(rows: DataFrame) -> list[plotting.Line]:
    """The curves of one measure. A curve that ends early has its name where it ends."""
    known = [order for order in ORDER_LINES if has(rows, order=order)]
    last = select(rows, order="effect").k.max()
    lines = []
    for order in known:
        name, colour, dash = ORDER_LINES[order]
        of_order = select(rows, order=order)
        one = line(
            of_order, name, colour, dash=dash, label=None if of_order.k.max() == last else ""
        )
        lines.append(one if dash == "solid" else replace(one, low=None, high=None))
    return lines


def _points(
    rows: DataFrame, n_heads: float, lines: Sequence[plotting.Line]
) -> Iterator[plotting.Point]:
    """The number of key heads, the number that causes 90% of the drop, and where lines end."""
    complete, n_key = (value(rows, measure=name) for name in (numbers.DROP_DONE, numbers.KEY_HEADS))
    texts = {complete: f"{complete:.0f} heads ({complete / n_heads:.1%})"}
    if n_key:
        texts[n_key] = f"{n_key:.0f} key head{'s' * (n_key > 1)} ({n_key / n_heads:.1%})"
    for k, text in sorted(texts.items()):
        yield plotting.Point(k, text, line=len(lines) - 1)
    for index, one in enumerate(lines):
        if one.label == "":
            yield plotting.Point(int(one.x[-1]), one.name, line=index)


def _knockout_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 3, and what it was made from."""
    lines = [
        f"Model: {config['model']}. Prompts: {sizes_text(table)}; all answered right "
        f"with every head in place, seed {config['seed']}. Knockout: {config['ablation']} over "
        "counterfactuals, every position but BOS.",
        "Red: in the order of the effect on the answer's logit (band: 95% interval). Grey: drawn "
        "from all heads, or all MLPs. Blue: for the strongest k heads, others of the same layers, "
        f"drawn from all heads but these k (mean and range of {config['controls']} draws).",
        "Rust, dotted: by effect, at END alone. Marked: the key heads (effect below −5%), and nine "
        "tenths of the drop. The other charts have the same colours.",
    ]
    lines += [text for name, text in SECOND.items() if has(table, order=name)]
    if has(table, order="iterative"):
        lines.append(
            "Dashed: iterative masking, each next head by what its knockout costs. It stops at "
            f"{select(table, order='iterative').k.max():.0f} heads, because each step tries all "
            f"that are left of the {config['candidates']} strongest heads."
        )
    lines += base_rate_note(table)
    if not has(table, measure="accuracy", components="MLPs"):
        lines.append("MLPs are not in this run. A newer run has them.")
    return lines


KIND_TITLES = {"keep_only": "only the first k kept", "knock_out": "the first k knocked out"}
CIRCUIT_LINES = {  # order: (name, colour, dash)
    "random": ("random", plotting.NOTE, "solid"),
    "weights": ("by weight norm", plotting.NOTE, "dot"),
    "growing": ("growing", plotting.DARK, "dash"),
    "iterative": ("iterative masking", plotting.RUST, "dot"),
    "effect": ("by effect", plotting.RED, "solid"),
}
BANDS = ("random", "effect")
"""The orders whose range or interval is drawn."""


def sufficiency(options: Options) -> list[Chart]:
    """Do the strongest heads suffice? Accuracy with the first k heads only, and without them.

    Reads a run of `experiments do_they_suffice`. The orders were chosen on half of the problems;
    the curves are drawn on the other half.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_they_suffice")
    return [
        chart_of(
            sufficiency_numbers.table(run),
            [run],
            name="sufficiency",
            title="Do the strongest heads suffice?",
            look=_sufficiency_look,
            notes=_sufficiency_notes,
            draw=_draw_circuits,
        )
    ]


def _draw_circuits(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """Kept on the left, knocked out on the right; one row per operation."""
    right = select(table, measure="accuracy", components="heads")
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title=plotting.plain(f"{operation.capitalize()}: {KIND_TITLES[kind]}"),
                lines=tuple(_circuit_lines(select(right, operation=operation, kind=kind))),
                y_title="right" if kind == CURVE_KINDS[0] else "",
                y_range=(0, 104),
            )
            for operation, kind in product(keys_of(table, "operation"), CURVE_KINDS)
        ],
        x_title="k heads",
        unit="%",
        notes=notes,
        across=len(CURVE_KINDS),
        panel=(300, 170),
    )


def _circuit_lines(rows: DataFrame) -> Iterator[plotting.Line]:
    """The random orders as a band that holds all of them, then each chosen order."""
    everywhere = select(rows, positions="all")
    for order, (name, colour, dash) in CIRCUIT_LINES.items():
        if has(everywhere, order=order):
            one = line(select(everywhere, order=order), name, colour, dash=dash)
            yield one if order in BANDS else replace(one, low=None, high=None)
    at_end = select(rows, positions="END", order="effect")
    yield line(at_end, "by effect, END only", plotting.BLUE)


def _sufficiency_look(table: DataFrame) -> str:
    """What the run's own numbers say."""
    parts = []
    for operation in keys_of(table, "operation"):
        keys = {"operation": operation, "components": "heads", "order": "effect"}
        rows = select(table, kind="keep_only", **keys)
        ends = select(rows, measure="accuracy", positions="END")
        near_5 = records(ends)[int((ends.k - 5).abs().argmin())]
        enough = {
            name: value(rows, measure=sufficiency_numbers.ENOUGH, positions=name)
            for name in ("END", "all")
        }
        parts.append(
            f"{operation} {near_5.value:.0%} with {near_5.k:.0f} heads, 90% from "
            f"{enough['END']:.0f} heads on (from {enough['all']:.0f} if the others are "
            "replaced at every position)"
        )
    return (
        "How many heads answer as the whole model does. With the others replaced at END: "
        f"{'; '.join(parts)}."
    )


def _sufficiency_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
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
        *base_rate_note(table),
    ]
