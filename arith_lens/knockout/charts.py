"""Knockout curves as lines of a chart: one line per order, control orders as a mean and a range."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from arith_lens.components import Head
from arith_lens.knockout.curve import KnockoutCurve

if TYPE_CHECKING:
    from arith_lens.plotting import Figure, Line


def range_line(
    curves: Sequence[KnockoutCurve], name: str, colour: str, *, measure: int = 0
) -> "Line":
    """The mean over several orders with the same `ks`, in percent; the band holds all of them.

    Args:
        name, colour: of the line (`#rrggbb`)
        measure: 0 for accuracy, 1 for p(C)
    """
    from arith_lens.plotting import Line

    percent = np.stack([100 * curve.effects().mean()[measure].numpy() for curve in curves])
    low, high = percent.min(0), percent.max(0)
    return Line(np.array(curves[0].ks), percent.mean(0), name, colour, low=low, high=high)


def grouped_lines(curves: Mapping[str, KnockoutCurve], *, measure: int = 0) -> list["Line"]:
    """One line per order; orders that differ in a number at the end share a line, `random` say.

    Shared lines come first, in grey and blue, so that single orders lie on top of them.
    """
    from arith_lens import plotting

    groups: dict[tuple[str, tuple[int, ...]], dict[str, KnockoutCurve]] = {}
    for name, curve in curves.items():
        numbered = re.fullmatch(r"(.*\S)\s+\d+", name)
        groups.setdefault((numbered[1] if numbered else name, curve.ks), {})[name] = curve
    several = [(name, [*group.values()]) for (name, _), group in groups.items() if len(group) > 1]
    single = [one for group in groups.values() if len(group) == 1 for one in group.items()]
    pale = (plotting.NOTE, plotting.BLUE, plotting.DARK)
    inks = (plotting.RED, plotting.VIOLET, plotting.OCHRE, plotting.TEAL, plotting.BLUE)
    return [
        range_line(group, name, pale[i % len(pale)], measure=measure)
        for i, (name, group) in enumerate(several)
    ] + [
        curve.line(name, inks[i % len(inks)], measure=measure)
        for i, (name, curve) in enumerate(single)
    ]


def chart(curves: Mapping[str, KnockoutCurve]) -> "Figure":
    """Right answers and, right of them, the mean of p(C)."""
    from arith_lens import plotting

    first = next(iter(curves.values()))
    only_heads = all(isinstance(c, Head) for curve in curves.values() for c in curve.order)
    lines = [grouped_lines(curves, measure=measure) for measure in (0, 1)]
    ranges = len(lines[0]) < len(curves)
    bands = "Bands: 95% intervals" + ", or the range over several control orders." * ranges
    return plotting.curve_panels(
        [
            plotting.CurvePanel("", tuple(lines[row]), y_title=title, y_range=(0, 104))
            for row, title in enumerate(("Right answers", "Mean p(C)"))
        ],
        x_title=f"{'Heads' if only_heads else 'Components'} knocked out",
        unit="%",
        notes=[f"{first.setting()}. {bands.rstrip('.')}."],
        panel=(300, 230),
    )
