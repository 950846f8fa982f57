"""Slices: the merged model's forward, a masked full backward's gradients, the paper's counts."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.families import SWEPT
from support.fixtures import HFFactory

from arith_lens.components import Head, Mlp
from arith_lens.fine_tuning.pieces import (
    by_parameter,
    merge_slices,
    n_elements,
    pieces_of,
    scales_of,
    slice_model,
)

HEADS = [Head(1, 0), Head(1, 3), Head(2, 2)]
IDS = torch.randint(3, 200, (3, 9), generator=torch.Generator().manual_seed(1))


def moved(hf_model: Any) -> None:
    """Give the leaves other values, as steps of training would."""
    generator = torch.Generator().manual_seed(2)
    for weight in hf_model.parameters():
        if weight.requires_grad:
            weight.data += 0.1 * torch.randn(weight.shape, generator=generator)


def masks(hf_model: Any, heads: list[Head], n_kv: int) -> dict[str, torch.Tensor]:
    """Which elements belong to the heads, cut by reshaping into heads: no code of the library."""
    config = hf_model.config
    n_heads, found = config.num_attention_heads, {}
    for layer in {head.layer for head in heads}:
        chosen = [head.index for head in heads if head.layer == layer]
        groups = [index // (n_heads // n_kv) for index in chosen]
        attention = hf_model.model.layers[layer].self_attn
        for part, n, indices in (("q", n_heads, chosen), ("k", n_kv, groups), ("v", n_kv, groups)):
            for name, weight in getattr(attention, f"{part}_proj").named_parameters():
                mask = torch.zeros_like(weight).reshape(n, -1)
                mask[indices] = 1
                key = f"model.layers.{layer}.self_attn.{part}_proj.{name}"
                found[key] = mask.reshape(weight.shape)
        weight = attention.o_proj.weight
        mask = torch.zeros_like(weight).reshape(weight.shape[0], n_heads, -1)
        mask[:, chosen] = 1
        found[f"model.layers.{layer}.self_attn.o_proj.weight"] = mask.reshape(weight.shape)
    return found


def qwen(seed: int = 0) -> Any:
    """A grouped model with biases of Q, K and V, larger than 0 so that they matter."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.15,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    for name, weight in model.named_parameters():
        if "bias" in name:
            weight.data.normal_(std=0.3)
    return model


@pytest.fixture(params=["llama", "mistral", "qwen2", "qwen3"])
def build(request: pytest.FixtureRequest, make_hf: HFFactory) -> Callable[[], Any]:
    if request.param == "qwen2":
        return qwen
    if request.param == "qwen3":
        return lambda: make_hf("qwen3", num_key_value_heads=2, head_dim=16)
    return lambda: make_hf(request.param)


def loss_of(hf_model: Any) -> torch.Tensor:
    return hf_model(input_ids=IDS, labels=IDS, use_cache=False).loss


def test_forward_is_bit_equal_to_the_merged_models(build: Callable[[], Any]) -> None:
    sliced, plain = build(), build()
    replaced = slice_model(sliced, pieces_of(sliced, HEADS, [Mlp(2)]), dtype=torch.float32)
    moved(sliced)
    before = sliced(IDS).logits
    merge_slices(sliced, replaced)
    plain.load_state_dict(sliced.state_dict())
    assert torch.equal(before, plain(IDS).logits)
    assert not torch.equal(before, build()(IDS).logits)


def test_gradients_are_those_of_a_full_backward_masked_to_the_slices(
    build: Callable[[], Any],
) -> None:
    sliced, plain = build(), build()
    pieces = pieces_of(sliced, HEADS)
    replaced = slice_model(sliced, pieces, dtype=torch.float32)
    moved(sliced)
    loss_of(sliced).backward()
    leaves = {name: p.grad for name, p in sliced.named_parameters() if p.requires_grad}
    assert all(grad is not None for grad in leaves.values())
    merge_slices(sliced, replaced)
    plain.load_state_dict(sliced.state_dict())
    loss_of(plain).backward()
    n_kv = plain.config.num_key_value_heads
    expected = masks(plain, HEADS, n_kv)
    weights = dict(plain.named_parameters())
    groups = by_parameter(pieces)
    assert groups.keys() == expected.keys()
    for name, group in groups.items():
        full = torch.zeros_like(weights[name])
        grad = leaves[f"{name}_slice"]
        at = 0
        for piece in group:
            size = piece.stop - piece.start
            piece.of(full).copy_(grad.narrow(piece.dim, at, size))
            at += size
        torch.testing.assert_close(full, weights[name].grad * expected[name], rtol=1e-4, atol=1e-6)
        assert (full != 0).sum() >= 0.99 * expected[name].sum()


def test_nothing_below_the_lowest_tuned_layer_is_kept_or_run_back(make_hf: HFFactory) -> None:
    model = make_hf("llama")
    slice_model(model, pieces_of(model, [Head(2, 1)]), dtype=torch.float32)
    states = model.model(IDS, output_hidden_states=True).hidden_states
    assert [state.requires_grad for state in states] == [False, False, False, True]
    loss_of(model).backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {
        f"model.layers.2.self_attn.{part}_proj.weight_slice" for part in "qkvo"
    }


def test_gradient_checkpointing_gives_the_same_gradients(make_hf: HFFactory) -> None:
    grads = []
    for recompute in (False, True):
        model = make_hf("mistral").train()
        slice_model(model, pieces_of(model, HEADS, [Mlp(1)]), dtype=torch.float32)
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        loss_of(model).backward()
        grads.append([p.grad for p in model.parameters() if p.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_bfloat16_models_train_float32_slices(make_hf: HFFactory) -> None:
    sliced = make_hf("mistral").bfloat16()
    replaced = slice_model(sliced, pieces_of(sliced, HEADS, [Mlp(2)]), dtype=torch.float32)
    moved(sliced)
    loss_of(sliced).backward()
    leaves = [p for p in sliced.parameters() if p.requires_grad]
    assert {p.dtype for p in leaves} == {torch.float32}
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in leaves)
    before = sliced(IDS).logits
    merge_slices(sliced, replaced)
    assert {p.dtype for p in sliced.parameters()} == {torch.bfloat16}
    assert torch.equal(before, sliced(IDS).logits)


def test_grouped_queries_share_their_key_value_slice(make_hf: HFFactory) -> None:
    model = make_hf("mistral")  # heads 0 and 1 read key-value head 0
    together = by_parameter(pieces_of(model, [Head(0, 0), Head(0, 1)]))
    (shared,) = together["model.layers.0.self_attn.k_proj.weight"]
    assert (shared.start, shared.stop) == (0, 8)
    skipped = by_parameter(pieces_of(model, [Head(0, 0)], kv="skip"))
    assert {name.split(".")[-2] for name in skipped} == {"q_proj", "o_proj"}
    scales = scales_of(model, pieces_of(model, [Head(0, 0), Head(0, 1), Head(1, 3)]))
    assert [scales[f"model.layers.{layer}.self_attn.{p}_proj.weight"]
            for layer in (0, 1) for p in "qkvo"] == [2, 2, 2, 2, 4, 2, 2, 4]  # fmt: skip
    kept = by_parameter(pieces_of(make_hf("llama"), [Head(0, 0)], kv="skip"))
    assert len(kept) == 4  # no groups: nothing to skip


@pytest.mark.parametrize(
    ("size", "n_mlps", "millions"),
    [("7b", 0, 67.1), ("13b", 0, 83.9), ("7b", 1, 202), ("7b", 2, 338), ("7b", 3, 473),
     ("7b", 6, 879), ("7b", 32, 4396)],
)  # fmt: skip
def test_parameter_counts_are_the_papers(size: str, n_mlps: int, millions: float | int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"7b": (4096, 11008, 32, 32), "13b": (5120, 13824, 40, 40)}
    d_model, d_mlp, n_layers, n_heads = sizes[size]
    config = LlamaConfig(
        hidden_size=d_model,
        intermediate_size=d_mlp,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    heads = [Head(i % n_layers, (7 * i) % n_heads) for i in range(32)]
    pieces = pieces_of(model, heads, [Mlp(layer) for layer in range(n_mlps)])
    digits = 1 if millions < 100 else 0
    assert round(n_elements(model, pieces) / 1e6, digits) == millions


def test_fused_projections_are_refused_by_name() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50))
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel.*c_attn"):
        pieces_of(model, [Head(0, 0)])


def test_heads_that_a_model_has_not_are_refused(make_hf: HFFactory) -> None:
    with pytest.raises(IndexError, match=r"0\.4"):
        pieces_of(make_hf("llama"), [Head(0, 4)])
    with pytest.raises(ValueError, match="expected kv among group, skip"):
        pieces_of(make_hf("llama"), [Head(0, 0)], kv="all")


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3-MoE"])
def test_experts_are_trained_whole_in_float32_and_refused_in_half_precision(
    name: str, tokenizer: Any
) -> None:
    """The gradients of a plain Transformers model, for one MLP's experts and router alone."""
    plain = SWEPT[name].make(len(tokenizer))
    sliced = copy.deepcopy(plain)
    pieces = pieces_of(sliced, [], [Mlp(1)])
    assert slice_model(sliced, pieces, dtype=torch.float32) == []
    tokens = torch.randint(3, len(tokenizer), (2, 7), generator=torch.Generator().manual_seed(0))
    for model in (plain, sliced):
        model(tokens, labels=tokens).loss.backward()
    expected, found = (dict(model.named_parameters()) for model in (plain, sliced))
    trained = {key for key, weight in found.items() if weight.grad is not None}
    assert trained == {piece.parameter for piece in pieces} and len(trained) == 3
    for key in trained:
        torch.testing.assert_close(found[key].grad, expected[key].grad)
        assert bool(expected[key].grad.any()), "the test must be able to fail"
    half = plain.to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"mlp\..* in torch\.float32 or a Linear, found .*bf16=Fa"):
        slice_model(half, pieces, dtype=torch.float32)
