"""Which questions are word problems, which choose learning rates, and which report the outcome.

Validation word problems choose a rate for mathematics. Where a rate may lose little elsewhere, half
of the generic questions measure this loss. The other half reports it.
"""

from collections import Counter

from arith_lens.answers import Answers
from arith_lens.paper import BENCHMARKS
from arith_lens.reference.word_problems import PROBLEM_FAMILIES

VALIDATION = "validation/"
"""The prefix of the tasks that rates are chosen on."""
MATHEMATICS = (*PROBLEM_FAMILIES, *BENCHMARKS[:4])
"""The tasks that are word problems, in the closed world and in the benchmarks."""


def validation(answers: Answers) -> list[bool]:
    """Which questions are word problems for choosing a rate."""
    return [task.startswith(VALIDATION) for task in answers.task]


def is_mathematics(answers: Answers) -> list[bool]:
    """Which questions are of mathematics, without those that rates were chosen on."""
    return [task.split("/")[0] in MATHEMATICS for task in answers.task]


def generic(answers: Answers) -> list[bool]:
    """Which questions are of the other tasks."""
    return [
        not math and not chooses
        for math, chooses in zip(is_mathematics(answers), validation(answers), strict=True)
    ]


def generic_to_choose(answers: Answers) -> list[bool]:
    """Which generic questions measure the loss at each rate: the first of each task, the third, …

    None do where no question is for validation: then no rate is chosen.
    """
    chooses, seen, half = any(validation(answers)), Counter(), []
    for task, is_generic in zip(answers.task, generic(answers), strict=True):
        half.append(chooses and is_generic and seen[task] % 2 == 0)
        seen[task] += 1
    return half


def generic_to_report(answers: Answers) -> list[bool]:
    """Which generic questions tables and figures show: those that choose no rate."""
    return [
        is_generic and not chooses
        for is_generic, chooses in zip(generic(answers), generic_to_choose(answers), strict=True)
    ]
