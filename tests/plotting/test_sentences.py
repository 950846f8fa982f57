"""Numbers per word of a sentence: words are read straight, long sentences go on below."""

import numpy as np
import pytest

from arith_lens import plotting


def sentence(n: int, **changes) -> plotting.Sentence:
    words = (*(f"word{i}" for i in range(n - 1)), "7")
    values = np.arange(2 * n, dtype=float).reshape(2, n)
    usual = {"title": "T", "rows": ("1.0", "1.1"), "words": words, "values": values}
    return plotting.Sentence(**{**usual, "marked": (False,) * (n - 1) + (True,), **changes})


def test_each_word_is_above_its_cells_and_each_number_in_its_cell() -> None:
    figure = plotting.sentence_panels([sentence(4)], smallest=2)
    layout = figure.layout
    (note,) = [n for n in layout.annotations if n.text == "word1"]
    assert note.textangle is None and note.y > layout.yaxis.domain[1]
    bars, texts = figure.data
    assert [row[1] for row in bars.customdata] == list(range(8))
    assert list(texts.text) == ["2", "3", "4", "5", "6", "7"], "from the smallest on"
    assert list(texts.x) == [bars.x[i] for i in range(2, 8)]
    width = layout.xaxis.range[1]
    assert bars.x[3] + bars.width[3] / 2 == pytest.approx(width)
    assert np.allclose(np.diff(bars.x[:4]), (bars.width[:3] + bars.width[1:4]) / 2), "no gaps"


def test_marked_words_are_bold_and_framed() -> None:
    figure = plotting.sentence_panels([sentence(4)])
    assert "<b>7</b>" in [note.text for note in figure.layout.annotations]
    inks = [shape.line.color for shape in figure.layout.shapes if shape.xref == "x"]
    assert inks.count(plotting.RUST) == 1 and len(inks) == 2


def test_a_long_sentence_goes_on_in_another_line_of_the_page() -> None:
    figure = plotting.sentence_panels([sentence(40), sentence(3)])
    layout = figure.layout
    assert layout.width <= 860
    shown = [trace.customdata for trace in figure.data if trace.type == "bar"]
    assert len(shown) > 3 and sum(map(len, shown)) == 2 * 43, "every cell once"
    letters = [n.text for n in layout.annotations if n.text.endswith("</b>  T")]
    assert letters == ["<b>a</b>  T", "<b>b</b>  T"]


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="found none"):
        plotting.sentence_panels([])
    with pytest.raises(ValueError, match="expected numbers"):
        plotting.sentence_panels([sentence(4, marked=(True,))])
