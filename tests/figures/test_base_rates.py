"""Base rates against counts by hand."""

import torch

from arith_lens.statistics import Units
from figures.tables.base_rates import (
    MAJORITY,
    SAME_TOKEN,
    SAME_TOKEN_RIGHT,
    UNKNOWN,
    majority_rows,
    same_token_rows,
)
from figures.tables.table import QuestionTable


def test_the_majority_answer_is_the_one_that_most_prompts_have() -> None:
    answers = torch.tensor([8, 8, 8, 4, 4])
    table = QuestionTable.of("made", "m", majority_rows(answers, UNKNOWN, operation="addition"))
    number = table.number(MAJORITY, operation="addition")
    assert abs(number.value - 0.6) < 1e-6 and number.n == 5
    assert number.low is not None and 0 < number.low < 0.6


def test_the_models_most_frequent_token_is_counted_and_judged() -> None:
    tokens, answers = torch.tensor([7, 7, 7, 7, 1]), torch.tensor([7, 1, 1, 1, 1])
    rows = [*same_token_rows(tokens, answers, UNKNOWN, k=5)]
    assert {one.measure: round(one.number.value, 6) for one in rows} == {
        SAME_TOKEN: 0.8,
        SAME_TOKEN_RIGHT: 0.2,
    }


def test_wordings_weigh_equally() -> None:
    """The answer 1 is in three of four prompts, but only in half of the prompts on average."""
    units = Units(template=("a/0", "a/0", "a/0", "a/1"), cluster=None, problem=None)
    (one,) = majority_rows(torch.tensor([1, 1, 1, 2]), units)
    assert abs(one.number.value - 0.5) < 1e-6
