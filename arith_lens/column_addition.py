"""Addition as a computer does it: column by column from the right, with carries (Figure 17)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnAddition:
    """One sum, its digits from the left.

    Attributes:
        carries: what enters each column from its right
        steps: the number that stands in the result's columns after each column, from the right
    """

    base: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    carries: tuple[int, ...]
    result: tuple[int, ...]
    steps: tuple[int, ...]


def column_addition(a: int, b: int, base: int = 2) -> ColumnAddition:
    """Add two numbers in a base. Raises ValueError for negative ones, or a base below 2."""
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
