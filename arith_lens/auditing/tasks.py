"""The prompts of an operation, and the metric of a map, as an audit asks for them."""

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from arith_lens.named_models import REFERENCE_MODELS
from arith_lens.operations import FOUR
from arith_lens.pairs import PromptPairs, sample_pairs

LEAD, LOGIT = "digit_contrast", "logit"
"""The metrics of a map."""
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
    return {lens: _pairs(model, operation, lens, shots) for lens in LENSES}


def four_operations(model: Any, *, shots: int | None = None) -> PromptPairs:
    """The problems of all four operations: means over them hold no operation fixed."""
    parts = [_pairs(model, operation, LENSES[0], shots) for operation in FOUR]
    return replace(reduce(add, parts), template=None)


def fitting_metric(pairs: PromptPairs) -> dict[str, Any]:
    """Options of `path_patch`: C's lead over the other answers that occur, of counterfactual
    prompts too; C's logit if there is one answer alone."""
    answers = pairs.answer_tokens
    return {"metric": LEAD, "candidates": answers} if len(answers) > 1 else {"metric": LOGIT}


def _pairs(model: Any, operation: str, lens: str, shots: int | None) -> PromptPairs:
    if shots is None:
        shots = int(getattr(model, "name", "") not in REFERENCE_MODELS)
    options: dict[str, Any] = {"templates": "symbols", "keep": "all", "shots": shots}
    parts = (
        sample_pairs(model, operation, exemplar_set=n, counterfactual=lens, **options)
        for n in range(SETS if shots else 1)
    )
    return reduce(add, parts)
