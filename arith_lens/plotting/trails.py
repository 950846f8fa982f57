"""Trails: two numbers of each setting against one another, the settings of a kind joined in order.

For trade-offs, such as what is gained here against what is lost there at several learning rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curve_layout import LEADER
from arith_lens.plotting.labels import Box, around, conflict, spread, text_box
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    TOP,
    Page,
    add_notes,
    add_title,
    axis_names,
    axis_style,
    plain,
    set_page,
    wrapped,
    write,
)
from arith_lens.plotting.style import (
    FRAME,
    GRID,
    TEXT,
    Figure,
    Number,
    signed,
    steps,
    translucent,
)

_NAME, _LABEL = 12, 10  # font sizes of a trail's name and of a setting's
_STEP = 5  # pixels between the boxes that stand for a line
_MIDDLE = ("center", "middle")


@dataclass(frozen=True)
class Trail:
    """The settings of one kind, in order; `chosen` is marked, `further` are small points."""

    x: Float[np.ndarray, " setting"]
    y: Float[np.ndarray, " setting"]
    labels: tuple[str, ...]  # of the settings; plain text
    name: str  # plain text
    colour: str = TEXT
    chosen: int | None = None
    further: Float[np.ndarray, "point xy=2"] | None = None  # such as other seeds of the chosen one


@dataclass(frozen=True)
class TrailPanel:
    """One chart of the same kind of trails; what lies outside its ranges is cut off."""

    title: str  # may hold <b> and <span>: pass `plain` what comes from outside
    trails: tuple[Trail, ...]
    x_range: tuple[Number, Number]
    y_range: tuple[Number, Number]
    unlabelled: tuple[Number, Number] | None = None  # x of settings that another chart labels


def trail_panels(
    parts: Sequence[TrailPanel],
    *,
    x_title: str,
    y_title: str,
    notes: Sequence[str] = (),
    panel: tuple[int, int] = (380, 330),
) -> Figure:
    """Charts side by side, the trails' names right of the last one.

    Raises:
        ValueError: x, y and labels of a trail differ in number, or its chosen one is not there.
    """
    from arith_lens.plotting.library import go

    for part in parts:
        for trail in part.trails:
            _check(trail)
    page = _page(parts, panel, notes)
    figure = go.Figure()
    set_page(figure, page)
    for index, part in enumerate(parts):
        _set_axes(figure, index, part, page, (x_title, y_title if index == 0 else ""))
        taken: list[Box] = [
            _box(*at, 5) for trail in part.trails for at in _inside(trail, part, page, index)
        ]
        for trail in part.trails:
            taken += _along(_pixels(trail.x, trail.y, part, page, index))
            if trail.further is not None:
                x, y = trail.further[:, 0], trail.further[:, 1]
                taken += [_box(*at, 3) for at in _pixels(x, y, part, page, index)]
        for trail in part.trails:
            _add_trail(figure, trail, index)
        for trail in part.trails:
            _add_labels(figure, trail, part, page, index, taken)
        add_title(figure, part.title, index, page)
    _add_key(figure, parts[-1].trails, page)
    add_notes(figure, page)
    return figure


def _check(trail: Trail) -> None:
    n = len(trail.labels)
    if trail.x.shape != (n,) or trail.y.shape != (n,) or not 0 <= (trail.chosen or 0) < n:
        raise ValueError(
            f"expected x, y and labels of one number of settings and a chosen one among them for "
            f"the trail {trail.name!r}, found {trail.x.shape}, {trail.y.shape}, {n} labels and "
            f"{trail.chosen}"
        )


def _page(parts: Sequence[TrailPanel], panel: tuple[int, int], notes: Sequence[str]) -> Page:
    width, height = panel
    boxes = [
        Box(x, TOP, x + width, TOP + height)
        for x in (LEFT + 14 + i * (width + LEFT) for i in range(len(parts)))
    ]
    gutter = max(text_box(trail.name, _NAME)[0] for trail in parts[-1].trails) + LEADER + 16
    right = boxes[-1].right + gutter
    lines = wrapped(notes, right)
    return Page((right, TOP + height + 60 + LINE * len(lines)), tuple(boxes), lines)


def _set_axes(
    figure: Figure, index: int, part: TrailPanel, page: Page, titles: tuple[str, str]
) -> None:
    for axis, other, domain, ends, title in zip(
        axis_names(index),
        (f"y{index + 1}", f"x{index + 1}"),
        page.domains(index),
        (part.x_range, part.y_range),
        titles,
        strict=True,
    ):
        at = [value for value in steps(*ends) if ends[0] <= value <= ends[1]]
        figure.update_layout(
            {
                axis: {
                    **axis_style(),
                    "domain": domain,
                    "anchor": other,
                    "range": list(ends),
                    "tickvals": at,
                    "ticktext": [signed(value) for value in at],
                    "showgrid": True,
                    "gridcolor": GRID,
                    "zeroline": True,
                    "zerolinecolor": FRAME,
                    "zerolinewidth": 1.4,
                    "title": {"text": plain(title), "font": {"size": 13}, "standoff": 8},
                }
            }
        )


def _add_trail(figure: Figure, trail: Trail, index: int) -> None:
    shared: dict[str, Any] = {"xaxis": f"x{index + 1}", "yaxis": f"y{index + 1}"}
    size = [11 if i == trail.chosen else 6 for i in range(len(trail.labels))]
    if trail.further is not None:
        figure.add_scatter(
            x=trail.further[:, 0],
            y=trail.further[:, 1],
            mode="markers",
            marker={"size": 5, "color": translucent(trail.colour, 0.55)},
            hovertemplate=f"{plain(trail.name)}: %{{x:+.1f}}, %{{y:+.1f}}<extra></extra>",
            **shared,
        )
    figure.add_scatter(
        x=trail.x,
        y=trail.y,
        mode="lines+markers",
        name=plain(trail.name),
        customdata=[plain(label) for label in trail.labels],
        hovertemplate=(
            f"{plain(trail.name)}, %{{customdata}}: %{{x:+.1f}}, %{{y:+.1f}}<extra></extra>"
        ),
        line={"width": 1.8, "color": trail.colour},
        marker={
            "size": size,
            "opacity": 1,
            "color": ["white" if i == trail.chosen else trail.colour for i in range(len(size))],
            "line": {"width": 2, "color": trail.colour},
        },
        **shared,
    )


def _pixels(
    x: np.ndarray, y: np.ndarray, part: TrailPanel, page: Page, index: int
) -> list[tuple[float, float]]:
    box, (x0, x1), (y0, y1) = page.boxes[index], part.x_range, part.y_range
    across = box.left + (x - x0) / (x1 - x0) * (box.right - box.left)
    down = box.bottom - (y - y0) / (y1 - y0) * (box.bottom - box.top)
    return [(float(a), float(d)) for a, d in zip(across, down, strict=True)]


def _inside(trail: Trail, part: TrailPanel, page: Page, index: int) -> list[tuple[float, float]]:
    box = page.boxes[index]
    return [
        (x, y)
        for x, y in _pixels(trail.x, trail.y, part, page, index)
        if box.left <= x <= box.right and box.top <= y <= box.bottom
    ]


def _box(x: Number, y: Number, half: Number) -> Box:
    return Box(x - half, y - half, x + half, y + half)


def _along(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """A line as narrow boxes: labels avoid it where they can, and points above all."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(corners):
        n = int(max(abs(x1 - x0), abs(y1 - y0)) / _STEP)
        boxes += [_box(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n, 1) for i in range(1, n)]
    return boxes


def _add_labels(
    figure: Figure, trail: Trail, part: TrailPanel, page: Page, index: int, taken: list[Box]
) -> None:
    """Each setting's label where it covers no point and no earlier label."""
    inside = {*_inside(trail, part, page, index)}
    low, high = part.unlabelled or (np.inf, -np.inf)
    elsewhere = (low <= trail.x) & (trail.x <= high)
    for label, at, skip in zip(
        trail.labels, _pixels(trail.x, trail.y, part, page, index), elsewhere, strict=True
    ):
        if skip or at not in inside:
            continue
        own = _box(*at, 6)
        places = around(own, *text_box(label, _LABEL))
        place = min(places, key=lambda box: conflict(box, taken, page.boxes[index]))
        taken.append(place)
        write(
            figure, plain(label), place.centre, page, size=_LABEL, ink=trail.colour, anchor=_MIDDLE
        )


def _add_key(figure: Figure, trails: Sequence[Trail], page: Page) -> None:
    """The trails' names right of the last chart, in their order."""
    box = page.boxes[-1]
    heights = spread([box.top + 10 + 22 * i for i in range(len(trails))], 22, box.top, box.bottom)
    for trail, height in zip(trails, heights, strict=True):
        write(
            figure,
            plain(trail.name),
            (box.right + LEADER, float(height)),
            page,
            size=_NAME,
            ink=trail.colour,
            anchor=("left", "middle"),
            font={"weight": 600},
        )
