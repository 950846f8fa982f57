"""Figure 15 prints every number in its cell."""

from pathlib import Path

import numpy as np
import pytest
from support.drawings import written
from support.made_runs import OPERATIONS, make_run

from arith_lens.runs import Run
from experiments import results
from figures import map_figures
from figures.exhibit import show
from figures.map_figures import LargeMapOptions, fig15
from figures.tables.table import from_csv, keys_of, records, select, value

pytestmark = pytest.mark.usefixtures("rough_intervals")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("results"), "llama-2-13b", 40, 40)


def drawn(run: Run, operation: str):
    (chart,) = fig15(LargeMapOptions(run=run.path, operation=operation))
    return chart.figure


def means(run: Run) -> np.ndarray:
    """[operation layer head], in percent."""
    return 100 * np.stack(
        [results.MAP.load(run, name).heads.mean().numpy() for name in results.MAP.labels(run)]
    )


def printed(figure) -> dict[tuple[float, float], str]:
    """The texts by (layer, column); MLPs stand right of the heads."""
    (trace,) = [trace for trace in figure.data if trace.type == "scatter"]
    return {(y, x): t for x, y, t in zip(trace.x, trace.y, trace.text, strict=True)}


def test_every_cell_holds_its_number(run: Run) -> None:
    texts = printed(drawn(run, "addition"))
    heads = means(run)[0]
    assert len(texts) == 40 * 40 + 40
    for (layer, head), effect in np.ndenumerate(heads):
        shown = texts[layer, head].split("<br>")[-1].replace("−", "-")
        assert float(shown) == pytest.approx(effect, abs=0.0501)
    mlps = 100 * results.MAP.load(run, "addition").mlps.mean().numpy()
    bars = [text for (_, column), text in sorted(texts.items()) if column > 39.5]
    assert [float(t.replace("−", "-")) for t in bars] == pytest.approx(mlps, abs=0.0501)


def test_every_outlined_head_is_named_in_its_cell(run: Run) -> None:
    texts = printed(drawn(run, "addition"))
    named = {place for place, text in texts.items() if "<br>" in text}
    assert named == {(4, 6), (5, 1), (7, 2)}
    assert texts[4, 6].startswith("<b>4.6</b><br>−1")


def test_the_mean_counts_each_operation_the_same_and_the_hover_tells_them_apart(run: Run) -> None:
    trace = drawn(run, "mean").data[0]
    assert np.allclose(trace.z, means(run).mean(axis=0))
    assert np.allclose(trace.customdata, np.moveaxis(means(run), 0, -1))
    for index, operation in enumerate(OPERATIONS):
        assert f"{operation}: %{{customdata[{index}]" in trace.hovertemplate


def test_each_operation_has_a_map_of_its_own(run: Run) -> None:
    figure = drawn(run, "all")
    maps = [trace for trace in figure.data if trace.type == "heatmap" and np.shape(trace.z)[1] > 1]
    assert np.allclose([trace.z for trace in maps], means(run))
    assert figure.layout.coloraxis.cmax == 40


def test_one_operations_hover_holds_its_interval(run: Run) -> None:
    trace = drawn(run, "division").data[0]
    low, high = 100 * results.MAP.load(run, "division").heads.ci().numpy()
    assert np.allclose(trace.customdata[..., 1], low)
    assert np.allclose(trace.customdata[..., 2], high)
    assert "95%" in trace.hovertemplate


@pytest.mark.parametrize("size", [(40, 40), (32, 32), (12, 8), (4, 64)])
def test_texts_fit_into_their_cells(tmp_path: Path, size: tuple[int, int]) -> None:
    n_layers, n_heads = max(size[0], 8), size[1]
    figure = drawn(make_run(tmp_path, "reference", n_layers, n_heads), "mean")
    layout = figure.layout
    (left, right), (bottom, top) = layout.xaxis.domain, layout.yaxis.domain
    columns = layout.xaxis.range[1] - layout.xaxis.range[0]
    width = (right - left) * layout.width / columns
    height = (top - bottom) * layout.height / n_layers
    lines = [
        text.replace("<b>", "").replace("</b>", "").split("<br>")
        for text in printed(figure).values()
    ]
    assert max(len(line) for text in lines for line in text) * 10 * 0.56 <= width
    assert max(map(len, lines)) * 10 * 1.3 <= height + 1e-6
    assert len(layout.yaxis.tickvals) == n_layers


def test_numbers_of_other_metrics_keep_digits_that_tell(tmp_path: Path) -> None:
    run = make_run(tmp_path, "reference", metric="probability")
    texts = printed(drawn(run, "addition"))
    effect = results.MAP.load(run, "addition").heads.mean()[4, 6].item()
    assert float(texts[4, 6].replace("−", "-")) == pytest.approx(effect, abs=0.0006)
    assert not any("<b>" in text for text in texts.values())


@pytest.mark.parametrize(
    ("limit", "digits"), [(100, 1), (15, 1), (5, 2), (1, 2), (0.2, 3), (0.001, 4)]
)
def test_the_smaller_the_scale_the_more_digits(limit: float, digits: int) -> None:
    assert map_figures._digits(limit) == digits


def test_the_table_holds_the_mean_and_each_operation(run: Run, tmp_path: Path) -> None:
    show(fig15, LargeMapOptions(run=run.path, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig15.csv").read_text())
    assert keys_of(table, "operation") == [*OPERATIONS, "mean"]
    cell = records(select(table, measure="effect", component="4.6"))
    by_operation = {one.operation: one.value for one in cell}
    mean = by_operation.pop("mean")
    assert mean == pytest.approx(sum(by_operation.values()) / len(OPERATIONS), rel=1e-5)
    near = value(table, measure="heads within 1% of zero", operation="addition")
    assert near == pytest.approx((np.abs(means(run)[0]) < 1).mean())


def test_an_operation_that_is_not_there_is_named_with_the_command(run: Run, tmp_path: Path) -> None:
    options = LargeMapOptions(run=run.path, out=tmp_path, operation="exponentiation")
    with pytest.raises(SystemExit, match=r"which_heads --model llama-2-13b --operations exponent"):
        show(fig15, options)
