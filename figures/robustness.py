"""Stability and templates: do other problems and other wordings give the same strongest heads?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.effects import NoTemplates, StabilityError
from arith_lens.plotting import COLOURS
from arith_lens.runs import RunError
from arith_lens.templates import TEMPLATES, fill
from figures.common import Options, chosen_run
from figures.exhibit import Chart, Settings, chart_of
from figures.tables import stability as stability_numbers
from figures.tables import templates as template_numbers
from figures.tables.effects import KEY_ROLE
from figures.tables.stability import STABLE_SHARE
from figures.tables.table import QuestionTable, has, keys_of, records, select, value
from figures.views import maps
from figures.views.lines import line

COMPARISON_NAMES = {"rest": "with the rest", "another": "with a sample"}
KEY_SET = "key"


@dataclass(frozen=True)
class StabilityOptions(Options):
    """Which run to draw, and where its files go."""

    k: int = 5
    """How many heads the top set has."""
    samples: int = 200
    """Samples of each size."""


def stability(options: StabilityOptions) -> list[Chart]:
    """How many problems until the strongest heads stay the same, by operation?

    Reads a run of `experiments/which_heads.py`. It draws samples of n problems without replacement,
    and compares their top heads and their key heads with those of all other problems and with those
    of another sample of the same size. No problem is on both sides.

    Raises:
        RunError: there is no run, or it has too few pairs.
    """
    run = chosen_run(options, "which_heads")

    def table() -> QuestionTable:
        try:
            return stability_numbers.table(run, options.k, options.samples)
        except StabilityError as error:
            raise RunError(str(error)) from error

    return [
        chart_of(
            table,
            [run],
            name="stability",
            title="How many problems until the strongest heads stay the same?",
            caption=stability_caption,
            notes=_stability_notes,
            draw=_draw_stability,
        )
    ]


def _top_set(table: DataFrame) -> str:
    """The name of the set of the strongest heads."""
    return next(name for name in keys_of(table, "set") if name != KEY_SET)


def stability_caption(table: DataFrame) -> str:
    """What to look for, and where the run's own curves end."""
    parts, below = [], 0
    of_top = select(table, set=_top_set(table), compared="rest")
    for operation in keys_of(table, "operation"):
        rows = select(of_top, operation=operation)
        n = max(keys_of(select(rows, measure=stability_numbers.IN_COMMON), "size"))
        last = value(rows, measure=stability_numbers.IN_COMMON, size=n)
        below += last < STABLE_SHARE
        text = f"{operation} {last:.0%} at {n:.0f} problems"
        if has(rows, measure=stability_numbers.ENOUGH):
            enough = value(rows, measure=stability_numbers.ENOUGH)
            text += f" ({STABLE_SHARE:.0%} from {enough:.0f} on)"
        parts.append(text)
    verdict = (
        f"The curve stays below {STABLE_SHARE:.0%} in {below} of {len(parts)} operations: a list "
        "of heads is partly chance there."
        if below
        else f"Every curve reaches {STABLE_SHARE:.0%}: other problems give nearly the same heads."
    )
    return (
        "The height of the dark curves: the share of the strongest heads that problems outside "
        f"the sample give too. With half of the problems: {', '.join(parts)}. {verdict}"
    )


def _stability_notes(table: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    top = _top_set(table)
    return [
        f"Share of the heads of two {top} sets, or key sets, that both have; mean over samples. "
        "Solid: a sample against all problems that are not in it. Dotted: against another sample "
        "of its size. The two sides never share a problem.",
        f"Band: 10th to 90th percentile of samples of the {top} set. Two empty key sets agree.",
        f"Model: {config['model']}; paths: {config['paths']}.",
    ]


def _draw_stability(table: DataFrame, notes: Sequence[str]) -> plotting.Figure:
    """One panel per operation."""
    rows = select(table, measure=stability_numbers.IN_COMMON)
    operations = keys_of(rows, "operation")
    return plotting.curve_panels(
        [
            plotting.CurvePanel(
                title=plotting.plain(operation.capitalize()),
                lines=tuple(_lines(select(rows, operation=operation))),
                y_title="heads in common" if index % 2 == 0 else "",
                y_range=(0, 100),
            )
            for index, operation in enumerate(operations)
        ],
        x_title="problems, each in all its wordings",
        unit="%",
        notes=notes,
        across=min(2, len(operations)),
        panel=(230, 200),
    )


def _lines(rows: DataFrame) -> list[plotting.Line]:
    """Top heads dark, key heads grey; a band for the top heads against the rest."""
    lines = []
    for kind in keys_of(rows, "set"):
        colour = COLOURS["control"] if kind == KEY_SET else COLOURS["chosen"]
        for compared, dash in (("rest", "solid"), ("another", "dot")):
            some = select(rows, set=kind, compared=compared)
            name = f"{kind}, {COMPARISON_NAMES[compared]}"
            one = line(some, name, colour, x="size", dash=dash)
            has_band = compared == "rest" and kind != KEY_SET
            lines.append(one if has_band else replace(one, low=None, high=None))
    return lines


ALL_WORDINGS = "all wordings"


def templates(options: Options) -> list[Chart]:
    """Do the wordings agree? The strongest heads in each template, by operation.

    Reads a run of `experiments/which_heads.py`. The titles of the panels have the rank correlation
    of all heads between templates.

    Raises:
        RunError: there is no run, or its pairs have no templates.
    """
    run = chosen_run(options, "which_heads")

    def table() -> QuestionTable:
        try:
            return template_numbers.table(run)
        except NoTemplates as error:
            raise RunError(str(error)) from error

    return [
        chart_of(
            table,
            [run],
            name="templates",
            title="Do the wordings agree? The strongest heads in each template",
            caption=_templates_caption,
            notes=_templates_notes,
            draw=partial(_draw_templates, reading=maps.EffectScale.of(run.config)),
        )
    ]


def _templates_caption(table: DataFrame) -> str:
    """What to look for, and how far the wordings of this run agree."""
    parts = [
        f"{one.operation} {one.value:.2f}".replace("-", "−")
        for one in records(select(table, measure=template_numbers.CORRELATION))
    ]
    agreement = f" Median rank correlation of two wordings over all heads: {', '.join(parts)}."
    return (
        "Columns of one colour: the head matters in whichever words the calculation comes. A "
        "column that changes from row to row belongs to some wordings only."
        + agreement
        * bool(parts)
    )


def _templates_notes(_: DataFrame, config: Settings) -> list[str]:
    """How to read the figure, and what it was made from."""
    return [
        f"The {template_numbers.N_HEADS} strongest heads (layer.head), strongest first; key heads "
        "come first. r: median rank correlation of two wordings over all heads. Each wording is "
        "shown with its operator and with A and B for the operands.",
        f"Model: {config['model']}; paths: {config['paths']}. Red: patching lowers the value.",
    ]


def _draw_templates(
    table: DataFrame, notes: Sequence[str], reading: maps.EffectScale
) -> plotting.Figure:
    """One panel per operation."""
    return plotting.matrix_panels(
        [_matrix(table, operation, reading) for operation in keys_of(table, "operation")],
        colour_title=reading.colour_title,
        unit=reading.unit,
        digits=1 if reading.relative else 2,
        limit=reading.limit,
        notes=notes,
    )


def _matrix(table: DataFrame, operation: str, reading: maps.EffectScale) -> plotting.Matrix:
    """One operation: rows are wordings and their mean, columns are heads."""
    rows, agreement = select(table, operation=operation), ""
    if has(rows, measure=template_numbers.CORRELATION):
        agreement = f"&nbsp; r = {value(rows, measure=template_numbers.CORRELATION):.2f}"
    name = plotting.plain(operation.capitalize())
    effects = select(rows, measure=template_numbers.EFFECT)
    names = keys_of(effects, "template")
    is_key = has(effects, role=KEY_ROLE)
    groups = []
    for title, role in (("key heads", KEY_ROLE), ("other heads" if is_key else "", "")):
        of_role = select(effects, role=role)
        heads = keys_of(of_role, "component")
        if heads:
            columns = [select(of_role, template=template).value.to_numpy() for template in names]
            groups.append(plotting.Columns(title, tuple(heads), reading.scale * np.stack(columns)))
    return plotting.Matrix(
        title=name + maps.grey(agreement),
        rows=(*(wording(one) for one in names if one != template_numbers.ALL), ALL_WORDINGS),
        groups=tuple(groups),
        strong=(*[False] * (len(names) - 1), True),
    )


def wording(template: str) -> str:
    """The sentence of a template such as "addition/2"; the name of a template without one."""
    sentences = {one.name: one for of_one in TEMPLATES.values() for one in of_one}
    if template not in sentences:
        return template
    one = sentences[template]
    return fill(one.text, A="A", op=one.word, B="B")[0].strip()
