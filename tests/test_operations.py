"""Each operation's row, and what a faulty row says when it is read."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from arith_lens.operations import FOUR, IN_PAPER, OPERATIONS, Operation, Pattern, operations_by_name
from arith_lens.pairs import sample_pairs
from arith_lens.paper import PAPER_MODELS
from arith_lens.problems import Problem, all_problems
from arith_lens.templates import TEMPLATES, other_operators
from experiments.datasets import named_tokenizer as shipped_tokenizer

WORDS = {"infix": ("or",), "noun": ("maximum",), "question noun": ("greater",)}


def row(**changes: Any) -> Operation:
    """A sound row, but for `changes`."""
    fields: dict[str, Any] = {
        "name": "maximum",
        "symbol": "$",
        "sign": "↑",
        "words": WORDS,
        "value": max,
        "exact": lambda a, b: max(a, b) >= 0,
        "counterfactuals": ("addition",),
    }
    return Operation(**fields | changes)


def test_the_four_operations_and_the_paper_s() -> None:
    assert FOUR == ("addition", "subtraction", "multiplication", "division")
    assert (*FOUR, "exponentiation") == IN_PAPER


def test_a_sound_row_is_accepted() -> None:
    assert operations_by_name(*OPERATIONS.values(), row())["maximum"].word("noun") == "maximum"


REQUIRED = ("name", "symbol", "sign", "words", "value", "exact", "counterfactuals")


@pytest.mark.parametrize("field", REQUIRED)
def test_a_row_without_a_field_is_an_error(field: str) -> None:
    present = {name: getattr(row(), name) for name in REQUIRED if name != field}
    with pytest.raises(TypeError, match=field):
        Operation(**present)


@pytest.mark.parametrize(
    "field, empty",
    [("name", ""), ("symbol", ""), ("sign", ""), ("words", {}), ("counterfactuals", ())],
)
def test_a_row_with_an_empty_field_is_an_error(field: str, empty: Any) -> None:
    with pytest.raises(ValueError, match=f"expected a value for {field}, found none"):
        row(**{field: empty})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "greater of two"}, "a name of small letters, digits and _"),
        ({"words": {"infix": ("or",), "noun": ("top",)}}, "a word for the slot 'question noun'"),
        ({"words": WORDS | {"verb": ("take",)}}, "expected words for some of symbol"),
        ({"words": WORDS | {"noun": ()}}, "a word for the slot 'noun'"),
        ({"patterns": (Pattern("{A} {op} = ", "symbol"),)}, "the fields {A}, {op} and {B}"),
        ({"patterns": (Pattern("{A} {op} {B} = ", "sign"),)}, "a word for the slot 'sign'"),
        ({"value": lambda a, b: Fraction(a, 2)}, "an exact result of 1 and 0, found 1/2"),
        ({"value": lambda a, b: None}, "an exact result of 0 and 0, found None"),
        ({"value": lambda a, b: -1}, "an exact result of 0 and 0, found -1"),
        ({"exact": lambda a, b: False}, "a problem with operands from 0 to 9 that is exact"),
    ],
)  # fmt: skip
def test_a_faulty_row_says_what_to_correct(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        row(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "addition"}, "another name in each row"),
        ({"symbol": "*"}, "another symbol in each row"),
        ({"sign": "×"}, "another sign in each row"),
        ({"counterfactuals": ("adition",)}, "found adition"),
        ({"counterfactuals": ("maximum",)}, "names of other operations"),
        (
            {"words": WORDS | {"infix": ("plus",)}},
            "one operation for the word 'plus', found maximum and addition",
        ),
    ],
)
def test_a_row_that_contradicts_another_is_an_error(
    changes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        operations_by_name(*OPERATIONS.values(), row(**changes))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_problems_prompts_and_counterfactuals(operation: str) -> None:
    problems = all_problems(operation)
    assert problems and all(problem.value == problem.answer for problem in problems)
    for template in TEMPLATES[operation]:
        assert template.word in template.render(7, 3)[0]
        assert operation not in other_operators(template).values()
    assert set(other_operators(TEMPLATES[operation][0]).values()) <= {*OPERATIONS} - {operation}


def test_only_operations_of_the_paper_have_heads_of_the_paper() -> None:
    for model in PAPER_MODELS:
        for operation in OPERATIONS:
            source, heads = model.reported(operation)
            assert bool(source) == (operation in IN_PAPER)
            assert not heads or source


def test_the_counterfactuals_of_an_operation_are_its_row_s() -> None:
    """A further row must not change the draws of the operations that do not name it."""
    plus, *_ = TEMPLATES["addition"]
    assert other_operators(plus) == {
        "-": "subtraction",
        "*": "multiplication",
        "/": "division",
        "^": "exponentiation",
    }
    assert other_operators(TEMPLATES["exponentiation"][1]) == {}


def test_an_unknown_operation_is_named(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"of addition, subtraction.*found 'modulus'"):
        sample_pairs(tokenizer, "modulus", keep="all")
    with pytest.raises(ValueError, match=r"expected an operation of .*found 'modulus'"):
        Problem("modulus", 7, 3)


@pytest.mark.parametrize("a, b, remainder", [(7, 3, 1), (9, 4, 1), (8, 2, 0), (2, 5, 2), (6, 6, 0)])
def test_modulo_is_what_repeated_subtraction_leaves(a: int, b: int, remainder: int) -> None:
    problem = Problem("modulo", a, b)
    assert (problem.answer, problem.value, str(problem)) == (remainder, remainder, f"{a} % {b}")
    while a >= b:
        a -= b
    assert a == remainder


def test_modulo_needs_a_positive_divisor_and_no_negative_number() -> None:
    assert not Problem("modulo", 5, 0).is_exact and Problem("modulo", 5, 0).value is None
    assert not Problem("modulo", -5, 3).is_exact and not Problem("modulo", 5, -3).is_exact


def test_modulo_is_sampled_from_the_shipped_tokenizer() -> None:
    """81 problems; 36 (A < B) have the answer A, 9 (A = B) have 0; nine sentences for each."""
    tokenizer = shipped_tokenizer("reference")
    pairs = sample_pairs(tokenizer, "modulo", keep="all")
    assert len(pairs) == pairs.n_distinct == 9 * 81
    assert pairs.computed is not None and pairs.operands is not None
    assert int(pairs.computed.sum()) == 9 * (81 - 36 - 9)
    digits = tokenizer.convert_ids_to_tokens(pairs.answer.tolist())
    assert digits == [str(a - b * (a // b)) for a, b in pairs.operands.tolist()]
    assert pairs.reference_text is not None and pairs.counterfactual_text is not None
    assert {"7 % 3 = ", "7 mod 3 equals to ", "The remainder of 7 and 3 is "} <= {
        *pairs.reference_text
    }
    assert not any(word in text for text in pairs.counterfactual_text for word in ("%", "mod"))


@pytest.mark.parametrize("name", ["llama2", "mistral"])
@pytest.mark.parametrize("kind", ["word", "operands", "operator"])
def test_modulo_aligns_under_published_tokenizers(
    real_tokenizer: Callable[[str], Any], name: str, kind: str
) -> None:
    tokenizer = real_tokenizer(name)
    pairs = sample_pairs(tokenizer, "modulo", keep="all", counterfactual=kind)
    assert len(pairs) == 9 * 81
    assert set(tokenizer.convert_ids_to_tokens(pairs.reference[:, -1].tolist())) == {"▁"}
