"""What a user mistypes or swaps is refused in words, with what to do."""

import re
from collections.abc import Callable
from inspect import unwrap  # as users call them, without the types that tests check
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.fine_tuning.methods import check_method
from arith_lens.model import record
from arith_lens.numbers.shapes import checked_shape
from arith_lens.operations import operation_of
from arith_lens.pairs import PromptPairs, keep_correct, sample_pairs, text_files
from arith_lens.pairs.bare_tokens import check_shapes
from arith_lens.problems import check_operands

ROW = {"reference": "3 plus 4 is ", "counterfactual": "3 null 4 is ", "answer": "7"}
TOKENS = torch.tensor([[1, 5, 6], [1, 7, 8]])
EFFECTS = al.Effects(torch.ones(1, 4), ("component",), "logit")
OTHERS, ANSWERS = TOKENS + 1, torch.tensor([3, 4])


@pytest.mark.parametrize(
    ("name", "meant"),
    [("additon", "addition"), ("Addition", "addition"), ("+", "addition"), ("÷", "division")],
)
def test_a_misspelt_operation_is_shown_with_the_one_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"found '{re.escape(name)}'; did you mean '{meant}'\?"):
        operation_of(name)
    assert operation_of(meant).name == meant


def test_a_name_like_no_operation_has_no_guess() -> None:
    with pytest.raises(ValueError, match="found 'xyz'; choose one"):
        operation_of("xyz")


@pytest.mark.parametrize(
    ("call", "found", "meant"),
    [
        (lambda _: al.built_model("tabel"), "tabel", "table"),
        (lambda _: al.built_model("table", family="lama"), "lama", "llama"),
        (lambda model: al.sample_pairs(model, "addition", keep="corect"), "corect", "correct"),
        (lambda _: checked_shape("furier", (10,), False, None, range(9)), "furier", "fourier"),
        (lambda _: check_method("precies", [], []), "precies", "precise"),
        (lambda _: EFFECTS.ci(method="percentil"), "percentil", "percentile"),
    ],
)
def test_a_misspelt_option_is_shown_with_the_one_that_is_meant(
    call: Callable[[Any], Any], found: str, meant: str, tokenizer: Any
) -> None:
    with pytest.raises(ValueError, match=rf"expected .* found '{found}'; did you mean '{meant}'\?"):
        call(tokenizer)


@pytest.mark.parametrize("operands", [5, "12", None, [1.5, 2]])
def test_operands_are_several_whole_numbers(operands: Any) -> None:
    with pytest.raises(TypeError, match=r"expected operands as several whole numbers, found"):
        unwrap(check_operands)(operands)
    assert check_operands([3, 3, 5]) == {3, 5} and len(check_operands(range(3))) == 3


def test_a_path_and_a_model_that_are_swapped_are_named(tokenizer: Any) -> None:
    read: Any = unwrap(text_files._text)
    with pytest.raises(TypeError, match="expected the path of a file, then the model, found a"):
        read(tokenizer)
    check: Any = unwrap(text_files.check_rows)
    with pytest.raises(TypeError, match="expected a list of rows, then the model, found a"):
        check(tokenizer, {})
    assert len(PromptPairs.from_rows([ROW], tokenizer)) == 1


def test_a_file_that_is_not_there_is_named_with_its_folder(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected a file of pairs at .*, found nothing"):
        PromptPairs.from_jsonl(tmp_path / "mine.jsonl", tokenizer)
    with pytest.raises(FileNotFoundError, match=r"expected a file of pairs at .*, found a folder"):
        PromptPairs.from_file(tmp_path, tokenizer)


def test_ids_beyond_the_vocabulary_are_refused_before_the_model_runs(llama: Any) -> None:
    beyond = TOKENS.clone()
    beyond[0, 1] = llama.d_vocab
    pairs = PromptPairs.from_tokens(beyond, OTHERS, ANSWERS)
    last = llama.d_vocab - 1
    for call in (
        lambda: keep_correct(llama, pairs),
        lambda: llama(beyond),
        lambda: llama.run_with_cache(beyond),
        lambda: llama.generate(beyond),
        lambda: record(llama, beyond, ["blocks.0.hook_mlp_out"]),
    ):
        with pytest.raises(ValueError, match=rf"from 0 to {last}, found "):
            call()
    beyond[0, 1] = last
    assert llama(beyond).shape[-1] == llama.d_vocab


def test_bare_tokens_are_whole_numbers_from_zero() -> None:
    from_tokens = PromptPairs.from_tokens
    negative = TOKENS.clone()
    negative[1, 2] = -5
    with pytest.raises(ValueError, match=r"expected token ids of 0 or more, found -5 in reference"):
        from_tokens(negative, OTHERS, ANSWERS)
    mask = torch.ones_like(TOKENS)
    mask[1, 2] = 0
    assert len(from_tokens(negative, OTHERS, ANSWERS, mask)) == 2, "padding may be anything"
    check: Any = unwrap(check_shapes)
    for wrong in (TOKENS.tolist(), TOKENS.float()):
        with pytest.raises(TypeError, match="expected reference as a tensor of token ids"):
            check(wrong, OTHERS, ANSWERS, None)


def test_sampling_says_so_too(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="did you mean 'addition'"):
        sample_pairs(tokenizer, "additon", keep="all")
