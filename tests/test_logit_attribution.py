"""Direct logit attribution: against plain Transformers, and the sum of all parts."""

from typing import Any

import pytest
import torch
from oracles import Raw, make_pairs
from support.families import SWEPT
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.logit_attribution import BIASES, EMBEDDINGS, _columns, logit_attribution
from arith_lens.model import load_model


@torch.no_grad()
def test_parts_are_those_of_the_plain_models_weights(model: Any) -> None:
    """Grouped queries, unequal lengths; each part by hand from what torch's hooks see."""
    pairs = make_pairs(model)
    hf = model.bridge.original_model
    raw = Raw(hf, pairs)
    kept: list[torch.Tensor] = []
    handle = hf.model.norm.register_forward_pre_hook(lambda _, x: kept.append(x[0][:, -1].clone()))
    raw.run(pairs.reference, [handle])
    scale = (kept[0].square().mean(-1, keepdim=True) + hf.config.rms_norm_eps).sqrt()

    def logit(write: torch.Tensor) -> torch.Tensor:
        final = hf.model.norm.weight * write / scale
        return (final * hf.lm_head.weight[pairs.answer]).sum(-1)

    parts = logit_attribution(model, pairs)
    names = (parts.labels or {})["component"]

    def part(name: str) -> torch.Tensor:
        return parts.per_pair[names.index(name), 0]

    assert_close(part(EMBEDDINGS), logit(hf.model.embed_tokens(pairs.reference[:, -1])))
    assert_close(part("MLP 1"), logit(raw.mlp[0][1][:, -1]))
    columns = slice(2 * raw.d_head, 3 * raw.d_head)
    weight = hf.model.layers[1].self_attn.o_proj.weight[:, columns]
    write = raw.z[0][1][:, -1, columns] @ weight.T
    assert_close(part("1.2"), logit(write), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(part("1.1"), logit(write), atol=1e-3), "another head would be seen"
    total = raw.logits[0][torch.arange(len(pairs)), pairs.answer]
    assert_close(parts.per_pair[:, 0].sum(0), total, atol=raw.tolerance, rtol=1e-4)


@pytest.mark.parametrize("name", ["Gemma 2", "Gemma 3", "OLMo 2", "Pythia", "Granite", "GPT-2"])
def test_all_parts_add_up_to_the_logit(name: str, tokenizer: Any) -> None:
    family = SWEPT[name]
    model = load_model((family.make(len(tokenizer)), tokenizer))
    pairs = make_pairs(model)
    raw = Raw(model.bridge.original_model, pairs, family.places)
    chosen = [5, 7, 9]
    parts = logit_attribution(model, pairs, chosen)
    total = parts.per_pair.sum(0)
    cap = getattr(model.bridge.original_model.config, "final_logit_softcapping", None)
    total = cap * torch.tanh(total / cap) if cap else total
    assert_close(total, raw.logits[0][:, chosen].T, atol=10 * raw.tolerance, rtol=1e-3)
    assert (parts.labels or {})["token"] == ("5", "7", "9")
    assert (parts.labels or {})["component"][-1] == BIASES


def test_each_pair_may_have_its_own_tokens(llama: Any) -> None:
    pairs = make_pairs(llama)
    columns = torch.stack([pairs.answer, (pairs.answer + 1) % llama.cfg.d_vocab], dim=1)
    both = logit_attribution(llama, pairs, columns)
    answer = logit_attribution(llama, pairs)
    assert_close(both.per_pair[:, :1], answer.per_pair)
    heads = 3 * 4
    assert both.per_pair.shape == (1 + heads + 3 + 1, 2, len(pairs))
    assert (both.labels or {})["component"][1] == str(Head(0, 0))
    assert (both.labels or {})["component"][1 + heads] == str(Mlp(0))


@pytest.mark.parametrize("tokens", [[10**6], [], [-1], torch.zeros(2, 1).long()])
def test_tokens_that_do_not_fit_are_refused(llama: Any, tokens: Any) -> None:
    with pytest.raises(ValueError, match=r"expected .*token"):
        logit_attribution(llama, make_pairs(llama), tokens)


def test_texts_in_place_of_token_ids_are_refused(llama: Any) -> None:
    with pytest.raises(ValueError, match=r"expected token ids, found \['8'\]; .*encode"):
        _columns(make_pairs(llama), ["8"], int(llama.cfg.d_vocab))


def test_active_hooks_act(llama: Any) -> None:
    pairs = make_pairs(llama)
    without = al.logit_attribution(llama, pairs)
    with llama.hooks(al.scale_mlps([1], 0.0)):
        scaled = al.logit_attribution(llama, pairs)
        logits = llama(pairs.reference, attention_mask=pairs.attention_mask)[:, -1]
    own = logits.gather(1, pairs.answer[:, None])[:, 0]
    assert_close(scaled.per_pair[:, 0].sum(0), own, atol=1e-4, rtol=1e-4)
    row = (scaled.labels or {})["component"].index("MLP 1")
    assert not scaled.per_pair[row].any() and without.per_pair[row].abs().max() > 1e-3
