"""Solved examples before a problem: by hand, aligned, without a leak."""

from pathlib import Path
from typing import Any

import pytest
import torch

from arith_lens import PromptPairs, attention_by_role, sample_pairs
from arith_lens.operations import FOUR, OPERATIONS
from arith_lens.pairs import Role

SYMBOLS: dict[str, Any] = {"templates": "symbols", "keep": "all", "shots": 4}


def lines(pairs: PromptPairs) -> list[list[str]]:
    assert pairs.examples is not None
    return [text.splitlines() for text in pairs.examples]


@pytest.mark.parametrize("operation", FOUR)
def test_examples_are_solved_and_neither_operands_nor_answer_stand_among_them(
    operation: str, tokenizer: Any
) -> None:
    pairs = sample_pairs(tokenizer, operation, **SYMBOLS)
    assert pairs.operands is not None and pairs.answer_text is not None
    for (a, b), answer, solved in zip(
        pairs.operands.tolist(), pairs.answer_text, lines(pairs), strict=True
    ):
        assert len({*solved}) == 4
        for line in solved:
            x, sign, y, equals, c = line.split()
            assert (sign, equals) == (OPERATIONS[operation].symbol, "=")
            value = {"+": int(x) + int(y), "-": int(x) - int(y), "*": int(x) * int(y)}
            assert (value | {"/": int(x) / int(y)})[sign] == int(c)
            assert {int(x), int(y)} != {a, b} and c != answer


@pytest.mark.parametrize("counterfactual", ["word", "operands", "operator"])
def test_both_prompts_have_the_same_examples_and_differ_in_the_problem_alone(
    counterfactual: str, tokenizer: Any
) -> None:
    pairs = sample_pairs(tokenizer, "addition", counterfactual=counterfactual, **SYMBOLS)
    alone = sample_pairs(
        tokenizer, "addition", counterfactual=counterfactual, templates="symbols", keep="all"
    )
    assert pairs.examples is not None and pairs.reference_text is not None
    assert pairs.counterfactual_text is not None and alone.reference_text is not None
    own = [
        text.removeprefix(some)
        for text, some in zip(pairs.reference_text, pairs.examples, strict=True)
    ]
    assert own == list(alone.reference_text)
    for text, some in zip(pairs.counterfactual_text, pairs.examples, strict=True):
        assert text.startswith(some) and text.removeprefix(some) not in some
    differs = pairs.reference != pairs.counterfactual
    assert differs.any(1).all() and not (differs & pairs.role_mask(Role.EXAMPLES)).any()
    assert not differs[:, -1].any()


def test_roles_of_one_prompt_by_hand(tokenizer: Any) -> None:
    pairs = sample_pairs(tokenizer, "addition", **SYMBOLS)
    assert pairs.pieces is not None and pairs.examples is not None
    spelled = [pairs.pieces[token] for token in pairs.reference[0].tolist()]
    start = len(spelled) - len(["3", "▁+", "▁", "5", "▁=", "▁"])
    assert pairs.role_mask(Role.EXAMPLES)[0].tolist() == [
        0 < i < start for i in range(len(spelled))
    ]
    text = "".join(spelled[1:start]).replace("▁", " ")
    assert text.split() == pairs.examples[0].split()
    roles = torch.stack([pairs.role_mask(role) for role in Role]).int().sum(0)
    assert torch.equal(roles, pairs.attention_mask.int())


def test_mixed_examples_are_of_every_operation(tokenizer: Any) -> None:
    pairs = sample_pairs(tokenizer, "division", exemplars="mixed", **SYMBOLS)
    for solved in lines(pairs):
        assert len({line.split()[1] for line in solved}) >= 2
    signs = {line.split()[1] for solved in lines(pairs) for line in solved}
    assert signs == {OPERATIONS[name].symbol for name in FOUR}


def test_a_set_is_drawn_once_and_another_set_is_another_wording(tokenizer: Any) -> None:
    zero, again, one = (
        sample_pairs(tokenizer, "addition", exemplar_set=number, **SYMBOLS) for number in (0, 0, 1)
    )
    assert zero.examples == again.examples != one.examples
    together = zero + one
    assert set(together.units["template"] or ()) == {
        "addition/0, 4 same examples, set 0",
        "addition/0, 4 same examples, set 1",
    }
    assert len({*together.problem}) == len({*zero.problem})
    none = sample_pairs(tokenizer, "addition", templates="symbols", keep="all")
    assert none.examples is None and set(none.units["template"] or ()) == {"addition/0"}


def test_stories_have_examples_in_their_own_words(tokenizer: Any) -> None:
    pairs = sample_pairs(tokenizer, "addition", templates=["story/9"], keep="all", shots=2, n=5)
    for solved in lines(pairs):
        assert len(solved) == 2 and all("The answer is " in line for line in solved)


@pytest.mark.parametrize("exemplars", ["same", "mixed"])
def test_files_keep_examples_and_roles(exemplars: str, tokenizer: Any, tmp_path: Path) -> None:
    pairs = sample_pairs(tokenizer, "subtraction", exemplars=exemplars, **SYMBOLS)
    pairs.to_jsonl(tmp_path / "pairs.jsonl")
    pairs.to_csv(tmp_path / "pairs.csv")
    read = [
        PromptPairs.from_jsonl(tmp_path / "pairs.jsonl", tokenizer),
        PromptPairs.from_csv(tmp_path / "pairs.csv", tokenizer),
        PromptPairs.from_dataset(pairs.to_dataset()),
    ]
    for other in read:
        assert (
            other.examples == pairs.examples and other.units["template"] == pairs.units["template"]
        )
        for role in Role:
            assert torch.equal(other.role_mask(role), pairs.role_mask(role))


def test_attention_to_examples_is_counted(llama: Any) -> None:
    pairs = sample_pairs(llama, "addition", n=3, **SYMBOLS)
    weights = attention_by_role(llama, pairs, ["0.0", "1.1"])
    assert weights.labels is not None and str(Role.EXAMPLES) in weights.labels["role"]
    assert torch.allclose(weights.per_pair.sum(1), torch.ones(2, 3), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": -1}, "expected shots as a whole number, 0 or more, found -1"),
        ({"shots": 30}, r"expected 30 examples without the operands .*fewer shots"),
        ({"exemplars": "other"}, r"expected exemplars among same, mixed, found 'other'"),
        (
            {"templates": ["story/9"], "exemplars": "mixed"},
            "for mixed examples, found none in addition",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    options: dict[str, Any], message: str, tokenizer: Any
) -> None:
    with pytest.raises(ValueError, match=message):
        sample_pairs(tokenizer, "addition", **SYMBOLS | options)


def test_pairs_with_and_without_examples_add(tokenizer: Any) -> None:
    some = sample_pairs(tokenizer, "addition", **SYMBOLS)
    none = sample_pairs(tokenizer, "addition", templates="symbols", keep="all")
    for both in (some + none, none + some):
        assert both.examples is not None
        counted = both.role_mask(Role.EXAMPLES).any(1)
        assert counted.tolist() == [text != "" for text in both.examples]
        assert "addition/0" in (both.units["template"] or ())


def digits_that_are_read(pairs: PromptPairs, last: bool) -> None:
    """No example's answer begins, or ends, with the token that is read."""
    assert pairs.answer_text is not None
    for answer, solved in zip(pairs.answer_text, lines(pairs), strict=True):
        shown = [line.split()[-1] for line in solved]
        assert not any(c.endswith(answer) if last else c.startswith(answer) for c in shown)


@pytest.mark.parametrize("answer_token", ["first", "last"])
def test_the_part_of_an_answer_that_is_read_ends_no_example(
    answer_token: str, tokenizer: Any
) -> None:
    pairs = sample_pairs(
        tokenizer, "addition", operands=range(10, 40), answer_token=answer_token, n=60, **SYMBOLS
    )
    digits_that_are_read(pairs, answer_token == "last")


def test_mixed_examples_do_not_begin_with_the_answer(tokenizer: Any) -> None:
    digits_that_are_read(sample_pairs(tokenizer, "division", exemplars="mixed", **SYMBOLS), False)


def test_other_operands_are_not_given_away_either(tokenizer: Any) -> None:
    pairs = sample_pairs(tokenizer, "addition", counterfactual="operands", **SYMBOLS)
    assert pairs.counterfactual_text is not None and pairs.examples is not None
    for text, some in zip(pairs.counterfactual_text, pairs.examples, strict=True):
        a, _, b, _ = text.removeprefix(some).split()
        for line in some.splitlines():
            x, _, y, _, c = line.split()
            assert {x, y} != {a, b} and int(c) != int(a) + int(b)
