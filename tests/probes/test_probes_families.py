"""Probes of families that change their logits, or compute attention and MLP in parallel."""

import copy
from contextlib import ExitStack
from functools import reduce
from typing import Any

import pytest
import torch
from oracles import logits_at_end
from support.families import EVERY, Family
from torch import Tensor
from torch.testing import assert_close

import arith_lens as al
from arith_lens.model import LogitScale, unembedding

SAMPLE: dict[str, Any] = {"templates": ["addition/0", "addition/5"], "keep": "all", "n": 12}
LOGITS: dict[str, dict[str, Any]] = {
    "Cohere": {},  # logits times 0.25
    "Granite": {},  # logits over 4
    "Gemma 2": {"final_logit_softcapping": 2.0},
    "Phi": {},  # lm_head has a bias
    "GPT-J": {},  # so has this one
}
"""Families whose logits are more than W_U after the final norm, and what makes it show."""
NORMS = {
    "Pythia": "post_attention_layernorm",
    "GPT-J": "ln_1",
    "Falcon": "input_layernorm",
    "Phi": "input_layernorm",
    "Cohere": "input_layernorm",
}
"""Families of parallel blocks, and the norm that the MLP reads through."""


def loaded(family: Family, tokenizer: Any, **config: Any) -> tuple[al.HookedModel, Any]:
    """The model, and another of the same weights that no bridge has touched."""
    hf = family.make(len(tokenizer), **config)
    return al.load_model((copy.deepcopy(hf), tokenizer)), hf


@pytest.mark.parametrize("name", LOGITS)
def test_the_last_layers_lens_is_the_models_own_prediction(name: str, tokenizer: Any) -> None:
    model, hf = loaded(EVERY[name], tokenizer, **LOGITS[name])
    pairs = al.sample_pairs(model, **SAMPLE)
    logits = logits_at_end(hf, pairs.reference, pairs.attention_mask)
    index = pairs.answer[:, None]
    rank, probability = al.logit_lens(model, pairs).per_pair[-1]
    assert_close(probability, logits.softmax(-1).gather(1, index)[:, 0], rtol=1e-4, atol=0)
    assert torch.equal(rank, (logits >= logits.gather(1, index)).sum(1).float())
    settings: dict[str, Any] = {"read": "mlp_out", "tokens": "digits", "unit": "logit"}
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    found = al.mlp_probe(model, pairs, **settings).per_pair[-1]
    assert_close(found, logits[:, digits].T, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["Cohere", "Phi"])
@pytest.mark.parametrize("n_columns", [unembedding.N_COLUMNS, 7])
def test_logits_that_are_made_otherwise_are_refused(
    name: str, n_columns: int, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large vocabulary some tokens are compared; a hook still reads all."""
    monkeypatch.setattr(unembedding, "N_COLUMNS", n_columns)
    model, _ = loaded(EVERY[name], tokenizer)
    pairs, widths = al.sample_pairs(model, **SAMPLE), []
    with model.hooks([("unembed.hook_out", lambda value, hook: widths.append(value.shape[-1]))]):
        al.logit_lens(model, pairs)
    assert set(widths) == {model.d_vocab}
    monkeypatch.setattr(LogitScale, "of", lambda _: LogitScale(factor=1.5))
    with pytest.raises(ValueError, match=rf"W_U after the final norm.* found that {name}For.* mak"):
        al.logit_lens(model, pairs)


@torch.no_grad()
def raw_inputs(hf: Any, pairs: al.PromptPairs, blocks: str, norm: str) -> Tensor:
    """[layer pair d_model] at END of what each MLP's norm is given."""
    kept: list[Tensor] = []
    with ExitStack() as stack:
        for layer in reduce(getattr, blocks.split("."), hf):
            hook = getattr(layer, norm).register_forward_pre_hook(
                lambda module, args: kept.append(args[0][:, -1].clone())
            )
            stack.callback(hook.remove)
        logits_at_end(hf, pairs.reference, pairs.attention_mask)
    return torch.stack(kept)


@pytest.mark.parametrize("name", NORMS)
def test_a_parallel_mlp_reads_the_blocks_input(name: str, tokenizer: Any) -> None:
    family = EVERY[name]
    model, hf = loaded(family, tokenizer)
    pairs = al.sample_pairs(model, **SAMPLE)
    states = raw_inputs(hf, pairs, family.places.blocks, NORMS[name])
    digits = tokenizer.convert_tokens_to_ids([str(digit) for digit in range(10)])
    columns = hf.get_output_embeddings().weight[digits]
    expected = torch.cosine_similarity(states[:, None], columns[None, :, None], dim=-1)
    found = al.mlp_probe(model, pairs, read="mlp_in", tokens="digits").per_pair
    assert_close(found, expected, atol=1e-5, rtol=0)
    after = al.mlp_probe(model, pairs, read="mlp_out", tokens="digits").per_pair
    assert not torch.allclose(found, after, atol=0.05), "it must be able to fail"
    assert al.logit_lens(model, pairs, read="mlp_in").per_pair.isfinite().all()


def test_a_model_without_a_final_norm_is_refused(tokenizer: Any) -> None:
    model, _ = loaded(EVERY["OPT, projected"], tokenizer)
    pairs = al.sample_pairs(model, **SAMPLE)
    for probe in (al.mlp_probe, al.logit_lens):
        with pytest.raises(ValueError, match="expected a final norm before W_U, found none in OPT"):
            probe(model, pairs)
