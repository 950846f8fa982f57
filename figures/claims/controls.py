"""Knockouts of control heads, which a claim about special heads gives beside theirs.

There are two kinds: heads drawn from all heads of the model, and heads of the same layers as the
heads that the claim is about, drawn from all heads but these.
"""

from collections.abc import Mapping, Sequence

import torch

from arith_lens.answers import Answers, OverSeeds, over_seeds
from arith_lens.effects import Effects
from arith_lens.knockout import Outcomes
from figures.claims.claim import Number, Within

TITLES = {"random": "random of all heads", "matched": "random of the same layers"}


def change_over_draws(before: Outcomes, after: Sequence[Outcomes]) -> OverSeeds:
    """The change of accuracy, mean over the draws; its errors are of draws and of problems."""
    changes = torch.stack([one.correct.float() - before.correct.float() for one in after])
    of_draws = Effects(changes, ("draw",), "change", **before.units)
    of_problems = Effects(changes.mean(0, keepdim=True), ("draw",), "change", **before.units)
    error = float(of_problems.stderr()[0])
    return OverSeeds(tuple(of_draws.mean().tolist()), error, before.n_pairs)


def answers_over_draws(before: Answers, after: Sequence[Answers]) -> OverSeeds:
    """The same of answers to questions; errors are of draws and of questions."""
    for one in after:
        before.change_to(one)  # refuses other questions
    return over_seeds(
        torch.stack([one.correct.double() - before.correct.double() for one in after])
    )


def control_numbers(
    of: str,
    changes: Mapping[str, OverSeeds],
    rules: Mapping[str, Within] | None = None,
) -> list[Number]:
    """The change of accuracy in points for each kind of control.

    Args:
        of: what the number is of, before the kind of control.
        changes: the change over draws, by the kind of control.
        rules: the rules of the kinds of control that decide something.
    """
    return [
        Number(
            f"{of}, {TITLES[kind]}, {len(change.per_seed)} draws",
            change.mean,
            *change.ci(),
            "points",
            (rules or {}).get(kind),
            freedom=change.freedom,
        )
        for kind, change in changes.items()
    ]
