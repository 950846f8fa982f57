"""The gallery is drawn from tables as from runs, each picture for a page and for a phone."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.made_runs import make_run

from arith_lens import plotting
from arith_lens.plotting.style import in_the_dark
from experiments.finding import RunSettings
from figures.collection import MissingExhibit, collected
from figures.exhibit import Chart, one_chart
from figures.gallery import _draw
from figures.map_figures import fig2
from figures.tables.table import keys_of, to_csv


def drawn_twice(root: Path, text: str) -> tuple[Chart, Chart]:
    """Figure 2 from its run, and from a table alone."""
    (folder := root / "tables").mkdir(exist_ok=True)
    (folder / "fig2.csv").write_text(text, encoding="utf-8")
    parts = [collected(fig2, "reference", where) for where in (root, folder)]
    assert not any(isinstance(one, MissingExhibit) for one in parts), parts
    (from_run,), (from_table,) = parts  # pyright: ignore
    return from_run, from_table  # pyright: ignore


@pytest.mark.usefixtures("rough_intervals")
def test_a_picture_from_its_table_alone_is_that_from_its_run(tmp_path: Path) -> None:
    make_run(tmp_path, "reference")
    (chart,) = collected(fig2, "reference", tmp_path)  # pyright: ignore
    text = to_csv(chart.numbers)
    from_run, from_table = drawn_twice(tmp_path, text)
    assert from_table.figure.to_json() == from_run.figure.to_json()
    assert (from_table.caption, from_table.notes) == (from_run.caption, from_run.notes)
    changed = text.replace(",effect,-0.", ",effect,-9.", 1)
    assert changed != text
    _, other = drawn_twice(tmp_path, changed)
    assert other.figure.to_json() != from_run.figure.to_json(), "the test can fail"


@pytest.mark.usefixtures("rough_intervals")
def test_tables_are_of_the_default_settings_and_a_missing_one_has_its_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "fig15.csv").write_text("question,model\n", encoding="utf-8")
    missing = collected(fig2, "reference", tmp_path)
    assert isinstance(missing, MissingExhibit) and "fig2.csv" in missing.reason
    assert missing.command.endswith(" which_heads --model reference")
    settings = RunSettings.of_paper(metric="logit")
    other = collected(fig2, "reference", tmp_path, settings=settings)
    assert isinstance(other, MissingExhibit) and "the default settings" in other.reason


@pytest.mark.usefixtures("rough_intervals")
def test_one_picture_has_the_rows_of_several_models(tmp_path: Path) -> None:
    charts = []
    for model in ("made", "other"):
        make_run(tmp_path, model)
        charts += collected(fig2, model, tmp_path)  # pyright: ignore
    whole = one_chart(charts)
    assert keys_of(whole.numbers, "model") == ["made", "other"] and len(whole.runs) == 2
    assert one_chart(charts[:1]) is charts[0]


ROOT = Path(__file__).parents[2]
PICTURES = sorted(
    one for name in ("figures/gallery", "docs/studies") for one in (ROOT / name).glob("*.svg")
)
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
PICTURE = re.compile(
    r'<picture>\s*<source media="\(max-width: ?\d+px\)" srcset="([^"]+)">\s*'
    r'<img [^>]*?src="([^"]+)"[^>]*>\s*</picture>'
)


def test_each_picture_of_a_page_has_a_file_for_a_phone() -> None:
    shown = set()
    for page in PAGES:
        text = page.read_text("utf-8")
        for narrow, wide in PICTURE.findall(text):
            assert narrow == wide.replace(".svg", "-narrow.svg"), page
            shown |= {(page.parent / one).resolve() for one in (narrow, wide)}
        others = {page.name: 0, "explorer.md": 1}  # a screen is no drawing
        assert len(PICTURE.findall(text)) + others[page.name] == text.count("<img "), page
        assert "![" not in text, page
    assert len(shown) > 20 and {*PICTURES} == shown


def test_the_screen_of_the_explorer_has_its_four_forms() -> None:
    page = ROOT / "docs" / "explorer.md"
    files = re.findall(r'(?:srcset|src)="([^"]+)"', page.read_text("utf-8"))
    pictures = [(page.parent / file).read_bytes() for file in files]
    widths = [int.from_bytes(one[16:20], "big") for one in pictures]  # of the header of a PNG
    assert widths == [720, 720, 1656, 1656] and len({*pictures}) == 4, "two dots a pixel"
    assert ["dark" in Path(file).stem for file in files] == [True, False, True, False]


def schemes(file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The colours of each rule of a picture's sheet, in the light and in the dark."""
    sheet = ElementTree.fromstring(file.read_text("utf-8")).findtext("{*}style") or ""
    light, dark = re.split(r"@media ?\(prefers-color-scheme: ?dark\) ?\{", sheet)
    rules = (re.findall(r"([^{}]+)\{([^{}]*)\}", one) for one in (light, dark))
    found = [
        {
            f"{name.strip()} {paint}": colour
            for name, style in some
            for paint, colour in re.findall(r"([\w-]+): ?(#[0-9a-f]{3,6})", style)
        }
        for some in rules
    ]
    return found[0], found[1]


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_a_picture_has_only_colours_of_the_dictionary_and_each_has_another_in_the_dark(
    file: Path,
) -> None:
    light, dark = schemes(file)
    assert len(light) > 5
    assert dark == {name: in_the_dark(colour) for name, colour in light.items()}
    assert [name for name, colour in light.items() if dark[name] == colour] == []
    body = file.read_text("utf-8").partition("</style>")[2]
    assert not re.findall(r"#[0-9a-f]{3,6}\b(?!\))|rgb\(", body), "a sheet of colours"


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.stem)
def test_a_picture_has_the_width_of_a_page_or_of_a_phone_and_text_of_ten_pixels(
    file: Path,
) -> None:
    text = file.read_text("utf-8")
    root = ElementTree.fromstring(text).attrib
    width, is_narrow = float(root["viewBox"].split()[2]), file.stem.endswith("-narrow")
    assert 340 < width <= 420 if is_narrow else 800 < width <= 830
    assert (root["width"] == "100%") == is_narrow
    assert min(float(one) for one in re.findall(r"font(?:-size)?[:=]\"?(\d+)", text)) >= 10


@pytest.mark.skipif(plotting.browser_path() is None, reason="no browser to draw with")
@pytest.mark.usefixtures("rough_intervals")
def test_equal_tables_give_equal_pictures_and_other_tables_others(tmp_path: Path) -> None:
    make_run(tmp_path, "reference")
    (chart,) = collected(fig2, "reference", tmp_path)  # pyright: ignore
    assert isinstance(chart, Chart) and chart.of_rows
    other = chart.of_rows(chart.numbers.assign(value=-chart.numbers.value), chart.runs)
    drawn = []
    for number, one in enumerate((chart, chart, other)):
        (folder := tmp_path / str(number)).mkdir()
        _draw([one], folder)
        drawn.append([file.read_bytes() for file in sorted(folder.iterdir())])
    assert len(drawn[0]) == 2 and drawn[0] == drawn[1]
    assert all(a != b for a, b in zip(drawn[0], drawn[2], strict=True))
