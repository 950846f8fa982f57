"""Next tokens of prompts as bars, before and after a change."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.labels import Box, widest
from arith_lens.plotting.page import (
    LEFT,
    Sheet,
    letter_of,
    name_axis,
    panel_axes,
    plain,
)
from arith_lens.plotting.style import BLUE, FRAME, NOTE, PALE, Figure, Number
from arith_lens.plotting.widths import page_width

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
