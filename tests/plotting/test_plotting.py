"""Pictures show the numbers they are given, and hide none behind another."""

import html
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arith_lens import plotting
from arith_lens.plotting import export
from arith_lens.plotting.labels import Box, cell_box, place_labels, text_box
from arith_lens.plotting.style import (
    DIVERGING,
    GREYS,
    INKS,
    is_dark,
    rooted_colour_at,
    signed,
    tick_positions,
    ticks,
)

needs_browser = pytest.mark.skipif(
    plotting.browser_path() is None, reason="no Chrome or Chromium to draw with"
)


@pytest.fixture
def values() -> np.ndarray:
    values = np.random.default_rng(0).normal(0, 1, (12, 8))
    values[3, 2] = -14.25
    return values


def panel(values: np.ndarray, **more) -> plotting.Panel:
    strips = values[:, :1]
    return plotting.Panel("A", values, strips, values[..., None], strips[..., None], **more)


def panels(*parts: plotting.Panel | None, limit: float | None = None, **more):
    options = {"axes": ("layer", "head"), "strip_names": ("MLP",), "hover": ("%{z}", "%{z}")}
    return plotting.panels(parts, colours=plotting.ColourScale("Δ", "%", limit), **options, **more)


@pytest.mark.parametrize(
    ("reach", "limit"), [(13.2, 15), (15, 15), (15.1, 20), (0.037, 0.04), (61, 80), (100, 100)]
)
def test_the_colour_scale_ends_at_the_next_round_number(reach: float, limit: float) -> None:
    assert plotting.symmetric_limit(np.array([reach, -reach], float)) == pytest.approx(limit)


def test_one_outlier_in_a_thousand_does_not_set_the_colour_scale() -> None:
    values = np.full(1000, 9.0)
    values[0] = -500
    assert plotting.symmetric_limit(values) == pytest.approx(10)


def test_the_colour_scale_bears_nan_and_nothing() -> None:
    assert plotting.symmetric_limit(np.array([np.nan, -4.0])) == pytest.approx(4)
    assert plotting.symmetric_limit(np.zeros(3)) == 1
    assert plotting.symmetric_limit(np.array([])) == 1


@pytest.mark.parametrize("limit", [1, 1.5, 2, 3, 4, 5, 6, 8, 15, 20, 0.3, 80])
def test_ticks_reach_from_end_to_end_through_zero(limit: float) -> None:
    marks = ticks(limit)
    assert marks[0] == pytest.approx(-limit)
    assert marks[-1] == pytest.approx(limit)
    assert 0 in marks
    assert 5 <= len(marks) <= 7


def test_colours_run_from_red_over_white_to_blue_and_stay_there() -> None:
    assert plotting.colour_at(-9, 5) == plotting.colour_at(-5, 5) == DIVERGING[0]
    assert plotting.colour_at(0, 5) == DIVERGING[8]
    assert plotting.colour_at(5, 5) == DIVERGING[-1]
    assert is_dark(DIVERGING[0])
    assert not is_dark(DIVERGING[8])


def test_numbers_have_a_true_minus_sign() -> None:
    assert [signed(x, "%") for x in (-2.5, 0, 5)] == ["−2.5%", "0", "+5%"]


def test_a_heatmap_shows_the_values_with_layers_upwards_and_other_rows_down(
    values: np.ndarray,
) -> None:
    figure = plotting.heatmap(values, axes=("layer", "head"), unit="%")
    assert np.array_equal(figure.data[0].z, values)
    assert figure.layout.yaxis.autorange is None
    other = plotting.heatmap(values, axes=("query", "key"), unit="%")
    assert other.layout.yaxis.autorange == "reversed"
    assert figure.data[0].zmin == -figure.data[0].zmax


def test_the_inline_svg_holds_each_value_and_nothing_that_runs(values: np.ndarray) -> None:
    text = plotting.svg_heatmap(values, axes=("layer", "head"), title="<b> & <script>")
    root = ET.fromstring(text)
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == values.size
    assert "layer 3, head 2: -14.2" in titles
    assert "script" not in {element.tag.split("}")[1] for element in root.iter()}


def test_the_inline_svg_is_as_wide_as_its_longest_line(values: np.ndarray) -> None:
    root = ET.fromstring(plotting.svg_heatmap(values / 100, axes=("layer", "head")))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(text.attrib["x"]) + 6.5 * len(text.text or "") <= float(root.attrib["width"])
        assert float(text.attrib["y"]) < float(root.attrib["height"])


def test_names_of_axes_are_text_not_markup(values: np.ndarray) -> None:
    figure = plotting.heatmap(values, axes=("<b>x", "<s>"), title="<i>", unit="<u>")
    text = figure.to_json().replace("\\u003c", "<")
    assert "&lt;s&gt;" in text
    assert not [tag for tag in ("<b>", "<s>", "<i>", "<u>") if tag in text]


def test_a_map_of_one_row_is_drawn() -> None:
    text = plotting.svg_heatmap(np.array([[1.0, np.nan]]), axes=("", "layer"))
    titles = [t.text for t in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["layer 0: +1", "layer 1: +nan"]


def test_named_rows_and_columns_are_text_and_stand_on_the_picture() -> None:
    names = ("<s>", "operand a", "others without A, B, C")
    text = plotting.svg_heatmap(np.eye(3), axes=("head", "role"), rows=names, columns=names)
    root = ET.fromstring(text)
    said = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(said.count(name) == 2 for name in names)
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[1] == "head <s>, role operand a: +0"
    figure = plotting.heatmap(np.eye(3), axes=("head", "role"), rows=names, columns=names)
    assert figure.layout.xaxis.ticktext[0] == figure.layout.yaxis.ticktext[0] == "&lt;s&gt;"
    assert figure.layout.xaxis.tickvals == (0, 1, 2)


def test_inline_lines_hold_each_value_and_their_band() -> None:
    x, y = np.array([0, 2]), np.array([100.0, 25.0])
    line = plotting.Line(x, y, "<b>", plotting.COLOURS["helps"], low=y - 10, high=y)
    text = plotting.svg_lines([line], x_title="k", y_title="right", unit="%", top=100)
    root = ET.fromstring(text)
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["<b>, 0: right 100%", "<b>, 2: right 25%"]
    points = {
        node.tag.split("}")[1]: [
            tuple(map(float, at.split(","))) for at in node.get("points", "").split()
        ]
        for node in root.iter()
        if node.tag.endswith(("polyline", "polygon"))
    }
    (x0, y0), (x1, y1) = points["polyline"]
    rects = root.iter("{http://www.w3.org/2000/svg}rect")
    frame = next(rect for rect in rects if rect.get("fill") == "none")
    top, height = float(frame.attrib["y"]), float(frame.attrib["height"])
    assert (y0, y1) == (top, top + 0.75 * height) and x0 < x1
    assert len(points["polygon"]) == 4


def test_panels_hold_every_value_and_share_one_scale(values: np.ndarray) -> None:
    figure = panels(panel(values), panel(2 * values))
    maps = [trace.z for trace in figure.data if np.shape(trace.z) == values.shape]
    assert np.array_equal(maps[0], values)
    assert np.array_equal(maps[1], 2 * values)
    assert {trace.coloraxis for trace in figure.data} == {"coloraxis"}
    assert figure.layout.coloraxis.cmin == -figure.layout.coloraxis.cmax


def test_small_effects_have_more_colour_than_their_share_of_the_scale(values: np.ndarray) -> None:
    figure = panels(panel(values))
    scale = figure.layout.coloraxis.colorscale
    end = figure.layout.coloraxis.cmax
    for position, colour in scale:
        value = end * (2 * position - 1)
        assert rooted_colour_at(value, end) == colour, "a bitmap and a drawing agree"
    assert rooted_colour_at(end / 8, end) == plotting.colour_at(end / 4, end)
    (zero, _), (first, _) = scale[len(scale) // 2 : len(scale) // 2 + 2]
    between = end * (first - zero)  # halfway to the next colour: the bar is even there
    assert rooted_colour_at(between, end) == plotting.colour_at(1 / 16, 1)


def test_a_title_stands_above_all_that_was_drawn_and_nothing_moves(values: np.ndarray) -> None:
    figure = panels(panel(values), notes=["small print"])
    titled = plotting.with_title(figure, "What is <this>? " * 12)
    room = titled.layout.height - figure.layout.height
    assert titled.layout.margin.t == room > 40, "several lines"
    *others, title = titled.layout.annotations
    assert [one.y for one in others] == [one.y for one in figure.layout.annotations]
    assert title.y * figure.layout.height == pytest.approx(figure.layout.height + room)
    assert "&lt;this&gt;" in title.text and len(figure.layout.annotations) == len(others)


def test_vector_panels_draw_the_same_values_as_rectangles(values: np.ndarray) -> None:
    figure = plotting.as_rectangles(panels(panel(values)))
    end = figure.layout.coloraxis.cmax
    bearer, cells, bar = figure.data
    assert bearer.marker.coloraxis == "coloraxis" and bearer.x == (None,)
    assert cells.type == bar.type == "bar"
    assert [*cells.marker.color] == [rooted_colour_at(value, end) for value in values.ravel()]
    assert [*bar.marker.color] == [rooted_colour_at(value, end) for value in values[:, 0]]
    rows = np.asarray(cells.base) + np.asarray(cells.y) / 2
    assert np.allclose(rows, np.indices(values.shape)[0].ravel())


@pytest.mark.parametrize("shape", [(12, 8), (32, 32), (40, 40), (1, 1), (3, 64), (80, 4)])
def test_cells_fill_the_panel_and_axes_stay_on_the_page(shape: tuple[int, int]) -> None:
    figure = panels(*[panel(np.ones(shape))] * 4)
    for index in range(4):
        suffix = "" if index == 0 else str(index + 1)
        for axis in ("xaxis", "yaxis"):
            low, high = figure.layout[axis + suffix].domain
            assert 0 <= low < high <= 1
    assert figure.layout.width < 1200
    assert figure.layout.height < 1200


def outlines_of(figure: plotting.Figure) -> list[tuple[np.ndarray, str]]:
    """The left, right, lower and upper end of each outline in cells, and its dash."""
    layout, outlines = figure.layout, []
    for one in layout.shapes:
        if one.line.dash:
            assert one.xref == one.yref == "paper", "an axis cuts what ends outside"
            ends = [sorted((one.x0, one.x1)), sorted((one.y0, one.y1))]
            both = zip((layout.xaxis, layout.yaxis), ends, strict=True)
            cells = [np.interp(at, axis.domain, axis.range) for axis, at in both]
            outlines.append((np.concatenate(cells), one.line.dash))
    return outlines


def test_marks_are_outlined_and_those_with_text_labelled(values: np.ndarray) -> None:
    marks = (plotting.Mark(3, 2, "3.2"), plotting.Mark(5, 5, ""), plotting.Mark(1, 1, "1.1", False))
    figure = panels(panel(values, marks=marks))
    outlines = np.array([ends for ends, _ in outlines_of(figure)])
    left, right, low, high = outlines.T
    assert np.allclose((low + high) / 2, [3, 5]) and np.allclose((left + right) / 2, [2, 5])
    assert np.allclose([right - left, high - low], 1), "on the edges of its cell"
    corner = panels(panel(values, marks=(plotting.Mark(0, 0, ""),)))
    (frame,) = (one for one in corner.layout.shapes if one.line.dash)
    assert min(frame.x0, frame.x1) == pytest.approx(corner.layout.xaxis.domain[0]), "no axis cuts"
    texts = [note.text for note in figure.layout.annotations]
    assert "3.2" in texts
    assert "1.1" in texts


def test_maps_of_different_shapes_fill_panels_of_their_own(values: np.ndarray) -> None:
    figure = panels(panel(values), panel(values[:3]), None, panel(np.ones((32, 32))), across=2)
    layout = figure.layout
    tops = [layout[name].range for name in ("yaxis", "yaxis2", "yaxis4")]
    assert tops == [(-0.5, 11.5), (-0.5, 2.5), (-0.5, 31.5)], "layer 0 is at the bottom"
    assert "yaxis3" not in layout, "a place may stay empty"
    assert layout.yaxis.domain[1] == layout.yaxis2.domain[1] > layout.yaxis4.domain[1]
    assert layout.xaxis2.domain[0] == layout.xaxis4.domain[0] > layout.xaxis.domain[1]


def test_titles_of_narrow_maps_do_not_reach_the_next_column() -> None:
    def size_and_text(title: str) -> tuple[float, str]:
        part = replace(panel(np.zeros((18, 4))), title=title)  # a model with few heads
        (note, _) = [n for n in panels(part, part, across=2).layout.annotations if "<b>" in n.text]
        return note.font.size, note.text

    assert size_and_text("A") == (13, "<b>a</b>  A")
    assert size_and_text("A title that is too long " * 3)[0] == 10, "letters are smaller"


def test_outlines_are_dashed_where_only_the_mean_is_beyond(values: np.ndarray) -> None:
    marks = (plotting.Mark(3, 2, ""), plotting.Mark(5, 5, "", certain=False))
    figure = panels(panel(values, marks=marks))
    dashes = {(round(low + high), dash) for (*_, low, high), dash in outlines_of(figure)}
    assert dashes == {(6, "solid"), (10, "dot")}


def test_headings_stand_above_the_titles_of_their_rows(values: np.ndarray) -> None:
    figure = panels(*[panel(values)] * 4, headings=("<one>", "two"))
    notes = {note.text: note for note in figure.layout.annotations}
    assert notes["&lt;one&gt;"].y > notes["<b>a</b>  A"].y > figure.layout.yaxis.domain[1]
    assert figure.layout.yaxis.domain[0] > notes["two"].y > notes["<b>c</b>  A"].y
    with pytest.raises(ValueError, match="a heading for each row"):
        panels(*[panel(values)] * 4, headings=("one",))


def test_small_print_is_broken_into_lines_that_stay_on_the_page(values: np.ndarray) -> None:
    words = "word <b> " * 20
    wide = [panel(values)] * 4
    short, long = panels(*wide, notes=["a"]), panels(*wide, notes=[words, "last"])
    notes = [n for n in long.layout.annotations if "word" in n.text or n.text == "last"]
    lines = [html.unescape(note.text) for note in notes]
    assert " ".join(lines).split() == [*words.split(), "last"]
    width = long.layout.width
    assert all(
        note.x * width + 5.3 * len(line) < width for note, line in zip(notes, lines, strict=True)
    )
    assert long.layout.height - short.layout.height == 15 * (len(lines) - 1)
    assert all(0 < note.y < long.layout.yaxis.domain[0] for note in notes)


def test_texts_stand_in_their_cells_in_ink_that_reads(values: np.ndarray) -> None:
    texts = tuple(tuple(f"{r}/{c}" for c in range(8)) for r in range(12))
    part = panel(values, texts=texts, strip_texts=tuple((f"bar {r}",) for r in range(12)))
    (trace,) = [t for t in panels(part, size=(40, 26), limit=5).data if t.type == "scatter"]
    shown = dict(zip(zip(trace.y, trace.x, strict=True), trace.text, strict=True))
    assert shown[3, 2] == "3/2"
    assert shown[11, trace.x[-1]] == "bar 11"
    inks = dict(zip(trace.text, trace.textfont.color, strict=True))
    assert inks["3/2"] == GREYS["light-dark-text"][0], "on the darkest red, light in the dark"


def test_what_lies_beyond_the_scale_has_its_ends_colour_and_its_own_number(
    values: np.ndarray,
) -> None:
    figure = panels(panel(values), limit=5)
    bar = figure.layout.coloraxis.colorbar
    assert (bar.ticktext[0], bar.ticktext[-1]) == ("≤ −5%", "≥ +5%")
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-5, 5)
    assert figure.data[0].z[3, 2] == -14.25


CROWD = [(15, 0), (16, 1), (15, 31), (16, 30), (0, 0), (0, 31), (31, 0), (31, 31), (12, 22)]
CROWD += [(13, 21), (14, 22), (13, 23), (12, 20)]


def test_labels_cover_no_marked_cell_no_label_and_stay_inside() -> None:
    cell = (12.0, 12.0)
    texts = [f"{row}.{column}" for row, column in CROWD]
    boxes = place_labels(CROWD, texts, np.zeros((32, 32)), cell=cell, size=10.5)
    for index, box in enumerate(boxes):
        assert box.within(Box(0, 0, 384, 384))
        assert not any(box.overlap(cell_box(*position, cell)) for position in CROWD)
        assert not any(box.overlap(other) for other in boxes[:index])


def test_a_label_prefers_to_hide_what_is_small() -> None:
    weight = np.zeros((32, 32))
    weight[16, 17:21] = 9.0
    right, left = (
        place_labels([(16, 16)], ["16.16"], w, cell=(12.0, 12.0), size=10.5)[0].centre[0]
        for w in (np.zeros((32, 32)), weight)
    )
    assert right > 16.5 * 12 > left


def test_a_label_that_fits_stands_in_its_cell() -> None:
    width, height = text_box("2.3", 10.5)
    box = place_labels([(2, 3)], ["2.3"], np.zeros((4, 4)), cell=(48.0, 32.0), size=10.5)[0]
    assert width < 48
    assert height < 32
    assert box == cell_box(2, 3, (48.0, 32.0))


@needs_browser
def test_pictures_are_drawn_and_vectors_hold_no_bitmap(tmp_path: Path, values: np.ndarray) -> None:
    screen = panels(panel(values))
    files = plotting.save(screen, tmp_path / "map.v1")
    assert [path.name for path in files] == [
        "map.v1.html",
        "map.v1.png",
        "map.v1.svg",
        "map.v1.pdf",
    ]
    png = files[1].read_bytes()
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (2 * screen.layout.width, 2 * screen.layout.height)
    assert "<image" not in files[2].read_text(encoding="utf-8")
    assert files[3].read_bytes().startswith(b"%PDF")
    assert sorted(tmp_path.iterdir()) == sorted([*files, tmp_path / "plotly.js"])


def test_without_a_browser_the_page_is_there_and_one_line_says_why(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(plotting.ExportError, match=r"found neither Chrome nor Chromium") as error:
        plotting.save(panels(panel(values)), tmp_path / "map", formats=("png",))
    assert "\n" not in str(error.value)
    assert "map-chart-data" in (tmp_path / "map.html").read_text("utf-8")


def test_the_users_browser_comes_first_and_no_program_hides_the_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROWSER_PATH", sys.executable)
    assert plotting.browser_path() == sys.executable
    monkeypatch.setenv("BROWSER_PATH", "none")
    assert plotting.browser_path() is None


def test_pictures_of_an_earlier_drawing_do_not_stay_beside_new_numbers(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_RENDER", ["-c", "raise SystemExit('no browser')"])
    old = [tmp_path / f"map.{suffix}" for suffix in ("png", "svg", "pdf")]
    kept = [tmp_path / "map2.png", tmp_path / "map.csv"]
    for path in [*old, *kept]:
        path.write_text("old")
    with pytest.raises(plotting.ExportError, match="no browser"):
        plotting.save(panels(panel(values)), tmp_path / "map", formats=("png", "svg"))
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)


def test_pictures_are_drawn_again_only_if_their_page_has_another_text_or_they_are_not_its_own(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []

    def draw(pictures: dict[Path, Any], **_: Any) -> None:
        drawn.append([path.name for path in pictures])
        for path in pictures:
            path.write_text("a picture")

    monkeypatch.setattr(export, "save_pictures", draw)

    def save(text: str, *formats: str) -> list[str]:
        before = len(drawn)
        paths = plotting.save(figure, tmp_path / "map", formats=formats, page_text=text)
        assert [path.suffix for path in paths] == [".html", *(f".{one}" for one in formats)]
        return drawn[-1] if len(drawn) > before else []

    figure = panels(panel(values))
    assert save("one", "png", "svg") == ["map.png", "map.svg"]
    assert save("one", "png", "svg") == []
    assert save("other", "png") == ["map.png"] and not (tmp_path / "map.svg").exists()
    (tmp_path / "map.png").unlink()
    assert save("other", "png") == ["map.png"], "one is missing"
    os.utime(tmp_path / "map.png", ns=(0, 0))
    assert save("other", "png") == ["map.png"], "one is of an earlier drawing"
    page = '<script src="plotly.js"></script>'
    save(page, "png")
    (tmp_path / "plotly.js").unlink()
    assert save(page, "png") == [] and (tmp_path / "plotly.js").exists()


HALF = """
import json, sys, time
job = json.load(sys.stdin)[0]
open(job["partial"], "wb").write(b"\\x89PNG half")
open(job["path"] + ".begun", "w").close()
"""
"""A browser's process that has drawn half a picture."""


def drawing(tmp_path: Path, values: np.ndarray, **options: Any) -> None:
    plotting.save(panels(panel(values)), tmp_path / "map", formats=("png",), **options)


@pytest.mark.parametrize("fate", ["import os; os.kill(os.getpid(), 9)", "time.sleep(600)"])
def test_half_a_picture_never_looks_finished(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    """Its process is killed, as for want of memory, or is stopped for taking too long."""
    (tmp_path / "map.png").write_text("old")
    monkeypatch.setattr(export, "_RENDER", ["-c", HALF + fate])
    with pytest.raises(plotting.ExportError, match=r"exit status -9|within 3 s"):
        drawing(tmp_path, values, seconds=3)
    assert {path.name for path in tmp_path.iterdir()} == {"map.html", "map.png.begun", "plotly.js"}


def test_who_interrupts_a_drawing_leaves_no_half_picture_and_no_browser(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    right = subprocess.Popen.communicate

    def interrupted(worker: Any, given: Any = None, timeout: Any = None) -> Any:
        if started:
            return right(worker, given, timeout)
        started.append(worker)
        worker.stdin.write(given)
        worker.stdin.close()
        worker.stdin = None
        while not (tmp_path / "map.png.begun").exists():
            assert worker.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    monkeypatch.setattr(export, "_RENDER", ["-c", HALF + "time.sleep(600)"])
    with pytest.raises(KeyboardInterrupt):
        drawing(tmp_path, values)
    assert started[0].poll() == -9
    assert {path.name for path in tmp_path.iterdir()} == {"map.html", "map.png.begun", "plotly.js"}


def test_a_full_disk_leaves_the_files_of_an_earlier_drawing(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [tmp_path / f"map.{ending}" for ending in ("html", "png")]
    for path in old:
        path.write_text("old")
    right = Path.write_text

    def full(path: Path, text: str, *given: Any, **options: Any) -> int:
        right(path, text[:1000], *given, **options)
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        drawing(tmp_path, values)
    assert sorted(tmp_path.iterdir()) == old
    assert [path.read_text() for path in old] == ["old", "old"]


def test_a_browser_that_hangs_is_stopped(
    tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_RENDER", ["-c", "import time; time.sleep(600)"])
    with pytest.raises(plotting.ExportError, match=r"within 0\.5 s"):
        plotting.save(panels(panel(values)), tmp_path / "map", formats=("png",), seconds=0.5)


def test_a_page_has_its_figures_title_and_what_is_wider_scrolls(tmp_path: Path) -> None:
    figure = plotting.heatmap(np.eye(2), axes=("layer", "head"))
    (page,) = plotting.save(figure, tmp_path / "map", formats=(), title="<b> & Figure 3")
    text = page.read_text(encoding="utf-8")
    assert "<title>&lt;b&gt; &amp; Figure 3</title>" in text
    assert "<h1>&lt;b&gt; &amp; Figure 3</h1>" in text
    assert "overflow-x: auto" in text and '<div class="box"' in text and 'id="map-chart"' in text


def test_the_pages_of_a_folder_share_plotly_and_one_style_light_and_dark(tmp_path: Path) -> None:
    figure = plotting.heatmap(np.eye(2), axes=("layer", "head"))
    (one,) = plotting.save(figure, tmp_path / "one", formats=())
    before = (tmp_path / "plotly.js").stat()
    plotting.save(figure, tmp_path / "other", formats=())
    assert (tmp_path / "plotly.js").stat().st_mtime_ns == before.st_mtime_ns, "written once"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3e6
    text = one.read_text("utf-8")
    assert '<script src="plotly.js">' in text and "http" not in text.replace("http-equiv", "")
    for need in ("prefers-color-scheme: dark", "max-width: 640px", f"--helps: {INKS['helps'][1]}"):
        assert need in text


@pytest.mark.parametrize("n", range(1, 129))
def test_labels_of_an_axis_do_not_overlap(n: int) -> None:
    assert tick_positions(n, max(n, 2)) == [*range(n)]
    positions = tick_positions(n)
    gaps = [b - a for a, b in pairwise(positions)]
    assert positions[0] == 0 and positions[-1] == n - 1
    assert all(gap >= n / 16 for gap in gaps)


def test_names_that_have_no_room_are_left_out_of_a_small_map() -> None:
    names = ["embeddings", *(f"{layer}.{head}" for layer in range(12) for head in range(8))]
    root = ET.fromstring(
        plotting.svg_heatmap(
            np.zeros((3, 97)), axes=("head, input", "sender"), rows=("5.5, q", "5.5, k", "5.5, v"),
            columns=names,
        )
    )  # fmt: skip
    texts = [node for node in root.iter() if node.tag.endswith("text")]
    across = sorted(float(node.get("x", "")) for node in texts if "transform" in node.attrib)
    assert min(np.diff(across)) >= 11 and 10 < len(across) < 97, "a line of text is 11 high"
    shown = {node.text for node in texts}
    assert {"embeddings", "11.7", "5.5, q", "5.5, k", "5.5, v"} <= shown


def test_other_small_print_leaves_the_cells_to_the_export() -> None:
    plain = panels(panel(np.array([[0.1, -0.2], [0.3, 0.0]])))
    figure = plotting.with_notes(plain, ["other settings"])
    assert any("other settings" in str(note.text) for note in figure.layout.annotations)
    expected, drawn = plotting.as_rectangles(plain), plotting.as_rectangles(figure)
    assert [trace.type for trace in drawn.data] == [trace.type for trace in expected.data]
    assert "heatmap" not in {trace.type for trace in drawn.data}


def test_small_print_without_room_ends_with_a_whole_sentence() -> None:
    whole = "Dashed: the first half of all. b, c: " + "a long text, " * 9 + "its end."
    figure = panels(panel(np.array([[0.1, -0.2], [0.3, 0.0]])))
    figure = plotting.with_notes(figure, [f"{whole} e: {'more ' * 200}."])
    lines = [note.text for note in figure.layout.annotations if note.name == "note"]
    assert " ".join(lines) == whole
