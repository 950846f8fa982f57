"""The words of stories: all ways to fill the slots of a template, and random orders.

Random orders depend only on `rng.random()`, which is the same in every version of Python.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from arith_lens.pairs.tokens import FIELDS, encode_ids
from arith_lens.templates import SLOTS, StoryTemplate

T = TypeVar("T")
_SLOT = re.compile(r"\{(\w+)\}")


def shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    """All items in a random order."""
    return sorted(items, key=lambda _: rng.random())


def one_by_one(items: Sequence[T], rng: random.Random) -> Iterator[T]:
    """Iterate over a sequence in random order. The sequence may be too long for a list."""
    moved: dict[int, int] = {}  # the exchanges of Fisher and Yates so far
    for position in range(len(items)):
        chosen = position + int(rng.random() * (len(items) - position))
        yield items[moved.get(chosen, chosen)]
        moved[chosen] = moved.pop(position, position)


class Choices(Sequence[dict[str, str]]):
    """All ways to fill slots with words, without repeating a word, in a fixed order.

    Slots of one list have the same words. Each way is made when it is needed, because a story has
    hundreds of thousands. Without slots there is one way, which is empty.
    """

    def __init__(self, options: Mapping[str, Sequence[str]]):
        self._options = {slot: tuple(words) for slot, words in options.items()}
        lists = [slot.rstrip("23") for slot in self._options]
        self._sizes = [
            max(0, len(words) - lists[:position].count(lists[position]))
            for position, words in enumerate(self._options.values())
        ]

    def __len__(self) -> int:
        return prod(self._sizes)

    def __getitem__(self, index: int) -> dict[str, str]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        chosen: dict[str, str] = {}
        for (slot, words), size in zip(self._options.items(), self._sizes, strict=True):
            index, choice = divmod(index, size)
            chosen[slot] = [word for word in words if word not in chosen.values()][choice]
        return chosen


def replaced_slots(template: StoryTemplate) -> dict[str, str]:
    """Each slot that only the counterfactual has, with the slot or the word that it replaces."""
    words = zip(template.text.split(), template.counterfactual.split(), strict=True)
    return {_bare(new): _bare(old) for old, new in words if old != new}


def piece_counts(tokenizer: Any, templates: Iterable[object]) -> dict[str, int]:
    """The number of tokens of each word in a sentence.

    This selects words that may replace each other. Whole prompts are checked after the draw.
    """
    stories = [template for template in templates if isinstance(template, StoryTemplate)]
    named = [slot for story in stories for pair in replaced_slots(story).items() for slot in pair]
    words = dict.fromkeys(w for slot in named for w in SLOTS.get(slot.rstrip("23"), (slot,)))
    sentences = encode_ids(tokenizer, [f"The {word} is" for word in words])
    return dict(zip(words, map(len, sentences), strict=True))


def reference_choices(template: StoryTemplate, counts: Mapping[str, int]) -> Choices:
    """All wordings of the reference for which a counterfactual has words with equal token counts.

    `counts` are those of `piece_counts`.
    """
    slots = dict.fromkeys(s for s in _SLOT.findall(template.text) if s not in FIELDS)
    stands = replaced_slots(template).items()
    options: dict[str, list[str]] = {}
    for slot in slots:
        replaced = [new for new, old in stands if old == slot]
        options[slot] = [
            word
            for word in SLOTS[slot.rstrip("23")]
            if counterfactual_choices(template, {slot: word}, counts, replaced)
        ]
    fixed = [new for new, old in stands if old not in slots]
    possible = counterfactual_choices(template, {}, counts, fixed)
    return Choices(options if possible else {slot: () for slot in slots})


def counterfactual_choices(
    template: StoryTemplate,
    words: Mapping[str, str],
    counts: Mapping[str, int],
    slots: Iterable[str] | None = None,
) -> Choices:
    """All wordings of the counterfactual of a reference with these words.

    `slots` are those to fill; None: all that only the counterfactual has.
    """
    named = replaced_slots(template)
    options: dict[str, list[str]] = {}
    for slot in named if slots is None else slots:
        n_pieces = counts[words.get(named[slot], named[slot])]
        options[slot] = [
            word
            for word in SLOTS[slot.rstrip("23")]
            if counts[word] == n_pieces and word not in words.values()
        ]
    return Choices(options)


def _bare(word: str) -> str:
    slots = _SLOT.findall(word)
    return slots[0] if slots else word
