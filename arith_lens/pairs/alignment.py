"""Which token of a counterfactual stands for each token of a reference of another length."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

ALONE = -1
"""In place of a counterpart, where a token has none."""


def counterparts(
    reference: Sequence[int],
    counterfactual: Sequence[int],
    spans: Sequence[tuple[tuple[int, int], tuple[int, int]]],
) -> list[int]:
    """By token of the reference, the number of the counterfactual's token in its stead.

    In prompts of one length it is the token at the same place. In others, the tokens of the common
    end have each other, and so have those of the common beginning. Spans that are named in both
    prompts are aligned at their last tokens.

    Args:
        reference, counterfactual: token ids.
        spans: the first token and the last + 1 of a span, in both prompts.

    Example:
        >>> counterparts([1, 5, 6, 2, 3], [1, 7, 2, 3], [])
        [0, -1, -1, 2, 3]
        >>> counterparts([1, 5, 6, 2, 3], [1, 7, 2, 3], [((1, 3), (1, 2))])
        [0, -1, 1, 2, 3]
    """
    n, n_other = len(reference), len(counterfactual)
    end = _in_common(reference[::-1], counterfactual[::-1])
    start = min(_in_common(reference, counterfactual), min(n, n_other) - end)
    if n == n_other:
        start = n - end
    others = [*range(start), *[ALONE] * (n - start - end), *range(n_other - end, n_other)]
    for (first, stop), (other_first, other_stop) in spans:
        n_both = min(stop - first, other_stop - other_first)
        lone = [ALONE] * (stop - first - n_both)
        others[first:stop] = [*lone, *range(other_stop - n_both, other_stop)]
    return others


def _in_common(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens with which both begin."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def unequal_fields(
    counterparts: Sequence[Sequence[int]], mask: Bool[Tensor, "pair pos"]
) -> dict[str, Any]:
    """The fields of PromptPairs that pairs of unequal lengths have.

    Args:
        counterparts: one list per pair, of token numbers.
        mask: that of the counterfactuals, padded on the left.
    """
    rows = []
    for numbers, of_row in zip(counterparts, mask, strict=True):
        padding = int((~of_row).sum())
        columns = [ALONE if number == ALONE else number + padding for number in numbers]
        rows.append([ALONE] * (len(of_row) - len(columns)) + columns)
    return {"counterfactual_mask": mask, "counterparts": torch.tensor(rows)}
