"""Questions that tuning on word problems does not show, each problem once.

Tuning sees four families of word problems, in fixed wordings and ranges of numbers. Here are the
same problems in other wordings, problems with larger numbers, and calculations of other kinds. How
well a gain holds on them says what has been learned.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping

from arith_lens.answers import Question
from arith_lens.operations import FOUR
from arith_lens.problems import all_problems
from arith_lens.reference.arithmetic import long_sum, power
from arith_lens.reference.passages import Passage, pick
from arith_lens.reference.sets import world_questions
from arith_lens.reference.word_problems import PROBLEM_FAMILIES, larger_problems, reworded
from arith_lens.templates import FIGURE_10, LARGEST_ANSWERS, TEMPLATES

N_LONG = 200  # sums and differences with three digits or a decimal
N_DRAWS = 2000  # draws of powers: all of them come up


def unfamiliar_questions(n: int = 100) -> dict[str, list[Question]]:
    """Questions by set. `Question.task` is the family or the operation.

    Args:
        n: the largest number of questions of each task.
    """
    return {name: _first(make(n), n) for name, make in _SETS.items()}


def _first(questions: Iterator[Question], n: int) -> list[Question]:
    """At most n questions of each task, each problem in one wording only."""
    chosen: dict[tuple[str, ...], Question] = {}
    counts: dict[str, int] = {}
    for question in questions:
        problem = (question.task, *re.findall(r"[\d.]*\d", question.prompt), question.answer)
        if problem not in chosen and counts.get(question.task, 0) < n:
            chosen[problem] = question
            counts[question.task] = counts.get(question.task, 0) + 1
    return [*chosen.values()]


def _familiar(n: int) -> Iterator[Question]:
    yield from world_questions("word_problems_test")


def _reworded(n: int) -> Iterator[Question]:
    """The same problems as in the first set."""
    for question in _first(_familiar(n), n):
        yield Question(reworded(question.prompt), question.answer, question.task)


def _larger(n: int) -> Iterator[Question]:
    for family in PROBLEM_FAMILIES:
        for problem in larger_problems(family, 2 * n):
            yield Question(problem.question, str(problem.answer), family)


def _stories(n: int) -> Iterator[Question]:
    """Figure 10's additions, each sum in one of the stories."""
    rng = random.Random("stories")
    for problem in all_problems("addition"):
        fitting = [s for s in FIGURE_10 if problem.answer <= LARGEST_ANSWERS.get(s.name, 18)]
        prompt, _ = pick(rng, fitting).sample(rng, problem.a, problem.b)
        yield Question(prompt, str(problem.answer), "addition")


def _one_digit(n: int) -> Iterator[Question]:
    rng = random.Random("one digit")
    for operation in FOUR:
        for problem in all_problems(operation):
            prompt, _ = pick(rng, TEMPLATES[operation]).render(problem.a, problem.b)
            yield Question(prompt, str(problem.answer), operation)


def _two_digits(n: int) -> Iterator[Question]:
    yield from world_questions("two_digit_test")


def _drawn(name: str, draw: Callable[[random.Random], Passage], times: int) -> Iterator[Question]:
    rng = random.Random(name)
    for passage in (draw(rng) for _ in range(times)):
        ((start, stop),) = passage.answers
        yield Question(passage.text[:start], passage.text[start:stop], name)


_SETS: Mapping[str, Callable[[int], Iterator[Question]]] = {
    "tuned on": _familiar,
    "other wordings": _reworded,
    "larger numbers": _larger,
    "stories": _stories,
    "one digit": _one_digit,
    "two digits": _two_digits,
    "three digits": lambda n: _drawn("three digits", long_sum, N_LONG),
    "powers": lambda n: _drawn("powers", power, N_DRAWS),
}

UNFAMILIAR_SETS = tuple(_SETS)
"""The names of the sets. The first one has the families that are tuned on."""
