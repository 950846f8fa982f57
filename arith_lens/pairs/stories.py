"""The words of Figure 10's stories: which a tokenizer lets them have, all ways to choose them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, overload

from arith_lens.pairs.tokens import encode_ids
from arith_lens.templates import SLOTS, StoryTemplate

_SLOT = re.compile(r"\{(\w+)\}")
OPERANDS = ("A", "B")


class Choices(Sequence[dict[str, str]]):
    """Every way to fill slots, each with one of its words and no word twice, in a fixed order.

    Slots of one list have the same words. A way is made when it is asked for, as a story has
    hundreds of thousands.
    """

    def __init__(self, options: Mapping[str, Sequence[str]]):
        self._options = {slot: tuple(words) for slot, words in options.items()}
        lists = [slot.rstrip("23") for slot in self._options]
        before = [lists[:place].count(name) for place, name in enumerate(lists)]
        self._sizes = [
            max(0, len(words) - taken)
            for words, taken in zip(self._options.values(), before, strict=True)
        ]

    def __len__(self) -> int:
        return prod(self._sizes)

    @overload
    def __getitem__(self, index: int) -> dict[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, str]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, str] | list[dict[str, str]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        chosen: dict[str, str] = {}
        for (slot, words), size in zip(self._options.items(), self._sizes, strict=True):
            index, place = divmod(index, size)
            chosen[slot] = [word for word in words if word not in chosen.values()][place]
        return chosen


def stand_ins(template: StoryTemplate) -> dict[str, str]:
    """Each slot that the counterfactual alone has, and the slot or the word in whose place."""
    words = zip(template.text.split(), template.counterfactual.split(), strict=True)
    return {_bare(new): _bare(old) for old, new in words if old != new}


def piece_counts(tokenizer: Any, templates: Iterable[object]) -> dict[str, int]:
    """How many tokens each word takes in a sentence: those that decide what may stand for what.

    A first sieve only: what is drawn by it is checked in whole prompts.
    """
    stories = [template for template in templates if isinstance(template, StoryTemplate)]
    named = [slot for story in stories for pair in stand_ins(story).items() for slot in pair]
    words = dict.fromkeys(w for slot in named for w in SLOTS.get(slot.rstrip("23"), (slot,)))
    sentences = encode_ids(tokenizer, [f"The {word} is" for word in words])
    return dict(zip(words, map(len, sentences), strict=True))


def reference_choices(template: StoryTemplate, counts: Mapping[str, int]) -> Choices:
    """Every way to word the reference so that its counterfactual finds words of equal counts.

    Args:
        counts: how many pieces each word has in a sentence.
    """
    slots = dict.fromkeys(s for s in _SLOT.findall(template.text) if s not in OPERANDS)
    stands = stand_ins(template).items()
    options: dict[str, list[str]] = {}
    for slot in slots:
        replaced = [new for new, old in stands if old == slot]
        options[slot] = [
            word
            for word in SLOTS[slot.rstrip("23")]
            if len(_choices(template, {slot: word}, counts, replaced))
        ]
    fixed = [new for new, old in stands if old not in slots]
    possible = len(_choices(template, {}, counts, fixed)) > 0
    return Choices(options if possible else {slot: () for slot in slots})


def counterfactual_choices(
    template: StoryTemplate, words: Mapping[str, str], counts: Mapping[str, int]
) -> Choices:
    """Every way to word the counterfactual of a reference that has these words."""
    return _choices(template, words, counts, stand_ins(template))


def _choices(
    template: StoryTemplate,
    words: Mapping[str, str],
    counts: Mapping[str, int],
    slots: Iterable[str],
) -> Choices:
    named = stand_ins(template)
    options: dict[str, list[str]] = {}
    for slot in slots:
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
