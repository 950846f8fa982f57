"""Counterfactuals that change one digit, or a carry: read from the text, digit by digit."""
# pyright: reportOptionalMemberAccess=false, reportOptionalIterable=false, reportArgumentType=false

import re
from typing import Any

import pytest
from test_pairs_kinds import numbers as numbers  # pytest finds the fixture here
from test_pairs_kinds import shipped as shipped

from arith_lens.pairs import PromptPairs, sample_pairs
from arith_lens.pairs.counterfactuals import DIGIT_CHANGES, carries
from arith_lens.problems import Problem

HOW_MUCH = {"addition": "addition/5", "subtraction": "subtraction/5"}


def drawn(tokenizer: Any, operation: str, kind: str, **options: Any) -> PromptPairs:
    return sample_pairs(
        tokenizer,
        operation,
        templates=[HOW_MUCH[operation]],
        operands=range(10, 100, 3),
        counterfactual=kind,
        keep="all",
        n=20,
        **options,
    )


def operands_of(text: str) -> tuple[str, str]:
    a, b = re.findall(r"\d\d", text)[:2]
    return a, b


def written_carries(operation: str, a: str, b: str) -> tuple[bool, bool]:
    """By hand, in columns: of the ones and of the tens."""
    if operation == "addition":
        ones = int(a[1]) + int(b[1]) >= 10
        return ones, len(str(int(a) + int(b))) == 3
    return int(a[1]) < int(b[1]), int(a) < int(b)


@pytest.mark.parametrize("operation", ["addition", "subtraction"])
@pytest.mark.parametrize("kind", DIGIT_CHANGES)
def test_only_the_named_digits_and_carries_change(numbers: Any, operation: str, kind: str) -> None:
    if (operation, kind) == ("subtraction", "tens_carry"):
        with pytest.raises(ValueError, match="with counterfactual='tens_carry', found none"):
            drawn(numbers, operation, kind)  # A - B is not negative
        return
    pairs = drawn(numbers, operation, kind)
    assert len(pairs) == 20
    place, what = kind.split("_")
    column = {"tens": 0, "ones": 1}[place]
    for text, other in zip(pairs.reference_text, pairs.counterfactual_text, strict=True):
        assert text.startswith("Q: How much is ")
        before, after = operands_of(text), operands_of(other)
        changed = {
            (name, i)
            for name, x, y in zip("ab", before, after, strict=True)
            for i in (0, 1)
            if x[i] != y[i]
        }
        assert changed
        assert changed <= {(name, column) for name in ("ab" if what == "carry" else what)}
        carried = [written_carries(operation, *numbers) for numbers in (before, after)]
        differ = [x != y for x, y in zip(*carried, strict=True)]
        assert differ == [what == "carry" and place == p for p in ("ones", "tens")]
    answers = {eval(f"{a}{'+' if operation == 'addition' else '-'}{b}")
               for a, b in map(operands_of, pairs.reference_text)}  # fmt: skip
    assert len(answers) > 5


@pytest.mark.parametrize(
    ("answer_token", "kinds"),
    [
        ("first", {"tens_a", "tens_b", "ones_carry", "tens_carry"}),
        ("last", {"ones_a", "ones_b"}),
    ],
)
def test_one_token_per_digit_has_the_changes_that_change_the_token(
    shipped: Any, answer_token: str, kinds: set[str]
) -> None:
    for kind in DIGIT_CHANGES:
        if kind in kinds:
            assert len(drawn(shipped, "addition", kind, answer_token=answer_token)) == 20
        else:
            with pytest.raises(ValueError, match=f"with counterfactual='{kind}'"):
                drawn(shipped, "addition", kind, answer_token=answer_token)


def test_operations_without_carries_are_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="multiplication, which has no carries"):
        sample_pairs(numbers, "multiplication", counterfactual="ones_a", keep="all")


def test_carries_by_hand() -> None:
    assert carries(Problem("addition", 58, 67)) == {"ones": True, "tens": True}
    assert carries(Problem("addition", 52, 57)) == {"ones": False, "tens": True}
    assert carries(Problem("addition", 45, 55)) == {"ones": True, "tens": True}
    assert carries(Problem("subtraction", 52, 37)) == {"ones": True, "tens": False}
    assert carries(Problem("subtraction", 57, 32)) == {"ones": False, "tens": False}


def test_others_are_all_that_have_the_change() -> None:
    """Against every problem of two digits."""
    problem = Problem("addition", 47, 38)
    for kind, change in DIGIT_CHANGES.items():
        place, what = kind.split("_")
        ours = {(o.a, o.b) for o in change.others(problem) if min(o.a, o.b) > 9}
        expected = set()
        for a in range(10, 100):
            for b in range(10, 100):
                tens = (a // 10 != 4, b // 10 != 3)
                ones = (a % 10 != 7, b % 10 != 8)
                moved, still = (ones, tens) if place == "ones" else (tens, ones)
                allowed = [what in ("a", "carry"), what in ("b", "carry")]
                fits = any(moved) and not any(still)
                fits &= all(allow or not move for allow, move in zip(allowed, moved, strict=True))
                carried = (a % 10 + b % 10 > 9, a + b > 99)
                wanted = [True, False]
                if what == "carry":
                    wanted[place == "tens"] ^= True
                if fits and list(carried) == wanted:
                    expected.add((a, b))
        assert ours == expected
