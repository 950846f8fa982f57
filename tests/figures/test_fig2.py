"""Figure 2 shows the run's numbers, opens without a network, and needs no model library."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.drawings import written
from support.fresh import FreshPython
from support.made_runs import OPERATIONS, MadePairs, make_effects, make_run

from arith_lens.components import Head
from arith_lens.effects import key_heads
from arith_lens.paper import PAPER_MODELS, paper_model
from arith_lens.runs import Run, load_run, open_run
from experiments import results
from figures import map_figures
from figures.common import chosen_run
from figures.exhibit import Chart, show
from figures.map_figures import fig2
from figures.options import Options
from figures.tables.table import from_csv, records, select, value
from figures.views import maps

pytestmark = pytest.mark.usefixtures("rough_intervals")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("results"), "reference")


def chart_of_run(run: Run) -> Chart:
    (chart,) = fig2(Options(run=run.path))
    return chart


def drawn_alone(run: Run, operation: str):
    table = select(chart_of_run(run).numbers, operation=operation)
    return map_figures._draw_operations(table, [], maps.EffectScale.of(run.config))


@pytest.fixture(scope="module")
def chart(run: Run) -> Chart:
    return chart_of_run(run)


@pytest.fixture(scope="module")
def drawn(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    show(fig2, Options(run=run.path, out=out, formats=()))
    return out


def test_the_panels_hold_the_means_in_percent(run: Run, chart: Chart) -> None:
    traces = [trace for trace in chart.figure.data if trace.type == "heatmap"]
    assert len(traces) == 2 * len(OPERATIONS)
    for index, operation in enumerate(OPERATIONS):
        effects = results.MAP.load(run, operation)
        heads, mlps = traces[2 * index], traces[2 * index + 1]
        assert np.allclose(heads.z, 100 * effects.heads.mean().numpy())
        assert np.allclose(mlps.z[:, 0], 100 * effects.mlps.mean().numpy())


def test_the_hover_holds_intervals_and_computed_pairs(run: Run, chart: Chart) -> None:
    trace = chart.figure.data[0]
    effects = results.MAP.load(run, "addition").heads
    low, high = 100 * effects.ci().numpy()
    assert np.allclose(trace.customdata[..., 1], low)
    assert np.allclose(trace.customdata[..., 2], high)
    assert np.allclose(trace.customdata[..., 3], 100 * effects.select(MadePairs.computed).mean())
    for place in ("%{y}.%{x}", "%{z:+.2f}%", "customdata[1]", "customdata[2]", "customdata[3]"):
        assert place in trace.hovertemplate


def test_key_heads_are_outlined_and_opposing_ones_are_not_called_key(
    chart: Chart, run: Run
) -> None:
    rows = select(chart.numbers, operation="addition")
    marks = maps.panel(rows, maps.EffectScale.of(run.config), "").marks
    strong = [Head(mark.row, mark.column) for mark in marks if mark.strong]
    assert strong == key_heads(results.MAP.load(run, "addition")) == [Head(4, 6), Head(5, 1)]
    assert [mark.text for mark in marks if not mark.strong] == ["7.2"]


def test_the_table_is_the_figure_in_numbers(run: Run, drawn: Path) -> None:
    table = from_csv(written(drawn, "fig2.csv").read_text())
    effects = select(table, measure="effect", operation=OPERATIONS)
    assert len(effects) == len(OPERATIONS) * (12 * 8 + 12)
    (row,) = records(select(effects, operation="division", component="4.6"))
    assert row.value == pytest.approx(
        results.MAP.load(run, "division").heads.mean()[4, 6].item(), rel=1e-5
    )
    assert row.low < row.value < row.high and row.n == 6


def test_outlines_and_the_counts_of_the_titles_are_rows(drawn: Path, chart: Chart) -> None:
    table = from_csv(written(drawn, "fig2.csv").read_text())
    of_addition = select(table, measure="effect", operation="addition")
    roles = {name: [*select(of_addition, role=name).component] for name in ("key", "opposing")}
    assert roles == {"key": ["4.6", "5.1"], "opposing": ["7.2"]}
    assert value(table, measure="key heads", operation="addition") == 2
    shared = {one.measure: one.value for one in records(select(table, operation=""))}
    assert (shared["key heads"], shared["heads"]) == (2, 96)
    layers = (shared["first layer with key heads"], shared["last layer with key heads"])
    assert layers == (4, 5)
    titles = [str(note.text) for note in chart.figure.layout.annotations]
    assert any(
        "Addition: 4.6, 5.1, n" in title or "Addition: 5.1, 4.6, n" in title for title in titles
    )
    assert value(table, measure="references", operation="division") == 18


def test_the_page_loads_nothing_from_elsewhere(drawn: Path) -> None:
    page = written(drawn, "fig2.html").read_text(encoding="utf-8")
    tags = re.findall(r"<(?:script|link|img|iframe|style)\b[^>]*>", page)
    assert len(tags) >= 2
    assert not [
        tag for tag in tags if re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", tag)
    ]
    assert "@import" not in page.split("<script", 1)[0]
    shared = re.findall(r'src="([^"]+)"', page)
    assert shared and all((drawn / one).stat().st_size > 1_000_000 for one in shared)


def test_a_models_name_is_text_not_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path, "<img src=x onerror=alert(1)>")
    text = chart_of_run(run).figure.to_json()
    assert "&lt;img" in text
    assert "<img" not in text.replace("\\u003c", "<")


def test_other_metrics_are_drawn_in_their_own_unit_without_key_heads(tmp_path: Path) -> None:
    run = make_run(tmp_path, "reference", metric="logit")
    figure = drawn_alone(run, "addition")
    assert np.allclose(figure.data[0].z, results.MAP.load(run, "addition").heads.mean())
    assert not any("key head" in note.text for note in figure.layout.annotations)


def test_the_papers_heads_stand_beside_those_of_its_models(tmp_path: Path) -> None:
    run = make_run(tmp_path, "meta-llama/Llama-2-7b-hf", 32, 32)
    figure = drawn_alone(run, "addition")
    dots = {(s.yanchor, s.xanchor) for s in figure.layout.shapes if s.type == "circle"}
    assert dots == {(head.layer, head.index) for head in PAPER_MODELS[0].key_heads}
    assert figure.layout.coloraxis.cmax == 40, "each map's scale"


def test_exponentiation_has_heads_of_its_own_in_the_paper(tmp_path: Path) -> None:
    config = {"paths": "via_mlps", "metric": "relative_logit", "seed": 7, "model": "llama-2-7b"}
    with open_run("which_heads", config, root=tmp_path) as run:
        effects = make_effects("exponentiation", 32, 32)
        results.MAP.save(run, effects, "exponentiation", pairs=MadePairs())
    figure = drawn_alone(run, "exponentiation")
    dots = {(s.yanchor, s.xanchor) for s in figure.layout.shapes if s.type == "circle"}
    assert dots == {(11, 8), (12, 22), (13, 11), (14, 2), (15, 15)}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-2-7b-hf", "LLaMA2-7B"),
        ("/models/llama-2-13b", "LLaMA2-13B"),
        ("mistralai/Mistral-7B-v0.1", "Mistral-7B"),
        ("meta-llama/Llama-2-7b-chat-hf", None),
        ("mistralai/Mistral-7B-Instruct-v0.2", None),
        ("reference-mistral", None),
        ("gpt2", None),
    ],
)
def test_the_papers_models_are_known_by_their_ids(name: str, found: str | None) -> None:
    model = paper_model(name)
    assert (model and model.name) == found


def test_the_run_of_the_model_is_drawn_and_a_missing_one_has_its_command(tmp_path: Path) -> None:
    run = make_run(tmp_path, "reference", seed=1)
    make_run(tmp_path, "another", seed=3)
    assert chosen_run(Options(root=tmp_path), "which_heads").path == run.path
    with pytest.raises(SystemExit, match=r"python -m experiments which_heads --model gpt2"):
        show(fig2, Options(model="gpt2", root=tmp_path))


def test_a_damaged_run_is_one_line(run: Run, tmp_path: Path) -> None:
    broken = make_run(tmp_path, "reference")
    (broken.folder(results.MAP.name("division")) / "result.safetensors").write_bytes(b"")
    with pytest.raises(SystemExit, match="damaged"):
        show(fig2, Options(run=load_run(broken.path).path, out=tmp_path, formats=()))


@pytest.mark.parametrize(("experiment", "found"), [("other", "one of other"), ("which_heads", "0")])
def test_a_run_with_nothing_to_draw_is_one_line(
    tmp_path: Path, experiment: str, found: str
) -> None:
    with open_run(experiment, {"model": "reference"}, root=tmp_path) as run:
        pass
    with pytest.raises(SystemExit, match=f"expected a run of which_heads.*found.*{found}"):
        show(fig2, Options(run=run.path, out=tmp_path, formats=()))


def test_drawing_imports_no_model_library(fresh_python: FreshPython) -> None:
    assert "figures.map_figures" in fresh_python.after["drawing"].modules
    assert not {"transformer_lens", "transformers"} & fresh_python.after["drawing"].modules


@pytest.mark.parametrize("method", ["write_text", "write_bytes"], ids=["the page", "the numbers"])
def test_a_full_disk_ends_the_drawing_with_a_message(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    before = {path: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    monkeypatch.setattr(Path, method, full)
    with pytest.raises(SystemExit) as ended:
        show(fig2, Options(run=run.path, out=tmp_path, formats=()))
    said = str(ended.value.code)
    assert said.startswith("which_heads-reference is not drawn: ") and "No space left" in said
    assert "The run is unharmed" in said and "another --out" in said
    assert not [*tmp_path.glob("*.csv"), *tmp_path.glob("*.partial")]
    assert {path: path.read_bytes() for path in before} == before
