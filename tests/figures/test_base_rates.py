"""Base rates against counts by hand; maps of two halves of the words."""

import torch

from arith_lens.effects import Effects
from arith_lens.statistics import Units
from figures.tables.base_rates import (
    MAJORITY,
    SAME_TOKEN,
    SAME_TOKEN_RIGHT,
    UNKNOWN,
    majority_rows,
    same_token_rows,
)
from figures.tables.null_words import (
    IN_COMMON,
    LARGEST_CHANGE,
    OF_RANDOM_HALVES,
    half_of_words,
    half_rows,
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


TEXTS = [(f"{i} plus 5 is ", f"{i} {('nil', 'void', 'none', 'blank')[i % 4]} 5 is ")
         for i in range(80)]  # fmt: skip


def test_words_are_split_alternately_by_the_alphabet() -> None:
    first = half_of_words(TEXTS)
    assert [bool(one) for one in first[:4]] == [False, False, True, True]


def test_a_map_that_depends_on_the_word_is_told_from_one_that_does_not() -> None:
    first, draw = half_of_words(TEXTS), torch.Generator().manual_seed(0)
    effects = -torch.linspace(0, 1, 96)[:, None] + 0.01 * torch.randn(96, 80, generator=draw)
    found = {}
    for name, values in (("same", effects), ("other", effects * (2 * first.float() - 1))):
        heads = Effects(values.unflatten(0, (12, 8)), ("layer", "head"), "relative_logit")
        rows = half_rows(heads, first, "addition")
        found[name] = {one.measure: one.number.value for one in rows}
    assert found["same"][IN_COMMON] >= 8 and found["other"][IN_COMMON] == 0
    assert found["same"][OF_RANDOM_HALVES] > 8
    assert found["same"][LARGEST_CHANGE] < 0.1 and found["other"][LARGEST_CHANGE] > 1.5
