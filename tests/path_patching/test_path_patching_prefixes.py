"""Prompts that begin alike, recorded after what they share: the numbers of whole prompts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from support.dropout import drop_always
from support.fixtures import random_tokens
from torch.utils.flop_counter import FlopCounterMode

from arith_lens.model import HookedModel, load_model
from arith_lens.model.families import FAMILIES
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import CertificateError, path_patch, plan, recording
from arith_lens.path_patching.engines import SweepEngine, patch_settings
from arith_lens.path_patching.recording import n_distinct, per_pair_tokens, record_pairs

CLASSES = {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3Text", "gpt2": "GPT2",
           "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}  # fmt: skip
QUESTION = 6
CONTEXT = 24


@pytest.fixture(
    scope="module", params=[row.model_type for row in FAMILIES.values() if row.kv_cache]
)
def family(request: Any, tokenizer: Any) -> HookedModel:
    """A random model of three layers; queries are grouped, where the architecture groups them."""
    return make_family(request.param, tokenizer)


def make_family(name: str, tokenizer: Any, **more: Any) -> HookedModel:
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "initializer_range": 0.15, "bos_token_id": 1,
        "eos_token_id": 2, "attn_implementation": "eager",
    }  # fmt: skip
    if name != "gpt2":
        sizes |= {"intermediate_size": 48, "num_key_value_heads": 2, "pad_token_id": 0}
    if name in ("gemma", "gemma2", "gemma3_text", "qwen3"):
        sizes["head_dim"] = 8
    if name == "mistral":
        sizes["sliding_window"] = None
    config = getattr(transformers, f"{CLASSES[name]}Config")(**sizes | more)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = "LMHeadModel" if name == "gpt2" else "ForCausalLM"
        hf_model = getattr(transformers, CLASSES[name].removesuffix("Text") + head)(config)
    return load_model((hf_model.eval(), tokenizer))


def few_shot(model: Any, n: int = 5, *, one_context: bool = False) -> PromptPairs:
    """A context before each question, of two lengths; the prompts of a pair differ in the question,
    and with `one_context` pairs of one length have one context."""
    tokens, other = (random_tokens(model, n, CONTEXT + QUESTION, seed=seed) for seed in (0, 1))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1::2, :3] = False
    if one_context:
        tokens[:, :CONTEXT] = tokens[0, :CONTEXT]
    other[:, :CONTEXT] = tokens[:, :CONTEXT]
    other[:, -1] = tokens[:, -1]
    return PromptPairs.from_tokens(tokens, other, torch.arange(n) + 40, mask)


@pytest.fixture
def eager_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models may share prefixes too."""
    monkeypatch.setattr(recording, "LEAST_OPERATIONS", 0)


@torch.no_grad()
@pytest.mark.parametrize("n_own", [1, QUESTION - 1, QUESTION, 20])
@pytest.mark.parametrize("one_context", [False, True])
def test_each_family_has_the_activations_of_whole_prompts(
    family: HookedModel, n_own: int, one_context: bool
) -> None:
    """With padding, grouped queries, and positions that count from the first token."""
    pairs = few_shot(family, one_context=one_context)
    whole, _ = record_pairs(family, pairs, logits=True)
    parts, again = record_pairs(family, pairs, logits=True, per_pair_tokens=n_own, repeated=1)
    assert again is not None
    for name in ("stream", "z", "attn_out", "mlp_out", "logits"):
        expected, actual = getattr(whole, name), getattr(parts, name)
        scale = float(expected.abs().max())
        torch.testing.assert_close(actual, expected, atol=2e-5 * scale, rtol=1e-4)
        assert (expected[0] - expected[1]).abs().max() > 1e-3 * scale or name == "stream"
    torch.testing.assert_close(again.z[0, :, 0], whole.z[0, :, 1], atol=1e-5, rtol=1e-4)


def test_effects_are_those_of_the_hook_engine(family: HookedModel, eager_rule: None) -> None:
    pairs = few_shot(family)
    assert per_pair_tokens(family, pairs) == QUESTION
    fast = path_patch(family, pairs, metric="logit", batch_size=2)
    general = path_patch(family, pairs, metric="logit", engine="hooks")
    for part in ("heads", "mlps"):
        one, other = (getattr(result, part).per_pair for result in (fast, general))
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
        assert other.abs().max() > 1e-3


def test_beginnings_are_counted_as_a_set_counts_them() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 3, (12, 5), generator=generator)
    mask = torch.arange(5) >= torch.randint(0, 3, (12, 1), generator=generator)
    rows = [
        [int(token) if real else -1 for token, real in zip(*row, strict=True)]
        for row in zip(tokens, mask, strict=True)
    ]
    expected = [len({tuple(row[:column]) for row in rows}) for column in range(6)]
    assert n_distinct(tokens, mask) == expected
    assert len({*expected}) > 3


def test_operations_decide(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = few_shot(llama)
    assert per_pair_tokens(llama, pairs) is None, "a small model gains less than a forward costs"
    monkeypatch.setattr(recording, "LEAST_OPERATIONS", 0)
    assert per_pair_tokens(llama, pairs) == QUESTION
    apart = replace(pairs, counterfactual=random_tokens(llama, 5, CONTEXT + QUESTION, seed=2))
    assert per_pair_tokens(llama, apart) is None, "prompts that differ from the start share nothing"
    one = random_tokens(llama, 5, 1)
    short = PromptPairs.from_tokens(one, one, pairs.answer)
    assert per_pair_tokens(llama, short) is None
    monkeypatch.setattr(recording, "LEAST_SHARE", 0.9)
    assert per_pair_tokens(llama, pairs) is None


@torch.no_grad()
def test_the_number_of_own_tokens_is_that_of_all_pairs_together(
    llama: Any, eager_rule: None
) -> None:
    """A pair that parts earlier than the others decides for all."""
    pairs = few_shot(llama)
    other = pairs.counterfactual.clone()
    other[3, CONTEXT - 2] += 1
    early = replace(pairs, counterfactual=other)
    assert per_pair_tokens(llama, early[:3]) == QUESTION
    assert per_pair_tokens(llama, early) == QUESTION + 2
    whole = path_patch(llama, early, metric="logit", batch_size=2)
    patching = patch_settings(llama, None, paths="via_mlps", metric="logit", foil=None, pairs=early)
    last = SweepEngine.of(llama, patching, certify=True)(early[4:], None)
    assert torch.equal(patching.senders.split(last[1:], 4)[0], whole.heads.per_pair[..., 4:])


def test_a_window_shorter_than_a_prompt_keeps_prompts_whole(
    tokenizer: Any, eager_rule: None
) -> None:
    window = partial(make_family, "mistral", tokenizer)
    pairs = few_shot(window())
    assert per_pair_tokens(window(sliding_window=CONTEXT), pairs) is None
    wide = window(sliding_window=CONTEXT + QUESTION)
    assert per_pair_tokens(wide, pairs) == QUESTION
    fast = path_patch(wide, pairs, metric="logit")
    general = path_patch(wide, pairs, metric="logit", engine="hooks")
    torch.testing.assert_close(fast.heads.per_pair, general.heads.per_pair, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("one_context", [False, True])
def test_the_plan_counts_what_torch_counts(llama: Any, eager_rule: None, one_context: bool) -> None:
    pairs = few_shot(llama, one_context=one_context)
    with FlopCounterMode(display=False) as counter:
        path_patch(llama, pairs, metric="logit", certify=False, batch_size=3)
    foreseen = plan(llama, pairs, metric="logit", batch_size=3)
    assert foreseen.flops == counter.get_total_flops()
    whole = 2 * len(pairs) * recording.recording_operations(llama)(CONTEXT + QUESTION)
    assert foreseen.recording_flops < 0.75 * whole


@pytest.mark.parametrize("fault", ["values", "rows", "positions"])
def test_the_certificate_sees_a_beginning_that_is_not_the_prompts(
    llama: Any, eager_rule: None, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The whole prompt, which runs again without what is shared, shows it."""
    pairs = few_shot(llama)
    right = recording.keys_and_values

    def wrong(model: Any, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
        if fault == "positions":
            return right(model, tokens.roll(1, dims=1), mask)
        cache = right(model, tokens, mask)
        if fault == "rows":
            cache.batch_select_indices(torch.arange(len(tokens)).roll(1))
        else:
            cache.layers[1].values *= 1.1
        return cache

    path_patch(llama, pairs, metric="logit")
    monkeypatch.setattr(recording, "keys_and_values", wrong)
    with pytest.raises(CertificateError, match=r"FAILED .*z of another run"):
        path_patch(llama, pairs, metric="logit")


def test_dropout_is_seen_where_beginnings_are_shared(
    make_model: Callable[..., Any], eager_rule: None
) -> None:
    model = make_model("llama")
    pairs = few_shot(model)
    path_patch(model, pairs, metric="logit")
    drop_always(model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with pytest.raises(CertificateError, match=r"FAILED .*z of another run"):
            path_patch(model, pairs, metric="logit")
