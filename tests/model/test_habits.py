"""What users of TransformerLens try: it works, or the error says what to use."""

from typing import Any

import pytest
import torch
from support.families import SWEPT

from arith_lens.hooks import ablate_heads
from arith_lens.knockout import knock_out
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("add_hook", r"with model\.hooks\(\[\(name, function\)\]\):"),
        ("reset_hooks", "hooks end with their context"),
        ("to", r"load_model\(source, device=\.\.\., dtype=\.\.\.\)"),
        ("eval", "in evaluation mode since load_model"),
        ("W_O", r"model\.blocks\[layer\]\.attn\.W_O"),
        ("W_K", r"model\.bridge\.W_K"),
        ("nothing", r"see dir\(model\)"),
    ],
)
def test_a_name_of_transformer_lens_is_answered_by_what_to_use(llama, name, instead):
    with pytest.raises(AttributeError, match=f"found '{name}'; .*{instead}"):
        getattr(llama, name)
    assert not hasattr(llama, name)


def test_what_the_pointers_name_is_there(llama):
    hf = llama.bridge.original_model
    assert torch.equal(llama.W_E, hf.model.embed_tokens.weight)
    written = llama.blocks[1].attn.W_O
    assert torch.equal(written.flatten(0, 1), hf.model.layers[1].self_attn.o_proj.weight.T)
    assert llama.bridge.W_K.shape[0] == 3 and not llama.bridge.training


def test_a_hook_point_that_is_not_there_is_answered_by_the_nearest(llama, reference):
    hooks = [("blocks.0.attn.hook_zz", lambda value, hook: None)]
    for run in (
        lambda: llama.run_with_hooks(reference, fwd_hooks=hooks),
        lambda: llama.hooks(hooks),
    ):
        with pytest.raises(KeyError, match=r"found blocks\.0\.attn\.hook_zz; the nearest .*hook_z"):
            run()


def test_a_head_that_the_model_lacks_is_refused_before_a_run(llama):
    with pytest.raises(IndexError, match=r"layers 0 to 2, found blocks\.99"):
        llama.hooks(ablate_heads(["99.5"], ablation="zero"))
    with pytest.raises(IndexError, match=r"heads from 0 to 3 in each layer, found 9 at blocks\.1"):
        llama.hooks(ablate_heads(["1.9"], ablation="zero"))


def test_an_option_that_nothing_takes_is_refused(llama, reference):
    for run in (llama, llama.run_with_cache):
        with pytest.raises(TypeError, match="found logits_to_kep; write 'logits_to_keep'"):
            run(reference, logits_to_kep=1)
    assert llama(reference, logits_to_keep=1, output_attentions=False).shape[1] == 1


def test_a_model_of_bare_tokens_needs_no_tokenizer(make_hf):
    """Digits are the tokens 0 to 9, so that 0, with which others pad, is a digit."""
    hf = make_hf("llama", vocab_size=20, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    bare = load_model((hf, None))
    assert bare.tokenizer is None
    reference = torch.tensor([[0, 10, 5, 11], [3, 10, 0, 11], [7, 10, 2, 11], [0, 10, 4, 11]])
    counterfactual = reference.clone()
    counterfactual[:, 1] = 12
    mask = torch.ones_like(reference)
    pairs = PromptPairs.from_tokens(reference, counterfactual, torch.tensor([5, 3, 9, 4]), mask)
    with torch.no_grad():
        assert torch.equal(bare(reference, attention_mask=mask), hf(reference).logits)
        clean, other = hf(reference).logits[:, -1], hf(counterfactual).logits[:, -1]
    everything = knock_out(bare, pairs, [], progress=False)
    assert torch.equal(everything.top[:, 0], clean.argmax(-1))
    assert not torch.equal(clean, other)
    effects = path_patch(bare, pairs, metric="logit", progress=False)
    assert effects.computation["certificate"] and effects.heads.per_pair.isfinite().all()
    with pytest.raises(ValueError, match=r"starts with token 0, .*ones, if that token is meant"):
        PromptPairs.from_tokens(reference, counterfactual, torch.tensor([5, 3, 9, 4]))


@pytest.mark.parametrize("name", ["Granite MoE", "Mixtral"])
def test_options_that_a_model_takes_without_naming_them_are_passed_on(
    name: str, tokenizer: Any
) -> None:
    """Granite MoE's forward has `use_cache` among its `**kwargs`."""
    model = load_model((SWEPT[name].make(len(tokenizer)), tokenizer))
    tokens = model.to_tokens("3 plus 5 = ")
    assert torch.equal(model(tokens, use_cache=False), model(tokens))
    with pytest.raises(TypeError, match="found foo"):
        model(tokens, foo=1)
