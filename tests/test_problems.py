"""Which problems exist is counted by hand; their answers by another way of calculating."""

from fractions import Fraction

import pytest

from arith_lens.problems import Problem, all_problems

# With operands 1..9 and one-digit answers. Sums a + b <= 9: 8 + 7 + ... + 1. Differences a >= b:
# 9 + 8 + ... + 1. Products <= 9 and exact quotients: the divisors of 1 .. 9, 1+2+2+3+2+4+2+4+3.
# Powers <= 9: nine 1^b, eight a^1, and 2^2, 2^3, 3^2.
COUNTS = {
    "addition": 36,
    "subtraction": 45,
    "multiplication": 23,
    "division": 23,
    "exponentiation": 20,
}
# Copies, C = A or C = B. Products: 1 * b and a * 1 share 1 * 1, 9 + 9 - 1. Quotients: nine a / 1,
# then 1/1, 4/2, 9/3, of which one is counted. Differences: 2/1, 4/2, 6/3, 8/4. Powers: 1^b, a^1.
COPIES = {
    "addition": 0,
    "subtraction": 4,
    "multiplication": 17,
    "division": 11,
    "exponentiation": 17,
}


@pytest.mark.parametrize("operation", COUNTS)
def test_there_are_as_many_one_digit_problems_as_counted_by_hand(operation):
    problems = all_problems(operation, answer_digits=1)
    assert len(problems) == len(set(problems)) == COUNTS[operation]
    assert all(0 <= problem.answer <= 9 for problem in problems)


# A = B decides nine differences (0) and nine quotients (1); of these, 1/1 is a copy.
EQUAL = {"subtraction": 9, "division": 8}


@pytest.mark.parametrize("operation", COPIES)
def test_what_needs_no_calculation_is_as_much_as_counted_by_hand(operation):
    problems = all_problems(operation, answer_digits=1)
    copies = [problem for problem in problems if problem.answer in (problem.a, problem.b)]
    assert len(copies) == COPIES[operation]
    computed = [problem for problem in problems if problem.computed]
    assert len(computed) == COUNTS[operation] - COPIES[operation] - EQUAL.get(operation, 0)
    assert not {*copies} & {*computed}


def test_equal_operands_decide_a_difference_and_a_quotient_but_no_sum_product_or_power():
    assert not Problem("subtraction", 9, 9).computed and not Problem("division", 9, 9).computed
    assert Problem("addition", 4, 4).computed and Problem("multiplication", 3, 3).computed
    assert Problem("exponentiation", 2, 2).computed and Problem("division", 8, 2).computed
    assert not Problem("modulo", 9, 9).computed and Problem("modulo", 9, 4).computed


@pytest.mark.parametrize(
    "operation, undo",
    [
        ("addition", lambda c, b: c - b),
        ("subtraction", lambda c, b: c + b),
        ("multiplication", lambda c, b: Fraction(c, b)),
        ("division", lambda c, b: c * b),
    ],
)
def test_the_inverse_operation_gives_a_back(operation, undo):
    problems = all_problems(operation, range(1, 30))
    assert problems
    assert all(undo(p.answer, p.b) == p.a for p in problems)


def test_a_power_is_a_repeated_product():
    assert Problem("exponentiation", 3, 4).answer == 3 * 3 * 3 * 3
    assert Problem("exponentiation", 7, 0).answer == 1


def test_operands_are_taken_once_and_in_order():
    assert all_problems("subtraction", [5, 3, 5]) == [
        Problem("subtraction", 3, 3),
        Problem("subtraction", 5, 3),
        Problem("subtraction", 5, 5),
    ]


def test_answer_digits_choose_by_length():
    sums = {problem.answer for problem in all_problems("addition", answer_digits=2)}
    assert sums == set(range(10, 19))


@pytest.mark.parametrize(
    "problem",
    [
        Problem("division", 7, 2),
        Problem("division", 1, 0),
        Problem("subtraction", 3, 5),
        Problem("exponentiation", 2, -1),
        Problem("addition", -3, 1),
        Problem("multiplication", -3, 1),
    ],
    ids=str,
)
def test_an_answer_that_is_no_natural_number_is_an_error(problem):
    assert not problem.is_exact
    with pytest.raises(ValueError, match="a non-negative integer answer, found"):
        _ = problem.answer


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"of addition, subtraction.*found 'modulus'"):
        all_problems("modulus")
    with pytest.raises(ValueError, match="expected at least one operand"):
        all_problems("addition", [])


@pytest.mark.parametrize(
    "problem, value",
    [
        (Problem("addition", 2, 3), 5),
        (Problem("subtraction", 3, 5), -2),
        (Problem("division", 3, 4), Fraction(3, 4)),
        (Problem("division", 3, 0), None),
        (Problem("exponentiation", 2, -2), Fraction(1, 4)),
        (Problem("exponentiation", 0, -1), None),
    ],
    ids=str,
)
def test_a_value_need_not_be_a_natural_number(problem, value):
    assert problem.value == value


@pytest.mark.parametrize("operation", COUNTS)
def test_exact_answers_are_the_values(operation):
    assert all(problem.value == problem.answer for problem in all_problems(operation, range(6)))


@pytest.mark.parametrize(
    "problem, places, text",
    [
        (Problem("division", 5, 4), 3, "1.250"),
        (Problem("division", 2, 3), 4, "0.6666"),
        (Problem("division", 1, 16), 1, "0.0"),
        (Problem("subtraction", 3, 5), 2, "-2"),
        (Problem("division", 7, 2), 0, "3"),
        (Problem("division", 1, 0), 2, None),
    ],
)
def test_a_result_is_written_as_a_decimal_number(problem, places, text):
    assert problem.decimal(places) == text


@pytest.mark.parametrize("last", [1001, 10**6, 10**15])
def test_more_problems_than_can_be_listed_are_refused_by_their_number(last):
    with pytest.raises(ValueError, match=rf"at most 1,000,000 .* found {last**2:,} problems"):
        all_problems("addition", range(1, last + 1))


def test_operands_are_counted_once_each_and_as_a_range_steps():
    assert len(all_problems("addition", [3, 4] * 1000)) == 4
    assert len(all_problems("multiplication", range(0, 10**9, 10**8))) == 100
    with pytest.raises(ValueError, match="expected at least one operand"):
        all_problems("addition", range(9, 2))
