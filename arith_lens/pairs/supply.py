"""Every reference prompt that a template can give under a tokenizer, made as it is asked for."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arith_lens.pairs.orders import one_by_one, shuffled
from arith_lens.pairs.stories import Choices, reference_choices, stand_ins
from arith_lens.pairs.tokens import tokenizer_name
from arith_lens.pairs.wordings import AnyTemplate, Wording, usable_wordings
from arith_lens.problems import Problem
from arith_lens.templates import LARGEST_ANSWERS, SLOTS, StoryTemplate


@dataclass(frozen=True)
class Supply(Sequence[Wording]):
    """The distinct references of one template: its problems, times a story's words."""

    template: AnyTemplate
    wordings: Sequence[Wording]  # one a problem
    choices: Choices | None = None  # of a story's words

    def __len__(self) -> int:
        return len(self.wordings) * (1 if self.choices is None else len(self.choices))

    def __getitem__(self, index: int) -> Wording:
        if self.choices is None:
            return self.wordings[index]
        chosen, problem = divmod(index, len(self.wordings))
        return replace(self.wordings[problem], words=self.choices[chosen])

    def once(self, rng: random.Random) -> list[Wording]:
        """Every problem once; a story's words are drawn."""
        if self.choices is None:
            return list(self.wordings)
        n = len(self.choices)
        return [replace(w, words=self.choices[int(rng.random() * n)]) for w in self.wordings]

    def mixed(self, rng: random.Random) -> Iterator[Wording]:
        """A random order of all references; of a story's as far as it is asked for."""
        if self.choices is None:
            return iter(shuffled(self.wordings, rng))
        return one_by_one(self, rng)

    def narrowed(self, wordings: Sequence[Wording], kind: str) -> "Supply":
        """The problems that have such a counterfactual; raises ValueError where none is left."""
        if not wordings:
            raise ValueError(
                f"template {self.template.name} has no counterfactual={kind!r}: none of its "
                f"{len(self.wordings)} problems has one of its own lengths and another answer. "
                "Widen the operands, or leave the template out: templates=[names]."
            )
        return replace(self, wordings=wordings)


def supply(
    tokenizer: Any,
    template: AnyTemplate,
    problems: Sequence[Problem],
    answer_token: str,
    counts: Mapping[str, int],
) -> Supply:
    """What a template can give. Raises ValueError, which names it, where that is nothing.

    Args:
        counts: how many tokens a story's words take in a sentence.
    """
    if not isinstance(template, StoryTemplate):
        usable = usable_wordings(tokenizer, template, problems, answer_token, {})
        return Supply(template, usable)
    choices = reference_choices(template, counts)
    if not choices:
        raise ValueError(_no_words(tokenizer, template, counts))
    largest = LARGEST_ANSWERS.get(template.name)
    told = [p for p in problems if largest is None or p.answer <= largest]
    return Supply(
        template, usable_wordings(tokenizer, template, told, answer_token, choices[0]), choices
    )


def _no_words(tokenizer: Any, template: StoryTemplate, counts: Mapping[str, int]) -> str:
    listed = "\n".join(
        f"  for {old}: {_counted(old, counts)}\n  stands {new}: {_counted(new, counts)}"
        for new, old in stand_ins(template).items()
    )
    return (
        f"template {template.name} is not token-aligned under {tokenizer_name(tokenizer)}: no "
        f"words that stand for one another have equal token counts:\n"
        f"{listed}\nLeave the template out: templates=[names]."
    )


def _counted(slot: str, counts: Mapping[str, int]) -> str:
    words = SLOTS.get(slot.rstrip("23"), (slot,))
    return ", ".join(f"{word} {counts[word]}" for word in words[:8])
