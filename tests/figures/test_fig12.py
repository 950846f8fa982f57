"""Figure 12 shows models of different sizes on one colour scale."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.drawings import written
from support.made_runs import OPERATIONS, MadePairs, make_effects, make_run

from arith_lens.plotting import drawn_for
from arith_lens.plotting.style import TEXT
from arith_lens.runs import Run, open_run
from experiments import results
from figures.common import GALLERY
from figures.exhibit import Chart, show
from figures.map_figures import fig12
from figures.options import ModelOptions
from figures.tables.table import from_csv, keys_of, select, value

SIZES = {"small": (12, 8), "meta-llama/Llama-2-7b-hf": (32, 32), "wide": (8, 40)}


pytestmark = pytest.mark.usefixtures("rough_intervals")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    root = tmp_path_factory.mktemp("results")
    return [make_run(root, model, *size) for model, size in SIZES.items()]


def chart_of_runs(*runs: Run) -> Chart:
    (chart,) = fig12(ModelOptions(runs=tuple(run.path for run in runs)))
    return chart


@pytest.fixture(scope="module")
def drawn(runs: list[Run]) -> Any:
    """The figure of all runs."""
    return chart_of_runs(*runs).figure


def maps_of(figure) -> list:
    """The heads' traces, panel after panel."""
    return [trace for trace in figure.data if trace.type == "heatmap" and np.shape(trace.z)[1] > 1]


def test_each_row_is_a_model_with_its_own_layers_and_heads(runs: list[Run], drawn: Any) -> None:
    traces = maps_of(drawn)
    shapes = [np.shape(trace.z) for trace in traces]
    assert shapes == [s for s in SIZES.values() for _ in OPERATIONS]
    for index, run in enumerate(runs):
        for column, operation in enumerate(OPERATIONS):
            means = results.MAP.load(run, operation).heads.mean().numpy()
            assert np.allclose(traces[4 * index + column].z, 100 * means)


def test_a_colour_means_the_same_in_every_row(runs: list[Run]) -> None:
    figure = chart_of_runs(runs[0], runs[2]).figure
    cells = [trace for trace in figure.data if trace.type == "heatmap"]
    assert {trace.coloraxis for trace in cells} == {"coloraxis"}
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-40, 40)
    large_effects = sum(
        int((100 * part.mean().abs() > 15).sum())
        for run in (runs[0], runs[2])
        for name in results.MAP.labels(run)
        for part in (results.MAP.load(run, name).heads, results.MAP.load(run, name).mlps)
    )
    printed = [text for trace in figure.data if trace.type == "scatter" for text in trace.text]
    numbers = [re.sub("</?b>", "", text).replace("−", "-") for text in printed if text]
    large = [number for number in numbers if abs(int(number)) >= 15]
    assert len(large) >= large_effects > 0


def test_a_model_of_the_paper_brings_its_heads(drawn: Any) -> None:
    dots = {shape.xref for shape in drawn.layout.shapes if shape.type == "circle"}
    assert dots == {"x5", "x6", "x7", "x8"}


def test_panels_stand_apart_and_on_the_page(runs: list[Run], drawn: Any) -> None:
    layout = drawn.layout
    boxes = []
    for index in range(len(runs) * len(OPERATIONS)):
        suffix = str(index + 1) if index else ""
        boxes.append((*layout[f"xaxis{suffix}"].domain, *layout[f"yaxis{suffix}"].domain))
    for i, (left, right, bottom, top) in enumerate(boxes):
        assert 0 <= left < right <= 1
        assert 0 <= bottom < top <= 1
        for other in boxes[:i]:
            assert right <= other[0] or other[1] <= left or top <= other[2] or other[3] <= bottom


def test_the_models_are_named_above_their_rows(drawn: Any) -> None:
    layout = drawn.layout
    heights = []
    for index, model in enumerate(SIZES):
        (note,) = [note for note in layout.annotations if str(note.text).endswith(model)]
        suffix = str(4 * index + 1) if index else ""
        assert note.y > layout[f"yaxis{suffix}"].domain[1]
        heights.append(note.y)
    assert heights == sorted(heights, reverse=True)


def test_each_map_names_its_heads_once_and_prints_no_number_within_one() -> None:
    models = ("reference", "reference-mistral")
    (chart,) = fig12(ModelOptions(models=models, root=GALLERY))
    titles = [str(note.text).partition("  ")[2] for note in chart.figure.layout.annotations]
    rows: Any = select(chart.numbers, measure="effect")
    for model, name in product(models, OPERATIONS):
        of = select(rows, model=model, operation=name)
        keys = ", ".join(select(of, role="key").sort_values("value").component) or "0 key heads"
        assert any(f"{name.capitalize()}: {keys}, n = {of['n'].max():.0f}" in t for t in titles)
    assert any("Division: 0 key heads" in title for title in titles)
    printed = {
        text for trace in chart.figure.data if trace.type == "scatter" for text in trace.text
    }
    assert not any(note.bgcolor for note in chart.figure.layout.annotations), "covers a cell"
    assert "−2" in printed and not {"−1", "+1"} & printed


def test_an_mlp_is_bold_below_the_threshold_and_has_no_frame_that_covers_its_number() -> None:
    (chart,) = fig12(ModelOptions(models=("reference",), root=GALLERY))
    measures = ("effect", "effect, norm held")
    rows: Any = select(chart.numbers, model="reference", measure=measures)
    mlps = rows[rows.component.str.startswith("MLP") & rows.operation.isin(OPERATIONS)]
    printed = [
        text for trace in chart.figure.data if trace.type == "scatter" for text in trace.text
    ]
    assert sum(text.startswith("<b>") for text in printed) == (mlps.high < -0.05).sum() > 10
    frames = [one for one in chart.figure.layout.shapes if one.line.color == TEXT]
    assert len(frames) == (select(rows, operation=OPERATIONS).role == "key").sum()
    assert {one.xref for one in frames} == {"paper"}, "no axis cuts"


def test_a_phone_names_the_model_that_it_has_no_room_for() -> None:
    with drawn_for("phone"):
        (chart,) = fig12(ModelOptions(models=("reference", "reference-mistral"), root=GALLERY))
    texts = [str(note.text) for note in chart.figure.layout.annotations]
    assert any("wide page: reference-mistral" in text for text in texts)


def test_the_table_names_the_model_of_each_row(runs: list[Run], tmp_path: Path) -> None:
    paths = tuple(run.path for run in runs)
    show(fig12, ModelOptions(runs=paths, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig12.csv").read_text())
    for run, (n_layers, n_heads) in zip(runs, SIZES.values(), strict=True):
        of_model = select(table, model=run.config["model"])
        part = select(of_model, measure="effect", operation=OPERATIONS)
        assert len(part) == len(OPERATIONS) * n_layers * (n_heads + 1)
        assert value(part, operation="division", component="4.6") == pytest.approx(
            results.MAP.load(run, "division").heads.mean()[4, 6].item(), rel=1e-5
        )
        assert value(of_model, measure="heads", operation="") == n_layers * n_heads
    assert written(tmp_path, "fig12.html").stat().st_size > 100_000


def test_an_operation_that_a_model_lacks_is_left_empty(tmp_path: Path, runs: list[Run]) -> None:
    config = dict(runs[0].config) | {"model": "one"}
    with open_run("which_heads", config, root=tmp_path) as run:
        results.MAP.save(run, make_effects("subtraction", 12, 8), "subtraction", pairs=MadePairs())
    lacking = chart_of_runs(runs[0], run)
    figure = lacking.figure
    assert len(maps_of(figure)) == len(OPERATIONS) + 1
    assert maps_of(figure)[-1].xaxis == "x6"


def test_every_missing_run_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    make_run(tmp_path, "reference")
    with pytest.raises(SystemExit) as error:
        show(fig12, ModelOptions(models=("gpt2", "reference", "other"), root=tmp_path))
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    for line, model in zip(lines, ("gpt2", "other"), strict=True):
        assert line.endswith(f" experiments which_heads --model {model} --root {tmp_path}")


def test_runs_measured_in_different_ways_are_not_compared(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "a"), make_run(tmp_path, "b", paths="direct")]
    with pytest.raises(SystemExit, match=r"one paths, found .*direct"):
        show(fig12, ModelOptions(runs=tuple(run.path for run in runs), out=tmp_path))


def test_two_runs_of_one_model_stay_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "a", seed=seed) for seed in (0, 1)]
    names = [f"a ({run.path.name})" for run in runs]
    chart = chart_of_runs(*runs)
    assert keys_of(chart.numbers, "model") == names
    texts = [note.text for note in chart.figure.layout.annotations]
    assert all(any(text.endswith(name) for text in map(str, texts)) for name in names)


def test_the_caption_speaks_of_dots_only_where_the_paper_names_heads(runs: list[Run]) -> None:
    small, named, _ = runs
    assert "Dots: heads that the paper names." in chart_of_runs(small, named).caption
    assert "Dots" not in chart_of_runs(small).caption
