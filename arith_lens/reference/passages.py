"""Passages of the closed world: text in which some spans are answers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Span = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True)
class Passage:
    """Text and the half-open character spans of the answers in it.

    The answer to a number question starts after the space that ends its prompt ("3 + 5 = " "8"),
    and a word answer with its own space ("The opposite of hot is" " cold"), so that a prompt is
    always cut where the answer's first token starts.
    """

    text: str
    answers: tuple[Span, ...] = ()

    def __add__(self, other: "Passage | str") -> "Passage":
        other = Passage(other) if isinstance(other, str) else other
        shift = len(self.text)
        moved = tuple((start + shift, stop + shift) for start, stop in other.answers)
        return Passage(self.text + other.text, self.answers + moved)


def with_answer(prompt: str, answer: object) -> Passage:
    """A prompt followed by its answer."""
    text = f"{prompt}{answer}"
    return Passage(text, ((len(prompt), len(text)),))


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One of `items`, by one call of `rng.random()`: the same on every machine and version."""
    return items[int(rng.random() * len(items))]


def between(rng: random.Random, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return low + int(rng.random() * (high - low + 1))


def biased_coin(rng: random.Random, probability: float) -> bool:
    """True with this probability."""
    return rng.random() < probability
