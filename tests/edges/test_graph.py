"""The circuit as a graph: which edges it has, its files, its picture."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import make_pairs
from pandas import DataFrame

import arith_lens as al
from arith_lens.edges import EMBEDDINGS, CircuitGraph, circuit_graph
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.knockout import CircuitFile
from arith_lens.plotting import Box, drawn_for
from arith_lens.plotting.circuit import CircuitPanel, draw_circuits
from arith_lens.plotting.labels import square

N = 40


def made(means: dict[tuple[str, str, str], float], spread: float = 0.01) -> Effects:
    """Edges of a model with two layers of two heads: normal effects around given means."""
    receivers, inputs = ("1.0", "MLP 1"), ("q", "k", "v", "mlp")
    senders = (EMBEDDINGS, "0.0", "0.1", "1.0", "1.1", "MLP 0", "MLP 1")
    values = torch.full((2, 4, len(senders), N), float("nan"))
    noise = torch.randn(N, generator=torch.Generator().manual_seed(0))
    noise = spread * (noise - noise.mean()) / noise.std()
    for (sender, receiver, name), mean in means.items():
        at = receivers.index(receiver), inputs.index(name), senders.index(sender)
        values[at] = mean + noise
    labels = {"receiver": receivers, "input": inputs, "sender": senders}
    return Effects(values, ("receiver", "input", "sender"), "logit", labels=labels)


def node_effects() -> ComponentEffects:
    heads = torch.arange(4.0).view(2, 2, 1).expand(2, 2, N) / 10 - 0.35
    mlps = torch.tensor([[-0.5], [0.25]]).expand(2, N)
    return ComponentEffects(
        Effects(heads, ("layer", "head"), "logit"),
        Effects(mlps, ("layer",), "logit"),
        logit=torch.ones(N),
    )


STRONG = {
    (EMBEDDINGS, "1.0", "v"): -0.5,
    ("MLP 0", "1.0", "k"): 0.2,
    ("1.0", "MLP 1", "mlp"): -0.3,
}
WEAK = {("0.0", "1.0", "q"): 0.0001, ("0.1", "MLP 1", "mlp"): -0.0001}


@pytest.fixture
def graph() -> CircuitGraph:
    return circuit_graph(made(STRONG | WEAK), node_effects())


def edges_of(graph: CircuitGraph) -> dict[tuple[str, str, str], float]:
    rows: Any = graph.edges
    return {(r.sender, r.receiver, r.input): r.mean for r in rows.itertuples()}


def test_edges_are_those_whose_interval_excludes_zero(graph: CircuitGraph) -> None:
    assert edges_of(graph) == pytest.approx(STRONG, abs=1e-6)
    assert graph.n_tested == len(STRONG | WEAK)
    assert graph.expected_by_chance == pytest.approx(0.05 * 5)
    rows: Any = graph.edges
    assert all(row.low <= row.mean <= row.high and row.n == N for row in rows.itertuples())
    nodes: Any = graph.nodes.set_index("node")
    assert {*nodes.index} == {EMBEDDINGS, "MLP 0", "1.0", "MLP 1"}
    assert nodes["mean"]["1.0"] == pytest.approx(-0.15)
    assert nodes["mean"]["MLP 1"] == pytest.approx(0.25)
    assert math.isnan(nodes["mean"][EMBEDDINGS])
    assert [str(one) for one in graph.components] == ["1.0", "MLP 0", "MLP 1"]


def test_every_number_of_a_graph_is_at_its_level_and_over_problems() -> None:
    """Each problem in two wordings; half of a component's effect is with the norm held."""
    units: dict[str, Any] = {
        "template": tuple(f"addition/{i % 2}" for i in range(N)),
        "problem": tuple(f"{i // 2} + 1" for i in range(N)),
    }
    edges = replace(made(STRONG | WEAK, spread=0.4), **units)
    parts = node_effects()
    noise = torch.randn(N, generator=torch.Generator().manual_seed(1))
    values = (parts.heads.per_pair + noise, parts.mlps.per_pair + noise)
    heads, mlps = (
        replace(part, per_pair=value, held_norm=value / 2, **units)
        for part, value in zip((parts.heads, parts.mlps), values, strict=True)
    )
    graph = circuit_graph(edges, replace(parts, heads=heads, mlps=mlps), level=0.5)
    assert graph.expected_by_chance == pytest.approx(0.5 * 5)
    (low, high), labels = edges.ci(0.5), edges.labels or {}
    rows: list[Any] = [*graph.edges.itertuples()]
    assert rows and {row.n for row in rows} == {N // 2}
    for row in rows:
        names = {"receiver": row.receiver, "input": row.input, "sender": row.sender}
        at = tuple(labels[axis].index(name) for axis, name in names.items())
        assert (row.low, row.high) == pytest.approx((float(low[at]), float(high[at])))
    nodes: Any = graph.nodes.set_index("node").drop(EMBEDDINGS)
    assert {*nodes["n"]} == {N // 2}
    (low, high), held = heads.ci(0.5)[:, 1, 0], heads.without_norm_scale().ci(0.5)[:, 1, 0]
    own = nodes.loc["1.0"]
    assert (own["low"], own["high"]) == pytest.approx((float(low), float(high)))
    assert (own["held_low"], own["held_high"]) == pytest.approx(held.tolist())
    assert own["mean"] == pytest.approx(2 * own["held"]) != 0


def test_the_smallest_graph_has_the_largest_edges_up_to_a_share(graph: CircuitGraph) -> None:
    by_size = sorted(STRONG, key=lambda edge: -abs(STRONG[edge]))
    for share, n in ((0.4, 1), (0.6, 2), (0.7, 2), (0.9, 3), (1.0, 3)):
        assert {*edges_of(graph.strongest(share))} == {*by_size[:n]}, share
    with pytest.raises(ValueError, match="found 0"):
        graph.strongest(0.0)


def test_files_of_other_tools_are_read_back(graph: CircuitGraph, tmp_path: Path) -> None:
    circuit = CircuitFile.load(graph.to_mib(d_model=8).save(tmp_path / "mib.json"))
    inside = {name: edge.score for name, edge in circuit.edges.items()}
    assert inside["input->a1.h0<v>"] == pytest.approx(0.5)
    assert inside["m0->a1.h0<k>"] == pytest.approx(-0.2)
    assert inside["a1.h0->m1"] == pytest.approx(0.3)
    assert inside["a1.h0->logits"] == pytest.approx(0.15)
    assert {str(one) for one in circuit.components} == {"1.0", "MLP 0", "MLP 1"}
    graph.to_neuronpedia(tmp_path / "graph.json", slug="test")
    content = json.loads((tmp_path / "graph.json").read_text())
    nodes = {node["node_id"]: node for node in content["nodes"]}
    assert {*nodes} == {EMBEDDINGS, "MLP 0", "1.0", "MLP 1", "logits"}
    assert nodes["logits"]["is_target_logit"] and nodes["1.0"]["layer"] == "1"
    links = {(link["source"], link["target"]): link["weight"] for link in content["links"]}
    assert links[EMBEDDINGS, "1.0"] == pytest.approx(-0.5)
    assert links["MLP 1", "logits"] == pytest.approx(0.25)
    assert all({*pair} <= {*nodes} for pair in links)
    assert "(p=" in nodes["logits"]["clerp"], "else the viewer does not open the file"
    places = [(node["layer"], node["feature"], node["ctx_idx"]) for node in nodes.values()]
    assert len({*places}) == len(places), "the viewer tells parts apart by these"


def test_a_line_is_as_wide_as_its_edge(graph: CircuitGraph) -> None:
    figure = graph.figure(title="Addition")
    curves = [shape for shape in figure.layout.shapes if shape.type == "path"]
    widths = sorted(curve.line.width for curve in curves)
    assert len(widths) == 3 and widths[-1] == 9.0
    assert widths[0] == pytest.approx(0.8 + 8.2 * 0.2 / 0.5)
    assert {curve.line.dash for curve in curves} == {"solid", "dash"}
    texts = " ".join(str(note.text) for note in figure.layout.annotations)
    assert "Addition" in texts and "answer C" in texts
    assert all(f"<b>{number}</b>" in texts for number in ("−0.5", "+0.2", "−0.3"))
    shown = [text for trace in figure.data if trace.name == "edge" for text in trace.text]
    assert any(text.startswith("<b>embeddings → 1.0 by v</b> −0.5 [−0.5") for text in shown)
    panel = CircuitPanel(graph.nodes, graph.edges)
    columns = draw_circuits([panel, panel], graph.n_layers, relative=False)
    of_text = [note.font.size for note in columns.layout.annotations if note.text]
    assert min(of_text) * 3.3 * 72 * 2 / columns.layout.width >= 6.5, "points at a column's width"


def test_a_line_begins_above_the_tokens_at_which_its_sender_writes(graph: CircuitGraph) -> None:
    roles = {EMBEDDINGS: "operand b", "MLP 0": "operand a", "1.0": "END"}
    edges: Any = graph.edges
    edges = edges.assign(role=[roles[name] for name in edges["sender"]])
    nodes: Any = graph.nodes
    nodes = nodes[nodes["node"].isin(["1.0", "MLP 1"])]
    panel = CircuitPanel(nodes, edges, roles=("operand a", "operand b"))
    figure = draw_circuits([panel], graph.n_layers, relative=False)
    texts = {str(note.text): note.x * figure.layout.width for note in figure.layout.annotations}
    starts = {
        shape.name: float(shape.path.split()[1].partition(",")[0])
        for shape in figure.layout.shapes
        if shape.type == "path"
    }
    assert starts["edge 0.5"] == pytest.approx(texts["<b>B</b>"], abs=36), "within the box"
    assert starts["edge 0.2"] == pytest.approx(texts["<b>A</b>"], abs=36)
    assert starts["edge 0.3"] > texts["<b>B</b>"] + 20
    shown = [text for trace in figure.data if trace.name == "edge" for text in trace.text]
    assert any(text.startswith("<b>embeddings at B → 1.0 by v</b>") for text in shown)


def test_heads_of_one_layer_do_not_lie_over_one_another() -> None:
    """In a column, four heads of one layer have no room side by side."""
    names = ["12.0", "12.1", "12.2", "12.3"]
    nodes = DataFrame({"node": names, "layer": 12, "mean": -1.0, "held": float("nan")})
    nodes = nodes.assign(low=-2.0, high=-0.5, n=N)
    edges = DataFrame({"sender": EMBEDDINGS, "receiver": names, "input": "v", "role": "operand a"})
    edges = edges.assign(mean=-1.0, low=-2.0, high=-0.5, n=N)
    roles = ("operand a", "operator", "operand b", "other")
    with drawn_for("column"):
        figure = draw_circuits([CircuitPanel(nodes, edges, roles=roles)], 14, relative=False)
    at = {note.text: note for note in figure.layout.annotations if note.text in names}
    boxes = [
        box
        for box in (Box(s.x0, s.y0, s.x1, s.y1) for s in figure.layout.shapes if s.type == "rect")
        for note in at.values()
        if square(note.x * 396, (1 - note.y) * figure.layout.height, 1).within(box)
    ]
    assert len(boxes) == 4
    assert not any(a.overlap(b) for a, b in combinations(boxes, 2))


def test_what_the_graph_keeps_is_drawn_beside_random_graphs(graph: CircuitGraph) -> None:
    kept = [("alone", "50% [25, 75]", 0.5, 0.25, 0.75), ("random", "0 to 30%", 0.1, -0.004, 0.3)]
    panel = CircuitPanel(graph.nodes, graph.edges, shares=kept)
    layout = draw_circuits([panel], graph.n_layers, relative=False).layout
    texts = {re.sub("</?b>", "", str(note.text)): note for note in layout.annotations}
    assert {"50% [25, 75]", "0 to 30%"} <= {*texts}
    dots = [s for s in layout.shapes if s.type == "circle" and s.x1 - s.x0 == 8]
    heights = [(1 - texts[text].y) * layout.height for _, text, *_ in kept]
    assert [(s.y0 + s.y1) / 2 for s in dots] == pytest.approx(heights)


def test_embeddings_and_the_mlp_that_is_read_with_them_share_a_line(graph: CircuitGraph) -> None:
    both = ("MLP 0", "1.0", "v")
    joined = circuit_graph(made(STRONG | {both: -0.45, ("0.0", "1.0", "v"): -0.4}), node_effects())
    curves = [shape.name for shape in joined.figure().layout.shapes if shape.type == "path"]
    assert sorted(curves) == ["edge 0.2", "edge 0.3", "edge 0.4", "edge 0.5"]
    shown = [text for trace in joined.figure().data if trace.name == "edge" for text in trace.text]
    (line,) = {text for text in shown if "embeddings" in text}
    assert "<b>MLP 0 → 1.0 by v</b> −0.45" in line
    opposed = circuit_graph(made(STRONG | {both: 0.45}), node_effects())
    curves = [shape.name for shape in opposed.figure().layout.shapes if shape.type == "path"]
    assert len(curves) == 4, "what helps and what hinders are two lines"


def test_a_slider_leaves_out_the_smaller_edges(graph: CircuitGraph) -> None:
    figure = graph.figure(slider=True)
    steps = figure.layout.sliders[0].steps
    drawn = [
        sum(str(shape.get("name", "")).startswith("edge") for shape in step.args[1]["shapes"])
        for step in steps
    ]
    assert drawn == [3, 2, 1] and [step.label for step in steps] == ["0.2", "0.3", "0.5"]
    assert [len(step.args[0]["x"][0]) for step in steps] == [15, 10, 5], "what a mouse shows"
    sizes = [note.font.size for note in figure.layout.annotations if note.text]
    assert min(sizes) * 6.9 * 72 / figure.layout.width >= 6.5, "points at a page's width"


def test_what_does_not_fit_is_refused(llama: Any) -> None:
    pairs = make_pairs(llama)
    effects = al.path_patch(llama, pairs, progress=False)
    edges = al.edge_effects(llama, pairs, "2.1", metric="logit", progress=False)
    with pytest.raises(ValueError, match="give both the same metric"):
        circuit_graph(edges, effects)
    with pytest.raises(ValueError, match="found the axes"):
        circuit_graph(effects.heads, effects)
    together = al.edge_effects(llama, pairs, "2.1", senders="together", progress=False)
    with pytest.raises(ValueError, match="expected single senders"):
        circuit_graph(together, effects)
    some = al.path_patch(llama, pairs, senders="2.3", metric="logit", progress=False)
    with pytest.raises(ValueError, match="expected the effect of each component"):
        circuit_graph(edges, some)


def test_results_of_another_kind_are_refused_with_the_order() -> None:
    unchecked: Any = getattr(circuit_graph, "__wrapped__", circuit_graph)
    edges, effects = made(STRONG), node_effects()
    for wrong, cure in (
        ((effects, edges), "exchange the two"),
        ((effects, effects), "give what edge_effects returns, then what path_patch returns"),
        ((edges, edges), "found Effects, then Effects"),
        ((None, effects), "found NoneType, then ComponentEffects"),
    ):
        with pytest.raises(TypeError, match=cure):
            unchecked(*wrong)


def test_a_graph_of_a_real_model_has_the_norm_held(llama: Any) -> None:
    pairs = make_pairs(llama)
    effects = al.path_patch(llama, pairs, metric="logit", progress=False)
    edges = al.edge_effects(llama, pairs, ["2.1", "MLP 2"], metric="logit", progress=False)
    graph = circuit_graph(edges, effects)
    nodes: Any = graph.nodes.set_index("node")
    expected = effects.mlps.without_norm_scale().mean()[2]
    assert nodes["held"]["MLP 2"] == pytest.approx(float(expected))
    assert nodes["held"]["MLP 2"] != pytest.approx(nodes["mean"]["MLP 2"])


def test_the_key_has_only_what_is_drawn(graph: CircuitGraph) -> None:
    nodes, edges = graph.nodes.assign(mean=-1.0), graph.edges.assign(mean=-1.0, input="v")  # pyright: ignore
    hinders = edges.assign(mean=[1.0, *edges["mean"][1:]])

    def texts(shown: Any) -> str:
        layout = draw_circuits([CircuitPanel(nodes, shown)], graph.n_layers).layout
        return " ".join(str(note.text) for note in layout.annotations)

    assert "by values" in texts(edges) and "C lost" in texts(edges)
    assert not any(name in texts(edges) for name in ("by keys", "by queries", "C gained"))
    assert "C gained" in texts(hinders)
