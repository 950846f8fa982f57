"""The joint of prompt and answer is written in the row: with a blank, or without."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.text_folders import byte_level, small_model
from transformers import PreTrainedTokenizerFast

from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs, sample_pairs
from arith_lens.probes.reading import digit_tokens
from arith_lens.word_problems.convert import WordProblem, word_problem_pairs
from arith_lens.word_problems.phrases import PhraseEdit


@pytest.fixture(scope="module", params=["three digits", "one digit", "joined"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    made = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(request.param), eos_token="<|eos|>", name_or_path="small"
    )
    made.split = request.param
    return made


def row(reference: str, answer: str, sign: str = "-") -> dict[str, str]:
    other = reference.replace(sign, "&")
    return {"reference": reference, "counterfactual": other, "answer": answer}


@pytest.mark.parametrize(
    ("reference", "answer"),
    [("226-68=", "158"), ("226-68=", " 158"), ("9-4=", "5"), ("9-4= ", "5"), ("9 - 4 =", " 5")],
)
def test_the_answer_is_what_the_tokenizer_writes_right_after_the_prompt(
    tokenizer: Any, reference: str, answer: str
) -> None:
    prompt = tokenizer(reference)["input_ids"]
    whole = tokenizer(reference + answer)["input_ids"]
    is_one_token = whole[:-1] == prompt and tokenizer.decode(whole[-1:]).strip() == answer.strip()
    if is_one_token:
        pairs = PromptPairs.from_rows([row(reference, answer)], tokenizer)
        assert pairs.reference[0].tolist() == prompt
        assert pairs.answer.tolist() == whole[-1:]
        assert pairs.answer_text == (answer,)
        assert tokenizer.decode([*prompt, pairs.answer[0]]) == reference + answer
    else:
        with pytest.raises(ValueError, match="expected an answer of the one token after"):
            PromptPairs.from_rows([row(reference, answer)], tokenizer)


def test_with_a_blank_and_without_are_two_answers_where_both_are_tokens(tokenizer: Any) -> None:
    if tokenizer.split != "joined":
        pytest.skip("the blank is a token of its own here")
    pairs = PromptPairs.from_rows([row("226-68=", "158"), row("226-68=", " 158")], tokenizer)
    assert tokenizer.convert_ids_to_tokens(pairs.answer.tolist()) == ["158", "Ġ158"]


@pytest.mark.parametrize(
    ("reference", "answer"), [("226-68=", " 158"), ("226-68=", "158"), ("7 - 5 = ", "2")]
)
def test_what_an_error_advises_is_accepted(tokenizer: Any, reference: str, answer: str) -> None:
    try:
        PromptPairs.from_rows([row(reference, answer)], tokenizer)
        return
    except ValueError as error:
        advice = str(error).splitlines()[-1]
    advised = re.findall(r"(?:the answer|first token,) '([^']*)'(?: after '([^']*)')?", advice)
    assert advised, advice
    for other, start in advised:
        PromptPairs.from_rows([row(start or reference, other)], tokenizer)


@pytest.mark.parametrize("tail", ["\nA:\n", " A:"])
@pytest.mark.parametrize("answer", [" 158", "158"])
def test_what_an_error_advises_in_a_chat_is_accepted_there(
    tokenizer: Any, tail: str, answer: str
) -> None:
    """A chat that begins a line drops the answer's blank, so no advice asks for one."""
    chat = copy.deepcopy(tokenizer)
    chat.chat_template = "{% for m in messages %}Q: {{ m['content'] }}{% endfor %}{{ '" + (
        tail.replace("\n", "\\n") + "' }}"
    )
    try:
        pairs = PromptPairs.from_rows([row("226-68=", answer)], chat, chat=True)
        assert pairs.answer_text == (answer.lstrip() if tail.endswith("\n") else answer,)
        return
    except ValueError as error:
        reason, advice = str(error).splitlines()
    dropped = answer.startswith(" ") and tail.endswith("\n")
    assert f"found {answer!r}" in reason, "as it is written"
    assert ("(chat=True drops its blank)" in reason) == dropped
    advised = re.findall(r"(?:the answer|first token,) '([^']*)'", advice)
    assert advised and not (dropped and " 1" in str(advised)), advice
    for other in advised:
        PromptPairs.from_rows([row("226-68=", other)], chat, chat=True)


def test_each_advice_is_given_somewhere() -> None:
    advice = {}
    for split, reference, answer in (
        ("three digits", "226-68=", " 158"),
        ("one digit", "226-68=", "158"),
        ("joined", "7 - 5 = ", "2"),
    ):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(split))
        with pytest.raises(ValueError) as error:
            PromptPairs.from_rows([row(reference, answer)], tokenizer)
        advice[split] = str(error.value).splitlines()[-1]
    assert "Give the answer '158', or the answer '158' after '226-68= '" in advice["three digits"]
    assert "Give its first token, '1', as the answer" in advice["one digit"]
    assert "Give the answer ' 2' after '7 - 5 ='" in advice["joined"]


def test_pairs_come_back_from_their_text_with_and_without_a_template(
    tokenizer: Any, tmp_path: Path
) -> None:
    pairs = sample_pairs(
        tokenizer, n=20, keep="all", templates=["addition/0"], counterfactual="operator"
    )
    pairs.to_jsonl(tmp_path / "pairs.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    blanks = {one["answer"][0] == " " for one in rows}
    assert blanks == {tokenizer.split == "joined"}
    bare = [{k: v for k, v in one.items() if k not in ("template", "a", "b")} for one in rows]
    older = [one | {"answer": one["answer"].strip()} for one in rows]
    for back in (rows, bare, older):
        again = PromptPairs.from_rows(back, tokenizer)
        assert torch.equal(again.reference, pairs.reference)
        assert torch.equal(again.answer, pairs.answer)
        assert torch.equal(again.counterfactual_answer, pairs.counterfactual_answer)


def test_a_word_problem_comes_back_from_its_text(tokenizer: Any, tmp_path: Path) -> None:
    text = "3 plus 4 equals "
    edit = PhraseEdit(2, 6, ("null", "void"), needed=True)
    pairs, _ = word_problem_pairs(tokenizer, [WordProblem(text, "7", (edit,))])
    pairs.to_jsonl(tmp_path / "pairs.jsonl")
    back = PromptPairs.from_jsonl(tmp_path / "pairs.jsonl", tokenizer)
    assert torch.equal(back.answer, pairs.answer) and torch.equal(back.reference, pairs.reference)


def test_the_ten_digits_are_written_as_the_answer_is(tokenizer: Any) -> None:
    model = load_model((small_model("Llama", len(tokenizer)), tokenizer))
    blanks = ("", " ") if tokenizer.split == "joined" else ("",)
    for blank in blanks:
        pairs = PromptPairs.from_rows([row("9-4=", f"{blank}5")], tokenizer)
        written = tokenizer.convert_ids_to_tokens(digit_tokens(model, pairs)[0].tolist())
        assert written == [blank.replace(" ", "Ġ") + str(digit) for digit in range(10)]
        assert int(digit_tokens(model, pairs)[0, 5]) == int(pairs.answer[0])
