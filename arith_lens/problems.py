"""Calculations as numbers: the problems that exist, and their answers. No text, no tokens.

`column_addition` adds as a computer does: column by column from the right, with carries (Figure
17).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Integral

from arith_lens.operations import OPERATIONS, operation_of

MOST_PROBLEMS = 1_000_000
"""All pairs of numbers from 1 to 1000. A list of more needs minutes and gigabytes."""


@dataclass(frozen=True, order=True)
class Problem:
    """One calculation, `a` operation `b`, for instance `Problem("addition", 3, 5)`."""

    operation: str
    a: int
    b: int

    def __post_init__(self) -> None:
        operation_of(self.operation)

    def __str__(self) -> str:
        return f"{self.a} {OPERATIONS[self.operation].symbol} {self.b}"

    @cached_property
    def answer(self) -> int:
        """The exact answer C.

        Raises:
            ValueError: no non-negative integer is the answer (7 / 2, 3 - 5, 1 / 0, 2 ^ -1).
        """
        if not self.is_exact:
            raise ValueError(
                f"expected a problem with a non-negative integer answer, found {self}; use other "
                "operands"
            )
        value = OPERATIONS[self.operation].value(self.a, self.b)
        assert value is not None, f"{self} is exact, and has no value"
        return int(value)

    @property
    def value(self) -> Fraction | None:
        """The exact result, which may be negative or a fraction; None if there is none (1 / 0)."""
        value = OPERATIONS[self.operation].value(self.a, self.b)
        return None if value is None else Fraction(value)

    def decimal(self, places: int) -> str | None:
        """The result as a decimal number, such as `1.25` for 5 / 4.

        It is cut off (not rounded) after `places` digits. None if there is no result (1 / 0).
        """
        if self.value is None:
            return None
        integer, rest = divmod(abs(self.value), 1)
        text = f"{'-' * (self.value < 0)}{integer}"
        return f"{text}.{int(rest * 10**places):0{places}}" if rest and places else text

    @property
    def is_exact(self) -> bool:
        """Whether the answer is a non-negative integer."""
        return OPERATIONS[self.operation].exact(self.a, self.b)

    @property
    def computed(self) -> bool:
        """Whether C needs a calculation: it is neither A nor B, nor does it follow from A = B.

        A head that copies an operand, or one that sees that A and B are equal (9 - 9 = 0,
        9 / 9 = 1), cannot give this answer.
        """
        value = OPERATIONS[self.operation].value
        follows_from_equality = self.a == self.b and value(2, 2) == value(3, 3)
        return self.answer not in (self.a, self.b) and not follows_from_equality


def check_operands(operands: Iterable[int]) -> set[int] | range:
    """The distinct operands.

    Raises:
        TypeError: they are not several whole numbers.
        ValueError: they make more than `MOST_PROBLEMS` pairs.
    """
    if isinstance(operands, range):  # one of a million numbers is not listed
        numbers = operands
    elif isinstance(operands, Iterable):
        numbers = set(operands)
    else:
        numbers = set()
    if not isinstance(numbers, range) and (
        not isinstance(operands, Iterable) or not all(isinstance(n, Integral) for n in numbers)
    ):
        raise TypeError(
            f"expected operands as several whole numbers, found {operands!r:.80}; give "
            "range(1, 10) or a list such as [3, 5, 7]"
        )
    count = len(numbers)
    if count**2 > MOST_PROBLEMS:
        raise ValueError(
            f"expected operands for at most {MOST_PROBLEMS:,} problems, found {count**2:,} "
            f"problems: A and B are each one of {count:,} numbers; give fewer operands"
        )
    return numbers


def all_problems(
    operation: str, operands: Iterable[int] = range(1, 10), *, answer_digits: int | None = None
) -> list[Problem]:
    """Every problem over `operands` with a non-negative integer answer, A before B, ascending.

    Subtraction keeps A >= B and division the exact quotients (paper, section 3). With operands
    1..9 and `answer_digits=1` there are 36 sums, 45 differences, 23 products, 23 quotients and
    20 powers.

    Args:
        operation: the name of an operation.
        operands: the values of A and B; repeats are ignored.
        answer_digits: only problems whose answer has this number of digits; None: all.

    Raises:
        ValueError: the operation is unknown, or there are no operands, or more than `MOST_PROBLEMS`
            pairs of them.
    """
    operation_of(operation)
    numbers = sorted(check_operands(operands))
    if not numbers:
        raise ValueError("expected at least one operand, such as range(1, 10), found none")
    problems = [Problem(operation, a, b) for a in numbers for b in numbers]
    return [
        problem
        for problem in problems
        if problem.is_exact and (answer_digits is None or len(str(problem.answer)) == answer_digits)
    ]


@dataclass(frozen=True)
class ColumnAddition:
    """One sum. Digits are in order from the left."""

    base: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    carries: tuple[int, ...]
    """The carry into each column from the column on its right."""
    result: tuple[int, ...]
    steps: tuple[int, ...]
    """The number in the result's columns after each column, from the right."""


def column_addition(a: int, b: int, base: int = 2) -> ColumnAddition:
    """Add two numbers in a base. Raises ValueError for negative numbers, or a base below 2."""
    if a < 0 or b < 0 or base < 2:
        raise ValueError(f"expected two numbers from 0 on and a base from 2 on, found {a}, {b}, "
                         f"base {base}")  # fmt: skip
    left, right, carry = a, b, 0
    columns: list[tuple[int, int, int, int]] = []
    steps: list[int] = []
    while left or right or carry or not columns:
        x, y = left % base, right % base
        columns.append((x, y, carry, (x + y + carry) % base))
        steps.append(columns[-1][3] * base ** len(steps) + (steps[-1] if steps else 0))
        left, right, carry = left // base, right // base, (x + y + carry) // base
    xs, ys, carries, digits = (tuple(part) for part in zip(*reversed(columns), strict=True))
    return ColumnAddition(base, xs, ys, carries, digits, tuple(steps))
