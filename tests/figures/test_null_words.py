"""Maps of two halves of the words, against effects that depend on the word or do not."""

import torch

from arith_lens.effects import Effects
from figures.tables.null_words import (
    IN_COMMON,
    LARGEST_CHANGE,
    OF_RANDOM_HALVES,
    half_of_words,
    half_rows,
)

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
