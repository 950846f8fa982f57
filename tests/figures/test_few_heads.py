"""README's picture: its numbers are those of the audit's table, and its files are up to date."""

import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from figures import few_heads
from figures.few_heads import FILES, STUDIES, atlas

GALLERY = Path(few_heads.__file__).parent / "gallery"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("shape", FILES)
def test_the_picture_of_the_gallery_is_drawn_from_the_tables(shape):
    written = (GALLERY / FILES[shape]).read_text("utf-8")
    assert written == few_heads.few_heads(shape)
    texts = " ".join(ElementTree.fromstring(written).itertext())
    audits = pd.read_csv(STUDIES / "audits.csv").query(
        "model == 'smollm2-135m' and task == 'addition' and lens == 'means at every token'"
    )
    for question in ("Do few suffice?", "Are they needed?"):
        row = audits[audits.question == question].iloc[0]
        assert f"{row.value:.0%} [{row.low * 100:.0f}, {row.high * 100:.0f}]" in texts
        assert f"{row.control_high:.0%}" in texts and f"{row.n} one-digit sums" in texts
        assert len(row.heads.split()) == 4


@pytest.mark.parametrize("shape", FILES)
def test_the_picture_says_that_all_other_sets_are_alike_and_what_another_lens_gives(shape):
    own = pd.read_csv(STUDIES / "audits.csv").query(
        "model == 'smollm2-135m' and task == 'addition' and question == 'Do few suffice?'"
    )
    texts = " ".join(ElementTree.fromstring(few_heads.few_heads(shape)).itertext())
    for lens in few_heads.STRICTER:
        row = own[own.lens == lens].iloc[0]
        assert row.verdict == "fails" and row.value < 0.8
        assert f"{row.value:.0%} [{row.low * 100:.0f}, {row.high * 100:.0f}]" in texts
    assert texts.count("last token") == 2 and texts.count("every token") == 5
    few = own[own.lens == "means at every token"].iloc[0]
    assert few.control_low == few.control_high
    assert f"{few.control_high:.0%} in all sets" in texts


def test_another_table_gives_another_picture(tmp_path, monkeypatch):
    for name in ("audits.csv", "audit_heads.csv"):
        text = (STUDIES / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace("0.9706,0.8329", "0.5106,0.3329"), "utf-8")
    before = few_heads.few_heads()
    monkeypatch.setattr(few_heads, "STUDIES", tmp_path)
    assert "51% [33, 100]" in few_heads.few_heads() and "51% [33, 100]" not in before


@pytest.mark.parametrize("shape", FILES)
def test_no_text_is_small_or_outside(shape):
    root = ElementTree.fromstring(few_heads.few_heads(shape))
    width = float(root.attrib["viewBox"].split()[2])
    sizes = [int(size) for size in re.findall(r"(\d+)px", root.findtext(f"{SVG}style") or "")]
    assert min(size for size in sizes if size > 5) >= 12
    dots = [float(dot.attrib["cx"]) for dot in root.iter(f"{SVG}circle")]
    assert min(dots) >= 0 and max(dots) < width - 40


AUDITS: pd.DataFrame = pd.read_csv(STUDIES / "audits.csv").query("question == 'Do few suffice?'")


def drawn(name: str, number: int) -> list[float]:
    """The numbers of a series in one panel of the atlas, counted from 1."""
    series = [one for one in atlas().figure.data if one.yaxis == f"y{number}".strip("1")]
    named = f", {escape(name)}:"
    return sorted(x for one in series if named in one.hovertemplate for x in one.x if x == x)


@pytest.mark.parametrize("number, lens", [*enumerate(few_heads.LENSES, 1)])
def test_each_audit_has_the_mark_of_its_verdict_in_the_panel_of_its_lens(number, lens) -> None:
    own = AUDITS[AUDITS.lens == lens]
    assert len(own) >= 20
    holding = own.value[own.verdict == "holds"]
    clear, unclear = holding[holding >= 0.9], holding[holding < 0.9]
    others = {name: own.value[own.verdict == name] for name in ("open", "fails")}
    for name, values in zip(few_heads.VERDICTS, (clear, unclear, *others.values()), strict=True):
        assert drawn(name, number) == pytest.approx(sorted(100 * values))
    best = sorted(100 * own.control_high)
    assert drawn(few_heads.OTHERS, number) == pytest.approx(best)
    counted = f"{few_heads.LENSES[lens]}: {len(clear)} of {len(own)}"
    assert any(note.text.endswith(counted) for note in atlas().figure.layout.annotations)


def test_only_a_mark_at_ninety_percent_or_more_is_filled() -> None:
    """A verdict that holds below 90% has a hollow square: 90% is in its interval alone."""
    marks = [one for one in atlas().figure.data if one.marker.symbol != "line-ns-open"]
    filled = [x for one in marks if one.marker.color != "white" for x in one.x if x == x]
    dotted = [x for one in marks if one.marker.symbol == "square" for x in one.x if x == x]
    assert len(filled) == 17 and min(filled) >= 90 > max(dotted) and len(dotted) == 8


def test_the_line_at_ninety_percent_parts_the_audits_that_fail_from_those_that_hold() -> None:
    layout = atlas().figure.layout
    lines = [one for one in layout.shapes if one.x0 == one.x1 == 90]
    assert len(lines) == len(few_heads.LENSES) and layout.xaxis.ticktext[-1] == "90%"
    ends = AUDITS.groupby("verdict").high
    assert ends.max()["fails"] < 0.9 <= ends.min()["holds"]


def test_the_rows_of_each_model_of_the_atlas_are_in_one_order_below_its_name() -> None:
    names = atlas().figure.layout.yaxis.ticktext
    starts = [at for at, name in enumerate(names) if name.startswith("<b>")]
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        tasks = [name.partition(",")[0] for name in names[start + 1 : stop]]
        assert tasks == sorted(tasks, key=few_heads.TASKS.index) and len(tasks) >= 4
    assert len(names) - len(starts) == len(AUDITS.groupby(["model", "task"]))
