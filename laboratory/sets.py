"""Make the closed world's frozen sets, which the library ships and reads (`arith_lens/reference`).

The sets were written once. `make_sets` makes them again from the world's code, and a test compares
them with the shipped files.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from arith_lens.answers import Question
from arith_lens.operations import FOUR
from arith_lens.pairs import shuffled
from arith_lens.problems import all_problems
from arith_lens.reference.edits import PROBLEM_FAMILIES
from arith_lens.reference.sets import SETS_FOLDER, Line, first_questions
from arith_lens.templates import FIGURE_10, LARGEST_ANSWERS, TEMPLATES
from laboratory.calculations import Passage, is_held_out, long_sum, pick, power
from laboratory.word_problems import larger_problems, reworded, tuning_problems
from laboratory.world import test_questions

N_HELD_OUT = 500  # the largest number of prompts per operation in the two-digit test
N_UNFAMILIAR = 500  # the largest number of questions per task in the sets that tuning does not show
N_LONG = 200  # sums and differences with three digits or a decimal
N_DRAWS = 2000  # draws of powers: all of them come up


def make_sets() -> dict[str, list[Line]]:
    """Make every set again from the world's code, by name."""
    sets: dict[str, list[Line]] = defaultdict(list)
    for family in PROBLEM_FAMILIES:
        for split, problems in tuning_problems(family).items():
            sets[f"word_problems_{split}"] += [
                _line(family, problem.question, str(problem.answer)) for problem in problems
            ]
    sets["generic_test"] = [_line(q.task, q.prompt, q.answer) for q in test_questions()]
    sets["two_digit_test"] = _two_digit()
    test = [
        Question(line["prompt"], line["answer"], line["task"])
        for line in sets["word_problems_test"]
    ]
    for name, questions in _unfamiliar(test).items():
        chosen = first_questions(N_UNFAMILIAR, questions)
        sets[name] = [_line(q.task, q.prompt, q.answer) for q in chosen]
    return dict(sets)


def write_sets(folder: Path = SETS_FOLDER) -> None:
    """Write every set as `<name>.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in make_sets().items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _line(task: str, prompt: str, answer: str) -> Line:
    return {"task": task, "prompt": prompt, "answer": answer}


def _two_digit() -> list[Line]:
    """Two-digit problems that are not in training, at most 500 prompts per operation."""
    rng = random.Random("two-digit test")
    lines: list[Line] = []
    for operation in FOUR:
        problems = [p for p in all_problems(operation, range(1, 100)) if is_held_out(p)]
        if operation == "multiplication":  # as in training: a number up to 24 times a digit
            problems = [p for p in problems if min(p.a, p.b) <= 9 and max(p.a, p.b) <= 24]
        if operation == "division":  # and by a digit
            problems = [p for p in problems if p.b <= 9]
        prompts = [(p, template) for p in problems for template in TEMPLATES[operation]]
        for problem, template in shuffled(prompts, rng)[:N_HELD_OUT]:
            prompt, _ = template.render(problem.a, problem.b)
            lines.append(_line(operation, prompt, str(problem.answer)))
    return lines


def _unfamiliar(test: list[Question]) -> dict[str, Iterable[Question]]:
    """Questions that tuning on word problems does not show, by set.

    Args:
        test: the word problems of the test set, which get other wordings.
    """
    familiar = first_questions(N_UNFAMILIAR, test)
    return {
        "word_problems_other_wordings": [
            replace(question, prompt=reworded(question.prompt)) for question in familiar
        ],
        "word_problems_larger_numbers": [
            Question(problem.question, str(problem.answer), family)
            for family in PROBLEM_FAMILIES
            for problem in larger_problems(family, 2 * N_UNFAMILIAR)
        ],
        "stories_test": _stories(),
        "one_digit_test": _one_digit(),
        "three_digit_test": _sampled("three digits", long_sum, N_LONG),
        "powers_test": _sampled("powers", power, N_DRAWS),
    }


def _stories() -> Iterator[Question]:
    """Figure 10's additions, each sum in one of the stories."""
    rng = random.Random("stories")
    for problem in all_problems("addition"):
        fitting = [s for s in FIGURE_10 if problem.answer <= LARGEST_ANSWERS.get(s.name, 18)]
        prompt, _ = pick(rng, fitting).sample(rng, problem.a, problem.b)
        yield Question(prompt, str(problem.answer), "addition")


def _one_digit() -> Iterator[Question]:
    rng = random.Random("one digit")
    for operation in FOUR:
        for problem in all_problems(operation):
            prompt, _ = pick(rng, TEMPLATES[operation]).render(problem.a, problem.b)
            yield Question(prompt, str(problem.answer), operation)


def _sampled(
    name: str, sample: Callable[[random.Random], Passage], times: int
) -> Iterator[Question]:
    rng = random.Random(name)
    for passage in (sample(rng) for _ in range(times)):
        ((start, stop),) = passage.answers
        yield Question(passage.text[:start], passage.text[start:stop], name)
