"""The world's frozen sets: written once, shipped as JSONL, read by evaluation and tuning.

A line is `{"task": …, "prompt": …, "answer": …}`; the answer follows the prompt directly. Word
problems have the splits tuning, validation and test; generic tasks and held-out two-digit problems
a test alone.
"""

import json
import random
from collections import defaultdict
from pathlib import Path

from arith_lens.operations import FOUR
from arith_lens.problems import all_problems
from arith_lens.reference.arithmetic import is_held_out
from arith_lens.reference.generic import test_questions
from arith_lens.reference.passages import shuffled
from arith_lens.reference.word_problems import FAMILIES, tuning_problems
from arith_lens.templates import TEMPLATES

FOLDER = Path(__file__).parent / "sets"
N_HELD_OUT = 500  # prompts an operation in the two-digit test, where there are as many
Line = dict[str, str]


def make_sets() -> dict[str, list[Line]]:
    """Every set by name, made anew from the world's code."""
    sets: dict[str, list[Line]] = defaultdict(list)
    for family in FAMILIES:
        for split, problems in tuning_problems(family).items():
            sets[f"word_problems_{split}"] += [
                _line(family, problem.question, str(problem.answer)) for problem in problems
            ]
    sets["generic_test"] = [_line(q.task, q.prompt, q.answer) for q in test_questions()]
    sets["two_digit_test"] = _two_digit()
    return dict(sets)


def write_sets(folder: Path = FOLDER) -> None:
    """Write every set as `<name>.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in make_sets().items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def load_set(name: str) -> list[Line]:
    """A shipped set by name, such as "word_problems_test".

    Raises:
        ValueError: no such set; the message lists those there are.
    """
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in FOLDER.glob("*.jsonl")))
        raise ValueError(f"no set {name!r} of the closed world: expected one of {there}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_task(lines: list[Line]) -> dict[str, list[tuple[str, str]]]:
    """(prompt, answer) of each line, task by task."""
    tasks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in lines:
        tasks[line["task"]].append((line["prompt"], line["answer"]))
    return dict(tasks)


def _line(task: str, prompt: str, answer: str) -> Line:
    return {"task": task, "prompt": prompt, "answer": answer}


def _two_digit() -> list[Line]:
    """Two-digit problems that training never shows, at most 500 prompts an operation."""
    rng = random.Random("two-digit test")
    lines: list[Line] = []
    for operation in FOUR:
        problems = [p for p in all_problems(operation, range(1, 100)) if is_held_out(p)]
        if operation == "multiplication":  # as training draws them: up to 24 times a digit
            problems = [p for p in problems if min(p.a, p.b) <= 9 and max(p.a, p.b) <= 24]
        if operation == "division":  # and by a digit
            problems = [p for p in problems if p.b <= 9]
        asked = [(p, template) for p in problems for template in TEMPLATES[operation]]
        for problem, template in shuffled(rng, asked)[:N_HELD_OUT]:
            prompt, _ = template.render(problem.a, problem.b)
            lines.append(_line(operation, prompt, str(problem.answer)))
    return lines
