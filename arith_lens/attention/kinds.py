"""Operand heads and operator heads, by a stated rule."""

from typing import Any

import torch

from arith_lens.effects import Effects
from arith_lens.pairs import Role

KINDS = ("operand", "operator", "other")
HALF = 0.5


def kinds_of(looks: Effects) -> dict[str, str]:
    """Each head's kind: "operand", "operator" or "other".

    The paper sorts its heads by eye. The rule here: of the mean weight that a head gives to
    anything but BOS, at least half goes to A and B together (operand), or to the operator
    (operator); else it is of neither kind. BOS is left out because heads rest there.

    Args:
        looks: what `attention_by_role` gave

    Raises:
        ValueError: effects of something else
    """
    heads, roles = _axes(looks)
    mean = looks.mean()
    weight = {role: mean[:, roles.index(role)] for role in roles}
    free = sum(weight[role] for role in roles if role != Role.BOS)
    shares: Any = {
        "operand": (weight[Role.OPERAND_A] + weight[Role.OPERAND_B]) / free,
        "operator": weight[Role.OPERATOR] / free,
    }
    return {
        head: next((kind for kind in shares if float(shares[kind][i]) >= HALF), "other")
        for i, head in enumerate(heads)
    }


def most_looked_at(looks: Effects) -> Effects:
    """1 for the role with the largest weight in a pair, else 0: section 4.2's characteristic.

    BOS counts here as any other. Its mean is the share of pairs in which each role comes first.
    """
    _axes(looks)
    best = looks.per_pair.argmax(1, keepdim=True)
    first = torch.zeros_like(looks.per_pair).scatter(1, best, 1.0)
    return Effects(
        first,
        looks.axes,
        "share of prompts in which this role has the largest weight",
        template=looks.template,
        cluster=looks.cluster,
        labels=looks.labels,
    )


def _axes(looks: Effects) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if looks.axes != ("head", "role") or looks.labels is None:
        raise ValueError(f"expected the result of attention_by_role, found {looks!r}")
    return looks.labels["head"], looks.labels["role"]
