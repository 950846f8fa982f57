"""Figure 3 and sufficiency: accuracy without the strongest heads and MLPs, and with them alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pandas import DataFrame, Series

from arith_lens import plotting
from arith_lens.operations import OPERATIONS
from arith_lens.plotting import COLOURS
from arith_lens.plotting.widths import is_narrow
from arith_lens.runs import Run
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import knockout as numbers
from figures.tables import sufficiency as sufficiency_numbers
from figures.tables.base_rates import MAJORITY, base_rate_note
from figures.tables.table import QuestionTable, has, keys_of, select, value
from figures.views import maps
from figures.views.lines import base_rate, line
from figures.views.words import LENS, sizes_text, span_text

ORDER_LINES = {  # the first is drawn first: (name, colour, dash)
    "random": ("random", COLOURS["control"], "solid"),
    "same layers": ("same layers", COLOURS["control"], "5px,3px"),
    "iterative": ("one by one", COLOURS["chosen"], "5px,3px"),
    "growing": ("one by one", COLOURS["chosen"], "5px,3px"),
    "effect": ("strongest", COLOURS["chosen"], "solid"),
}
"""The orders that are drawn; the table has further ones."""
CONTROLS = ("random", "same layers")
N_COMPARED = 10
"""The caption compares knockouts of so many heads, the number of the paper's Table 4."""
FEW = 5
"""The caption says what so many heads do alone."""


def fig3(options: Options) -> list[Chart]:
    """Figure 3: accuracy and p(C) as heads and MLPs are knocked out, by effect and at random.

    Reads a run of `experiments/are_they_needed.py` (by its settings, or `--run PATH`)
    and draws it without loading a model: HTML that opens offline, PNG, SVG and PDF where Chrome or
    Chromium is found, and the numbers as CSV.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "are_they_needed")
    title = "Are the strongest heads needed, and do they suffice?"
    return [_chart(run, numbers.table, name="fig3", title=title)]


def _chart(run: Run, table: Callable[[Run], QuestionTable], name: str, title: str) -> Chart:
    """The picture of the table of a run."""
    return chart_of(
        lambda: table(run),
        [run],
        name=name,
        title=title,
        caption=knockout_caption,
        notes=_knockout_notes,
        draw=_draw_knockout,
    )


def knockout_caption(table: DataFrame) -> str:
    """How the strongest heads compare with the controls, and what they do alone."""
    needed, sufficient = (select(table, question=name) for name in ("knockout", "sufficiency"))
    findings = []
    if len(needed):
        k, texts = _without(needed)
        (first, (right, random, lower)), *others = texts.items()
        models = [
            f"`{first}` answers {right} right (without random ones {random}; below every draw in "
            f"{lower} operations)",
            *(f"`{name}` {right} ({random}; {lower})" for name, (right, random, lower) in others),
        ]
        findings.append(f"Without the {k:.0f} strongest heads {', '.join(models)}.")
    alone = {name: select(sufficient, model=name) for name in keys_of(sufficient, "model")}
    texts = [
        f"in `{name}` {_alone(rows, short=number > 0)}"
        for number, (name, rows) in enumerate(alone.items())
    ]
    if texts:
        findings.append(f"Kept alone, {'; '.join(texts)}.")
    return (
        f"{' '.join(findings)} Dark lines are the strongest heads by {LENS} (dashed: each "
        "next head is the one that changes most), grey lines random ones. Bands are 95% intervals "
        "over problems (n), or all draws."
    )


def _without(table: DataFrame) -> tuple[float, dict[str, tuple[str, str, str]]]:
    """How many heads are knocked out; by model the share of right answers, that without random
    heads, and in how many operations it is below every draw."""
    right = select(table, measure="accuracy", components="heads")
    k = select(right, order=CONTROLS, k=range(N_COMPARED + 1)).k.max()
    texts = {}
    for model in keys_of(right, "model"):
        rows = select(right, model=model, k=k)
        chosen, controls = select(rows, order="effect"), select(rows, order=CONTROLS)
        least = controls.groupby("operation").low.min()
        lower = int(chosen.set_index("operation").value.lt(least).sum())
        lower_text = f"{lower} of {len(chosen)}"
        texts[model] = span_text(chosen.value), span_text(controls.value), lower_text
    return k, texts


def _alone(rows: DataFrame, *, short: bool = False) -> str:
    """What a few heads of a model do alone, and how many answer like the whole model.

    Args:
        rows: of the model.
        short: numbers alone, for the second model of a sentence.
    """
    heads = select(rows, kind="keep_only", components="heads", positions="END")
    strongest, random = (select(heads, order=order) for order in ("effect", "random"))
    right, enough = (
        select(strongest, measure=name) for name in ("accuracy", sufficiency_numbers.ENOUGH)
    )
    near = right.k.loc[(right.k - FEW).abs().idxmin()]
    by_chance = select(random, measure="accuracy", k=near).set_index("operation")
    chosen = select(right, k=near).set_index("operation")
    few, many = span_text(chosen.value), span_text(enough.value, ".0f")
    random_ones = span_text(by_chance.value) if len(by_chance) else ""
    is_above = chosen.low > by_chance.high.reindex(chosen.index)
    signs = ", ".join(OPERATIONS[str(name)].sign for name in chosen.index[is_above])
    above = f"in {signs or 'no operation'}"
    if short:
        return f"{few}{f' ({random_ones}; {above})' * bool(random_ones)}, and {many}"
    control = f" (random ones {random_ones}; interval above theirs {above})" * bool(random_ones)
    return f"{near:.0f} heads answer {few} right{control}, and 90% needs {many}"


def _draw_knockout(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """A row of operations for each model, without heads and with heads alone."""
    if is_narrow():  # a column has room for one model
        table = select(table, model=keys_of(table, "model")[0])
    operations = keys_of(table, "operation")
    panels: list[plotting.CurvePanel] = []
    headings = []
    for heading, rows in _rows_of_panels(table):
        headings.append(heading)
        same = {"model": rows.model.iloc[0], "question": rows.question.iloc[0]}
        own_rates = select(table, measure=MAJORITY, **same)
        for operation in operations:
            own = select(rows, operation=operation)
            rates = select(own_rates, operation=operation).value
            lines = [base_rate(rate, (own.k.min(), own.k.max())) for rate in rates[:1]]
            lines += _lines(own)
            of_model = select(table, model=own.model.iloc[0], operation=operation)
            points = (*_points(own, of_model, lines),)
            if operation != operations[-1]:  # the last chart has the lines' names
                lines = [replace(one, label="") for one in lines]
            title = maps.title(operation, "")
            curves = plotting.CurvePanel(title, tuple(lines), points, y_range=(-5, 105))
            panels.append(replace(curves, x_title=_x_title(own)))
    return plotting.curve_panels(
        panels,
        x_title="",
        unit="%",
        notes=notes,
        headings=headings,
        across=len(operations),
        panel=(190, 104),
    )


def _x_title(rows: DataFrame) -> str:
    """What is counted along a panel's axis."""
    change = "knocked out" if has(rows, question="knockout") else "kept"
    return f"{rows.components.iloc[0]} {change}"


def _rows_of_panels(table: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The heading and the numbers of each row: first what is knocked out in each model, then what
    is kept."""
    right = select(table, measure="accuracy")
    for model in keys_of(table, "model"):
        own = select(right, model=model)
        for components in ("heads", "MLPs"):
            rows = select(own, question="knockout", components=components)
            total = select(table, model=model, measure=numbers.OF, components=components).value
            alone = len(keys_of(table, "model")) == 1 and not has(table, question="sufficiency")
            if len(rows) and (components == "heads" or alone) and _is_whole(rows, own):
                yield _heading(table, model, components, total.max()), rows
    for model in keys_of(table, "model"):
        own = select(right, model=model)
        sole = select(own, question="sufficiency", components="heads", kind="keep_only")
        of_model = select(table, model=model, question="sufficiency")
        enough = _enough(of_model).max()  # as many heads as the heading names
        is_shown = (sole.order != "iterative") & (sole.k <= enough)
        sole = DataFrame(sole[is_shown]) if has(own, question="knockout") else sole
        for place, text in PLACES.items():
            if (place == "END" or not has(table, question="knockout")) and len(sole):
                finding = f": {_alone(of_model)}" * (place == "END" and has(sole, positions="END"))
                finding += f", {_sizes(select(sole, positions=place))}"
                yield f"{model}, kept alone ({text}){finding}", select(sole, positions=place)


def _heading(table: DataFrame, model: str, components: str, total: float) -> str:
    """What is knocked out, and what the model then answers."""
    heading = f"{model}, {components} knocked out, of {total:.0f}"
    rows = select(table, model=model, question="knockout")
    if components != "heads" or not has(rows, order=CONTROLS):
        return heading
    k, texts = _without(rows)
    right, random, _ = texts[model]
    return (
        f"{model} without {k:.0f} of {total:.0f} heads: {right} right (random ones {random}), "
        f"{_sizes(rows)}"
    )


def _sizes(rows: DataFrame) -> str:
    """How many problems of each operation: `n = 36, 45`."""
    strongest = select(rows, measure="accuracy", components="heads", order="effect")
    counts = strongest.drop_duplicates("operation").n
    return f"n = {', '.join(f'{n:.0f}' for n in counts)}"


def _is_whole(rows: DataFrame, table: DataFrame) -> bool:
    """Whether the rows have all operations of a table."""
    return {*keys_of(rows, "operation")} == {*keys_of(table, "operation")}


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
    shown: DataFrame, rows: DataFrame, lines: Sequence[plotting.Line]
) -> Iterator[plotting.Point]:
    """The number of heads whose knockout causes 90% of the drop, or that answer 90% right."""
    if has(shown, question="knockout", components="heads"):
        counts = [value(rows, measure=numbers.DROP_DONE)]
    else:
        counts = [*_enough(rows)] if has(shown, positions="END") else []
    for count in counts:
        yield plotting.Point(count, f"{count:.0f}", line=len(lines) - 1)


def _enough(rows: DataFrame) -> Series:
    """From how many heads, kept alone at END, 90% are right."""
    keys = {"kind": "keep_only", "components": "heads", "positions": "END", "order": "effect"}
    return select(rows, measure=sufficiency_numbers.ENOUGH, **keys).value


def _knockout_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    dashed = has(table, order=("iterative", "growing"))
    draws = select(table, measure="accuracy", order="random").groupby("question").n.max()
    counts = ", ".join(f"{n:.0f} ({question})" for question, n in draws.items())
    return [
        "Dark: strongest by effect (band: 95% interval)."
        + " Dark, dashed: each next head is the one that changes most." * dashed
        + f" Grey: as many at random, dashed: of the same layers; mean and range of {counts} "
        "draws. Dotted: always the most frequent answer. Circles: how many heads cause nine tenths "
        "of the drop, or answer 90% right alone.",
        f"A head that is out gives its {config['ablation']} over counterfactuals, at every "
        "position but BOS; MLPs stay." + f" Prompts, all answered right: {sizes_text(table)}; seed "
        f"{config['seed']}." * (len(keys_of(table, "model")) == 1),
        *base_rate_note(table),
    ]


PLACES = {
    "END": "others replaced at END",
    "all": "others replaced at every position",
}


def sufficiency(options: Options) -> list[Chart]:
    """Do the strongest heads suffice? Accuracy with the first k heads only, and without them.

    Reads a run of `experiments do_they_suffice`. The orders were chosen on half of the problems;
    the curves are drawn on the other half.

    Raises:
        RunError: there is no run.
    """
    run = chosen_run(options, "do_they_suffice")
    title = "Do the strongest heads suffice?"
    return [_chart(run, sufficiency_numbers.table, name="sufficiency", title=title)]
