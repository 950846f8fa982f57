"""The closed world's frozen sets as questions, for models with hooks."""

from arith_lens.answers import Question
from arith_lens.reference.sets import load_set


def world_questions(name: str) -> list[Question]:
    """A shipped set, such as "word_problems_test" or "generic_test"; `task` as in the set.

    Raises:
        ValueError: no such set; the message lists those there are.
    """
    return [Question(line["prompt"], line["answer"], line["task"]) for line in load_set(name)]
