"""The likeliest next tokens are those of plain Transformers, prompt by prompt."""

from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.next_tokens import NextTokens, next_tokens

PROMPTS = ("3 plus 5 equals to ", "The sum of 3 and 5 is ", "Q: How much is 3 plus 5? A: ")


@torch.no_grad()
def raw(hf: Any, tokenizer: Any, prompt: str) -> torch.Tensor:
    """Probabilities after one prompt alone, without padding, by Transformers."""
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    return hf(input_ids=ids).logits[0, -1].softmax(-1)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_prompts_of_unequal_lengths_give_what_each_gives_alone(
    family: str, make_hf: Any, make_model: Any, tokenizer: Any
) -> None:
    said = next_tokens(make_model(family), PROMPTS, batch_size=2)
    for row, prompt in enumerate(PROMPTS):
        top = raw(make_hf(family), tokenizer, prompt).topk(5)
        assert said.ids[row].tolist() == top.indices.tolist()
        torch.testing.assert_close(said.probabilities[row], top.values, rtol=1e-4, atol=1e-6)
        other = raw(make_hf(family), tokenizer, PROMPTS[row - 1]).topk(5)
        assert not torch.allclose(other.values, top.values), "the test must be able to fail"


def test_hooks_change_what_is_said(llama: HookedModel) -> None:
    hooks = al.ablate_heads([al.Head(0, 0), al.Head(2, 1)], ablation="zero")
    before, after = next_tokens(llama, PROMPTS), next_tokens(llama, PROMPTS, hooks=hooks)
    assert not torch.allclose(before.probabilities, after.probabilities)


def test_pieces_are_text_with_their_spaces(llama: HookedModel, tokenizer: Any) -> None:
    said = next_tokens(llama, PROMPTS, k=llama.d_vocab)
    place = said.ids[0].tolist().index(tokenizer.convert_tokens_to_ids("▁plus"))
    assert said.pieces[0][place] == " plus"
    assert float(said.probabilities[0].sum()) == pytest.approx(1)


def test_a_file_gives_the_same_back(llama: HookedModel) -> None:
    said = next_tokens(llama, PROMPTS, k=3)
    again = NextTokens.from_arrays(said.to_arrays())
    assert (again.prompts, again.pieces) == (said.prompts, said.pieces)
    assert torch.equal(again.ids, said.ids)
    assert len(said.to_dataframe()) == 9


@pytest.mark.parametrize(("prompts", "k"), [((), 5), (("",), 5), (PROMPTS, 0), (PROMPTS, 10**6)])
def test_what_cannot_be_asked_is_refused(llama: HookedModel, prompts: Any, k: int) -> None:
    with pytest.raises(ValueError, match="expected prompts with text and k from 1"):
        next_tokens(llama, prompts, k=k)
