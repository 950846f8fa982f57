"""Changes between two sets of answers, with intervals."""

import torch

from arith_lens.answers import Answers
from arith_lens.effects import Effects
from figures.claims.claim import Number, Within
from figures.claims.estimate import estimate
from figures.claims.evidence import NotMeasured


def relative_change(of: str, before: Answers, after: Answers, rule: Within | None = None) -> Number:
    """The change of accuracy as a share of the accuracy before; resamples draw the same questions.

    Raises:
        NotMeasured: no answer was right before, or there is no question.
    """
    number = None
    if len(before):
        number = estimate(
            of, lambda m: m[1] / m[0] - 1 if m[0] else m[0] / 0, _both(before, after), rule=rule
        )
    if number is None:
        raise NotMeasured(f"{of}: none of {len(before)} questions was answered right before")
    return number


def change(of: str, before: Answers, after: Answers, rule: Within | None = None) -> Number:
    """The change of accuracy in points; resamples draw the same questions.

    Raises:
        NotMeasured: there is no question.
    """
    number = None
    if len(before):
        both = _both(before, after)
        number = estimate(of, lambda m: m[1] - m[0], both, rule=rule, unit="points")
    if number is None:
        raise NotMeasured(f"{of}: no question was asked")
    return number


def _both(before: Answers, after: Answers) -> Effects:
    before.change_to(after)  # refuses other questions
    return Effects(torch.stack([before.correct, after.correct]).float(), ("run",), "correct")
