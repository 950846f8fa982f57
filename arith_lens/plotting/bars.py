"""Bar charts on a grid; and next tokens of prompts as bars, before and after a change."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from arith_lens.plotting.labels import Box, text_box, widest
from arith_lens.plotting.page import (
    LEFT,
    LINE,
    MOST_LINES,
    TOP,
    Sheet,
    letter_of,
    name_axis,
    panel_axes,
    plain,
    reach,
    value_axis,
)
from arith_lens.plotting.style import BLUE, FRAME, NOTE, PALE, RUST, TEXT, Figure, Number
from arith_lens.plotting.widths import page_height, page_width

_TICK, _KEY = 10, 11  # font sizes of the groups' names and of the key


@dataclass(frozen=True)
class Bars:
    """One bar per group, with its interval between `low` and `high`. NaN is no bar."""

    values: Float[np.ndarray, " group"]
    low: Float[np.ndarray, " group"] | None = None
    high: Float[np.ndarray, " group"] | None = None
    name: str = ""
    """The name in the key above the panels and in the hover; plain text."""
    colour: str = RUST
    strong: Bool[np.ndarray, " group"] | None = None
    """The bars in full colour; the others are pale. None: all."""


@dataclass(frozen=True)
class BarPanel:
    """One chart: the groups' names and one or more bars for each."""

    title: str
    """May contain <b> and <span>; use `plain` for text from outside."""
    names: tuple[str, ...]
    """The names of the groups; plain text. A name may occur more than once."""
    series: tuple[Bars, ...]
    y_title: str = ""
    ink: str = TEXT
    """The colour of the y title."""


def bar_panels(
    parts: Sequence[BarPanel],
    *,
    y_range: tuple[Number, Number] | None = None,
    notes: Sequence[str] = (),
    across: int = 4,
    panel: tuple[int, int] | None = None,
    names_below: bool = False,
) -> Figure:
    """Bar charts on a grid with one y scale, with letters a, b, c… if there is more than one.

    Args:
        y_range: the ends of the y axes; None: from all bars and intervals, with 0.
        notes: lines below the panels (plain text).
        across: the number of panels in a row, as far as the page has the room.
        panel: the width and height of a chart in pixels; None: by the number of bars.
        names_below: whether a column of charts with equal names prints them once, below the last.

    Raises:
        ValueError: a series does not have one number per name, or charts with `names_below` have
            different names.
    """
    for part in parts:
        _check(part)
    wished = min(across, len(parts))
    across = max(n for n in range(1, wished + 1) if wished % n == 0 and _room(n) >= _NARROWEST)
    names_below = names_below and across == wished
    if names_below and any(
        a.names != b.names for a, b in zip(parts[:-across], parts[across:], strict=True)
    ):
        raise ValueError("expected equal names in each column of charts, found different ones")
    key = dict.fromkeys((s.name, s.colour) for part in parts for s in part.series if s.name)
    slanted, sheet = _sheet(parts, across, panel, notes, bool(key), names_below)
    series = [bars for part in parts for bars in part.series]
    ends = y_range or reach([a for bars in series for a in (bars.values, bars.low, bars.high)])
    sheet.update_layout(barmode="overlay")
    for index, part in enumerate(parts):
        nameless = names_below and index + across < len(parts)
        _set_axes(sheet, index, part, ends, slanted, nameless)
        for which, bars in enumerate(part.series):
            _add_bars(sheet, part, which, bars, index)
        sheet.add_title(part.title, index)
    _add_key(sheet, list(key))
    return sheet.finished()


def _room(across: int) -> Number:
    """The pixels of each of so many charts in a row."""
    return (page_width() - LEFT - 16 - (across - 1) * _BETWEEN) / across


def _check(part: BarPanel) -> None:
    for bars in part.series:
        arrays = (bars.values, bars.low, bars.high, bars.strong)
        lengths = [len(a) for a in arrays if a is not None]
        if set(lengths) != {len(part.names)} or (bars.low is None) != (bars.high is None):
            raise ValueError(
                f"expected values and, where given, low with high, and strong for "
                f"{len(part.names)} names, found {lengths} numbers"
            )


def _sheet(
    parts: Sequence[BarPanel],
    across: int,
    panel: tuple[int, int] | None,
    notes: Sequence[str],
    keyed: bool,
    names_below: bool,
) -> tuple[bool, Sheet]:
    """Whether the names are slanted (if there is no room), and the page."""
    n_bars = max(len(part.names) * len(part.series) for part in parts)
    width, height = panel or (min(max(26 * n_bars, 150), 520), 150)
    width = min(width, _room(across))
    longest = widest((name for part in parts for name in part.names), _TICK)
    slanted = longest > width / max(len(part.names) for part in parts)
    below = 22 + (0.64 * longest if slanted else 0)
    titles = 16 * max(part.title.count("<br>") for part in parts)
    top = TOP + 24 * keyed + titles
    n_rows = -(-len(parts) // across)
    rest = titles + 40 + (0 if names_below else below)
    space = page_height() - top - LINE * MOST_LINES - n_rows * rest - below
    height = min(height, max(space / n_rows, 60))
    row = height + rest
    boxes = []
    for index in range(len(parts)):
        x, y = LEFT + index % across * (width + _BETWEEN), top + index // across * row
        boxes.append(Box(x, y, x + width, y + height))
    right = LEFT + across * width + (across - 1) * _BETWEEN + 16
    foot = (below if names_below else 0) - 14
    return slanted, Sheet((right, boxes[-1].top + row + foot), boxes, notes)


def _set_axes(
    sheet: Sheet,
    index: int,
    part: BarPanel,
    ends: tuple[Number, Number],
    slanted: bool,
    nameless: bool,
) -> None:
    x: dict[str, Any] = {
        "range": [-0.6, len(part.names) - 0.4],
        "tickvals": list(range(len(part.names))),
        "ticktext": [plain(name) for name in part.names],
        "tickangle": -40 if slanted else 0,
        "showticklabels": False if nameless else None,
        "ticks": "",
    }
    title = {"size": 12, "color": part.ink}
    y = {
        **value_axis(ends, ""),
        "showticklabels": sheet.boxes[index].left == sheet.boxes[0].left,
        "zeroline": True,
        "zerolinewidth": 1.2,
        "title": {"text": part.y_title, "font": title, "standoff": 8},
    }
    sheet.set_axes(index, x, y)


def _add_bars(sheet: Sheet, part: BarPanel, which: int, bars: Bars, index: int) -> None:
    width = 0.72 / len(part.series)
    offset = (which - (len(part.series) - 1) / 2) * width
    strong = np.ones(len(part.names), bool) if bars.strong is None else bars.strong
    between, errors = "", None
    further = np.full((len(part.names), 2), np.nan)
    if bars.low is not None and bars.high is not None:
        between = " (%{customdata[0]:.3~f} to %{customdata[1]:.3~f})"
        further = np.stack([bars.low, bars.high], axis=-1)
        errors = {
            "array": bars.high - bars.values,
            "arrayminus": bars.values - bars.low,
            "thickness": 1.1,
            "width": 3,
            "color": "#475569",
        }
    name = f"{plain(bars.name)}, " if bars.name else ""
    sheet.add_bar(
        x=np.arange(len(part.names)) + offset,
        y=bars.values,
        width=width * (0.94 if len(part.series) > 1 else 1),
        marker={"color": [bars.colour if s else PALE for s in strong], "line": {"width": 0}},
        error_y=errors,
        customdata=further,
        text=[plain(name) for name in part.names],
        textposition="none",
        hovertemplate=f"{name}%{{text}}: %{{y:.3~f}}{between}<extra></extra>",
        **panel_axes(index),
    )


def _add_key(sheet: Sheet, key: Sequence[tuple[str, str]]) -> None:
    """One coloured square and a name for each series, in a line above the panels."""
    left: Number = sheet.boxes[0].left
    for name, colour in key:
        text = f'<span style="color:{colour}">■</span> {plain(name)}'
        sheet.write(text, (left, 8), size=_KEY, ink=NOTE, anchor=("left", "top"))
        left += text_box(name, _KEY)[0] + 30


_BETWEEN, _NARROWEST = 18, 130  # pixels between charts, and of a chart at least
_BAR, _WIDTH, _NUMBER = 19, 220, 46  # pixels: height and length of a bar, room for its number
_TOKEN, _PROMPT, _PROMPT_LINE = 11, 12, 16  # font sizes; height of a line of a prompt


@dataclass(frozen=True)
class Ranking:
    """Tokens with their probabilities (between 0 and 1), most likely first."""

    tokens: tuple[str, ...]
    """Plain text. A text may occur more than once."""
    probabilities: Float[np.ndarray, " token"]


@dataclass(frozen=True)
class NextTokenPanel:
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
    parts: Sequence[NextTokenPanel],
    *,
    names: tuple[str, str] = ("before", "after"),
    notes: Sequence[str] = (),
) -> Figure:
    """One row per prompt, with its most likely next tokens before (left) and after (right).

    Args:
        parts: the prompts with their next tokens.
        names: the names of the two columns (plain text).
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
    gutter = 18 + widest((visible(t) for side in sides for t in side.tokens), _TOKEN)
    width = min(_WIDTH, (page_width() - LEFT + 12) / 2 - gutter - _NUMBER)
    prompts = [_prompts(part, gutter + width + _NUMBER) for part in parts]
    sheet = _token_sheet(parts, prompts, (gutter, width), notes)
    for index, part in enumerate(parts):
        boxes = sheet.boxes[2 * index : 2 * index + 2]
        top = boxes[0].top - 26
        if len(parts) > 1:
            above = top - _PROMPT_LINE * (len(prompts[index][0]) - 1)
            sheet.write(letter_of(index), (boxes[0].left - gutter - 20, above), size=14)
        for box, lines in zip(boxes[: len(prompts[index])], prompts[index], strict=True):
            sheet.write("<br>".join(map(plain, lines)), (box.left - gutter, top), size=_PROMPT)
        for column, side in enumerate((part.before, part.after)):
            _add_side(sheet, side, part.answer, 2 * index + column)
            at = (boxes[column].left, boxes[0].top - 4)
            sheet.write(plain(names[column]), at, size=10, ink=NOTE)
    return sheet.finished(left=sheet.boxes[0].left - gutter)


def _prompts(part: NextTokenPanel, column: Number) -> list[list[str]]:
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


def _token_sheet(
    parts: Sequence[NextTokenPanel],
    prompts: Sequence[Sequence[Sequence[str]]],
    columns: tuple[Number, Number],
    notes: Sequence[str],
) -> Sheet:
    """The page. Each row has the height of its prompt and its bars; `columns` are the widths of
    the tokens and of the bars."""
    gutter, width = columns
    boxes: list[Box] = []
    top: Number = 12
    for part, prompt in zip(parts, prompts, strict=True):
        top += _PROMPT_LINE * len(prompt[0]) + 28
        height = _BAR * max(len(part.before.tokens), len(part.after.tokens))
        for column in range(2):
            left = LEFT - 24 + gutter + column * (gutter + width + _NUMBER)
            boxes.append(Box(left, top, left + width, top + height))
        top += height + 22
    return Sheet((boxes[-1].right + _NUMBER + 12, top), boxes, notes)


def _add_side(sheet: Sheet, side: Ranking, answer: str, index: int) -> None:
    """Draw one list of bars. Equal probabilities have equal lengths in all lists."""
    box = sheet.boxes[index]
    tokens = [visible(token) for token in side.tokens]
    strong = [token == answer for token in side.tokens]
    hidden = {"showticklabels": False, "ticks": "", "range": [0, 1]}
    x = {**hidden, "zeroline": True, "zerolinecolor": FRAME}
    y = {**name_axis(tokens, strong), "range": [(box.bottom - box.top) / _BAR - 0.5, -0.5]}
    sheet.set_axes(index, x, y)
    sheet.add_bar(
        x=side.probabilities,
        y=np.arange(len(tokens)),
        orientation="h",
        width=0.66,
        marker={"color": [BLUE if s else PALE for s in strong], "line": {"width": 0}},
        text=[_percent(float(p)) for p in side.probabilities],
        textposition="outside",
        textfont={"size": 10, "color": NOTE},
        cliponaxis=False,
        customdata=[plain(token) for token in tokens],
        hovertemplate="%{customdata}: %{x:.2%}<extra></extra>",
        **panel_axes(index),
    )


def _percent(share: float) -> str:
    """`62%`, `0.4%`, `<0.1%`."""
    if 0 < share < 0.001:
        return "&lt;0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}%"
