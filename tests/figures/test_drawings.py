"""Figures 1 and 11 are drawn without a run: what they say is what the library does."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from arith_lens import plotting
from experiments.questions import exhibit_entries
from figures import drawings
from figures.collection import name_of
from figures.common import DrawingOptions
from figures.drawings import fig1, fig11
from figures.exhibit import show
from figures.views.maps import PATHS_NOTES as NAMES


@pytest.mark.parametrize("figure", [fig1, fig11])
def test_a_drawing_needs_no_run_and_fits_on_a_page(figure, tmp_path: Path) -> None:
    show(figure, DrawingOptions(out=tmp_path, formats=()))
    name = name_of(figure)
    assert (tmp_path / f"{name}.html").is_file() and (tmp_path / f"{name}.csv").is_file()
    (chart,) = figure(DrawingOptions())
    assert chart.runs == () and chart.figure.layout.width <= 828


def test_figure_11_shows_what_each_setting_holds() -> None:
    (chart,) = fig11(DrawingOptions())
    table: Any = chart.numbers
    assert set(table["paths"]) == {*NAMES, ""}
    prompts = dict(zip(table["text"], table["answer"], strict=True))
    assert prompts["3 plus 5 equals to ␣"] == "C = 8"
    assert prompts["3 none 5 equals to ␣"] == "no calculation"
    keys = zip(table["paths"], table["component"], strict=True)
    state = dict(zip(keys, table["state"], strict=True))
    assert {state[paths, "1.1"] for paths in NAMES} == {"patched"}
    assert {state[paths, c] for paths in NAMES for c in ("0.0", "MLP 0", "1.0")} == {"unchanged"}
    later = {
        paths: (state[paths, "MLP 1"], state[paths, "2.0"], state[paths, "MLP 2"])
        for paths in NAMES
    }
    assert later == {
        "direct": ("held", "held", "held"),
        "via_mlps": ("recomputed", "held", "recomputed"),
        "total": ("recomputed", "recomputed", "recomputed"),
    }


def test_figure_11_colours_are_those_of_its_table() -> None:
    (chart,) = fig11(DrawingOptions())
    layout = chart.figure.layout
    fills = [shape.fillcolor for shape in layout.shapes if shape.type == "rect"]
    held = chart.numbers["state"].tolist().count("held")
    assert fills.count(drawings.STATE_COLOURS["held"]) == held + 1, "and once in the key"
    texts = [note.text for note in layout.annotations]
    assert {"plus", "none", "→ C = 8"} <= {*texts}
    assert drawings.STATE_COLOURS["patched"] == plotting.RED


def test_figure_1_names_commands_of_the_makefile() -> None:
    targets = {entry.target for _, entry in exhibit_entries().values() if entry.options}
    (chart,) = fig1(DrawingOptions())
    for commands in pd.Series(chart.numbers["commands"]):
        for target in commands.removeprefix("make ").split():
            assert target in targets
