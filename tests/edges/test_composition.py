"""Who feeds a head: against torch's own hooks on the plain model, and circuits that are known."""

import functools
from base64 import b64decode
from importlib import import_module
from typing import Any

import pytest
import torch
from oracles import Raw, make_pairs
from support.families import SWEPT
from torch import Tensor

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.edges.composition import INPUTS
from arith_lens.model import HookedModel


def raw_change(raw: Raw, head: Head, name: str, sender: Head | Mlp | None) -> Tensor:
    """What a head's write at END changes by, if one projection reads a changed stream."""
    layer, streams = raw.layers[head.layer], []
    attention, norm = layer.self_attn, layer.input_layernorm
    hook = norm.register_forward_pre_hook(lambda _, x: streams.append(x[0].clone()))
    for tokens in (raw.pairs.reference, raw.pairs.counterfactual):
        raw.run(tokens, [hook] if tokens is raw.pairs.counterfactual else [])
    stream = streams[0]
    if sender is None:
        embed = raw.hf.get_input_embeddings()
        change = embed(raw.pairs.counterfactual) - embed(raw.pairs.reference)
    elif isinstance(sender, Mlp):
        change = raw.mlp[1][sender.layer] - raw.mlp[0][sender.layer]
    else:
        part = slice(sender.index * raw.d_head, (sender.index + 1) * raw.d_head)
        of_head = [z[sender.layer][..., part] for z in raw.z]
        weight = raw.layers[sender.layer].self_attn.o_proj.weight
        change = (of_head[1] - of_head[0]) @ weight[:, part].T
    z = z_of(raw, head, getattr(attention, f"{name}_proj"), norm(stream + change))
    return (z - raw.z[0][head.layer])[:, -1, own(raw, head)] @ written(raw, head)


def z_of(raw: Raw, head: Head, projection: Any, entry: Tensor) -> Tensor:
    kept: list[Tensor] = []
    handles = [
        projection.register_forward_pre_hook(lambda _, x: (entry, *x[1:])),
        raw._reads_z(head.layer).register_forward_pre_hook(lambda _, x: kept.append(x[0].clone())),
    ]
    raw.run(raw.pairs.reference, handles)
    return kept[0]


def own(raw: Raw, head: Head) -> slice:
    return slice(head.index * raw.d_head, (head.index + 1) * raw.d_head)


def written(raw: Raw, head: Head) -> Tensor:
    return raw.layers[head.layer].self_attn.o_proj.weight[:, own(raw, head)].T


@pytest.mark.parametrize("index", [1, 2, 3])
@torch.no_grad()
def test_shares_are_those_of_torchs_own_hooks(model: HookedModel, index: int) -> None:
    """Of grouped queries, heads 1, 2 and 3 of four tell the ways to number key/value heads."""
    hf = model.bridge.original_model
    pairs = make_pairs(hf)
    raw, head = Raw(hf, pairs), Head(2, index)
    shares = al.composition(model, pairs, [Head(0, 1), head])
    senders = (shares.labels or {})["sender"]
    z = [z[2][:, -1, own(raw, head)] for z in raw.z]
    whole = (z[1] - z[0]) @ written(raw, head)
    tried: list[Head | Mlp | None] = [None, Head(0, 0), Head(1, 2), Mlp(1)]
    for place, name in enumerate(INPUTS):
        for sender in tried:
            change = raw_change(raw, head, name, sender)
            expected = (change * whole).sum(-1) / whole.square().sum(-1)
            row = senders.index("embeddings" if sender is None else str(sender))
            share = shares.per_pair[1, place, row]
            assert torch.allclose(share, expected, atol=1e-4), (name, sender)
            if (name, sender) != ("q", None):  # END's own token is the same in both prompts
                other = shares.per_pair[1, (place + 1) % 3, row]
                assert not torch.allclose(other, expected, atol=1e-4), "another input would be seen"
    later = [senders.index(name) for name in ("2.0", "MLP 2", "2.3")]
    assert bool(shares.per_pair[1, :, later].isnan().all())
    assert not bool(shares.per_pair[0, :, 0].isnan().any())


@functools.cache
def built(name: str) -> Any:
    return al.built_model(name, n=8)


@pytest.mark.parametrize("name", ["query_composition", "value_composition"])
def test_the_edge_of_a_known_circuit_has_the_largest_share(name: str) -> None:
    made = built(name)
    edges = [edge for edge in made.truth.edges if isinstance(edge.receiver, Head)]
    assert edges
    for edge in edges:
        if edge.receiver.layer == 0:
            continue
        shares = al.composition(made.model, made.pairs, edge.receiver)
        mean = shares.mean()[0].nan_to_num()
        best = int(mean[INPUTS.index(edge.input)].argmax())
        assert (shares.labels or {})["sender"][best] == str(edge.sender)


@torch.no_grad()
def test_a_pair_in_which_the_head_hardly_changes_has_no_share(
    llama: HookedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the pairs, with a line at the median change."""
    pairs, head = make_pairs(llama.bridge.original_model), Head(2, 1)
    raw = Raw(llama.bridge.original_model, pairs)
    base, other = (z[2][:, -1, own(raw, head)] @ written(raw, head) for z in raw.z)
    change = (other - base).norm(dim=-1) / base.norm(dim=-1)
    line = 1.0001 * float(change.median())
    monkeypatch.setattr(import_module("arith_lens.edges.composition"), "MIN_CHANGE", line)
    shares = al.composition(llama, pairs, [head]).per_pair[0, :, 0]
    assert torch.equal(shares.isnan(), (change <= line).expand(3, -1))
    assert 0 < int((change <= line).sum()) < len(pairs)


def test_strange_heads_are_refused(llama: HookedModel) -> None:
    pairs = make_pairs(llama.bridge.original_model)
    with pytest.raises(ValueError, match="found none"):
        al.composition(llama, pairs, [])
    with pytest.raises(IndexError):
        al.composition(llama, pairs, "9.9")


def test_its_picture_names_each_head_and_input(llama: Any) -> None:
    pairs = make_pairs(llama)
    page = al.composition(llama, pairs, ["1.2", "2.0"])._repr_html_()
    text = b64decode(page.partition("base64,")[2].partition('"')[0]).decode()
    assert all(f">{head}, {name}<" in text for head in ("1.2", "2.0") for name in "qkv")


@torch.no_grad()
def test_a_head_writes_through_the_norm_after_the_attention(tokenizer: Any) -> None:
    """Scaling a row of the last W_O is scaling the norm's weight there: shares cannot tell."""
    hf, other = (SWEPT["OLMo 2"].make(len(tokenizer)) for _ in range(2))
    last, absorbed = hf.model.layers[-1], other.model.layers[-1]
    pairs, weight = make_pairs(hf), torch.linspace(0.1, 3, 32)
    last.post_attention_layernorm.weight.copy_(weight)
    absorbed.self_attn.o_proj.weight.mul_(weight[:, None])
    absorbed.post_attention_layernorm.weight.fill_(1.0)
    model, alike = (al.load_model((one, tokenizer)) for one in (hf, other))
    shares, same = (al.composition(one, pairs, ["1.2"]).per_pair for one in (model, alike))
    assert torch.allclose(shares, same, atol=1e-4, equal_nan=True)
    last.post_attention_layernorm.weight.fill_(1.0)
    plain = al.composition(model, pairs, ["1.2"]).per_pair
    assert not torch.allclose(shares, plain, atol=1e-2, equal_nan=True), "the weight must matter"
