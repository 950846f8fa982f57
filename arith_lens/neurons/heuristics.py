"""Rules about A, B and C that a neuron may follow, by family (Nikankin et al., 2024).

A family is a function of a grid of problems. It returns its rules: for each name, the problems
that the rule selects. Ranges depend on the operands of the grid, so one-digit grids have some too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from jaxtyping import Bool, Int
from torch import Tensor

MODULI = range(2, 10)
"""The divisors. The remainder by 10 is the last digit, which has a family of its own."""
RANGE_PARTS = (9, 4, 2)
"""A range is a ninth, a quarter or a half of the values wide."""
LEAST_CELLS = 2
"""A rule that selects fewer problems, or all but fewer, is left out, except single problems."""


@dataclass(frozen=True)
class ProblemGrid:
    """The problems of a grid, one after another."""

    a: Int[Tensor, " cell"]
    b: Int[Tensor, " cell"]
    c: Int[Tensor, " cell"]

    def __len__(self) -> int:
        return len(self.a)


Rules = Iterator[tuple[str, Bool[Tensor, " cell"]]]
Family = Callable[[ProblemGrid], Rules]


def ranges(values: Int[Tensor, " cell"], name: str) -> Rules:
    """Windows of several widths over the values, and thresholds."""
    levels = values.unique()
    n = len(levels)
    for part in RANGE_PARTS:
        width = max(1, round(n / part))
        for start in range(0, n - width + 1, max(1, width // 2)):
            low, high = int(levels[start]), int(levels[start + width - 1])
            yield f"{name} from {low} to {high}", (values >= low) & (values <= high)
    for start in range(1, n, max(1, n // 18)):
        low = int(levels[start])
        yield f"{name} from {low} on", values >= low


def remainders(values: Int[Tensor, " cell"], name: str) -> Rules:
    """Each remainder of each divisor."""
    for modulus in MODULI:
        for rest in range(modulus):
            yield f"{name} is {rest} modulo {modulus}", values % modulus == rest


def digits(values: Int[Tensor, " cell"], name: str) -> Rules:
    """Each digit at each place."""
    for place in range(len(str(int(values.max())))):
        at_place = values // 10**place % 10
        for digit in at_place.unique().tolist():
            yield f"{name} has {digit} at 10^{place}", at_place == digit


def same_operands(grid: ProblemGrid) -> Rules:
    """A and B are equal, or one is larger."""
    yield "A = B", grid.a == grid.b
    yield "A > B", grid.a > grid.b
    for place in range(len(str(int(grid.a.max())))):
        same = grid.a // 10**place % 10 == grid.b // 10**place % 10
        yield f"A and B have the same digit at 10^{place}", same


def both_operands(grid: ProblemGrid) -> Rules:
    """A in a range and B in a range, a ninth of the values each; of digits, single problems."""
    boxes = [_ninths(values) for values in (grid.a, grid.b)]
    for (low, high), (left, right) in product(*boxes):
        inside = (grid.a >= low) & (grid.a <= high) & (grid.b >= left) & (grid.b <= right)
        yield f"A from {low} to {high} and B from {left} to {right}", inside


def _ninths(values: Int[Tensor, " cell"]) -> list[tuple[int, int]]:
    levels: Sequence[Tensor] = values.unique().split(max(1, len(values.unique()) // 9))
    return [(int(part[0]), int(part[-1])) for part in levels]


def _of(kind: Callable[[Tensor, str], Rules], name: str) -> Family:
    """A family about one of the numbers."""

    def rules(grid: ProblemGrid) -> Rules:
        return kind(getattr(grid, name.lower()), name)

    return rules


HEURISTICS: Mapping[str, Family] = {
    **{f"range of {name}": _of(ranges, name) for name in "ABC"},
    **{f"remainder of {name}": _of(remainders, name) for name in "ABC"},
    **{f"digit of {name}": _of(digits, name) for name in "ABC"},
    "same operands": same_operands,
    "both operands": both_operands,
}
"""The families, by name."""
