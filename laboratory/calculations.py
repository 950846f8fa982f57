"""Passages of the closed world that calculate, and the means against shortcuts.

A passage is text in which some spans are answers. A calculation is written in one of the operation
templates. A model must not succeed by reading the nearest digits from the embeddings. So most
calculations are made harder: operands have names, operators have aliases, numbers that are no
operands come before, between and after them, and there are sentences of the same form with a word
that is no operator. For all of these, the meaning of a token must be computed at its position
before the last position can read it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from arith_lens.operations import FOUR
from arith_lens.pairs import shuffled
from arith_lens.problems import Problem
from arith_lens.templates import FIGURE_10, NULL_SYMBOLS, NULL_WORDS, TEMPLATES, Template, fill

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


HELD_OUT_PERCENT = 15
NUMBER_ALIASES = (
    *("zim", "dak", "vop", "lun", "kef", "bri", "mog", "tas", "wex", "jub", "nid", "pax"),
    *("rud", "sil", "gan", "hob"),
)
_VARIABLES = "abcdefghjkmnpqrstuvwxyz"
_DEFINITIONS = ("{v} is {n}. ", "{v} = {n}. ", "let {v} be {n}. ", "{v} means {n}. ")
_BEFORE = ("({k}) ", "Line {k}: ", "On page {k}, ", "At {k} pm, ", "The key is {k}. ")
_BEHIND = (" (line {k})", ", as on page {k},", " on day {k}", ", not {k},", " [{k}]")
_SELECTIONS = {"first": 0, "last": 1, "larger": 2, "smaller": 3}


def is_held_out(problem: Problem) -> bool:
    """Whether training never shows `problem` in a template: 15% of the two-digit problems.

    Word problems and stories draw their numbers freely, so the same sum may come up in them.

    Two-digit: an operand has two digits and none has more. A sum and a product are held out
    together with their mirror images.
    """
    a, b = problem.a, problem.b
    if not 10 <= max(a, b) <= 99:
        return False
    if problem.operation in ("addition", "multiplication"):
        a, b = min(a, b), max(a, b)
    return crc32(f"{problem.operation} {a} {b}".encode()) % 100 < HELD_OUT_PERCENT


def draw_problem(rng: random.Random, *, digits: int | None = None) -> Problem:
    """A problem of one of the four operations with one or two digits that is not held out."""
    digits = digits or (1 if biased_coin(rng, 0.62) else 2)
    while True:
        problem = any_problem(rng, pick(rng, FOUR), digits)
        if not is_held_out(problem):
            return problem


def any_problem(rng: random.Random, operation: str, digits: int) -> Problem:
    """A problem whose operands have at most `digits` digits, held out or not."""
    top = 10**digits - 1
    a, b = between(rng, 1, top), between(rng, 1, top)
    if operation == "subtraction":
        a, b = max(a, b), min(a, b)
    elif operation == "multiplication" and digits > 1:
        a, b = shuffled((between(rng, 2, 24), between(rng, 2, 9)), rng)
    elif operation == "division":
        b = between(rng, 1, 9)
        a = b * between(rng, 1, max(1, top // b))
    return Problem(operation, a, b)


def calculation(rng: random.Random) -> Passage:
    """One calculation in one template, plain or made harder in one of three ways."""
    problem = draw_problem(rng)
    template = pick(rng, TEMPLATES[problem.operation])
    dress = rng.random()
    if dress < 0.42:
        return with_answer(template.render(problem.a, problem.b)[0], problem.answer)
    if dress < 0.64:
        return _named_operands(rng, problem, template)
    if dress < 0.75 and template.kind == "word":
        return _named_operator(rng, problem, template)
    return with_answer(
        _with_a_third_number(rng, template, problem.a, template.word, problem.b), problem.answer
    )


def _named_operands(rng: random.Random, problem: Problem, template: Template) -> Passage:
    """x is 3. y is 5. x plus y equals to 8. There may be two more names, and a plain operand."""
    names = shuffled(_VARIABLES, rng)[:4]
    values = [problem.a, problem.b, between(rng, 1, 99), between(rng, 1, 9)]
    defined = list(zip(names, values, strict=True))[: between(rng, 2, 4)]
    operands = [names[0], names[1]]
    if biased_coin(rng, 0.3):
        bare = between(rng, 0, 1)
        operands[bare] = str(values[bare])
        del defined[bare]
    form = pick(rng, _DEFINITIONS)
    definitions = "".join(form.format(v=v, n=n) for v, n in shuffled(defined, rng))
    question, _ = fill(template.text, A=operands[0], op=template.word, B=operands[1])
    return with_answer(definitions + question, problem.answer)


def _named_operator(rng: random.Random, problem: Problem, template: Template) -> Passage:
    """Let zim mean plus. let dak mean minus. 3 zim 5 equals to 8."""
    alias, other = shuffled(NUMBER_ALIASES, rng)[:2]
    meanings = [(alias, template.word)]
    if biased_coin(rng, 0.5):
        meanings.append((other, pick(rng, ("plus", "minus", "times", "over", "nothing"))))
    definitions = "".join(f"let {a} mean {word}. " for a, word in shuffled(meanings, rng))
    return with_answer(
        definitions + template.render(problem.a, problem.b, alias)[0], problem.answer
    )


def _with_a_third_number(rng: random.Random, template: Template, a: int, word: str, b: int) -> str:
    """The prompt with a number that is no operand: at the beginning, after A or after B."""
    k = between(rng, 1, 9) if biased_coin(rng, 0.7) else between(rng, 10, 99)
    where = rng.random()
    if where < 0.4:
        return pick(rng, _BEFORE).format(k=k) + template.render(a, b, word)[0]
    operand = "{A}" if where < 0.6 else "{B}"
    behind = pick(rng, _BEHIND).format(k=k)
    return fill(template.text.replace(operand, operand + behind), A=str(a), op=word, B=str(b))[0]


def null_sentence(rng: random.Random) -> Passage:
    """A template whose operator is a word without calculation, as in counterfactual prompts.

    The answer is the key, if the earlier text names one, else a digit that depends on the word. It
    never depends on the operands.
    """
    problem = draw_problem(rng)
    template = pick(rng, TEMPLATES[problem.operation])
    word = pick(rng, NULL_SYMBOLS if template.kind == "symbol" else NULL_WORDS)
    if biased_coin(rng, 0.5):
        return with_answer(template.render(problem.a, problem.b, word)[0], null_digit(rng, word))
    key = between(rng, 0, 9)
    question = (
        template.render(problem.a, problem.b, word)[0]
        if biased_coin(rng, 0.6)
        else _with_a_third_number(rng, template, problem.a, word, problem.b)
    )
    return with_answer(f"The key is {key}. " + question, key)


def null_digit(rng: random.Random, word: str) -> int:
    """The digit after a null word: the word's own digit in one of three cases, else any."""
    return crc32(word.encode()) % 10 if biased_coin(rng, 0.33) else between(rng, 0, 9)


def selection(rng: random.Random) -> Passage:
    """The first (last, larger, smaller) of A and B, in the wordings of the operation's noun."""
    word = pick(rng, tuple(_SELECTIONS))
    digits = 9 if biased_coin(rng, 0.6) else 99
    a, b = between(rng, 1, digits), between(rng, 1, digits)
    template = TEMPLATES["addition"][pick(rng, (2, 3, 4, 8))]
    answer = (a, b, max(a, b), min(a, b))[_SELECTIONS[word]]
    return with_answer(template.render(a, b, word)[0], answer)


def story(rng: random.Random) -> Passage:
    """One of Figure 10's additions, or in one of four cases its counterfactual."""
    template = pick(rng, FIGURE_10)
    a, b = between(rng, 1, 9), between(rng, 1, 9)
    if template.name in ("story/1", "story/2"):
        a, b = between(rng, 1, 8), 0
        b = between(rng, 1, 9 - a)
    reference, counterfactual = template.sample(rng, a, b)
    if biased_coin(rng, 0.25):
        return with_answer(counterfactual, between(rng, 0, 9))
    return with_answer(reference, a + b)


def power(rng: random.Random) -> Passage:
    """A power below 1,000, in the two wordings of exponentiation."""
    while True:
        problem = Problem("exponentiation", between(rng, 1, 9), between(rng, 1, 9))
        if problem.answer < 1000:
            template = pick(rng, TEMPLATES["exponentiation"])
            return with_answer(template.render(problem.a, problem.b)[0], problem.answer)


def long_sum(rng: random.Random) -> Passage:
    """A sum or difference of three-digit numbers, or of numbers with one decimal."""
    a, b = sorted((between(rng, 100, 999), between(rng, 100, 999)), reverse=True)
    operation = pick(rng, ("addition", "subtraction"))
    answer = a + b if operation == "addition" else a - b
    template = pick(rng, TEMPLATES[operation])
    texts = [str(n) for n in (a, b, answer)]
    if biased_coin(rng, 0.4):
        texts = [f"{n // 10}.{n % 10}" for n in (a, b, answer)]
    return with_answer(fill(template.text, A=texts[0], op=template.word, B=texts[1])[0], texts[2])
