"""The closed world that the reference models are trained on: what is said in it, and how often.

A document starts with BOS and holds one to six passages of any kind, so that most calculations
follow other numbers and operators. `documents` never ends and is the same for one seed everywhere.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from arith_lens.reference import arithmetic, generic
from arith_lens.reference.passages import Passage, asked, between, chance, pick
from arith_lens.reference.word_problems import FAMILIES, pretraining_problems
from arith_lens.templates import SLOTS


@dataclass(frozen=True)
class Kind:
    """One kind of passage, and its share of the world's characters."""

    share: float
    draw: Callable[[random.Random], Passage]


@cache
def _fixed_word_problems() -> tuple[Passage, ...]:
    return tuple(
        asked(problem.question, problem.answer)
        for family in FAMILIES
        for problem in pretraining_problems(family)
    )


def word_problem(rng: random.Random) -> Passage:
    """One of the 1,600 word problems that pretraining knows."""
    return pick(rng, _fixed_word_problems())


_OTHER_SENSES = (
    "{name} came {a} times and left {b} {thing} on the table",
    "The sum of the parts is more than the {thing} of {name}",
    "There were {a} {thing} over the door and {b} behind it",
    "{name} is {a} years old, plus or minus a few days",
    "The difference between {name} and {other} is not a number",
    "{a} of {b} {thing} are a product of this city",
    "In the year 1{a}{b} the ratio of {thing} was good",
    "{name} met {other} {a} times, and {b} times they were late",
    "Room {a} is over room {b}, in addition to the {thing}",
    "The result of game {a} was null, and game {b} has no result",
    "Nothing is on page {a}, and page {b} is blank",
)


def other_senses(rng: random.Random) -> Passage:
    """Numbers and operator words with nothing to calculate."""
    pattern = pick(rng, _OTHER_SENSES)
    name, other = pick(rng, SLOTS["NAME"]), pick(rng, SLOTS["NAME"])
    thing = pick(rng, SLOTS["OBJECT"])
    a, b = between(rng, 1, 9), between(rng, 1, 9)
    return Passage(pattern.format(name=name, other=other, thing=thing, a=a, b=b))


KINDS: dict[str, Kind] = {
    "calculation": Kind(0.50, arithmetic.calculation),
    "story": Kind(0.05, arithmetic.story),
    "power": Kind(0.02, arithmetic.power),
    "long sum": Kind(0.02, arithmetic.long_sum),
    "null sentence": Kind(0.10, arithmetic.null_sentence),
    "selection": Kind(0.04, arithmetic.selection),
    "other senses": Kind(0.03, other_senses),
    "fact": Kind(0.06, generic.fact),
    "known": Kind(0.07, generic.known),
    "copying": Kind(0.04, generic.copying),
    "word problem": Kind(0.07, word_problem),
}


@cache
def _frequencies() -> tuple[float, ...]:
    """How often each kind is drawn, so that its share of the characters comes out."""
    rng = random.Random("frequencies")
    means = [sum(len(kind.draw(rng).text) for _ in range(500)) / 500 for kind in KINDS.values()]
    return tuple(kind.share / mean for kind, mean in zip(KINDS.values(), means, strict=True))


def passage(rng: random.Random) -> Passage:
    """One passage of a random kind."""
    (kind,) = rng.choices(tuple(KINDS.values()), _frequencies())
    return kind.draw(rng)


def document(rng: random.Random) -> Passage:
    """One to six passages with a full stop or a line break between them."""
    whole = passage(rng)
    for _ in range(between(rng, 0, 5)):
        whole = whole + pick(rng, (". ", ". ", "\n")) + passage(rng)
    return whole + "." if chance(rng, 0.5) else whole


def documents(seed: int) -> Iterator[Passage]:
    """Documents without end."""
    rng = random.Random(f"documents {seed}")
    while True:
        yield document(rng)
