"""Random orders that depend on `rng.random()` only, which every Python gives alike."""

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    """All items in a random order."""
    return sorted(items, key=lambda _: rng.random())


def one_by_one(items: Sequence[T], rng: random.Random) -> Iterator[T]:
    """A random order of a sequence that may be too long to list, as far as it is asked for."""
    moved: dict[int, int] = {}  # Fisher and Yates' exchanges, those made so far
    for place in range(len(items)):
        chosen = place + int(rng.random() * (len(items) - place))
        yield items[moved.get(chosen, chosen)]
        moved[chosen] = moved.pop(place, place)
