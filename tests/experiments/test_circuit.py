"""Circuits from the command's configuration to a table, sentences and pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame
from support.drawings import unpacked

import arith_lens as al
from arith_lens.components import Head
from arith_lens.runs import find_runs
from experiments import results
from experiments.circuit import CircuitConfig, first_half, kept_sets, main, sampled_pairs
from figures.circuit import cited_rows, exhibits, strongest_paths
from figures.common import GALLERY
from figures.exhibit import show
from figures.options import Options
from figures.tables.table import from_csv, keys_of, select

KEYS = ["operation", "counterfactual", "metric"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of a trained model: the edges of a random one have no direction."""
    root = tmp_path_factory.mktemp("results")
    config = CircuitConfig(
        operations=("addition",),
        counterfactuals=("operands",),
        metrics=("digit_contrast",),
        drawn=27,
        heads=1,
        mlps=1,
        kept_on=4,
        controls=3,
    )
    main(config, root=root)
    (run,) = find_runs("circuit", root=root)
    return run


def written(folder: Path, name: str) -> Any:
    """The table of a name. The files' names end with the run's settings."""
    (path,) = (path for path in folder.glob(f"{name}-*.csv") if "-of-" not in path.name)
    return from_csv(path.read_text(encoding="utf-8"))


def test_the_table_has_the_numbers_of_the_stored_edges(run: Any, tmp_path: Path) -> None:
    show(exhibits, Options(run=run.path, out=tmp_path, formats=()))
    table = written(tmp_path, "circuit")
    assert keys_of(table, "metric") == ["digit_contrast"]
    edges = results.EDGES.load(run, "addition", "operands", "digit_contrast")
    labels, mean = edges.labels or {}, edges.mean()
    own: Any = select(table, kind="edge")
    assert len(own) > 5 and own["n"].nunique() == 1
    for row in own.itertuples():
        at = (
            labels["receiver"].index(row.receiver),
            labels["input"].index(row.input),
            labels["sender"].index(row.sender),
        )
        assert row.value == pytest.approx(float(mean[at]), rel=1e-4)
        assert row.low <= row.value <= row.high and row.low * row.high > 0
    by_role = results.EDGES_BY_ROLE.load(run, "addition", "operands", "digit_contrast")
    names, means = by_role.labels or {}, by_role.mean()
    parts: Any = select(table, kind="part")
    assert {"operand a", "operand b", "END"} <= {*parts["role"]} <= {*names["role"]}
    for row in parts.itertuples():
        at = tuple(names[one].index(getattr(row, one)) for one in by_role.axes)
        assert row.value == pytest.approx(float(means[at]), rel=1e-4)
    sizes = {name: of["value"].abs().sum() for name, of in parts.groupby("strongest")}
    assert 0.8 <= sizes["yes"] / (sizes["yes"] + sizes["no"]) < 0.9
    left: Any = select(table, measure="share of the metric that is left")
    ends = {name: set(of["value"].round(6)) for name, of in left.groupby("kept")}
    assert ends["nothing"] == {0.0} and ends["everything"] == {1.0}
    assert {*select(table, kept="random")["spread"]} == {"range of 3 random graphs"}
    scores: Any = select(table, kind="score", method="eap_ig", via="direct", measure="pearson")
    names = "addition", "operands", "digit_contrast"
    of_scores, exact = (
        stored.mean()[~stored.mean().isnan()].numpy()
        for stored in (
            results.EDGE_SCORES.load(run, *names, "eap_ig"),
            results.DIRECT_EDGES.load(run, *names),
        )
    )
    assert float(scores["value"].iloc[0]) == pytest.approx(
        np.corrcoef(of_scores, exact)[0, 1], abs=1e-4
    )
    (page,) = tmp_path.glob("circuit-of-addition*.html")
    assert "least effect" in unpacked(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", ["", "reference-mistral", "gemma-3-270m"])
def test_the_rows_that_pages_cite_are_those_of_the_whole_table(folder: str) -> None:
    tables: list[Any] = [
        from_csv((GALLERY / folder / name).read_text(encoding="utf-8"))
        for name in ("circuit.csv", "circuit_paths.csv")
    ]
    whole, cited = (table[table["operation"] != ""] for table in tables)
    made = cited_rows(whole)
    measured = {*whole[KEYS].itertuples(index=False, name=None)}
    is_own = [key in measured for key in cited[KEYS].itertuples(index=False, name=None)]
    own = cited[is_own]
    own = own[own["kind"] != "score"]
    names = [name for name in made if name in own]
    assert made[names].astype(str).to_dict("records") == own[names].astype(str).to_dict("records")
    assert {"edge", "graph", "input", "kept"} == {*made["kind"]} and len(made) < len(whole) / 5
    largest, of_receivers = (
        table[table["kind"] == "edge"].groupby([*KEYS, "receiver"])["value"].agg(_largest)
        for table in (whole, made)
    )
    assert largest.to_dict() == of_receivers.to_dict()


def _largest(values: Any) -> float:
    return float(values.abs().max())


def test_a_command_writes_the_rows_that_pages_cite(run: Any, tmp_path: Path) -> None:
    show(exhibits, Options(run=run.path, out=tmp_path, formats=()))
    whole, cited = (written(tmp_path, name) for name in ("circuit", "circuit_paths"))
    assert cited.equals(cited_rows(whole))
    assert {*cited[cited["kind"] == "score"]["measure"]} == {"pearson", "recall 50"}
    assert "role" not in cited and "nothing" not in {*cited["kept"]}


def test_a_path_is_who_reads_whom_with_its_effect() -> None:
    about = {"kind": "edge", "metric": "digit_contrast", "unit": "logit"}
    paths = [
        ("MLP 1", "2.1", "q", -0.01, -0.02, -0.005),
        ("0.1", "2.0", "k", -0.5, -0.75, -0.25),
        ("embeddings", "MLP 2", "mlp", 0.125, 0.0625, 0.25),
    ]
    names = ("sender", "receiver", "input", "value", "low", "high")
    table = DataFrame([about | dict(zip(names, path, strict=True)) for path in paths])
    assert strongest_paths(table)[:2] == [
        "2.0 k ← 0.1: −0.50 logits [−0.75, −0.25]",
        "MLP 2 ← embeddings: 0.12 logits [0.06, 0.25]",
    ]
    shares = table.assign(unit="relative", metric="relative_logit")
    assert strongest_paths(shares)[0] == "2.0 k ← 0.1: −50.00% [−75.00, −25.00]"


def test_boxes_have_the_plain_effect_and_the_share_of_right_answers_stands_beside() -> None:
    every = exhibits(Options(model="reference", root=GALLERY))
    picture: Any = next(one for one in every if one.name == "circuit-of-addition")
    rows: Any = select(picture.numbers, model="reference", counterfactual="operands")
    texts = {str(note.text) for note in picture.figure.layout.annotations}
    plain = select(rows, kind="node", measure="effect").set_index("sender")["value"]
    for name in ("5.5", "MLP 9", "MLP 10", "MLP 11"):
        number = f"{plain[name]:.2f}".replace("-", "−")
        gap = " " if "MLP" in name else "<br>"
        assert f"<b>{name}</b>{gap}{number}" in texts
    kept: Any = select(rows, kind="kept", positions="end", measure="accuracy").set_index("kept")
    graph, drawn = kept.loc["graph"], kept.loc["random"]
    interval = f"[{100 * graph.low:.0f}, {100 * graph.high:.0f}]"
    mean = f"{drawn.value:.0%}, {100 * drawn.low:.0f} to {drawn.high:.0%} in {drawn.n:.0f} draws"
    assert {f"<b>{graph.value:.0%} {interval} of {graph.n:.0f}</b>", mean} <= texts
    lines = " ".join(str(note.text) for note in picture.figure.layout.annotations)
    assert f"{graph.n:.0f} other problems" in lines.replace("<br>", " ")
    assert any("logits of C's lead" in text for text in texts)


def test_random_graphs_have_as_many_heads_in_each_layer_and_the_same_mlps() -> None:
    graph: list[Any] = [Head(0, 1), Head(2, 0), Head(2, 3), al.Mlp(1)]
    sets = kept_sets(graph, 3, 4, CircuitConfig(controls=20))
    assert sets["graph"] == graph and len(sets["everything"]) == 15 and sets["nothing"] == []
    drawn = [sets[f"random {i}"] for i in range(20)]
    assert all([one.layer for one in some] == [0, 2, 2, 1] for some in drawn)
    assert all(len({*some}) == 4 and some[-1] == al.Mlp(1) for some in drawn)
    assert len({tuple(map(str, some)) for some in drawn}) > 10


def test_graphs_are_chosen_on_other_problems_than_they_are_tested_on(run: Any) -> None:
    model = al.load_model(run.config["model"])
    config = CircuitConfig(**{k: v for k, v in run.config.items() if k != "pairs"})
    pairs = sampled_pairs(model, config, "addition", "operands", keep="all")
    chosen = {*(pairs[first_half(pairs, config.seed)].problem or ())}
    kept = results.KEPT.load(run, "addition", "operands", "digit_contrast", "end")
    edges = results.EDGES.load(run, "addition", "operands", "digit_contrast")
    assert kept.n_pairs == 4 and not chosen & {*(kept.problem or ())}
    assert chosen < {*(edges.problem or ())}
