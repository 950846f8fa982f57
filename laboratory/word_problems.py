"""Word problems of the closed world: four families with direct answers.

Pretraining has a finite set: 400 fixed problems per family, with half of the verbs and objects. So
there is something left to learn. Tuning, validation and test problems use all words and larger
numbers.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from arith_lens.pairs import shuffled
from arith_lens.reference.edits import CONTAINERS
from arith_lens.templates import SLOTS
from laboratory.calculations import between, biased_coin, pick

N_PRETRAINING = 400
GAIN_VERBS = (
    *("finds", "earns", "picks", "wins", "borrows", "makes", "catches", "orders"),
    *("adds", "brings", "draws", "gathers"),
)
LOSE_VERBS = (
    *("loses", "sells", "drops", "breaks", "gives away", "spends", "forgets", "throws out"),
    *("lends", "donates", "burns", "trades"),
)


@dataclass(frozen=True)
class WorldProblem:
    """A question that ends where its answer starts, and the answer, a whole number."""

    question: str
    answer: int


@dataclass(frozen=True)
class _Words:
    names: tuple[str, ...]
    objects: tuple[str, ...]
    gain: tuple[str, ...]
    lose: tuple[str, ...]
    containers: tuple[str, ...]
    stretch: float = 1.0
    """The factor by which numbers may be larger than in pretraining."""
    beyond: bool = False
    """Draw numbers that are larger than these, up to twice as large."""

    def number(self, rng: random.Random, least: int, most: int) -> int:
        """A number from `least` to the largest one, which is `most` in pretraining."""
        largest = int(most * self.stretch)
        if self.beyond:
            return between(rng, largest + 1, 2 * largest)
        return between(rng, least, largest)


_ALL = _Words(SLOTS["NAME"], SLOTS["OBJECT"], GAIN_VERBS, LOSE_VERBS, CONTAINERS)
_HALF = _Words(
    _ALL.names[::2], _ALL.objects[::2], _ALL.gain[::2], _ALL.lose[::2], _ALL.containers[::2]
)
_STRETCH = {"gain_lose": 2.0, "compare": 2.0, "groups": 5.0, "two_step": 1.5}


def _gain_lose(rng: random.Random, words: _Words) -> WorldProblem:
    name, thing = pick(rng, words.names), pick(rng, words.objects)
    gains = biased_coin(rng, 0.5)
    a, b = words.number(rng, 2, 12), words.number(rng, 2, 9)
    if not gains:
        a, b = max(a, b) + 1, min(a, b)
    verb = pick(rng, words.gain if gains else words.lose)
    text = f"Q: {name} has {a} {thing}. {name} {verb} {b} {thing}. "
    question = f"{text}How many {thing} does {name} have {pick(rng, ('now', 'in the end'))}? A: "
    return WorldProblem(question, a + b if gains else a - b)


def _compare(rng: random.Random, words: _Words) -> WorldProblem:
    (name, other), thing = shuffled(words.names, rng)[:2], pick(rng, words.objects)
    a, b = words.number(rng, 2, 9), words.number(rng, 2, 9)
    if biased_coin(rng, 0.4):
        text = f"Q: {name} has {a + b} {thing}. {other} has {a} {thing}. "
        return WorldProblem(f"{text}How many more {thing} does {name} have than {other}? A: ", b)
    more = biased_coin(rng, 0.5)
    a = a if more else a + b
    text = f"Q: {name} has {a} {thing}. {other} has {b} {'more' if more else 'fewer'} {thing} than "
    question = f"{text}{name}. How many {thing} does {other} have? A: "
    return WorldProblem(question, a + b if more else a - b)


def _groups(rng: random.Random, words: _Words) -> WorldProblem:
    thing, container = pick(rng, words.objects), pick(rng, words.containers)
    name = pick(rng, words.names)
    n, each = between(rng, 2, 9), words.number(rng, 2, 9)
    if biased_coin(rng, 0.5):
        text = f"Q: {name} has {n} {container} with {each} {thing} in each. "
        return WorldProblem(f"{text}How many {thing} are there in all? A: ", n * each)
    text = f"Q: {name} puts {n * each} {thing} into {n} {container} equally. "
    question = f"{text}How many {thing} are in each of the {container}? A: "
    return WorldProblem(question, each)


def _two_step(rng: random.Random, words: _Words) -> WorldProblem:
    name, thing = pick(rng, words.names), pick(rng, words.objects)
    a, b = words.number(rng, 5, 12), words.number(rng, 2, 6)
    c = between(rng, 1, 4)
    steps = [f"{pick(rng, words.gain)} {b} {thing}", f"{pick(rng, words.lose)} {c} {thing}"]
    first, then = steps if biased_coin(rng, 0.5) else reversed(steps)
    question = f"Q: {name} has {a} {thing}, {first} and then {then}. How many {thing} are left? A: "
    return WorldProblem(question, a + b - c)


_FAMILIES: dict[str, Callable[[random.Random, _Words], WorldProblem]] = {
    "gain_lose": _gain_lose,
    "compare": _compare,
    "groups": _groups,
    "two_step": _two_step,
}


def pretraining_problems(family: str) -> list[WorldProblem]:
    """The 400 fixed problems of a family that pretraining repeats."""
    rng = random.Random(f"pretraining {family}")
    return _distinct(rng, family, _HALF, N_PRETRAINING, set())


def tuning_problems(family: str) -> dict[str, list[WorldProblem]]:
    """2,000 problems to tune on, 300 to validate, 1,000 to test: all different, none trained on."""
    rng = random.Random(f"tuning {family}")
    seen = {problem.question for problem in pretraining_problems(family)}
    sizes = {"tuning": 2000, "validation": 300, "test": 1000}
    words = replace(_ALL, stretch=_STRETCH[family])
    return {split: _distinct(rng, family, words, n, seen) for split, n in sizes.items()}


def larger_problems(family: str, n: int) -> list[WorldProblem]:
    """`n` problems whose numbers are larger than all numbers of the kind in `tuning_problems`.

    They are up to twice as large. Two numbers are as in tuning: how many groups there are, and the
    third number of two steps.
    """
    rng = random.Random(f"larger {family}")
    words = replace(_ALL, stretch=_STRETCH[family], beyond=True)
    return _distinct(rng, family, words, n, set())


_NAME, _NUMBER, _THINGS = r"([A-Z]\w+)", r"(\d+)", r"(\w+)"
_REWORDED = (
    (
        rf"Q: {_NAME} has {_NUMBER} {_THINGS}\. \1 ([a-z ]+) {_NUMBER} \3\. How many .*",
        r"Q: \1 has \2 \3 and \4 \5. How many \3 are there now? A: ",
    ),
    (
        rf"Q: {_NAME} has {_NUMBER} {_THINGS}\. {_NAME} has {_NUMBER} \3\. How many more .*",
        r"Q: \4 has \5 \3 and \1 has \2. How many fewer \3 does \4 have than \1? A: ",
    ),
    (
        rf"Q: {_NAME} has {_NUMBER} {_THINGS}\. {_NAME} has {_NUMBER} (more|fewer) \3 than .*",
        r"Q: \4 has \5 \6 \3 than \1. \1 has \2 \3. How many \3 does \4 have? A: ",
    ),
    (
        rf"Q: {_NAME} has {_NUMBER} {_THINGS} with {_NUMBER} {_THINGS} in each\. .*",
        r"Q: There are \4 \5 in each of the \2 \3 of \1. How many \5 does \1 have in all? A: ",
    ),
    (
        rf"Q: {_NAME} puts {_NUMBER} {_THINGS} into {_NUMBER} {_THINGS} equally\. .*",
        r"Q: \1 has \2 \3 in \4 \5, in each of them equally many. How many \3 are in each? A: ",
    ),
    (
        rf"Q: {_NAME} has {_NUMBER} {_THINGS}, ([a-z ]+) {_NUMBER} \3 and then ([a-z ]+) {_NUMBER} "
        r"\3\. .*",
        r"Q: \1 has \2 \3. \1 \4 \5 \3 and \6 \7. How many \3 does \1 have in the end? A: ",
    ),
)
"""Each form of a question, and the same question in a wording that is in no set of the world."""


def reworded(question: str) -> str:
    """A word problem of the world in another wording, with the same numbers and answer.

    Raises:
        ValueError: the question has none of the families' forms.
    """
    for form, wording in _REWORDED:
        if match := re.fullmatch(form, question):
            return match.expand(wording)
    raise ValueError(f"expected a word problem of the closed world, found {question!r}")


def _distinct(
    rng: random.Random, family: str, words: _Words, n: int, seen: set[str]
) -> list[WorldProblem]:
    """`n` problems whose questions are not in `seen`. Their questions are added to it."""
    problems: list[WorldProblem] = []
    while len(problems) < n:
        problem = _FAMILIES[family](rng, words)
        if problem.question not in seen:
            seen.add(problem.question)
            problems.append(problem)
    return problems
