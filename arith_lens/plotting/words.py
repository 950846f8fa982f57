"""Numbers per word of a sentence, in cells below the words that wrap like text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.page import (
    LEFT,
    LINE,
    Box,
    Page,
    Sheet,
    letter_of,
    panel_axes,
    plain,
    text_box,
    wrapped,
)
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    OCHRE,
    TEXT,
    Figure,
    Number,
    colour_at,
    is_dark,
    step_texts,
)

_WORD, _NUMBER = 12, 10  # font sizes of words and of numbers in cells
_WIDTH, _ROW, _WORDS, _TITLE, _BETWEEN = 760, 20, 24, 44, 14  # pixels
_LIMIT = 100  # percent, which have the strongest colour; 0 has none
_NARROW = 26  # pixels of the narrowest cell, which has room for `100`


@dataclass(frozen=True)
class Sentence:
    """One sentence with a row of numbers per name."""

    title: str
    """Plain text, like all texts here."""
    rows: tuple[str, ...]
    words: tuple[str, ...]
    values: Float[np.ndarray, "row word"]
    """Numbers in percent, from 0; NaN is an empty cell."""
    marked: tuple[bool, ...]
    """Which words are printed bold in another colour, such as numbers."""


@dataclass(frozen=True)
class _WordLine:
    """Words of a sentence that fit into one line: their indices and left edges in pixels."""

    sentence: int
    words: tuple[int, ...]
    edges: tuple[float, ...]
    """One more than words."""


def sentence_panels(
    parts: Sequence[Sentence],
    *,
    smallest: Number = 1,
    legend: str = "",
    notes: Sequence[str] = (),
) -> Figure:
    """Sentences one below the other, with letters. Long ones go on in another line of cells.

    Args:
        parts: the sentences.
        smallest: smaller numbers are not printed in their cells.
        legend: the meaning of the colours, for the key above.
        notes: lines below the panels.

    Raises:
        ValueError: there is no sentence, or numbers or marks do not fit its words.
    """
    if not parts:
        raise ValueError("expected a sentence at least, found none")
    for part in parts:
        shape = (len(part.rows), len(part.words))
        if part.values.shape != shape or len(part.marked) != len(part.words):
            raise ValueError(
                f"expected numbers {shape} and a mark for each word of {part.title!r}, found "
                f"{part.values.shape} and {len(part.marked)} marks"
            )
    blocks = [block for index, part in enumerate(parts) for block in _blocks(index, part)]
    page = _page(parts, blocks, notes)
    sheet = Sheet(page)
    sheet.update_layout(barmode="overlay")
    for index, block in enumerate(blocks):
        part, box = parts[block.sentence], page.boxes[index]
        if block.words[0] == 0:
            title = f"{letter_of(block.sentence)}  {plain(part.title)}"
            sheet.write(title, (box.left, box.top - _WORDS - 6), size=14)
        _set_axes(sheet, index, block, part)
        _add_words(sheet, part, block, box)
        _add_cells(sheet, part, block, index, smallest)
    _add_key(sheet, legend)
    return sheet.finished()


def _blocks(index: int, part: Sentence) -> list[_WordLine]:
    """The lines of a sentence."""
    widths = [max(text_box(word, _WORD)[0] + 2, _NARROW) for word in part.words]
    blocks: list[_WordLine] = []
    words: list[int] = []
    edges = [0.0]
    for word, width in enumerate(widths):
        if words and edges[-1] + width > _WIDTH:
            blocks.append(_WordLine(index, tuple(words), tuple(edges)))
            words, edges = [], [0.0]
        words.append(word)
        edges.append(edges[-1] + width)
    return [*blocks, _WordLine(index, tuple(words), tuple(edges))]


def _page(parts: Sequence[Sentence], blocks: Sequence[_WordLine], notes: Sequence[str]) -> Page:
    boxes: list[Box] = []
    top: Number = 34
    for block in blocks:
        top += _WORDS + (_TITLE if block.words[0] == 0 else _BETWEEN)
        height = _ROW * len(parts[block.sentence].rows)
        boxes.append(Box(LEFT, top, LEFT + block.edges[-1], top + height))
        top += height
    width = max(LEFT + _WIDTH, *(box.right for box in boxes)) + 16
    lines = wrapped(notes, width)
    return Page((width, top + 30 + LINE * len(lines)), tuple(boxes), lines)


def _set_axes(sheet: Sheet, index: int, block: _WordLine, part: Sentence) -> None:
    x = {"range": [0, block.edges[-1]], "showticklabels": False, "ticks": ""}
    y = {
        "range": [len(part.rows) - 0.5, -0.5],
        "tickvals": list(range(len(part.rows))),
        "ticktext": [plain(name) for name in part.rows],
        "tickfont": {"size": _WORD, "color": TEXT},
        "ticklabelstandoff": 5,
        "ticks": "",
    }
    sheet.set_axes(index, x, y)


def _add_words(sheet: Sheet, part: Sentence, block: _WordLine, box: Box) -> None:
    for index, word in enumerate(block.words):
        centre = box.left + (block.edges[index] + block.edges[index + 1]) / 2
        text, ink = plain(part.words[word]), TEXT
        if part.marked[word]:
            text, ink = f"<b>{text}</b>", OCHRE
        at = (centre, box.top - 4)
        sheet.write(text, at, size=_WORD, ink=ink, anchor=("center", "bottom"))


def _add_cells(
    sheet: Sheet,
    part: Sentence,
    block: _WordLine,
    index: int,
    smallest: Number,
) -> None:
    """One bar per cell with its number, and frames around the words and the marked ones."""
    values = part.values[:, list(block.words)]
    edges = np.array(block.edges)
    centres, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    rows, places = (grid.ravel() for grid in np.indices(values.shape))
    flat = values.ravel().tolist()
    colours = [colour_at(value, _LIMIT) for value in flat]
    where = [
        f"{plain(part.rows[row])}, {plain(part.words[block.words[position]])}"
        for row, position in zip(rows, places, strict=True)
    ]
    sheet.add_bar(
        x=centres[places],
        base=rows - 0.5,
        y=np.ones(rows.size),
        width=widths[places],
        marker={"color": colours, "line": {"width": 0}},
        customdata=list(zip(where, flat, strict=True)),
        hovertemplate="<b>%{customdata[0]}</b>: %{customdata[1]:.1f}%<extra></extra>",
        **panel_axes(index),
    )
    large = [i for i, value in enumerate(flat) if value >= smallest]
    sheet.add_scatter(
        x=centres[places[large]],
        y=rows[large],
        text=[f"{flat[i]:.0f}" for i in large],
        mode="text",
        textfont={
            "size": _NUMBER,
            "color": ["white" if is_dark(colours[i]) else TEXT for i in large],
        },
        hoverinfo="skip",
        **panel_axes(index),
    )
    frames = [(0.0, block.edges[-1], FRAME)] + [
        (block.edges[position], block.edges[position + 1], OCHRE)
        for position, word in enumerate(block.words)
        if part.marked[word]
    ]
    for x0, x1, ink in frames:
        corners, line = ((x0, -0.5), (x1, len(part.rows) - 0.5)), {"width": 1, "color": ink}
        sheet.add_shape("rect", *corners, index, line=line)


def _add_key(sheet: Sheet, legend: str) -> None:
    """Squares from 0 to the limit, with their numbers, above the first sentence."""
    sheet.write(plain(legend), (LEFT, 26), size=11, ink=NOTE)
    left = LEFT + text_box(legend, 11)[0] + 12
    values = [share * _LIMIT for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    line = {"width": 1, "color": FRAME}
    for value, text in zip(values, step_texts(values, "%"), strict=True):
        colour = colour_at(value, _LIMIT)
        sheet.add_shape("rect", (left, 13), (left + 14, 27), fillcolor=colour, line=line)
        sheet.write(text, (left + 18, 26), size=11, ink=NOTE)
        left += 26 + text_box(text, 11)[0]
