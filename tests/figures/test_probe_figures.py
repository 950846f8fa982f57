"""From the probes' experiment to Figures 6, 13 and 14, on a small scale."""

from pathlib import Path

import numpy as np
import pytest
from support.drawings import unpacked, written

from arith_lens.plotting.page import with_notes
from arith_lens.runs import find_runs, load_run
from experiments import results
from experiments.mlps import what_do_mlps_add
from figures import probes
from figures.exhibit import Chart, show
from figures.options import ModelOptions
from figures.tables import probes as probe_numbers
from figures.tables.table import from_csv, read_back, records, select, value


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    for model in ("reference", "reference-mistral"):
        config = what_do_mlps_add.config(model=model, operations=("addition",), n=27)
        what_do_mlps_add(config, root=root)
    return root


def test_the_report_says_where_curves_turn_and_who_wins(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = find_runs("what_do_mlps_add", model="reference", root=root)
    what_do_mlps_add.report(load_run(run.path))
    said = capsys.readouterr().out
    assert "27 pairs, 27 distinct" in said
    assert "MLP_in: A and B" in said and "write: C " in said
    last = next(line for line in said.splitlines() if line.strip().startswith("11 "))
    assert last.split()[1] == "100%"


def test_figure_6_shows_the_probes_and_one_prompt(root: Path, tmp_path: Path) -> None:
    show(probes.fig6, probes.OperationOptions(root=root, out=tmp_path, formats=()))
    table = from_csv(written(tmp_path, "fig6.csv").read_text(encoding="utf-8"))
    cosines = select(table, measure="cosine", less="")
    assert {*cosines.site} == {"mlp_in", "write"} and {*cosines.layer} == {*range(12)}
    last = select(cosines, site="write", layer=11)
    assert value(last, token="C") > value(last, token="others without C") + 0.3
    page = unpacked(written(tmp_path, "fig6.html").read_text(encoding="utf-8"))
    (run,) = find_runs("what_do_mlps_add", model="reference", root=root)
    case = results.DIGIT_COSINES.facts(run, "addition")["case"]
    assert case["text"].strip() in page and case["a"] + case["b"] == case["c"]
    assert [value(table, measure=name) for name in "ABC"] == [case[name] for name in "abc"]
    cells = select(table, measure="cosine in one prompt", prompt=case["text"])
    stored = results.DIGIT_COSINES.load(run, "addition").per_pair[..., case["pair"]]
    assert cells.value.tolist() == pytest.approx(stored.flatten().tolist(), abs=1e-5)


def test_the_colour_bar_is_as_high_as_its_grid_with_and_without_small_print(root: Path) -> None:
    (chart,) = probes.fig6(probes.OperationOptions(root=root))
    for figure in (chart.figure, with_notes(chart.figure, [])):
        (low, high), layout = figure.layout.yaxis3.domain, figure.layout
        bar = layout.coloraxis.colorbar
        assert (bar.y, bar.yanchor, bar.lenmode) == (pytest.approx(low), "bottom", "pixels")
        assert bar.len == pytest.approx((high - low) * layout.height)


def test_what_mlps_read_and_write_has_one_scale_and_one_look_of_c(root: Path) -> None:
    (chart,) = probes.fig6(probes.OperationOptions(root=root))
    layout, lines = chart.figure.layout, [one for one in chart.figure.data if one.name == "C"]
    assert layout.yaxis.range == layout.yaxis2.range
    assert len(lines) == 2 and lines[0].line == lines[1].line


def test_turning_layers_winners_and_chance_are_rows(root: Path) -> None:
    (run,) = find_runs("what_do_mlps_add", model="reference", root=root)
    table = read_back(probe_numbers.table(run))
    (end,) = records(select(table, measure="end", site="write", less=""))
    assert (end.token, end.value, end.low, end.high) == ("C", 11, 11, 11)
    apart = np.array(results.WINNERS.facts(run, "addition")["distinct_classes"])
    assert value(table, measure=probe_numbers.DISTINCT) == apart.sum()
    won = select(table, measure="share of pairs whose largest cosine is of this class")
    assert value(won, layer=11, digit_class="C") == 1
    assert won.groupby("layer").value.sum().tolist() == pytest.approx([1] * 12, abs=1e-5)
    by_chance = select(table, measure="share of the ten digits")
    assert value(by_chance, digit_class="C") == pytest.approx(0.1)


def test_figures_13_and_14_set_models_side_by_side(root: Path, tmp_path: Path) -> None:
    options = ModelOptions(root=root, out=tmp_path, formats=())
    show(probes.fig13, options)
    table = from_csv(written(tmp_path, "fig13.csv").read_text(encoding="utf-8"))
    assert {*table["model"]} == {"reference", "reference-mistral"}
    points = select(table, measure=("start", "inflection", "end"))
    assert len(points) == 2 * 2 * 2 * 3
    (chart,) = probes.fig13(options)
    assert isinstance(chart, Chart)
    layout = chart.figure.layout
    ranges = {tuple(layout[name].range) for name in ("yaxis", "yaxis2")}
    assert len(ranges) == 1
    drawn = next(trace for trace in chart.figure.data if trace.name == "writes C")
    part = select(table, model="reference", operation="addition", measure="cosine", site="write")
    plain, of_others = (
        select(part, token=token, less="").value.to_numpy() for token in ("C", "others without C")
    )
    assert drawn.y == pytest.approx(plain - of_others, abs=1e-5)
    less = select(part, token="C", less="others without C").value.tolist()
    assert drawn.y.tolist() == less
    texts = [note.text for note in layout.annotations]
    assert f"writes C {less[-1]:.2f}" in texts and sum("writes C" in one for one in texts) == 2, (
        "named once"
    )
    read = next(trace for trace in chart.figure.data if trace.name == "reads C")
    rows = select(table, model="reference", operation="addition", measure="cosine", site="mlp_in")
    above = select(rows, token="C", less="others without C").value.tolist()
    assert read.y.tolist() == above
    assert above[-1] > select(rows, token="A and B", less="others without A, B, C").value.iloc[-1]


def test_a_missing_run_is_named_with_its_command(root: Path, tmp_path: Path) -> None:
    options = ModelOptions(models=("reference", "gpt2"), root=root, out=tmp_path)
    with pytest.raises(SystemExit, match="python -m experiments what_do_mlps_add --model gpt2"):
        show(probes.fig13, options)
    wrong = probes.OperationOptions(root=root, out=tmp_path, operation="division")
    with pytest.raises(SystemExit, match="expected one of addition, found 'division'"):
        show(probes.fig6, wrong)


def test_a_plan_computes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = what_do_mlps_add.config(operations=("division",), n=23)
    what_do_mlps_add(config, root=tmp_path, dry_run=True)
    assert "23 prompts, seven" in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]
