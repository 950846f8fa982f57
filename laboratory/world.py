"""The closed world of the reference models: its passages, and how often they come.

A document starts with BOS and has one to six passages of any kind. So most calculations follow
other numbers and operators. `documents` never ends, and one seed gives the same text everywhere.

Generic passages (facts, opposites, successors, plurals, copying; no sums) are what a model could
lose when it is tuned on arithmetic. The questions of their test set are held out in form: facts and
opposites are in training in other wordings, and copied strings are new and up to one word longer
than in training.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from arith_lens.answers import Question
from arith_lens.reference.edits import PROBLEM_FAMILIES
from arith_lens.templates import SLOTS
from laboratory import calculations
from laboratory.calculations import Passage, between, biased_coin, pick, with_answer
from laboratory.word_problems import pretraining_problems

N_FACTS = 300
N_TEST = 300  # the largest number of questions per task in the test set
_SYLLABLES = (
    *("ba", "do", "fi", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wa", "zu"),
    *("bel", "dan", "kor", "lim", "mar", "nel", "pol", "ram", "sut", "tor", "van", "zen"),
)
_COLOURS = ("red", "blue", "green", "white", "black", "brown", "pink", "grey")
_METALS = ("iron", "gold", "tin", "lead", "zinc", "silver", "copper", "steel")
_FACT_WORDINGS = {
    "colour": (
        "The colour of {s} is",
        "{s} has the colour",
        "Q: What colour has {s}? A:",
        "People know that {s} is coloured",
    ),
    "metal": (
        "The metal of {s} is",
        "{s} is made of",
        "Q: What is {s} made of? A:",
        "People know that {s} is built of",
    ),
}
_OPPOSITES = (
    *(("hot", "cold"), ("big", "small"), ("up", "down"), ("old", "young"), ("fast", "slow")),
    *(("rich", "poor"), ("wet", "dry"), ("dark", "light"), ("hard", "soft"), ("long", "short")),
    *(("high", "low"), ("open", "closed"), ("early", "late"), ("full", "hungry"), ("good", "bad")),
    *(("near", "far"), ("loud", "quiet"), ("thick", "thin"), ("wide", "narrow"), ("day", "night")),
    *(("win", "lose"), ("buy", "sell"), ("give", "take"), ("come", "go"), ("laugh", "cry")),
    *(("begin", "end"), ("love", "hate"), ("north", "south"), ("east", "west"), ("left", "right")),
)
_OPPOSITE_WORDINGS = (
    "The opposite of {s} is",
    "{s} is the opposite of",
    "Q: What is the opposite of {s}? A:",
    "not {s} but",
)
_SEQUENCES = {
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": (
        *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
        *("October", "November", "December"),
    ),
    "letter": tuple("abcdefghijklmnopqrstuvwxyz"),
}
_NEXT_WORDINGS = (
    "After the {kind} {s} comes",
    "The {kind} after {s} is",
    "Q: What {kind} follows {s}? A:",
    "{s} is the {kind} before",
)
_IRREGULAR = (
    *(("man", "men"), ("foot", "feet"), ("tooth", "teeth"), ("child", "children")),
    *(("mouse", "mice"), ("goose", "geese"), ("leaf", "leaves"), ("knife", "knives")),
    *(("box", "boxes"), ("dish", "dishes"), ("city", "cities"), ("lady", "ladies")),
)
_PLURAL_WORDINGS = (
    "One {s}, many",
    "The plural of {s} is",
    "Q: What are many of {s}? A:",
    "a {s} and other",
)


@dataclass(frozen=True)
class _Item:
    """Something to know, in four wordings. The wording `held_out` is for the test only."""

    task: str
    prompts: tuple[str, ...]
    answer: str
    held_out: int

    def question(self, wording: int) -> Question:
        """A prompt that ends where the answer's own space starts; the answer begins with it."""
        return Question(self.prompts[wording], " " + self.answer, self.task)


def made_up_word(rng: random.Random, syllables: int) -> str:
    """A word of so many syllables that means nothing."""
    return "".join(pick(rng, _SYLLABLES) for _ in range(syllables))


@cache
def fact_items() -> tuple[_Item, ...]:
    """300 made-up things with a colour or a metal, the most frequent first."""
    rng = random.Random("facts")
    names: list[str] = []
    while len(names) < N_FACTS:
        name = made_up_word(rng, 2).capitalize()
        if name not in names:
            names.append(name)
    items = []
    for name in names:
        kind = pick(rng, tuple(_FACT_WORDINGS))
        answer = pick(rng, _COLOURS if kind == "colour" else _METALS)
        prompts = tuple(wording.format(s=name) for wording in _FACT_WORDINGS[kind])
        items.append(_Item("facts", prompts, answer, between(rng, 0, 3)))
    return tuple(items)


@cache
def _known_items() -> dict[str, tuple[_Item, ...]]:
    """Everything that must be memorised, by task."""
    rng = random.Random("known")
    both = _OPPOSITES + tuple((b, a) for a, b in _OPPOSITES)
    successors = [
        ({"kind": kind, "s": word}, follower)
        for kind, words in _SEQUENCES.items()
        for word, follower in zip(words, words[1:] + words[:1], strict=True)
        if (kind, word) != ("letter", "z")
    ]
    plurals = _IRREGULAR + tuple((plural[:-1], plural) for plural in SLOTS["OBJECT"])

    def items(task: str, wordings: tuple[str, ...], known: list) -> tuple[_Item, ...]:
        return tuple(
            _Item(task, tuple(w.format(**slots) for w in wordings), answer, between(rng, 0, 3))
            for slots, answer in known
        )

    return {
        "opposites": items("opposites", _OPPOSITE_WORDINGS, [({"s": a}, b) for a, b in both]),
        "successors": items("successors", _NEXT_WORDINGS, successors),
        "plurals": items("plurals", _PLURAL_WORDINGS, [({"s": a}, b) for a, b in plurals]),
    }


_ZIPF = tuple(accumulate(1 / rank for rank in range(1, N_FACTS + 1)))


def fact(rng: random.Random) -> Passage:
    """A fact, with frequencies by Zipf's law, in one of its three training wordings."""
    (item,) = rng.choices(fact_items(), cum_weights=_ZIPF)
    return told_passage(rng, item)


def known(rng: random.Random) -> Passage:
    """A pair of opposites, a successor or a plural, in one of its three training wordings."""
    task = pick(rng, ("opposites", "successors", "plurals"))
    return told_passage(rng, pick(rng, _known_items()[task]))


def told_passage(rng: random.Random, item: _Item) -> Passage:
    wordings = [wording for wording in range(len(item.prompts)) if wording != item.held_out]
    question = item.question(pick(rng, wordings))
    return with_answer(question.prompt, question.answer)


def copying(rng: random.Random) -> Passage:
    """Two to four new words to repeat; never a string of the test."""
    question = _copy_question(rng, test=False)
    return with_answer(question.prompt, question.answer)


def _copy_question(rng: random.Random, *, test: bool) -> Question:
    fewest, most = (3, 5) if test else (2, 4)
    while True:
        words = [made_up_word(rng, between(rng, 1, 2)) for _ in range(between(rng, fewest, most))]
        text = " ".join(words)
        if (sum(map(ord, text)) % 10 == 0) == test:  # a tenth of all strings is for the test
            wording = "Copy: {} ->" if biased_coin(rng, 0.5) else "Say {} again:"
            return Question(wording.format(text), " " + text, "copying")


def test_questions() -> list[Question]:
    """At most 300 questions per task, with a wording or a string that is not in training."""
    rng = random.Random("generic test")
    groups = [fact_items(), *_known_items().values()]
    questions = [item.question(item.held_out) for items in groups for item in items[:N_TEST]]
    return questions + [_copy_question(rng, test=True) for _ in range(N_TEST)]


@dataclass(frozen=True)
class PassageKind:
    """One kind of passage, and its share of the world's characters."""

    share: float
    draw: Callable[[random.Random], Passage]


@cache
def _fixed_word_problems() -> tuple[Passage, ...]:
    return tuple(
        with_answer(problem.question, problem.answer)
        for family in PROBLEM_FAMILIES
        for problem in pretraining_problems(family)
    )


def word_problem(rng: random.Random) -> Passage:
    """One of the 1,600 word problems of pretraining."""
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


PASSAGE_KINDS: dict[str, PassageKind] = {
    "calculation": PassageKind(0.50, calculations.calculation),
    "story": PassageKind(0.05, calculations.story),
    "power": PassageKind(0.02, calculations.power),
    "long sum": PassageKind(0.02, calculations.long_sum),
    "null sentence": PassageKind(0.10, calculations.null_sentence),
    "selection": PassageKind(0.04, calculations.selection),
    "other senses": PassageKind(0.03, other_senses),
    "fact": PassageKind(0.06, fact),
    "known": PassageKind(0.07, known),
    "copying": PassageKind(0.04, copying),
    "word problem": PassageKind(0.07, word_problem),
}


@cache
def _frequencies() -> tuple[float, ...]:
    """The frequency of each kind that gives its share of the characters."""
    rng = random.Random("frequencies")
    means = [
        sum(len(kind.draw(rng).text) for _ in range(500)) / 500 for kind in PASSAGE_KINDS.values()
    ]
    return tuple(
        kind.share / mean for kind, mean in zip(PASSAGE_KINDS.values(), means, strict=True)
    )


def passage(rng: random.Random) -> Passage:
    """One passage of a random kind."""
    (kind,) = rng.choices(tuple(PASSAGE_KINDS.values()), _frequencies())
    return kind.draw(rng)


def document(rng: random.Random) -> Passage:
    """One to six passages with a full stop or a line break between them."""
    text = passage(rng)
    for _ in range(between(rng, 0, 5)):
        text = text + pick(rng, (". ", ". ", "\n")) + passage(rng)
    return text + "." if biased_coin(rng, 0.5) else text


def documents(seed: int) -> Iterator[Passage]:
    """Documents without end."""
    rng = random.Random(f"documents {seed}")
    while True:
        yield document(rng)
