"""Causal models: plain arithmetic where nothing is set, and what follows where a variable is."""

from itertools import product

import pytest

import arith_lens as al


@pytest.mark.parametrize("name", ["carry", "magnitude"])
def test_a_model_with_carries_adds_and_one_without_is_wrong_where_there_is_one(name: str) -> None:
    model, without = al.causal_model("addition", name), al.causal_model("addition", "no_carry")
    for a, b in product(range(0, 400, 7), range(0, 400, 11)):
        assert model.run(a, b)["answer"] == a + b
        carries = a % 10 + b % 10 > 9 or a % 100 + b % 100 > 99
        assert (without.run(a, b)["answer"] == a + b) is not carries


@pytest.mark.parametrize("name", ["borrow", "magnitude"])
def test_subtraction_borrows(name: str) -> None:
    model = al.causal_model("subtraction", name)
    without = al.causal_model("subtraction", "no_borrow")
    for a, b in product(range(0, 400, 7), range(0, 400, 11)):
        if a >= b:
            assert model.run(a, b)["answer"] == a - b
            borrows = a % 10 < b % 10 or a % 100 < b % 100
            assert (without.run(a, b)["answer"] == a - b) is not borrows


def test_a_carry_that_is_set_changes_the_next_place_alone() -> None:
    model = al.causal_model()
    assert model.run(35, 28) == {"ones_carry": 1, "tens_carry": 0, "answer": 63}
    assert model.run(35, 28, set={"ones_carry": 0})["answer"] == 53
    assert model.run(35, 24, set={"ones_carry": 1})["answer"] == 69
    assert model.run(55, 44, set={"ones_carry": 1}) == {
        "ones_carry": 1,
        "tens_carry": 1,
        "answer": 109,
    }
    assert model.run(35, 24, set={"tens_carry": 1})["answer"] == 159
    borrow = al.causal_model("subtraction")
    assert borrow.run(52, 37, set={"ones_borrow": 0})["answer"] == 25
    assert borrow.run(57, 32, set={"ones_borrow": 1})["answer"] == 15
    total = al.causal_model("addition", "magnitude")
    assert total.run(3, 4, set={"sum": 50})["answer"] == 50


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"among addition carry, .*found 'addition' 'clock'"):
        al.causal_model("addition", "clock")
    with pytest.raises(ValueError, match="found 'division'"):
        al.causal_model("division")
    with pytest.raises(KeyError, match="among ones_carry, tens_carry, found 'sum'"):
        al.causal_model().run(3, 4, set={"sum": 1})
    with pytest.raises(ValueError, match="operands from 0 to 999, found 1000 and 1"):
        al.causal_model().run(1000, 1)
