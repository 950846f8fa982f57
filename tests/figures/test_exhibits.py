"""Words of an exhibit are the same for every model; its lines and marks are rows of its table."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from arith_lens.plotting import plain
from experiments.configs.shared import Metric
from figures import knockout, next_tokens, probes
from figures.exhibit import Chart, one_chart
from figures.options import ModelOptions, Options
from figures.views import maps

GALLERY = Path(__file__).parents[2] / "figures" / "gallery"
MODELS = ("reference", "reference-mistral")
CURVES = (knockout.fig3, probes.fig6)
MARKS = (next_tokens.fig4, next_tokens.fig9)


def drawn(make, model: str) -> Chart:
    chart, *_ = make(Options(model=model, root=GALLERY))
    return chart


def charts(make) -> list[Chart]:
    if make is probes.fig6:
        return [*probes.fig6(probes.OperationOptions(model=MODELS[1], root=GALLERY))]
    return [drawn(make, model) for model in MODELS]


@pytest.mark.parametrize("make", [*CURVES, *MARKS])
def test_words_are_the_same_for_every_model_and_fit_below_the_picture(make) -> None:
    parts = charts(make)
    assert len({(part.title, part.caption) for part in parts}) == 1
    for part in [*parts, one_chart(parts)]:
        lines = (note.text for note in part.figure.layout.annotations)
        assert plain(part.caption) in " ".join(filter(None, lines))


@pytest.mark.parametrize("make", [*CURVES, *MARKS])
def test_every_line_and_mark_is_a_row_with_its_interval(make) -> None:
    for part in charts(make):
        rows = part.numbers[["value", "low"]].to_numpy(float).ravel()  # a line of worst draws, too
        known = np.array([0, 10 / 96, *rows, *100 * rows])  # the levels of chance
        values = [one for trace in part.figure.data for one in numbers_of(trace) if one == one]
        assert values and all(np.isclose(known, one, atol=1e-9).any() for one in values)


def numbers_of(trace) -> list[float]:
    """The values of a line, or of marks; none of a band."""
    if trace.type != "scatter" or trace.fill:
        return []
    if trace.mode == "lines" and trace.hoverinfo == "skip":  # an outline
        return []
    values = trace.x if trace.mode == "markers" and len(trace.x) > 1 else trace.y
    return [*np.asarray([] if values is None else values, float)]


def test_a_curve_that_ends_early_has_its_name_beside_it() -> None:
    figure = drawn(knockout.fig3, MODELS[0]).figure
    names = [note for note in figure.layout.annotations if note.text == "greedy"]
    assert len(names) == 1


def test_figures_of_several_models_have_a_row_for_each() -> None:
    (chart,) = probes.fig13(ModelOptions(models=MODELS, root=GALLERY))
    texts = [str(note.text) for note in chart.figure.layout.annotations]
    assert [sum(text.endswith(model) for text in texts) for model in MODELS] == [1, 1]


def test_every_metric_has_a_title_of_its_colours() -> None:
    assert {*maps.COLOUR_TITLES} >= {*get_args(Metric)}
