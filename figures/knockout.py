"""Figure 3 and sufficiency: accuracy without the strongest heads and MLPs, and with them alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from pandas import DataFrame, Series

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import knockout as numbers
from figures.tables import sufficiency as sufficiency_numbers
from figures.tables.base_rates import MAJORITY, base_rate_note
from figures.tables.table import has, keys_of, select
from figures.views.lines import base_rate, line
from figures.views.words import LENS, beside_random, draws_text, sizes_text, span_text

ORDER_LINES = {  # the first is drawn first: (name, colour, dash)
    "random": ("random", COLOURS["control"], "solid"),
    "same layers": ("same layers", COLOURS["control"], "5px,3px"),
    "iterative": ("greedy", COLOURS["chosen"], "5px,3px"),
    "growing": ("greedy", COLOURS["chosen"], "5px,3px"),
    "effect": ("strongest", COLOURS["chosen"], "solid"),
}
"""The orders that are drawn; the table has further ones."""
CONTROLS = ("random", "same layers")
N_COMPARED = 10
"""The caption compares knockouts of so many heads, the number of the paper's Table 4."""
BANDS = "Bands: 95% intervals over n problems, of random heads the range of draws."
ALONE = {"components": "heads", "kind": "keep_only"}
PLACES = {"END": "at END", "all": "everywhere"}
"""Where the other heads are replaced, in words."""
Row: TypeAlias = tuple[str, DataFrame, Mapping[str, tuple[float, str]]]
"""A row of charts: its heading, its numbers, and for each operation how many heads a circle marks,
with its text."""


def fig3(options: Options) -> list[Chart]:
    """Figure 3: accuracy as heads and MLPs are knocked out, by effect and at random.

    Reads a run of `experiments/are_they_needed.py` (by its settings, or `--run PATH`)
    and draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "are_they_needed")
    chart = chart_of(
        partial(numbers.table, run),
        [run],
        name="fig3",
        title="Are the strongest heads needed?",
        caption=knockout_caption,
        notes=_knockout_notes,
        draw=partial(_draw, _knockouts),
    )
    return [chart]


def sufficiency(options: Options) -> list[Chart]:
    """Do the strongest heads suffice? Accuracy with the first k heads alone.

    Reads a run of `experiments do_they_suffice`. The orders were chosen on half of the problems;
    the curves are drawn on the other half.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_they_suffice")
    chart = chart_of(
        partial(sufficiency_numbers.table, run),
        [run],
        name="sufficiency",
        title="Do the strongest heads suffice?",
        caption=sufficiency_caption,
        notes=_sufficiency_notes,
        draw=partial(_draw, _kept_alone),
    )
    return [chart]


def _draw(
    rows_of: Callable[[DataFrame], Iterator[Row]], table: DataFrame, notes: Sequence[str]
) -> plotting.Figure:
    """A row of operations below each heading; a column has room for one model."""
    shown = [*rows_of(table)]
    if is_narrow():
        shown = [row for row in shown if has(row[1], model=keys_of(table, "model")[0])]
    operations = keys_of(select(table, measure="accuracy"), "operation")
    panels = []
    for _, rows, marks in shown:
        for operation in operations:
            own = select(rows, operation=operation)
            rates = select(table, measure=MAJORITY, operation=operation, model=own.model.iloc[0])
            lines = [base_rate(rate, (own.k.min(), own.k.max())) for rate in rates.value[:1]]
            lines += _lines(own)
            marked = [marks[operation]] if operation in marks else []
            points = [plotting.Point(*one, len(lines) - 1) for one in marked]
            if operation == operations[-1]:  # it has the lines' names
                points += _names_inside(lines, own.k.max())
            else:
                lines = [replace(one, label="") for one in lines]
            n = select(own, order="effect").n.max()
            title = f"{plotting.plain(operation.capitalize())}, n = {n:.0f}"
            curves = plotting.CurvePanel(title, tuple(lines), (*points,), y_range=(-3, 104))
            panels.append(replace(curves, x_title=_x_title(own), y_title="right answers"))
    return plotting.curve_panels(
        panels,
        x_title="",
        unit="%",
        notes=notes,
        headings=[heading for heading, *_ in shown],
        across=len(operations),
        panel=(190, 150),
        shared_y=True,
    )


def _x_title(rows: DataFrame) -> str:
    """What is counted along a chart's axis."""
    change = (
        "knocked out"
        if has(rows, question="knockout")
        else f"kept {PLACES[rows.positions.iloc[0]]}"
    )
    return f"{rows.components.iloc[0]} {change}"


def _lines(rows: DataFrame) -> Iterator[plotting.Line]:
    """The curves of one chart. A curve that ends early has no name at its end."""
    for order in (order for order in ORDER_LINES if has(rows, order=order)):
        name, colour, dash = ORDER_LINES[order]
        of_order = select(rows, order=order)
        label = None if of_order.k.max() == rows.k.max() else ""
        one = line(of_order, name, colour, dash=dash, label=label)
        yield one if dash == "solid" else replace(one, low=None, high=None)


def _names_inside(lines: Sequence[plotting.Line], last: float) -> Iterator[plotting.Point]:
    """The names of lines that end before the chart does, beside them."""
    for index, one in enumerate(lines):
        if one.x[-1] < last:
            yield plotting.Point(one.x[-1], one.name, index, is_name=True)


def _knockouts(table: DataFrame) -> Iterator[Row]:
    """Each model without heads; a single one also without MLPs."""
    right = select(table, measure="accuracy")
    models = keys_of(right, "model")
    for model in models:
        of_model = select(table, model=model)
        for components in ("heads", "MLPs")[: 1 + (len(models) == 1)]:
            rows = select(right, model=model, components=components)
            if {*keys_of(rows, "operation")} == {*keys_of(right, "operation")}:
                yield _without_components(of_model, rows, components)


def _without_components(table: DataFrame, rows: DataFrame, components: str) -> Row:
    """The row of a model without its heads or MLPs."""
    model = rows.model.iloc[0]
    total = select(table, measure=numbers.OF, components=components).value.max()
    if components != "heads" or not has(rows, order=CONTROLS):
        return f"{model}: {components} knocked out, of {total:.0f}", rows, {}
    k, chosen, controls, _ = _compared(rows)
    heading = (
        f"{model}: without the {k:.0f} strongest heads {span_text(chosen)} are right, without "
        f"random ones {span_text(controls)} on average"
    )
    return heading, rows, {str(name): (k, f"{one:.0%}") for name, one in chosen.items()}


def _size_compared(rows: DataFrame) -> float:
    """How many heads are knocked out in a comparison with controls; NaN without these."""
    keys = {"measure": "accuracy", "components": "heads", "order": CONTROLS}
    return select(rows, k=range(N_COMPARED + 1), **keys).k.max()


def _compared(rows: DataFrame) -> tuple[float, Series, Series, Series]:
    """How many heads of a model are knocked out in a comparison with controls; by operation, the
    share of right answers without the strongest, that without random ones, and whether the first
    is below every draw of both controls."""
    right, k = select(rows, measure="accuracy", components="heads"), _size_compared(rows)
    at_k = select(right, k=k).set_index("operation")
    chosen = select(at_k, order="effect").value
    controls = select(at_k, order=CONTROLS)
    is_below = chosen < controls.groupby("operation").low.min().reindex(chosen.index)
    return k, chosen, select(controls, order="random").value, is_below


def knockout_caption(table: DataFrame) -> str:
    """What the models answer without the strongest heads, and without random ones."""
    texts, k = [], 0.0
    for model in keys_of(table, "model"):
        k, chosen, random, is_below = _compared(select(table, model=model))
        below = f" on average; below every draw in {is_below.sum()} of {len(is_below)} operations"
        texts.append(beside_random(f"`{model}` answers {span_text(chosen)} right", random, below))
    greedy = "; greedy: each next head costs most"
    return (
        f"Without the {k:.0f} strongest heads, {', '.join(texts)}. Heads are in the order of "
        f"{LENS} on the same prompts (strongest{greedy * has(table, order='iterative')}), "
        f"or random. {BANDS}"
    )


def _kept_alone(table: DataFrame) -> Iterator[Row]:
    """Each model with its strongest heads alone at END; a single one also at every position."""
    models = keys_of(table, "model")
    for model in models:
        of_model = select(table, model=model)
        total = select(of_model, **ALONE).k.max()
        for place, where in [*PLACES.items()][: 1 + (len(models) == 1)]:
            rows = select(of_model, measure="accuracy", positions=place, **ALONE)
            rows = DataFrame(rows[~rows.order.isin(["iterative", "weights"])])
            enough = _enough(of_model, place)
            if place == "END" and len(enough):  # more heads change little
                rows = DataFrame(rows[rows.k <= enough.k.max()])
            heading = f"{model}: heads alone, {where}"
            if len(enough):
                heading = f"{model}: 90% right with {_enough_text(enough, total)}"
            if len(rows):
                yield heading, rows, {str(o): (k, f"{k:.0f} heads") for o, k in enough.k.items()}


def _enough(table: DataFrame, place: str = "END") -> DataFrame:
    """By operation, `k`: from how many of a model's strongest heads on, kept alone, 90% are right;
    the `low` end of the interval there, and how many are right with as many `random` ones, on
    average and at the ends of their range."""
    alone = select(table, positions=place, **ALONE)
    measure = sufficiency_numbers.ENOUGH
    k = select(alone, measure=measure, order="effect").set_index("operation").value.dropna()
    right = DataFrame(alone[alone.k == alone.operation.map(k)])
    right = select(right, measure="accuracy").set_index("operation")
    low = select(right, order="effect").low.reindex(k.index)
    random = select(right, order="random").reindex(k.index)
    ends = {"random_low": random.low, "random_high": random.high}
    return DataFrame({"k": k, "low": low, "random": random.value, **ends})


def _enough_text(enough: DataFrame, total: float) -> str:
    """How many heads are enough at most; operations that need more than half have a text each."""
    few = DataFrame(enough[enough.k <= total / 2])
    texts = [
        beside_random(f"at most {few.k.max():.0f} of {total:.0f} heads", few.random.dropna())
    ] * bool(len(few))
    for operation in enough.index.difference(few.index):
        one = DataFrame(enough.loc[[operation]])
        text = f"in {OPERATIONS[operation].sign} with {one.k.item():.0f}"
        ends = [100 * end for end in (one.random_low.item(), one.random_high.item())]
        own = "" if np.isnan(ends).any() else f" [{ends[0]:.0f}, {ends[1]:.0f}]"
        texts.append(beside_random(text, one.random.dropna(), own))
    return ", ".join(texts)


def sufficiency_caption(table: DataFrame) -> str:
    """How many heads suffice."""
    findings, low = [], 1.0
    for model in keys_of(table, "model"):
        of_model = select(table, model=model)
        enough = _enough(of_model)
        if len(enough):
            total = select(of_model, **ALONE).k.max()
            findings.append(f"in `{model}` with {_enough_text(enough, total)}")
            low = min(low, enough.low.min())
    finding = (
        f"Kept alone at END, the strongest heads answer 90% right {', '.join(findings)}; intervals "
        f"there reach down to {low:.0%}. "
    )
    return (
        f"{finding * bool(findings)}The others give their means there. Heads are in the order of "
        f"{LENS} (strongest), or random. {BANDS}"
    )


def _knockout_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the knockouts, and what they were made from."""
    k = _size_compared(table)
    total = select(table, measure=numbers.OF, components="heads").value.max()
    greedy = " Greedy: each next head costs most."
    return [
        f"Circles: {k:.0f} of {total:.0f} heads are out. " * bool(k == k) + _marks_note(table),
        "Same layers: random heads of the same layers." * has(table, order="same layers")
        + greedy * has(table, order="iterative")
        + f" A head that is out gives its counterfactual {config['ablation']}.",
        *_data_notes(table, config),
    ]


def _sufficiency_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the circuits, and what they were made from."""
    return [
        f"Circles: from this tested size on 90% are right. {_marks_note(table)}",
        f"A head that is not kept gives its counterfactual {config['ablation']}. END: the last "
        "position. Heads are ordered on the other half of the problems.",
        *_data_notes(table, config),
    ]


def _marks_note(table: DataFrame) -> str:
    """What bands and the dotted line are."""
    random = draws_text(select(table, measure="accuracy", order="random"))
    return f"Bands: 95% intervals{random}. Base rate: always the most frequent answer."


def _data_notes(table: DataFrame, config: Settings) -> list[str]:
    """The prompts of one model; for several models the tables have them."""
    if len(keys_of(table, "model")) > 1:
        return []
    sizes = f"Prompts, all answered right: {sizes_text(table)}; seed {config['seed']}."
    return [sizes, *base_rate_note(table)]
