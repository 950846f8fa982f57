"""Circuit files of the MIB benchmark: their names and edges by hand, and a round trip."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.effects import HEAD_AXES, MLP_AXES
from arith_lens.knockout import CircuitFile


@pytest.fixture
def effects() -> al.ComponentEffects:
    """Head 0.0 has the mean effect 0, each next head one tenth less; the MLPs +1 and +2."""
    heads = -0.1 * torch.arange(16.0).reshape(2, 8, 1)
    mlps = torch.tensor([[1.0], [2.0]])
    common: dict[str, Any] = {"metric": "logit", "paths": "via_mlps"}
    return al.ComponentEffects(
        al.Effects(heads, HEAD_AXES, **common), al.Effects(mlps, MLP_AXES, **common), torch.ones(1)
    )


@pytest.fixture(scope="module")
def model() -> al.HookedModel:
    return al.built_model("value_composition", n=4).model


@pytest.fixture
def circuit(model: al.HookedModel, effects: al.ComponentEffects) -> CircuitFile:
    return CircuitFile.of(model, effects, ["1.7", al.Mlp(1), (0, 3)])


def test_the_file_is_as_mib_writes_it(
    circuit: CircuitFile, model: al.HookedModel, tmp_path: Path
) -> None:
    content = json.loads(circuit.save(tmp_path / "circuit.json").read_text())
    assert content["cfg"] == {
        "n_layers": 2,
        "n_heads": 8,
        "parallel_attn_mlp": False,
        "d_model": model.cfg.d_model,
    }
    assert content["nodes"]["input"] == {"in_graph": True}
    assert content["nodes"]["a1.h7"] == {"in_graph": True, "score": pytest.approx(1.5)}
    assert content["nodes"]["m0"] == {"in_graph": False, "score": -1.0}
    assert len(content["nodes"]) == 2 + 16 + 2
    edges = content["edges"]
    # layer 0: 8 heads read the input by q, k and v, the MLP reads it and 8 heads; layer 1: 10
    # senders; the MLP reads them and 8 heads; the logits read 1 + 16 + 2
    assert len(edges) == 24 + 9 + 10 * 24 + 18 + 19
    assert edges["a0.h3->a1.h7<k>"]["in_graph"] and edges["a1.h7->m1"]["in_graph"]
    assert edges["input->a0.h3<q>"]["in_graph"] and edges["m1->logits"]["in_graph"]
    assert not edges["m0->m1"]["in_graph"]
    assert "a1.h7->a0.h3<q>" not in edges and "a0.h0->a0.h1<q>" not in edges


def test_parallel_blocks_have_no_edge_from_a_head_to_its_own_mlp(
    model: al.HookedModel, effects: al.ComponentEffects
) -> None:
    parallel = CircuitFile.of(model, effects, [], parallel=True)
    assert "a0.h0->m0" not in parallel.edges and "a0.h0->m1" in parallel.edges


def test_a_round_trip(circuit: CircuitFile, tmp_path: Path) -> None:
    again = CircuitFile.load(circuit.save(tmp_path / "circuit.json"))
    assert again == circuit
    assert again.components == [al.Head(0, 3), al.Head(1, 7), al.Mlp(1)]


def test_orders_for_circuit_curve(circuit: CircuitFile, model: al.HookedModel) -> None:
    signed, by_size = circuit.order(), circuit.order(by_size=True)
    assert signed[0] == al.Head(1, 7) and signed[-2:] == [al.Mlp(0), al.Mlp(1)]
    assert by_size[:3] == [al.Mlp(1), al.Head(1, 7), al.Head(1, 6)]
    pairs = al.built_model("value_composition", n=4).pairs
    curve = al.circuit_curve(model, pairs, by_size, among="all", progress=False)
    assert curve.order == tuple(by_size)


def test_a_node_without_a_score_has_no_order(circuit: CircuitFile, tmp_path: Path) -> None:
    path = circuit.save(tmp_path / "circuit.json")
    content = json.loads(path.read_text())
    del content["nodes"]["m1"]["score"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="found none of m1"):
        CircuitFile.load(path).order()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[]", "with cfg, nodes and edges"),
        ("{", "JSONDecodeError"),
        ('{"cfg": {"n_layers": 1, "n_heads": 1, "d_model": 4}, "nodes": {}, "edges": {}}', "a0.h0"),
        ('{"cfg": {"n_layers": 0, "n_heads": 1, "d_model": 4}, "nodes": {"input": {"in_graph": true'
         '}, "logits": {"in_graph": true}}, "edges": {"input->m7": {"in_graph": true}}}',
         "edges between nodes"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "circuit.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=match):
        CircuitFile.load(path)
