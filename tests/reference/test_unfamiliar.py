"""Questions that tuning does not show: right answers, other wordings, larger numbers."""

import re
from collections import Counter

import pytest

from arith_lens.answers import Question
from arith_lens.reference.edits import PROBLEM_FAMILIES
from arith_lens.reference.sets import UNFAMILIAR_SETS, load_set, unfamiliar_questions
from laboratory.word_problems import reworded


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Question]]:
    return unfamiliar_questions(40)


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def frame(prompt: str) -> str:
    """A word problem without its numbers, names and things: words that many problems share."""
    words = re.findall(r"[A-Za-z]+", prompt)
    return " ".join(word for word in words if word in FRAME)


FRAME = {"has", "does", "have", "How", "many", "more", "fewer", "than", "are", "there", "in", "all",
         "each", "with", "and", "then", "left", "into", "equally", "now", "end", "of"}  # fmt: skip


def test_each_set_has_each_problem_once(sets: dict[str, list[Question]]) -> None:
    assert sets.keys() == UNFAMILIAR_SETS.keys()
    for name, questions in sets.items():
        problems = Counter((q.task, *numbers(q.prompt), q.answer) for q in questions)
        assert max(problems.values()) == 1, name
        assert max(Counter(q.task for q in questions).values()) <= 40
    assert len(sets["tuned on"]) == 160


def test_another_wording_keeps_the_problem(sets: dict[str, list[Question]]) -> None:
    tuned = {frame(line["prompt"]) for line in load_set("word_problems_tuning")}
    for familiar, other in zip(sets["tuned on"], sets["other wordings"], strict=True):
        assert sorted(numbers(familiar.prompt)) == sorted(numbers(other.prompt))
        assert (familiar.answer, familiar.task) == (other.answer, other.task)
        assert frame(familiar.prompt) in tuned
        assert frame(other.prompt) not in tuned, other.prompt
        assert other.prompt.endswith("? A: ")
    with pytest.raises(ValueError, match="expected a word problem"):
        reworded("Q: What is 3 plus 5? A: ")


def test_larger_numbers_are_beyond_all_that_is_tuned_on(sets: dict[str, list[Question]]) -> None:
    largest = {
        family: max(
            max(numbers(line["prompt"]))
            for line in load_set("word_problems_tuning")
            if line["task"] == family and "equally" not in line["prompt"]
        )
        for family in PROBLEM_FAMILIES
    }
    beyond = [
        max(numbers(q.prompt)) > largest[q.task]
        for q in sets["larger numbers"]
        if "equally" not in q.prompt
    ]
    assert sum(beyond) / len(beyond) > 0.9  # 24 less 2 is tuned on as 26 has 24 fewer
    familiar = [max(numbers(q.prompt)) > largest[q.task] for q in sets["tuned on"]
                if "equally" not in q.prompt]  # fmt: skip
    assert not any(familiar)


@pytest.mark.parametrize("name", ["larger numbers", "other wordings"])
def test_a_word_problem_has_its_answer(name: str, sets: dict[str, list[Question]]) -> None:
    """The answer is a sum, difference, product or quotient of the numbers, as the family says."""
    for question in sets[name]:
        values, answer = numbers(question.prompt), int(question.answer)
        first, second = max(values[:2]), min(values[:2])
        if question.task == "groups":
            assert answer in (first * second, first / second)
        elif question.task == "two_step":
            a, b, c = values
            assert answer in (a + b - c, a - b + c)
        else:
            assert answer in (first + second, first - second)


def test_a_calculation_has_its_answer(sets: dict[str, list[Question]]) -> None:
    for question in [*sets["stories"], *sets["one digit"], *sets["two digits"]]:
        a, b = numbers(question.prompt)[:2]
        results = {"addition": a + b, "subtraction": a - b, "multiplication": a * b}
        if question.task in results and question not in sets["stories"]:
            assert int(question.answer) == results[question.task]
    for question in sets["powers"]:
        base, exponent = numbers(question.prompt)[:2]
        assert int(question.answer) == base**exponent
