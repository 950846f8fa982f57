"""Forwards with fused attention: logits of the eager ones, with hooks and without."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.families import SWEPT
from torch import Tensor
from torch.testing import assert_close

from arith_lens.components import mlp_out_name, resid_post_name, resid_pre_name, z_name
from arith_lens.model import HookedModel, load_model, without_patterns

FUSED = ("Qwen3", "GPT-2", "Gemma 3, 12 layers", "OLMo 2", "Granite", "Pythia", "Phi", "Cohere")
EAGER = ("Gemma 2", "gpt-oss", "Falcon", "GPT-J")
"""Families whose scores are capped or have sinks, or whose code has no fused attention."""


def tokens_and_mask(d_vocab: int) -> tuple[Tensor, Tensor]:
    """Three prompts, the second one padded on the left."""
    tokens = torch.randint(3, d_vocab, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    return tokens * mask, mask


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each call of torch's fused attention."""
    calls: list[int] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(1)
        return fused(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    return calls


def silence(value: Tensor, hook: Any) -> Tensor:
    return value * torch.linspace(0, 1, value.shape[-1])


@torch.no_grad()
def logits_of(model: HookedModel, hooks: list[Any]) -> tuple[Tensor, int]:
    """The logits at tokens, and how often the hooks were called."""
    tokens, mask = tokens_and_mask(model.d_vocab)
    calls: list[int] = []

    def counting(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda value, hook: (calls.append(1), function(value, hook=hook))[1]

    watched = [(name, counting(function)) for name, function in hooks]
    logits = model.run_with_hooks(tokens, fwd_hooks=watched, attention_mask=mask)
    return logits[mask.bool()], len(calls)


@pytest.mark.parametrize("name", [*FUSED, *EAGER])
def test_logits_are_those_of_eager_attention(
    name: str, tokenizer: Any, fused_calls: list[int]
) -> None:
    """Within float32 rounding. The bridge itself is compared with Transformers elsewhere."""
    model = load_model((SWEPT[name].make(len(tokenizer)), tokenizer))
    pattern = ("blocks.1.attn.hook_pattern", silence)
    cases = [[], [(z_name(1), silence), (mlp_out_name(0), silence)], [(resid_pre_name(1), silence)]]
    plain, _ = logits_of(model, [])
    for hooks in [*cases, *[[pattern]] * (name in FUSED)]:
        eager, n_calls = logits_of(model, hooks)
        assert not fused_calls
        with without_patterns(model, hooks):
            fused, n_fused_calls = logits_of(model, hooks)
        keeps_bridge = pattern in hooks or (name == "GPT-2" and len(hooks) == 2)
        if not keeps_bridge and not (name == "Granite" and len(hooks) == 2):
            assert bool(fused_calls) == (name in FUSED)
        fused_calls.clear()
        assert n_fused_calls == n_calls == len(hooks)
        assert_close(fused, eager, rtol=0, atol=2e-5 * float(eager.std()))
        if hooks:
            assert (eager - plain).abs().max() > 1e-2 * eager.std(), "the hooks must act"
    again, _ = logits_of(model, [])
    assert torch.equal(again, plain), "the model is as it was"


@torch.no_grad()
@pytest.mark.parametrize("name", ["Qwen3", "Gemma 2", "GPT-2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_last_layer_computes_end_alone(name: str, dtype: torch.dtype, tokenizer: Any) -> None:
    """END's stream and logits are those of the bridge, for a padded prompt too."""
    model = load_model((SWEPT[name].make(len(tokenizer)).to(dtype), tokenizer))
    tokens, mask = tokens_and_mask(model.d_vocab)
    last, seen, widths = model.n_layers - 1, [], []
    hook = (resid_post_name(last), lambda value, hook: seen.append(value[:, -1]))
    options: dict[str, Any] = {"attention_mask": mask, "logits_to_keep": 1}
    whole = model.run_with_hooks(tokens, fwd_hooks=[hook], **options)[:, -1]
    mlp = model.blocks[last].mlp.original_component
    with without_patterns(model, [hook], fused=False, at_end=True):
        handle = torch.nn.modules.module.register_module_forward_hook(  # before those of modules
            lambda module, _, out: widths.append(out.shape[1]) if module is mlp else None
        )
        narrow = model.run_with_hooks(tokens, fwd_hooks=[hook], **options)[:, -1]
    handle.remove()
    assert widths == [1], "else all positions are computed"
    rtol = 1e-5 if dtype == torch.float32 else 2e-2
    for one, other in ((narrow, whole), seen):
        assert_close(one, other, rtol=0, atol=rtol * float(whole.abs().max()))
    assert (narrow[0] - narrow[1]).abs().max() > 0.1 * whole.abs().max(), "prompts differ"


def test_an_error_restores_the_model(tokenizer: Any) -> None:
    model = load_model((SWEPT["Qwen3"].make(len(tokenizer)), tokenizer))
    modules = [id(module) for module in model.bridge.original_model.modules()]
    with pytest.raises(KeyError), without_patterns(model):
        assert model.attn_implementation == "sdpa"
        raise KeyError
    assert model.attn_implementation == "eager"
    assert modules == [id(module) for module in model.bridge.original_model.modules()]


@pytest.mark.parametrize("name", ["Qwen3", "Gemma 3", "Pythia"])
def test_generated_texts_are_those_of_transformers(name: str, tokenizer: Any) -> None:
    """Prompts of unequal lengths, with the KV cache; no logits before END are computed."""
    hf_model = SWEPT[name].make(len(tokenizer))
    tokens, mask = tokens_and_mask(len(tokenizer))
    expected = hf_model.generate(
        tokens, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    model = load_model((hf_model, tokenizer))
    sizes: list[int] = []
    unembed = model.unembed.original_component
    handle = torch.nn.modules.module.register_module_forward_hook(  # one that is no hook of a model
        lambda module, _, out: sizes.append(out.shape[1]) if module is unembed else None
    )
    model.generate(tokens, attention_mask=mask, max_new_tokens=6)
    handle.remove()
    with without_patterns(model):
        found = model.generate(tokens, attention_mask=mask, max_new_tokens=6)
    assert found.tolist() == expected.tolist()
    assert set(sizes) == {1} and len(sizes) == 6
