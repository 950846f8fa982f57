"""Resuming at a layer: a whole forward is the oracle, and it must be met bit for bit."""

import pytest
import torch
from support.fixtures import random_tokens

from arith_lens.components import Head, resid_pre_name, z_name
from arith_lens.hooks import scale_heads, scale_mlps
from arith_lens.model import load_model, record, run_layers
from arith_lens.model.forwards import WAYS


def test_a_model_lacks_what_a_way_needs(make_hf, tokenizer):
    model = load_model((make_hf("llama"), tokenizer))
    hf_model = model.bridge.original_model
    assert not any(way.unmet(model) for way in WAYS.values())
    with model.hooks(scale_heads([Head(0, 1)], 2.0)):
        lacking = {name for name, way in WAYS.items() if way.unmet(model)}
        assert lacking == {"without_patterns", "plain_layers", "EndRuns"}
        assert WAYS["plain_layers"].unmet(model) == ["no active hooks"]
    hf_model.train()
    assert WAYS["plain_layers"].unmet(model) == ["evaluation mode"]
    hf_model.eval()
    hf_model.config.model_type = "olmo"
    for name in ("plain_layers", "PrefixCache", "EndRuns"):
        assert WAYS[name].unmet(model) == ["a tested family"]
    hf_model.config.model_type = "llama"
    hf_model.__class__ = type("Changed", (type(hf_model),), {})
    for name in ("plain_layers", "PrefixCache", "EndRuns"):
        assert WAYS[name].unmet(model) == ["Transformers' code"]


def padded(model):
    """Three rows of 9, 7 and 4 tokens, padded on the left."""
    tokens = random_tokens(model, 3, 9, seed=3)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for row, n_padded in ((1, 2), (2, 5)):
        mask[row, :n_padded] = False
        tokens[row, n_padded] = 1
    return tokens, mask


@pytest.mark.parametrize("start", [1, 2])
@torch.no_grad()
def test_resuming_is_a_whole_forward_bit_for_bit(model, start):
    tokens, mask = padded(model)
    expected = model(tokens, attention_mask=mask, logits_to_keep=1)
    stream = run_layers(model, tokens, stop=start, attention_mask=mask)
    name = resid_pre_name(start)
    assert torch.equal(stream, record(model, tokens, name, attention_mask=mask)[name])
    actual = run_layers(model, tokens, start=start, stream=stream, attention_mask=mask)
    assert torch.equal(actual, expected)
    other = run_layers(model, tokens, start=start, stream=stream * 1.1, attention_mask=mask)
    assert not torch.equal(other, expected), "the stream must matter"


@torch.no_grad()
def test_layers_below_are_not_computed(deep):
    """Counted at the raw attention modules, by torch's own hooks."""
    tokens = random_tokens(deep, 2, 6)
    stream = run_layers(deep, tokens, stop=11)
    calls = []
    handles = [
        layer.self_attn.register_forward_hook(lambda *_, index=index: calls.append(index))
        for index, layer in enumerate(deep.bridge.original_model.model.layers)
    ]
    logits = run_layers(deep, tokens, start=11, stream=stream)
    resumed, calls[:] = list(calls), []
    run_layers(deep, tokens, start=11, stop=12, stream=stream)
    middle = list(calls)
    for handle in handles:
        handle.remove()
    assert resumed == [11, 12]
    assert middle == [11]
    assert torch.equal(logits, deep(tokens, logits_to_keep=1))


@torch.no_grad()
def test_resumed_layers_take_hooks(model):
    tokens, mask = padded(model)
    hooks = scale_heads([Head(1, 2)], 0.0) + scale_mlps([2], 2.0)
    stream = run_layers(model, tokens, stop=1, attention_mask=mask)
    options = {"start": 1, "stream": stream, "attention_mask": mask}
    whole = {"attention_mask": mask, "logits_to_keep": 1}
    expected = model.run_with_hooks(tokens, fwd_hooks=hooks, **whole)
    assert torch.equal(run_layers(model, tokens, fwd_hooks=hooks, **options), expected)
    assert not torch.equal(run_layers(model, tokens, **options), expected), "able to fail"


@torch.no_grad()
def test_resuming_a_stack_of_variants_gives_each_ones_forward(mistral):
    """As knockout uses it: one stream, three variants, the tokens repeated."""
    tokens, mask = padded(mistral)
    stream = run_layers(mistral, tokens, stop=1, attention_mask=mask)
    streams = torch.cat([stream, stream * 1.5, stream * 0.5])
    together = run_layers(
        mistral, tokens.repeat(3, 1), start=1, stream=streams, attention_mask=mask.repeat(3, 1)
    )
    for part, factor in enumerate([1.0, 1.5, 0.5]):
        alone = run_layers(mistral, tokens, start=1, stream=stream * factor, attention_mask=mask)
        assert torch.allclose(together[3 * part : 3 * part + 3], alone, atol=1e-5)


@torch.no_grad()
def test_bfloat16_and_a_bare_bridge_resume_exactly(make_hf, tokenizer):
    half = load_model((make_hf("mistral"), tokenizer), dtype=torch.bfloat16)
    tokens, mask = padded(half)
    for model in (half, half.bridge):
        stream = run_layers(model, tokens, stop=2, attention_mask=mask)
        assert stream.dtype == torch.bfloat16
        resumed = run_layers(model, tokens, start=2, stream=stream, attention_mask=mask)
        assert torch.equal(resumed, half(tokens, attention_mask=mask, logits_to_keep=1))


@torch.no_grad()
def test_gpt2_resumes_exactly(tokenizer):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=32, n_embd=32, n_layer=3, n_head=4,
        bos_token_id=1, eos_token_id=2, initializer_range=0.2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = load_model((GPT2LMHeadModel(config).eval(), tokenizer))
    tokens, mask = padded(model)
    stream = run_layers(model, tokens, stop=2, attention_mask=mask)
    resumed = run_layers(model, tokens, start=2, stream=stream, attention_mask=mask)
    assert torch.equal(resumed, model(tokens, attention_mask=mask, logits_to_keep=1))


@torch.no_grad()
def test_nothing_is_left_behind_even_after_an_error(model):
    tokens, mask = padded(model)
    plain = model(tokens, attention_mask=mask)
    stream = run_layers(model, tokens, stop=2, attention_mask=mask)

    def fail(activation, hook):
        raise RuntimeError("inside")

    options = {"start": 2, "stream": stream, "attention_mask": mask}
    with pytest.raises(RuntimeError, match="inside"):
        run_layers(model, tokens, fwd_hooks=[(z_name(2), fail)], **options)
    assert torch.equal(model(tokens, attention_mask=mask), plain)
    assert not any("forward" in block.__dict__ for block in model.blocks)
    assert not any(block._forward_pre_hooks for block in model.blocks)
    written = stream.clone()
    run_layers(model, tokens, **options)
    assert torch.equal(stream, written), "the stream is not written to"


def test_what_cannot_be_resumed_is_refused(model):
    tokens, mask = padded(model)
    stream = run_layers(model, tokens, stop=2, attention_mask=mask)
    with pytest.raises(ValueError, match=r"stream at layer 1 .* found none; run_layers"):
        run_layers(model, tokens, start=1, attention_mask=mask)
    with pytest.raises(ValueError, match=r"found \[2, 9, 32\]"):
        run_layers(model, tokens, start=1, stream=stream[:2], attention_mask=mask)
    with pytest.raises(ValueError, match="start 2 and stop 2"):
        run_layers(model, tokens, start=2, stop=2, stream=stream, attention_mask=mask)
    with pytest.raises(ValueError, match="would never be called"):
        hooks = scale_heads([Head(1, 0)], 0.0)
        run_layers(model, tokens, start=2, stream=stream, attention_mask=mask, fwd_hooks=hooks)


@torch.no_grad()
def test_blocks_that_hand_on_a_piece_are_refused(llama):
    """As where a model takes `outputs[0]` of a block: the stream would lose its batch."""
    tokens = random_tokens(llama, 2, 5)
    stream = run_layers(llama, tokens, stop=2)
    block = llama.blocks[2]
    handle = block.register_forward_pre_hook(lambda module, args: (args[0][0], *args[1:]))
    try:
        with pytest.raises(TypeError, match=r"one residual stream \[2, 5, 32\]"):
            run_layers(llama, tokens, start=2, stream=stream)
    finally:
        handle.remove()
