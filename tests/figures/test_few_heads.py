"""README's picture: its numbers are those of the audit's table, and its files are up to date."""

import re
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
    assert texts.count("(fails)") == 2
    few = own[own.lens == "means at every token"].iloc[0]
    assert few.control_low == few.control_high
    assert f"{few.control_high:.0%} in all 40 sets" in texts


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


def test_each_row_of_the_atlas_has_a_sign_for_each_lens_the_stricter_ones_last(
    tmp_path, monkeypatch
) -> None:
    def names() -> str:
        layout = atlas().figure.layout.to_plotly_json()
        return " ".join(
            text for name in layout if "yaxis" in name for text in layout[name]["ticktext"]
        )

    audits = pd.read_csv(STUDIES / "audits.csv")
    addition, capitals = "addition: 3 heads ✓✓✓{}", "capitals: 2 heads ✗✓·{}"
    assert addition.format("✓") in names() and capitals.format("✓") in names()
    audits.loc[audits.lens == few_heads.STRICTER[0], "verdict"] = "fails"
    audits.to_csv(tmp_path / "audits.csv", index=False)
    monkeypatch.setattr(few_heads, "STUDIES", tmp_path)
    assert addition.format("✗") in names() and capitals.format("✗") in names()


def test_the_atlas_has_a_row_for_each_audit_with_its_control() -> None:
    audits = pd.read_csv(STUDIES / "audits.csv").query("question == 'Do few suffice?'")
    is_first = audits.lens == "means at every token"
    rows, others = audits[is_first], audits[~is_first]
    series = atlas().figure.data

    def drawn(name: str) -> list[float]:
        return sorted(x for one in series if f", {name}:" in one.hovertemplate for x in one.x)

    alone = few_heads.LENSES["means at every token"][0]
    ticks = [x for x in drawn(few_heads.TICK[0]) if x == x]
    assert len(rows) > 15 and ticks == pytest.approx(sorted(100 * others.value))
    assert drawn(alone) == pytest.approx(sorted(100 * rows.value))
    ticked = [one for one in series if f", {few_heads.TICK[0]}:" in one.hovertemplate]
    assert all(one.error_x.array is None for one in ticked), "one interval a row"
    assert drawn("best of 40 other sets, line to the worst") == pytest.approx(
        sorted(100 * rows.control_high)
    )


def test_each_row_of_the_atlas_has_the_sign_of_its_verdict_and_those_that_hold_are_first() -> None:
    audits = pd.read_csv(STUDIES / "audits.csv").query(
        "question == 'Do few suffice?' and lens == 'means at every token'"
    )
    layout = atlas().figure.layout
    names = [[*layout[f"yaxis{n}"].ticktext] for n in ("", 2, 3, 4, 5)]
    signs = [[re.sub("</?b>", "", name).split()[-1][0] for name in some] for some in names]
    assert signs == [sorted(some, key="✓?✗".index) for some in signs]
    for verdict, sign in few_heads.VERDICTS.items():
        count = sum(some.count(sign) for some in signs)
        assert count == (audits.verdict == verdict).sum() > 0
    assert all(("<b>" in name) == (" ✓" in name) for some in names for name in some)
