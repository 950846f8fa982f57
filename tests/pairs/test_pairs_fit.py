"""Pairs that a model cannot mean what they say are refused, and so are counts that cannot be."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.next_tokens import next_tokens
from arith_lens.pairs import PromptPairs, check_pairs

QUIET: dict[str, Any] = {"progress": False}


@pytest.fixture(scope="module")
def pairs(llama: HookedModel) -> PromptPairs:
    return al.sample_pairs(llama, "addition", n=18, keep="all")


def test_pairs_of_this_model_fit(llama: HookedModel, pairs: PromptPairs) -> None:
    check_pairs(llama, pairs)
    check_pairs(llama, replace(pairs, pieces=None))


def test_pairs_of_another_tokenizer_are_refused_by_every_method(
    llama: HookedModel, pairs: PromptPairs
) -> None:
    assert pairs.pieces is not None
    strange = replace(pairs, pieces={token: piece + "s" for token, piece in pairs.pieces.items()})
    for method in (
        lambda: al.path_patch(llama, strange, **QUIET),
        lambda: al.plan(llama, strange),
        lambda: al.attribute(llama, strange, **QUIET),
        lambda: al.knock_out(llama, strange, "0.1", **QUIET),
        lambda: al.attention_by_role(llama, strange, "0.1"),
        lambda: al.mlp_probe(llama, strange),
    ):
        with pytest.raises(ValueError, match=r"pairs of the model's tokenizer.* token \d+ is '"):
            method()


@pytest.mark.parametrize("name", ["reference", "counterfactual", "answer"])
@pytest.mark.parametrize("token", [-1, 398])
def test_tokens_beyond_the_vocabulary_are_refused(
    name: str, token: int, llama: HookedModel, pairs: PromptPairs
) -> None:
    tokens = getattr(pairs, name).clone()
    tokens.view(len(pairs), -1)[2, -1] = token
    with pytest.raises(ValueError, match=f"from 0 to 397, found {token} in {name}"):
        check_pairs(llama, replace(pairs, **{name: tokens}))


def test_prompts_longer_than_the_context_are_refused(llama: HookedModel) -> None:
    for length in (128, 129):
        tokens = torch.full((2, length), 5)
        long = PromptPairs.from_tokens(tokens, tokens + 1, tokens[:, 0])
        if length == 128:
            check_pairs(llama, long)
        else:
            with pytest.raises(ValueError, match=r"at most 128 tokens.* found one of 129"):
                check_pairs(llama, long)


def test_text_is_one_prompt(llama: HookedModel) -> None:
    one, listed = next_tokens(llama, "3 plus 5 = "), next_tokens(llama, ["3 plus 5 = "])
    assert one.prompts == listed.prompts == ("3 plus 5 = ",)
    assert torch.equal(one.ids, listed.ids)


def test_a_negative_number_of_checks_is_refused(llama: HookedModel, pairs: PromptPairs) -> None:
    with pytest.raises(ValueError, match="spot_checks of 0 or more, found -1"):
        al.path_patch(llama, pairs, spot_checks=-1)


def test_a_pair_of_operands_is_refused_since_it_may_mean_a_range(llama: HookedModel) -> None:
    with pytest.raises(ValueError, match=r"range\(1, 10\) for .* from 1 to 9, or \[1, 9\] for"):
        al.sample_pairs(llama, operands=(1, 9), keep="all")
    two = al.sample_pairs(llama, operands=[1, 3], keep="all", templates=["addition/0"])
    assert two.operands is not None and set(two.operands.flatten().tolist()) == {1, 3}


def test_a_random_model_has_no_key_heads(llama: HookedModel, pairs: PromptPairs) -> None:
    """Although the means of some of its heads are below the threshold."""
    effects = al.path_patch(llama, pairs, metric="logit", certify=False, **QUIET)
    below = effects.heads.mean() < -0.01
    assert below.any()
    assert al.key_heads(effects, -0.01) == []


def test_the_error_without_a_right_answer_shows_the_models_own(llama: HookedModel) -> None:
    with pytest.raises(ValueError, match=r"answers right .* found 0 of") as error:
        al.sample_pairs(llama, "addition", n=2, templates=["addition/0"])
    (pair,) = al.sample_pairs(llama, "addition", n=2, templates=["addition/0"], keep="all")[:1]
    assert pair.reference_text is not None and pair.answer_text is not None
    top = int(llama(pair.reference, attention_mask=pair.attention_mask)[0, -1].argmax())
    said, right = llama.tokenizer.decode([top]), pair.answer_text[0]
    example = f"{pair.reference_text[0]!r}, where {right!r} is right and the model says {said!r}."
    assert example in str(error.value)
