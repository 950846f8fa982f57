"""Pairs for interchanges: what their answers, values and halves have in common."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.interchanges import InterchangePairs

CARRY = al.causal_model("addition", "carry")
FIXED: dict[str, Any] = {
    "n": 120,
    "templates": ["addition/0", "addition/1"],
    "operands": [number for number in range(10, 100) if number % 3],
}


def draw(tokenizer: Any, **options: Any) -> InterchangePairs:
    return al.interchange_pairs(tokenizer, CARRY, **{**FIXED, **options})


def problems(pairs: InterchangePairs, side: int) -> list[tuple[int, int]]:
    """Operands of the bases (0) or of the sources (1), from the text."""
    texts = (pairs.pairs.reference_text, pairs.pairs.counterfactual_text)[side] or ()
    numbers = [[int(word) for word in text.split() if word.isdigit()] for text in texts]
    return [(row[0], row[1]) for row in numbers]


def digit(number: int, place: int) -> str:
    return str(number)[place]


@pytest.mark.parametrize("sources", ["other", "matched"])
def test_the_expected_answer_is_the_base_with_the_other_carry(tokenizer: Any, sources: str) -> None:
    pairs = draw(tokenizer, sources=sources)
    own, other = problems(pairs, 0), problems(pairs, 1)
    assert len(pairs) > 100 and set(pairs.pairs.template or ()) == {"addition/0", "addition/1"}
    rows = zip(own, other, pairs.expected.tolist(), pairs.values.tolist(), strict=True)
    prefixes = [text.rsplit(" ", 1)[-1] for text in pairs.pairs.reference_text or ()]
    for ((a, b), (c, d), token, (before, after)), prefix in zip(rows, prefixes, strict=True):
        assert (a % 10 + b % 10 > 9, c % 10 + d % 10 > 9) == (before, after)
        expected = a + b + 10 * (after - before)
        place = len(prefix) if prefix.isdigit() else 0
        assert str(a + b)[:place] == str(expected)[:place] == str(c + d)[:place]
        read = tokenizer.decode([token]).strip()
        assert read == digit(expected, place) != digit(a + b, place)
        assert (digit(c + d, place) == read) is (sources == "matched")
        if sources == "matched":
            assert (a // 10, b // 10) == (c // 10, d // 10)


def test_both_prompts_of_a_pair_have_the_same_right_examples_of_other_answers(
    tokenizer: Any,
) -> None:
    pairs = draw(tokenizer, sources="matched", answers=range(100), shots=2).pairs
    texts = zip(pairs.reference_text or (), pairs.counterfactual_text or (), strict=True)
    for base, source in texts:
        *examples, own = base.split("\n")
        assert [*examples] == source.split("\n")[:-1] and len(examples) == 2
        answers = [str(sum(int(word) for word in one.split() if word.isdigit())) for one in (
            own, source.split("\n")[-1])]  # fmt: skip
        for example in examples:
            *numbers, total = [int(word) for word in example.split() if word.isdigit()]
            assert sum(numbers) == total
            assert str(total)[0] not in {answer[0] for answer in answers}


def test_values_and_expected_tokens_take_turns(tokenizer: Any) -> None:
    rates = draw(tokenizer, answers=range(100)).base_rates()
    assert rates["likeliest"] < 0.2 and 0.4 < rates["value"] < 0.6
    assert (rates["base"], rates["source"]) == (0, 0)
    matched_pairs = draw(tokenizer, sources="matched")
    matched = matched_pairs.base_rates()
    assert matched["source"] == 1 and 0.45 < matched["value"] < 0.55
    alike = replace(matched_pairs, expected=matched_pairs.expected * matched_pairs.fit)
    few = matched_pairs[:9]  # all sources have one answer
    same = torch.full_like(few.pairs.answer, int(few.pairs.answer[0]))
    few = replace(few, pairs=replace(few.pairs, counterfactual_answer=same))
    tokens = (few.pairs.answer, few.pairs.counterfactual_answer)
    both = [[*zip(few.values[:, i].tolist(), tokens[i].tolist(), strict=True)] for i in (0, 1)]
    assert few.n_classes == len({*both[0], *both[1]}) < 9 + 2
    rates = alike.base_rates()
    assert rates["likeliest"] == 1 and rates["source"] == 0, "of the tested half alone"
    tens = al.interchange_pairs(tokenizer, CARRY, "tens_carry", n=100, sources="matched")
    assert 0.45 < tens.base_rates()["value"] < 0.55


def test_halves_share_no_problem_no_digit_or_no_template(tokenizer: Any) -> None:
    halves = {}
    for hold_out in ("problems", "digits", "templates"):
        pairs = draw(tokenizer, hold_out=hold_out)
        parts = [pairs[pairs.fit], pairs[pairs.test]]
        assert min(map(len, parts)) > 40
        halves[hold_out] = parts
        used = [{*problems(part, 0), *problems(part, 1)} for part in parts]
        assert not used[0] & used[1]
    digits = [
        {n % 10 for side in (0, 1) for pair in problems(part, side) for n in pair}
        for part in halves["digits"]
    ]
    assert not digits[0] & digits[1]
    templates = [{*(part.pairs.template or ())} for part in halves["templates"]]
    assert not templates[0] & templates[1]
    mixed = [{*(part.pairs.template or ())} for part in halves["problems"]]
    assert mixed[0] == mixed[1]


def test_the_fitted_half_can_be_that_of_others(tokenizer: Any) -> None:
    small, large = (
        draw(tokenizer, answers=answers, n=60) for answers in (range(100), range(100, 200))
    )
    mixed = large.fitted_on(small)
    assert len(mixed[mixed.fit]) == int(small.fit.sum())
    assert {a + b < 100 for a, b in problems(mixed[mixed.fit], 0)} == {True}
    assert {a + b < 100 for a, b in problems(mixed[mixed.test], 0)} == {False}
    tens = al.interchange_pairs(tokenizer, CARRY, "tens_carry", n=60, sources="matched")
    with pytest.raises(ValueError, match="expected pairs of one variable, found"):
        tens.fitted_on(small)


def test_only_problems_that_the_model_answers_right_are_left(
    tokenizer: Any, llama: al.HookedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="answers both problems right, found"):
        al.interchange_pairs(llama, CARRY, **FIXED)
    everything = al.interchange_pairs(tokenizer, CARRY, **FIXED)
    assert len(everything) > 100
    right = {
        "reference": torch.arange(len(everything)) % 2 == 0,
        "counterfactual": torch.arange(len(everything)) % 3 == 0,
    }

    def answers(_: Any, pairs: al.PromptPairs, side: str, batch_size: int) -> Any:
        own = everything.pairs.answer if side == "reference" else (
            everything.pairs.counterfactual_answer)  # fmt: skip
        assert torch.equal(pairs.answer, own)
        return right[side].clone(), None

    monkeypatch.setattr(import_module("arith_lens.interchanges.pairs"), "answer", answers)
    answered = al.interchange_pairs(llama, CARRY, **FIXED)
    assert torch.equal(answered.expected, everything.expected[::6])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variable": "sum"}, "expected a variable of addition, carry among"),
        ({"hold_out": "models"}, "expected hold_out among problems, digits, templates"),
        ({"sources": "any"}, "expected sources among other, matched"),
        ({"n": 1}, "expected n of at least 2 pairs"),
        ({"operands": range(10, 14)}, "in both halves, found none in one of them"),
        ({"templates": "addition/0", "hold_out": "templates"}, "two templates or more"),
        ({"operands": range(10, 14), "hold_out": "digits"}, "found no such split"),
        ({"answers": [7]}, "expected problems of addition with these operands and answers"),
    ],
)
def test_bad_input_is_refused_by_name(
    tokenizer: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        draw(tokenizer, **options)
