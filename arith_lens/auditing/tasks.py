"""The prompts of an operation, as an audit asks them."""

from functools import reduce
from operator import add
from typing import Any

from arith_lens.named_models import REFERENCE_MODELS
from arith_lens.pairs import PromptPairs, sample_pairs

SETS = 2
"""The number of sets of examples after which each problem is asked."""
LENSES = ("operands", "operator")
"""What counterfactuals change. The first one is that of all questions."""


def operation_pairs(
    model: Any, operation: str, *, shots: int | None = None
) -> dict[str, PromptPairs]:
    """All one-digit problems of an operation, right or wrong, by what the counterfactual changes.

    They are worded `3 + 5 = `, after two sets of solved examples if there are examples.

    Args:
        model: a model with a `.tokenizer` and a name.
        operation: as in `sample_pairs`.
        shots: solved examples before each problem; None: one, and none for the shipped models.
    """
    if shots is None:
        shots = int(getattr(model, "name", "") not in REFERENCE_MODELS)
    options: dict[str, Any] = {"templates": "symbols", "keep": "all", "shots": shots}

    def of(lens: str) -> PromptPairs:
        sets = range(SETS if shots else 1)
        return reduce(
            add,
            (
                sample_pairs(model, operation, exemplar_set=n, counterfactual=lens, **options)
                for n in sets
            ),
        )

    return {lens: of(lens) for lens in LENSES}
