"""Addition as a computer does it: column by column from the right, with carries (Figure 17)."""

from dataclasses import dataclass


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
