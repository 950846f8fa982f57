"""Tokens are data: every one is shown letter by letter, beside its own probability."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from arith_lens import plotting

needs_browser = pytest.mark.skipif(
    plotting.browser_path() is None, reason="no Chrome or Chromium to draw with"
)

TRICKY = ("<s>", "<b>", "</script>", "&amp;", "$x$", '"q"', "%{x}", "<0x0A>", "3", "3")
SHARES = np.array([0.3, 0.2, 0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.03, 0.0002])


def figure(prompt: str = "1 + 2 = ", answer: str = "3"):
    part = plotting.NextTokenPanel(
        prompt,
        before=plotting.Ranking(TRICKY, SHARES),
        after=plotting.Ranking(("5", "a"), np.array([0.6, 0.4])),
        answer=answer,
    )
    return plotting.next_token_panels([part, part], names=("before", "after <i>"), notes=["<u>"])


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" 7", "␣7"),
        ("7", "7"),
        ("\n", "↵"),
        ("", '""'),
        ("\u200b", "\\u200b"),
        ("\xa0", "\\xa0"),
        ("▁7", "▁7"),
        ("<s>", "<s>"),
        ("é", "é"),
    ],
)
def test_every_letter_of_a_token_is_seen(token: str, shown: str) -> None:
    assert plotting.visible(token) == shown


def test_each_token_has_its_own_bar() -> None:
    before, after, *_ = figure().data
    assert list(before.y) == list(range(len(TRICKY)))
    assert np.array_equal(before.x, SHARES)
    assert list(after.x) == [0.6, 0.4]
    assert before.text[0] == "30%"
    assert before.text[-1] == "&lt;0.1%"


def test_the_likeliest_is_on_top_and_all_bars_share_one_scale() -> None:
    layout = figure().layout
    assert layout.yaxis.range[0] > layout.yaxis.range[1]
    assert {tuple(layout[f"xaxis{i}"].range) for i in ("", 2, 3, 4)} == {(0, 1)}
    heights = [
        (layout[f"yaxis{i}"].domain[1] - layout[f"yaxis{i}"].domain[0]) for i in ("", 2, 3, 4)
    ]
    assert heights == pytest.approx([heights[0]] * 4), "two bars are as high as two of ten"
    assert layout.yaxis2.range == layout.yaxis.range


def test_the_answer_is_in_colour_wherever_it_stands() -> None:
    before, after, *_ = figure(answer="3").data
    strong = [colour == plotting.BLUE for colour in before.marker.color]
    assert strong == [False] * 8 + [True] * 2
    assert plotting.BLUE not in after.marker.color


def test_prompts_show_their_line_ends_and_last_spaces() -> None:
    texts = [note.text for note in figure("1 <s>\n2 = ").layout.annotations]
    assert "1 &lt;s&gt;↵<br>2 =␣" in texts


def test_a_long_prompt_is_broken_into_lines_and_makes_room() -> None:
    short, long = figure("a"), figure("word " * 100)
    (text,) = {n.text for n in long.layout.annotations if "word" in n.text}
    lines = text.split("<br>")
    assert len(lines) > 4
    assert " ".join(lines).replace("␣", "").split() == ["word"] * 100
    assert long.layout.height - short.layout.height == 2 * 16 * (len(lines) - 1)
    assert max(map(len, lines)) * 6.8 < long.layout.width


def test_a_page_holds_no_tag_that_came_from_a_token(tmp_path: Path) -> None:
    plotting.save(figure("</script><img src=x>"), tmp_path / "tokens", formats=())
    page = (tmp_path / "tokens.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<script\b", page)) == page.count("</script>")
    assert "<img src=x>" not in page


@needs_browser
def test_the_picture_shows_each_token_letter_by_letter(tmp_path: Path) -> None:
    path = plotting.save(figure(), tmp_path / "tokens", formats=("svg",))[1]
    shown = [
        "".join(text.itertext())
        for text in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")
        if "ytick" in "".join(text.attrib.values()) or text.attrib.get("text-anchor") == "end"
    ]
    assert shown[: len(TRICKY)] == list(TRICKY)


def test_a_token_without_probability_is_refused() -> None:
    part = plotting.NextTokenPanel(
        "a", plotting.Ranking(("a", "b"), np.ones(1)), plotting.Ranking(("a",), np.ones(1))
    )
    with pytest.raises(ValueError, match="found 1 for 2"):
        plotting.next_token_panels([part])
