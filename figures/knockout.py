"""Figure 3 and sufficiency: accuracy without the strongest heads and MLPs, and with them alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from pandas import DataFrame

from arith_lens import plotting
from arith_lens.plotting import COLOURS
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import knockout as numbers
from figures.tables import sufficiency as sufficiency_numbers
from figures.tables.base_rates import base_rate_note
from figures.tables.table import has, keys_of, records, select, value
from figures.views import maps
from figures.views.lines import line
from figures.views.words import sizes_text

ORDER_LINES = {  # the first is drawn first: (name, colour, dash)
    "random": ("random", COLOURS["control"], "solid"),
    "same layers": ("same layers", COLOURS["control"], "dash"),
    "iterative": ("one by one", COLOURS["chosen"], "dash"),
    "effect": ("strongest", COLOURS["chosen"], "solid"),
}
"""The orders that are drawn; the table has further ones."""
CONTROLS = ("random", "same layers")
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
            caption=knockout_caption,
            notes=_knockout_notes,
            draw=_draw_knockout,
        )
    ]


def knockout_caption(table: DataFrame) -> str:
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
        "How fast the dark curve falls beside the grey ones. In the paper accuracy falls "
        "by about 70% while random heads cost at most 2%. Here the share of right answers without "
        f"the {k:.0f} strongest heads, and without {k:.0f} others on average, is: "
        f"{'; '.join(parts)}. In {lower} of {len(parts)} operations it is lower than in every draw "
        "of both controls." + _caption_of_mlps(table)
    )


def _caption_of_mlps(table: DataFrame) -> str:
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
    """A row of operations without heads, and one without MLPs."""
    operations = keys_of(table, "operation")
    right = select(table, measure="accuracy")
    mlps = select(right, components="MLPs")
    kinds = ("heads", "MLPs")[: 1 + ({*keys_of(mlps, "operation")} == {*operations})]
    panels, headings = [], []
    for components in kinds:
        total = select(table, measure=numbers.OF, components=components).value.max()
        headings.append(f"{components[0].upper()}{components[1:]} knocked out, of {total:.0f}")
        for operation in operations:
            rows = select(table, operation=operation)
            lines = _lines(select(right, operation=operation, components=components))
            points = (*_points(rows, lines),) if components == "heads" else ()
            if operation != operations[-1]:  # the last chart has the lines' names
                lines = [replace(one, label="") for one in lines]
            title = maps.title(operation, "")
            panels.append(plotting.CurvePanel(title, tuple(lines), points, y_range=(0, 104)))
    return plotting.curve_panels(
        panels,
        x_title="knocked out",
        unit="%",
        notes=notes,
        headings=headings,
        across=len(operations),
        panel=(232, 200),
    )


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


def _points(rows: DataFrame, lines: Sequence[plotting.Line]) -> Iterator[plotting.Point]:
    """The number of key heads, and the number that causes 90% of the drop."""
    complete, n_key = (value(rows, measure=name) for name in (numbers.DROP_DONE, numbers.KEY_HEADS))
    texts = {complete: f"{complete:.0f} heads"}
    if n_key:
        texts[n_key] = f"{n_key:.0f} key head{'s' * (n_key > 1)}"
    for k, text in sorted(texts.items()):
        yield plotting.Point(k, text, line=len(lines) - 1)


def _knockout_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read Figure 3, and what it was made from."""
    lines = [
        "Dark: the components with the strongest effect on the answer's logit (band: 95% "
        "interval). Grey: as many drawn from all, and (dashed) from the same layers: mean and "
        f"range of {config['controls']} draws.",
    ]
    if has(table, order="iterative"):
        lines.append("Dark, dashed: each next head is the one whose knockout costs most.")
    lines += [
        f"Model: {config['model']}. Knockout: {config['ablation']} over counterfactuals, every "
        "position but BOS.",
        "Marked: the key heads, and nine tenths of the drop.",
        f"Prompts: {sizes_text(table)}; all answered right with every head in place, seed "
        f"{config['seed']}.",
    ]
    lines += base_rate_note(table)
    if not has(table, measure="accuracy", components="MLPs"):
        lines.append("MLPs are not in this run. A newer run has them.")
    return lines


CIRCUIT_LINES = {  # order: (name, colour, dash)
    "random": ("random", COLOURS["control"], "solid"),
    "growing": ("one by one", COLOURS["chosen"], "dash"),
    "effect": ("strongest", COLOURS["chosen"], "solid"),
}
"""The orders that are drawn; the table has further ones."""
BANDS = ("random", "effect")
"""The orders whose range or interval is drawn."""
PLACES = {"END": "Others replaced at END", "all": "Others replaced at every position"}


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
            caption=_sufficiency_caption,
            notes=_sufficiency_notes,
            draw=_draw_circuits,
        )
    ]


def _draw_circuits(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row of operations with the others replaced at END, and one at every position."""
    accuracies = select(table, measure="accuracy", components="heads", kind="keep_only")
    operations = keys_of(table, "operation")
    panels = []
    for place, operation in product(PLACES, operations):
        lines = [*_circuit_lines(select(accuracies, operation=operation), place)]
        if operation != operations[-1]:  # the last chart has the lines' names
            lines = [replace(one, label="") for one in lines]
        panels.append(
            plotting.CurvePanel(maps.title(operation, ""), tuple(lines), y_range=(0, 104))
        )
    return plotting.curve_panels(
        panels,
        x_title="heads kept",
        unit="%",
        notes=notes,
        headings=[*PLACES.values()],
        across=len(operations),
        panel=(300, 200),
    )


def _circuit_lines(rows: DataFrame, place: str) -> Iterator[plotting.Line]:
    """The random orders as a band that holds all of them, then each chosen order."""
    of_place = select(rows, positions=place)
    for order, (name, colour, dash) in CIRCUIT_LINES.items():
        if has(of_place, order=order):
            one = line(select(of_place, order=order), name, colour, dash=dash)
            yield one if order in BANDS else replace(one, low=None, high=None)


def _sufficiency_caption(table: DataFrame) -> str:
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
    searched = " Dashed: each next head is the one that raises p(C) most."
    return [
        "Dark: the heads with the strongest effect, in their order (band: 95% interval over "
        "problems)." + searched * (config["candidates"] > 0) + f" Grey: mean and range of "
        f"{config['controls']} random orders.",
        f"Model: {config['model']}. Orders are chosen on half of the problems, curves are drawn on "
        f"the other half (seed {config['seed']}).",
        f"A head that is out gives its {config['ablation']} over counterfactuals; MLPs stay.",
        *base_rate_note(table),
    ]
