"""The world's questions: the frozen sets, and those that tuning on word problems does not show.

The frozen sets were written once, are shipped as JSONL, and are read by evaluation and tuning.

A line is `{"task": …, "prompt": …, "answer": …}`; the answer follows the prompt directly. Word
problems have the splits tuning, validation and test. Generic tasks and held-out two-digit problems
have a test alone. `world_questions` and `world_pairs` give them to models with hooks.

Tuning sees four families of word problems, in fixed wordings and ranges of numbers. How well a gain
holds on `unfamiliar_questions` says what has been learned.
"""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from arith_lens.answers import Question
from arith_lens.operations import FOUR
from arith_lens.pairs import PromptPairs
from arith_lens.pairs.references import shuffled
from arith_lens.problems import all_problems
from arith_lens.reference.arithmetic import Passage, is_held_out, long_sum, pick, power
from arith_lens.reference.word_problems import (
    PROBLEM_FAMILIES,
    REWORDED_PARTS,
    larger_problems,
    reworded,
    tuning_problems,
    world_edits,
)
from arith_lens.reference.world import test_questions
from arith_lens.templates import FIGURE_10, LARGEST_ANSWERS, TEMPLATES
from arith_lens.word_problems import Conversion, WordProblem, word_problem_pairs

SETS_FOLDER = Path(__file__).parent / "sets"
N_HELD_OUT = 500  # the largest number of prompts per operation in the two-digit test
Line = dict[str, str]


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
    return dict(sets)


def write_sets(folder: Path = SETS_FOLDER) -> None:
    """Write every set as `<name>.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in make_sets().items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def load_set(name: str) -> list[Line]:
    """A shipped set by name, such as "word_problems_test".

    Raises:
        ValueError: no such set; the message lists those there are.
    """
    path = SETS_FOLDER / f"{name}.jsonl"
    if not path.exists():
        names = ", ".join(sorted(p.stem for p in SETS_FOLDER.glob("*.jsonl")))
        raise ValueError(f"no set {name!r} of the closed world: expected one of {names}")
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


def world_pairs(
    model: Any,
    family: str | None = None,
    *,
    change: Collection[str] = REWORDED_PARTS,
    split: str = "test",
    seed: int = 0,
) -> tuple[PromptPairs, Conversion]:
    """Prompt pairs of the closed world's word problems, aligned like GSM8K's.

    "Diana has 21 hats. Diana donates 2 hats. How many hats does Diana have now?" becomes "Diana
    knows 21 hats. Diana admires 2 cards. What big cups does Nora have now?", with the same number
    of tokens. C is the first digit of the answer, and the family is the pair's template. The pairs
    are not filtered: see `keep_correct`, whose `counterfactual_correct` says how often the
    counterfactual is still answered with C.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        family: "gain_lose", "compare", "groups" or "two_step"; None: all four.
        change: what is reworded, among "question", "operators", "referents" and "possession":
            see `world_edits`.
        split: "test", "validation" or "tuning".
        seed: the seed of the draw among the replacements.

    Raises:
        ValueError: the family, a part or the split is unknown, or no problem can be converted.
    """
    if family is not None and family not in PROBLEM_FAMILIES:
        raise ValueError(
            f"family={family!r}: expected one of {', '.join(PROBLEM_FAMILIES)}, or None"
        )
    lines = load_set(f"word_problems_{split}")
    problems = [
        WordProblem(
            line["prompt"],
            line["answer"],
            world_edits(line["prompt"], line["task"], change),
            line["task"],
        )
        for line in lines
        if family in (None, line["task"])
    ]
    return word_problem_pairs(model, problems, seed=seed)


def world_questions(name: str) -> list[Question]:
    """A shipped set, such as "word_problems_test" or "generic_test"; `task` as in the set.

    Raises:
        ValueError: no such set; the message lists those there are.
    """
    return [Question(line["prompt"], line["answer"], line["task"]) for line in load_set(name)]


UNFAMILIAR_SETS = (
    *("tuned on", "other wordings", "larger numbers", "stories"),
    *("one digit", "two digits", "three digits", "powers"),
)
"""The names of the sets. The first one has the families that are tuned on."""
N_LONG = 200  # sums and differences with three digits or a decimal
N_DRAWS = 2000  # draws of powers: all of them come up


def unfamiliar_questions(n: int = 100) -> dict[str, list[Question]]:
    """Questions by set, each problem once. `Question.task` is the family or the operation.

    They are unseen problems of the families that are tuned on, the same ones in other wordings,
    problems with larger numbers, and calculations of other kinds.

    Args:
        n: the largest number of questions of each task.
    """
    familiar = _first(n, world_questions("word_problems_test"))
    sets: list[Iterable[Question]] = [
        familiar,
        [replace(question, prompt=reworded(question.prompt)) for question in familiar],
        [
            Question(problem.question, str(problem.answer), family)
            for family in PROBLEM_FAMILIES
            for problem in larger_problems(family, 2 * n)
        ],
        _stories(),
        _one_digit(),
        world_questions("two_digit_test"),
        _drawn("three digits", long_sum, N_LONG),
        _drawn("powers", power, N_DRAWS),
    ]
    return {name: _first(n, of) for name, of in zip(UNFAMILIAR_SETS, sets, strict=True)}


def _first(n: int, questions: Iterable[Question]) -> list[Question]:
    """At most n questions of each task, each problem in one wording only."""
    chosen: dict[tuple[str, ...], Question] = {}
    counts: Counter[str] = Counter()
    for question in questions:
        problem = (question.task, *re.findall(r"[\d.]*\d", question.prompt), question.answer)
        if problem not in chosen and counts[question.task] < n:
            chosen[problem] = question
            counts[question.task] += 1
    return [*chosen.values()]


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


def _drawn(name: str, draw: Callable[[random.Random], Passage], times: int) -> Iterator[Question]:
    rng = random.Random(name)
    for passage in (draw(rng) for _ in range(times)):
        ((start, stop),) = passage.answers
        yield Question(passage.text[:start], passage.text[start:stop], name)
