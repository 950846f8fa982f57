"""Next tokens of prompts as bars; and trails, which show two numbers against each other.

A trail connects settings of one kind in order, such as the gain against the loss at several
learning rates."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.curves import LEADER
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    TOP,
    Box,
    Page,
    add_notes,
    add_title,
    around,
    axis_names,
    axis_style,
    conflict,
    page_figure,
    plain,
    spread,
    text_box,
    wrapped,
    write,
)
from arith_lens.plotting.style import (
    BLUE,
    FRAME,
    GRID,
    NOTE,
    PALE,
    TEXT,
    Figure,
    Number,
    signed,
    steps,
    translucent,
)

_BAR, _WIDTH, _NUMBER = 21, 220, 46  # pixels: height and length of a bar, room for its number
_TOKEN, _PROMPT, _PROMPT_LINE = 12, 13, 18  # font sizes; height of a line of a prompt


@dataclass(frozen=True)
class Ranking:
    """Tokens with their probabilities (between 0 and 1), most likely first."""

    tokens: tuple[str, ...]
    """Plain text. A text may occur more than once."""
    probabilities: Float[np.ndarray, " token"]


@dataclass(frozen=True)
class NextTokens:
    """The next tokens after a prompt, before and after a change."""

    prompt: str
    before: Ranking
    after: Ranking
    answer: str = ""
    """The token whose bar has a colour."""
    prompt_after: str | None = None
    """The prompt on the right side; None: the same."""


def visible(token: str) -> str:
    """A token with visible characters: ` 7` is `␣7`, a line break `↵`, an empty token `""`.

    Characters without a shape are written as in Python: `\\u200b`.
    """
    marked = token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")
    return _spelled(marked) or '""'


def _spelled(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def next_token_panels(
    parts: Sequence[NextTokens],
    *,
    names: tuple[str, str] = ("before", "after"),
    colour: str = BLUE,
    notes: Sequence[str] = (),
) -> Figure:
    """One row per prompt, with its most likely next tokens before (left) and after (right).

    Args:
        parts: the prompts with their next tokens.
        names: the names of the two columns (plain text).
        colour: the colour of the answer's bar.
        notes: lines below the panels (plain text).

    Raises:
        ValueError: a ranking is empty, or does not have one probability per token.
    """
    sides = [side for part in parts for side in (part.before, part.after)]
    for side in sides:
        if len(side.tokens) != len(side.probabilities) or not side.tokens:
            raise ValueError(
                f"expected a probability for each token and at least one, found "
                f"{len(side.probabilities)} for {len(side.tokens)}"
            )
    gutter = 18 + max(text_box(visible(t), _TOKEN)[0] for side in sides for t in side.tokens)
    prompts = [_prompts(part, gutter + _WIDTH + _NUMBER) for part in parts]
    page = _page(parts, prompts, gutter, notes)
    figure = page_figure(page)
    for index, part in enumerate(parts):
        left, top = page.boxes[2 * index].left - gutter, page.boxes[2 * index].top - 26
        if len(parts) > 1:
            letter = f"<b>{'abcdefghijklmnopqrstuvwxyz'[index]}</b>"
            above = top - _PROMPT_LINE * (len(prompts[index][0]) - 1)
            write(figure, letter, (left - 20, above), page, size=14)
        for column, lines in enumerate(prompts[index]):
            at = (page.boxes[2 * index + column].left - gutter, top)
            write(figure, "<br>".join(map(plain, lines)), at, page, size=_PROMPT)
        for column, side in enumerate((part.before, part.after)):
            _add_side(figure, side, part.answer, 2 * index + column, page, colour)
            at = (page.boxes[2 * index + column].left, page.boxes[2 * index].top - 4)
            write(figure, plain(names[column]), at, page, size=11, ink=NOTE)
    add_notes(figure, page, left=page.boxes[0].left - gutter)
    return figure


def _prompts(part: NextTokens, column: Number) -> list[list[str]]:
    """The lines of a prompt above both columns, or of one prompt above each, equally many."""
    if part.prompt_after is None:
        return [_lines(part.prompt, 2 * column)]
    both = [_lines(prompt, column - 24) for prompt in (part.prompt, part.prompt_after)]
    most = max(map(len, both))
    return [[*lines, *[""] * (most - len(lines))] for lines in both]


def _lines(prompt: str, width: Number) -> list[str]:
    """A prompt in lines that fit. Its own line breaks and final spaces are visible."""
    letters = int(width / (0.56 * _PROMPT))
    text = prompt.rstrip(" ")
    prompt = text + "␣" * (len(prompt) - len(text))
    own = [f"{line}↵" for line in prompt.split("\n")]
    own[-1] = own[-1].removesuffix("↵")
    return [line for part in own for line in textwrap.wrap(_spelled(part), letters) or [""]]


def _page(
    parts: Sequence[NextTokens],
    prompts: Sequence[Sequence[Sequence[str]]],
    gutter: Number,
    notes: Sequence[str],
) -> Page:
    """The page. Each row has the height of its prompt and its bars."""
    boxes: list[Box] = []
    top: Number = 12
    for part, prompt in zip(parts, prompts, strict=True):
        top += _PROMPT_LINE * len(prompt[0]) + 28
        height = _BAR * max(len(part.before.tokens), len(part.after.tokens))
        for column in range(2):
            left = LEFT - 24 + gutter + column * (gutter + _WIDTH + _NUMBER)
            boxes.append(Box(left, top, left + _WIDTH, top + height))
        top += height + 22
    width = boxes[-1].right + _NUMBER + 12
    lines = wrapped(notes, width)
    return Page((width, top + LINE * len(lines)), tuple(boxes), lines)


def _add_side(
    figure: Figure, side: Ranking, answer: str, index: int, page: Page, colour: str
) -> None:
    """Draw one list of bars. Equal probabilities have equal lengths in all lists."""
    x_domain, y_domain = page.domains(index)
    x_axis, y_axis = axis_names(index)
    box = page.boxes[index]
    tokens = [plain(visible(token)) for token in side.tokens]
    strong = [token == answer for token in side.tokens]
    hidden = {**axis_style(), "showticklabels": False, "ticks": "", "range": [0, 1]}
    figure.update_layout(
        {
            x_axis: {
                **hidden,
                "domain": x_domain,
                "anchor": f"y{index + 1}",
                "zeroline": True,
                "zerolinecolor": FRAME,
            },
            y_axis: {
                **axis_style(),
                "domain": y_domain,
                "anchor": f"x{index + 1}",
                "range": [(box.bottom - box.top) / _BAR - 0.5, -0.5],
                "tickvals": list(range(len(tokens))),
                "ticktext": [
                    f"<b>{token}</b>" if s else token
                    for token, s in zip(tokens, strong, strict=True)
                ],
                "tickfont": {"size": _TOKEN, "color": TEXT},
                "ticklabelstandoff": 5,
                "ticks": "",
            },
        }
    )
    figure.add_bar(
        x=side.probabilities,
        y=np.arange(len(tokens)),
        orientation="h",
        width=0.66,
        marker={"color": [colour if s else PALE for s in strong], "line": {"width": 0}},
        text=[_percent(float(p)) for p in side.probabilities],
        textposition="outside",
        textfont={"size": 11, "color": NOTE},
        cliponaxis=False,
        customdata=tokens,
        hovertemplate="%{customdata}: %{x:.2%}<extra></extra>",
        xaxis=f"x{index + 1}",
        yaxis=f"y{index + 1}",
    )


def _percent(share: float) -> str:
    """`62%`, `0.4%`, `<0.1%`."""
    if 0 < share < 0.001:
        return "&lt;0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}%"


_NAME, _LABEL = 12, 10  # font sizes of a trail's name and of a setting's
_STEP = 5  # pixels between the boxes that stand for a line
_MIDDLE = ("center", "middle")


@dataclass(frozen=True)
class Trail:
    """The settings of one kind, in order."""

    x: Float[np.ndarray, " setting"]
    y: Float[np.ndarray, " setting"]
    labels: tuple[str, ...]
    """The labels of the settings; plain text."""
    name: str
    """Plain text."""
    colour: str = TEXT
    chosen: int | None = None
    """The index of the marked setting."""
    further: Float[np.ndarray, "point xy=2"] | None = None
    """Small points, such as other seeds of the chosen setting."""


@dataclass(frozen=True)
class TrailPanel:
    """One chart with trails. Points outside its ranges are not drawn."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    trails: tuple[Trail, ...]
    x_range: tuple[Number, Number]
    y_range: tuple[Number, Number]
    unlabelled: tuple[Number, Number] | None = None
    """The range of x whose settings have their labels in another chart."""


def trail_panels(
    parts: Sequence[TrailPanel],
    *,
    x_title: str,
    y_title: str,
    notes: Sequence[str] = (),
    panel: tuple[int, int] = (380, 330),
) -> Figure:
    """Charts side by side, with the trails' names right of the last one.

    Raises:
        ValueError: x, y and labels of a trail differ in number, or its chosen setting does not
            exist.
    """
    for part in parts:
        for trail in part.trails:
            _check(trail)
    page = _trail_page(parts, panel, notes)
    figure = page_figure(page)
    for index, part in enumerate(parts):
        _set_trail_axes(figure, index, part, page, (x_title, y_title if index == 0 else ""))
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


def _trail_page(parts: Sequence[TrailPanel], panel: tuple[int, int], notes: Sequence[str]) -> Page:
    width, height = panel
    boxes = [
        Box(x, TOP, x + width, TOP + height)
        for x in (LEFT + 14 + i * (width + LEFT) for i in range(len(parts)))
    ]
    gutter = max(text_box(trail.name, _NAME)[0] for trail in parts[-1].trails) + LEADER + 16
    right = boxes[-1].right + gutter
    lines = wrapped(notes, right)
    return Page((right, TOP + height + 60 + LINE * len(lines)), tuple(boxes), lines)


def _set_trail_axes(
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
    """A line as narrow boxes, which labels avoid if possible."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(corners):
        n = int(max(abs(x1 - x0), abs(y1 - y0)) / _STEP)
        boxes += [_box(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n, 1) for i in range(1, n)]
    return boxes


def _add_labels(
    figure: Figure, trail: Trail, part: TrailPanel, page: Page, index: int, taken: list[Box]
) -> None:
    """Write each setting's label at a position where it covers no point and no earlier label."""
    inside = {*_inside(trail, part, page, index)}
    low, high = part.unlabelled or (np.inf, -np.inf)
    elsewhere = (low <= trail.x) & (trail.x <= high)
    for label, at, skip in zip(
        trail.labels, _pixels(trail.x, trail.y, part, page, index), elsewhere, strict=True
    ):
        if skip or at not in inside:
            continue
        own = _box(*at, 6)
        spots = around(own, *text_box(label, _LABEL))
        spot = min(spots, key=lambda box: conflict(box, taken, page.boxes[index]))
        taken.append(spot)
        write(
            figure, plain(label), spot.centre, page, size=_LABEL, ink=trail.colour, anchor=_MIDDLE
        )


def _add_key(figure: Figure, trails: Sequence[Trail], page: Page) -> None:
    """Write the trails' names right of the last chart, in order."""
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
