"""Changes of accuracy as numbers of a claim, and the controls that are reported beside them.

There are two kinds of control heads: heads drawn from all heads of the model, and heads of the same
layers as the heads that the claim is about, drawn from all heads but these.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from arith_lens.answers import Answers, OverSeeds
from arith_lens.effects import Effects
from arith_lens.knockout import OutcomeChange, Outcomes
from figures.claims.claim import Number, Unit, Within
from figures.claims.effect_maps import NAN
from figures.claims.estimate import estimate
from figures.claims.evidence import NotMeasured

CONTROL_NAMES = {"random": "random of all heads", "matched": "random of the same layers"}


def answers_change(
    of: str, before: Answers, after: Answers, unit: Unit, rule: Within | None = None
) -> Number:
    """The change of accuracy; resamples draw the same questions.

    Args:
        of: the number's name.
        before, after: answers to the same questions.
        unit: "points", or "%" for a share of the accuracy before.
        rule: of the number.

    Raises:
        NotMeasured: there is no question, or no answer was right before and the share needs one.
    """
    number = None
    if len(before):
        before.change_to(after)  # refuses other questions
        both = Effects(torch.stack([before.correct, after.correct]).float(), ("run",), "correct")
        number = estimate(of, _points if unit == "points" else _share, both, rule=rule, unit=unit)
    if number is None:
        raise NotMeasured(f"{of}: none of {len(before)} questions was answered right before")
    return number


def _points(right: np.ndarray) -> float:
    return float(right[1] - right[0])


def _share(right: np.ndarray) -> float:
    return float(right[1] / right[0] - 1) if right[0] else NAN


def relative_loss(of: str, change: OutcomeChange, rule: Within | None = None) -> Number:
    """A change of accuracy as a share of the accuracy before."""
    return Number(of, change.relative, *change.relative_ci, "%", rule)


def over_draws(of: str, change: OverSeeds, rule: Within | None = None) -> Number:
    """A change of accuracy in points, mean over draws or seeds."""
    return Number(of, change.mean, *change.ci(), "points", rule, freedom=change.freedom)


def change_over_draws(before: Outcomes, after: Sequence[Outcomes]) -> OverSeeds:
    """The change of accuracy, mean over the draws; its errors are of draws and of problems."""
    changes = torch.stack([answers.correct.float() - before.correct.float() for answers in after])
    of_draws = Effects(changes, ("draw",), "change", **before.units)
    of_problems = Effects(changes.mean(0, keepdim=True), ("draw",), "change", **before.units)
    error = float(of_problems.stderr()[0])
    return OverSeeds(tuple(of_draws.mean().tolist()), error, before.n_pairs)


def control_numbers(
    of: str, changes: Mapping[str, OverSeeds], random: Within | None = None
) -> list[Number]:
    """The change of accuracy in points for each kind of control.

    Args:
        of: what the number is of, before the kind of control.
        changes: the change over draws, by the kind of control.
        random: the rule of heads drawn from all heads, if they decide something.
    """
    return [
        over_draws(
            f"{of}, {CONTROL_NAMES[kind]}, {len(change.per_seed)} draws",
            change,
            random if kind == "random" else None,
        )
        for kind, change in changes.items()
    ]
