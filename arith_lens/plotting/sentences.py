"""Sentences with numbers in coloured cells below their words, which wrap like text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from arith_lens.plotting.cells import add_cells
from arith_lens.plotting.labels import Box, text_box, widest
from arith_lens.plotting.page import TITLE, Sheet, letter_of, name_axis, plain
from arith_lens.plotting.style import (
    FRAME,
    NOTE,
    RUST,
    TEXT,
    Figure,
    Number,
    colour_at,
    ink_on,
    step_texts,
)
from arith_lens.plotting.widths import page_width

_WORD, _NUMBER = 11, 10  # font sizes of words and of numbers in cells
_ROW, _WORDS, _TITLE, _LINES = 18, 20, 34, 10
"""Pixels: the height of a cell and a word, above a sentence, between its lines."""
_LIMIT = 100  # percent, which have the strongest colour; 0 has none
_NARROW = 24  # pixels of the narrowest cell, which has room for `100`


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
    left = _left_of_words(parts)
    room = page_width() - left - 8
    blocks = [block for index, part in enumerate(parts) for block in _blocks(index, part, room)]
    sheet = _sentence_sheet(parts, blocks, notes)
    sheet.update_layout(barmode="overlay")
    for index, block in enumerate(blocks):
        part, box = parts[block.sentence], sheet.boxes[index]
        if block.words[0] == 0:
            title = f"{letter_of(block.sentence)}  {plain(part.title)}"
            sheet.write(title, (box.left, box.top - _WORDS - 4), size=TITLE)
        x = {"range": [0, block.edges[-1]], "showticklabels": False, "ticks": ""}
        sheet.set_axes(index, x, name_axis(part.rows))
        _add_words(sheet, part, block, box)
        _add_word_cells(sheet, part, block, index, smallest)
    _add_key(sheet, legend)
    return sheet.finished()


def _left_of_words(parts: Sequence[Sentence]) -> Number:
    """The left edge of the words: right of the rows' names."""
    return max(14 + widest((name for part in parts for name in part.rows), 11), 30)


def _blocks(index: int, part: Sentence, room: Number) -> list[_WordLine]:
    """The lines of a sentence; each is at most `room` pixels wide."""
    widths = [max(text_box(word, _WORD)[0] + 2, _NARROW) for word in part.words]
    blocks: list[_WordLine] = []
    words: list[int] = []
    edges = [0.0]
    for word, width in enumerate(widths):
        if words and edges[-1] + width > room:
            blocks.append(_WordLine(index, tuple(words), tuple(edges)))
            words, edges = [], [0.0]
        words.append(word)
        edges.append(edges[-1] + width)
    return [*blocks, _WordLine(index, tuple(words), tuple(edges))]


def _sentence_sheet(
    parts: Sequence[Sentence], blocks: Sequence[_WordLine], notes: Sequence[str]
) -> Sheet:
    boxes: list[Box] = []
    top: Number = 34
    left = _left_of_words(parts)
    for block in blocks:
        top += _WORDS + (_TITLE if block.words[0] == 0 else _LINES)
        height = _ROW * len(parts[block.sentence].rows)
        boxes.append(Box(left, top, left + block.edges[-1], top + height))
        top += height
    width = max(min(page_width() - 8, 600), *(box.right for box in boxes)) + 8
    return Sheet((width, top + 30), boxes, notes)


def _add_words(sheet: Sheet, part: Sentence, block: _WordLine, box: Box) -> None:
    for index, word in enumerate(block.words):
        centre = box.left + (block.edges[index] + block.edges[index + 1]) / 2
        text, ink = plain(part.words[word]), TEXT
        if part.marked[word]:
            text, ink = f"<b>{text}</b>", RUST
        at = (centre, box.top - 4)
        sheet.write(text, at, size=_WORD, ink=ink, anchor=("center", "bottom"))


def _add_word_cells(
    sheet: Sheet, part: Sentence, block: _WordLine, index: int, smallest: Number
) -> None:
    """The cells with their numbers, and frames around the words and the marked ones."""
    values = part.values[:, list(block.words)]
    words = [part.words[word] for word in block.words]
    edges = np.array(block.edges)
    centres = (edges[1:] + edges[:-1]) / 2
    colours = [colour_at(value, _LIMIT) for value in values.ravel().tolist()]
    hover = "<b>%{customdata[0]}</b>: %{customdata[1]:.1f}%"
    add_cells(sheet, index, values, (part.rows, words), (centres, np.diff(edges)), colours, hover)
    rows, columns = np.nonzero(values >= smallest)
    large = values[rows, columns].tolist()
    texts = [f"{value:.0f}" for value in large]
    inks = [ink_on(colour_at(value, _LIMIT)) for value in large]
    sheet.write_in_cells(index, (centres[columns], rows), texts, size=_NUMBER, inks=inks)
    frames = [(0.0, block.edges[-1], FRAME)] + [
        (block.edges[position], block.edges[position + 1], RUST)
        for position, word in enumerate(block.words)
        if part.marked[word]
    ]
    for x0, x1, ink in frames:
        corners, line = ((x0, -0.5), (x1, len(part.rows) - 0.5)), {"width": 1, "color": ink}
        sheet.add_shape("rect", *corners, index, line=line)


def _add_key(sheet: Sheet, legend: str) -> None:
    """Squares from 0 to the limit, with their numbers, above the first sentence."""
    sheet.write(plain(legend), (14, 26), size=11, ink=NOTE)
    left = 14 + text_box(legend, 11)[0] + 12
    values = [share * _LIMIT for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    line = {"width": 1, "color": FRAME}
    for value, text in zip(values, step_texts(values, "%"), strict=True):
        colour = colour_at(value, _LIMIT)
        sheet.add_shape("rect", (left, 13), (left + 14, 27), fillcolor=colour, line=line)
        sheet.write(text, (left + 18, 26), size=11, ink=NOTE)
        left += 26 + text_box(text, 11)[0]
