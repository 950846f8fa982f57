"""Every figure fits a column and a page of paper, with text that can be read there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.made_runs import make_run

from arith_lens import plotting
from arith_lens.plotting.widths import INCHES, MOST_INCHES, PER_INCH
from experiments import catalogue
from experiments.finding import RunSettings
from figures import gallery
from figures.attention import fig5
from figures.carry import exhibits as carry
from figures.collection import MissingExhibit, collected
from figures.exhibit import Chart, MakesExhibits, one_chart, show
from figures.gallery import GALLERY_MODELS
from figures.map_figures import fig2, fig15
from figures.options import LargeMapOptions, Options

POINTS = 6.0
EXPERIMENTS = ("", "which_heads", "does_tuning_help", "does_the_gain_hold")
"""Those whose runs are made here or ship with the project."""
PRINTED: tuple[plotting.Width, ...] = ("column", "page")
pytestmark = pytest.mark.usefixtures("rough_intervals")


def text_sizes(part: Any, in_font: bool = False) -> Iterator[float]:
    """The sizes of all texts of a figure, in pixels."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "size" and in_font:
                yield from value if isinstance(value, (list, tuple)) else [value]
            elif not name.startswith("hover"):
                yield from text_sizes(value, name.endswith("font"))
    elif isinstance(part, (list, tuple)):
        for value in part:
            if isinstance(value, dict):
                yield from text_sizes(value)


def faults(chart: Chart, width: plotting.Width) -> list[str]:
    """What does not fit paper of this width."""
    layout = chart.figure.layout
    inches, high = layout.width / PER_INCH, layout.height / PER_INCH
    points = 72 * min(text_sizes(chart.figure.to_plotly_json())) / PER_INCH
    too_wide = [f"{chart.name}: {inches:.2f} in wide"] * (inches > INCHES[width] + 1e-6)
    too_high = [f"{chart.name}: {high:.2f} in high"] * (high > MOST_INCHES + 1e-6)
    return too_wide + too_high + [f"{chart.name}: text of {points:.1f} pt"] * (points < POINTS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a model; the others are those that ship with the project."""
    root = tmp_path_factory.mktemp("results")
    make_run(root, "reference")
    return root


@pytest.mark.parametrize("width", PRINTED)
def test_every_figure_with_a_run_fits_the_paper(root: Path, width: plotting.Width) -> None:
    charts: list[Chart] = []
    with plotting.drawn_for(width):
        for command in catalogue.exhibits().values():
            if command.other in EXPERIMENTS:
                parts = collected(command.load(), "reference", root, settings=RunSettings({}))
                if not isinstance(parts, MissingExhibit):
                    charts += [part for part in parts if isinstance(part, Chart)]
    assert {"fig2", "fig12", "fig15"} <= {chart.name for chart in charts}
    assert [fault for chart in charts for fault in faults(chart, width)] == []


GALLERY = Path(__file__).parents[2] / "figures" / "gallery"
INKS = {
    *(ink.lower() for ink in plotting.COLOURS.values()),
    *("white", "rgba(0,0,0,0)", "#fcfcfc", plotting.NOTE, plotting.PALE),
    plotting.tint(plotting.COLOURS["answer"], 0.4),
}
"""The dictionary of colours and greys, with a paler ink for the neighbours of C."""

IDENTIFIERS = r"\b(?:relative_logit|via_mlps|eap_ig|attn_lrp|ig_activations|digit_contrast)\b|<0x"
"""What a reader should not see."""


def inks(part: Any) -> Iterator[str]:
    """The colours of lines and marks in a figure's traces."""
    for trace in (one for one in part if one["type"] == "scatter"):
        for style in (trace.get("line") or {}, trace.get("marker") or {}):
            ink = style.get("color")
            for one in [ink] if isinstance(ink, str) else ink or ():
                if isinstance(one, str):
                    yield opaque(one.lower())


def opaque(ink: str) -> str:
    """A translucent colour as the one that it is a part of; without any ink, as it is."""
    parts = re.findall(r"[\d.]+", ink) if ink.startswith("rgba") else ["0"]
    return ink if float(parts[-1]) == 0 else "#{:02x}{:02x}{:02x}".format(*map(int, parts[:3]))


@pytest.mark.parametrize("width", PRINTED)
def test_every_picture_of_the_gallery_fits_and_keeps_the_rules(width: plotting.Width) -> None:
    """They are drawn from the shipped tables alone."""
    with plotting.drawn_for(width):
        charts = [*gallery.linked_charts(GALLERY.parents[1] / "docs", GALLERY)]
    assert {"fig12", "fig3", "fig5", "exam", "claims"} <= {chart.name for chart in charts}
    assert [fault for chart in charts for fault in faults(chart, width)] == []
    for chart in charts:
        drawn = chart.figure.to_plotly_json()
        notes = [one for one in drawn["layout"]["annotations"] if one.get("name") == "note"]
        assert len(notes) <= 3, chart.name
        texts = " ".join(str(one["text"]) for one in drawn["layout"]["annotations"])
        assert not re.findall(IDENTIFIERS, f"{texts} {chart.caption}"), chart.name
        assert chart.caption[0].isupper() and not chart.caption.startswith("Whether"), chart.name
        assert {*inks(drawn["data"])} <= INKS, chart.name


@pytest.mark.parametrize(("exhibits", "n_panels"), [(fig5, 4), (carry, 2)])
@pytest.mark.parametrize("models", [GALLERY_MODELS[:1], GALLERY_MODELS])
def test_a_column_shows_the_first_model_in_panels_that_it_has_room_for(
    exhibits: MakesExhibits, n_panels: int, models: tuple[str, ...]
) -> None:
    with plotting.drawn_for("column"):
        every = [one for name in models for one in exhibits(Options(model=name, root=GALLERY))]
        figure = one_chart([one for one in every if isinstance(one, Chart)]).figure
    layout = figure.to_plotly_json()["layout"]
    axes = [part for name, part in layout.items() if name.startswith("xaxis")]
    assert len(axes) == n_panels
    others = [one for one in layout["annotations"] if "reference-mistral" in one["text"]]
    assert [one.get("name") for one in others] == ["note"] * (len(models) - 1), "named below it"
    (note,) = [one for one in layout["annotations"] if one.get("name") == "note"][-1:]
    assert note["text"].endswith(".")
    in_a_row = len([axis for axis in axes if axis["domain"][0] > 0.5])
    assert in_a_row == (2 if exhibits is fig5 else 0)


def test_a_figure_of_a_screen_does_not_fit_a_column(root: Path) -> None:
    (chart,) = fig15(LargeMapOptions(model="reference", root=root))
    assert f"fig15: {chart.figure.layout.width / PER_INCH:.2f} in wide" in faults(chart, "column")


@pytest.mark.parametrize(("n", "width"), [(1, "column"), (2, "page"), (8, "column"), (20, "page")])
def test_charts_of_any_number_fit(n: int, width: plotting.Width) -> None:
    import numpy as np

    x = np.arange(9.0)
    part = plotting.CurvePanel("A long title of a chart", (plotting.Line(x, x, "a line"),))
    with plotting.drawn_for(width):
        figure = plotting.curve_panels([part] * n, x_title="x", across=4, panel=(300, 200))
    assert figure.layout.width <= INCHES[width] * PER_INCH + 1e-6
    assert figure.layout.height <= MOST_INCHES * PER_INCH
    assert min(text_sizes(figure.to_plotly_json())) >= POINTS * PER_INCH / 72


@pytest.mark.skipif(plotting.browser_path() is None, reason="no Chrome or Chromium to draw with")
def test_the_files_of_a_column_have_its_size_and_leave_those_of_the_screen(
    root: Path, tmp_path: Path
) -> None:
    show(fig2, Options(root=root, out=tmp_path, formats=("svg",), width="column"))
    (file,) = tmp_path.glob("*.svg")
    assert file.name.endswith("-column.svg")
    svg = file.read_text(encoding="utf-8")
    (inches,) = re.findall(r'<svg[^>]* width="([\d.]+)in"', svg)
    (box,) = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert float(inches) <= 3.3 and float(box[0]) / float(inches) == pytest.approx(120, rel=1e-2)
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)}
    assert min(sizes) * 72 / PER_INCH >= POINTS


def test_an_unknown_width_is_refused() -> None:
    poster: Any = "poster"
    refused = pytest.raises(Exception, match=r"column.*page.*screen")  # types are checked in tests
    with refused, plotting.drawn_for(poster):
        pass
