"""The closed world's questions: frozen sets, shipped as JSONL, for evaluation and tuning.

A line is `{"task": …, "prompt": …, "answer": …}`; the answer follows the prompt directly. Word
problems have the splits tuning, validation and test. Generic tasks and held-out two-digit problems
have a test alone. `world_questions` and `world_pairs` give them to models with hooks.

Tuning sees four families of word problems, in fixed wordings and ranges of numbers. How well a gain
holds on `unfamiliar_questions` says what has been learned.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from arith_lens.answers import Question
from arith_lens.options import check_choice
from arith_lens.pairs import PromptPairs
from arith_lens.reference.edits import PROBLEM_FAMILIES, REWORDED_PARTS, world_edits
from arith_lens.word_problems import Conversion, WordProblem, word_problem_pairs

SETS_FOLDER = Path(__file__).parent / "sets"
Line = dict[str, str]


def load_set(name: str) -> list[Line]:
    """A shipped set by name, such as "word_problems_test".

    Raises:
        ValueError: no such set; the message lists those there are.
    """
    path = SETS_FOLDER / f"{name}.jsonl"
    if not path.exists():
        names = ", ".join(sorted(p.stem for p in SETS_FOLDER.glob("*.jsonl")))
        raise ValueError(f"expected a set of the closed world, {names}, found {name!r}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_task(lines: list[Line]) -> dict[str, list[tuple[str, str]]]:
    """(prompt, answer) of each line, task by task."""
    tasks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in lines:
        tasks[line["task"]].append((line["prompt"], line["answer"]))
    return dict(tasks)


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
    if family is not None:
        check_choice("family (or None)", family, PROBLEM_FAMILIES)
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


UNFAMILIAR_SETS = {
    "tuned on": "word_problems_test",
    "other wordings": "word_problems_other_wordings",
    "larger numbers": "word_problems_larger_numbers",
    "stories": "stories_test",
    "one digit": "one_digit_test",
    "two digits": "two_digit_test",
    "three digits": "three_digit_test",
    "powers": "powers_test",
}
"""The frozen set behind each name. The first one has the families that are tuned on."""


def unfamiliar_questions(n: int = 100) -> dict[str, list[Question]]:
    """Questions by set, each problem once. `Question.task` is the family or the operation.

    They are unseen problems of the families that are tuned on, the same ones in other wordings,
    problems with larger numbers, and calculations of other kinds.

    Args:
        n: the largest number of questions of each task; the sets have at most 500.
    """
    return {
        name: first_questions(n, world_questions(set_name))
        for name, set_name in UNFAMILIAR_SETS.items()
    }


def first_questions(n: int, questions: Iterable[Question]) -> list[Question]:
    """At most n questions of each task, each problem in one wording only."""
    chosen: dict[tuple[str, ...], Question] = {}
    counts: Counter[str] = Counter()
    for question in questions:
        problem = (question.task, *re.findall(r"[\d.]*\d", question.prompt), question.answer)
        if problem not in chosen and counts[question.task] < n:
            chosen[problem] = question
            counts[question.task] += 1
    return [*chosen.values()]
