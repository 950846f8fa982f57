"""What an accuracy must be compared with: answers that need no calculation.

Two base rates stand beside the accuracies of a table. The majority answer: the share of prompts
whose answer is the most frequent one. The likeliest token: how often the model gives its own most
frequent token, and in how many prompts this token is right.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.statistics import Units
from figures.tables.number import Number
from figures.tables.table import Key, Row, interval_numbers, row

MAJORITY = "base rate: majority answer"
SAME_TOKEN = "share of prompts with the most frequent token"
SAME_TOKEN_RIGHT = "base rate: most frequent token"
UNKNOWN = Units(template=None, cluster=None, problem=None)
"""The units of prompts that count one by one."""


def majority_rows(answers: Int[Tensor, " pair"], units: Units, **keys: Key) -> Iterator[Row]:
    """The accuracy of always giving the answer that is right in most prompts.

    Args:
        answers: a number per pair; equal numbers are equal answers.
        units: of the pairs. Templates weigh equally.
    """
    yield row(MAJORITY, _most_frequent(answers, units)[1], **keys)


def same_token_rows(
    tokens: Int[Tensor, " pair"], answers: Int[Tensor, " pair"], units: Units, **keys: Key
) -> Iterator[Row]:
    """How often the model gives its most frequent token, and how often that token is right.

    Args:
        tokens: the model's likeliest token after each prompt.
        answers: the right tokens.
        units: of the pairs. Templates weigh equally.
    """
    token, of_token = _most_frequent(tokens, units)
    yield row(SAME_TOKEN, of_token, **keys)
    yield row(SAME_TOKEN_RIGHT, share(answers == token, units), **keys)


def _most_frequent(values: Int[Tensor, " pair"], units: Units) -> tuple[int, Number]:
    """The most frequent value with its share; templates weigh equally."""
    kinds = values.unique()
    of_kinds = Effects((values == kinds[:, None]).float(), ("value",), "correct", **units).mean()
    most = int(np.argmax(of_kinds.numpy()))
    return int(kinds[most]), share(values == kinds[most], units)


def share(is_so: Tensor, units: Units) -> Number:
    """The share of pairs for which something is so; templates weigh equally."""
    return interval_numbers(Effects(is_so.float()[None], ("value",), "correct", **units), "share")[
        0
    ]
