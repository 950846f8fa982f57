"""Random controls: the same problems in several draws, such as of shuffled values."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects.effects import Effects


def draws_of(draws: Mapping[str, Tensor], space: str, like: Effects) -> Float[Tensor, "*site draw"]:
    """The mean of each draw of a control, whose draws are [*site draw pair].

    Args:
        draws: by control, the number of each draw and pair.
        space: the name of the control.
        like: effects on the same pairs.

    Raises:
        KeyError: the control has no draws.
    """
    if space not in draws:
        raise KeyError(
            f"expected a control with draws, of {', '.join(draws) or 'none'}, found {space!r}; "
            "iia has the accuracy of all spaces"
        )
    values = draws[space].float()
    axes = ("site", "draw")[-values.ndim + 1 :]
    return replace(like, per_pair=values, axes=axes, labels=None, held_norm=None).mean()


def crossed_draws(values: Float[Tensor, "*component draw pair"], like: Effects) -> Effects:
    """All draws of a control as effects, whose intervals speak of other draws and other problems.

    Each draw stands as a wording of every problem: `Effects.ci` counts both as samples. Wordings
    of the problems themselves are pooled.

    Args:
        values: the number of each draw and pair.
        like: effects of the same components on the same pairs.

    Examples:
        Of four draws, one is right on all 50 problems and the others on none. Over problems alone,
        the share would be sure:

        >>> values = torch.zeros(1, 4, 50)
        >>> values[:, 0] = 1
        >>> problem = tuple(map(str, range(50)))
        >>> like = Effects(values.mean(1), ("site",), "right", problem=problem)
        >>> crossed_draws(values, like).ci().T
        tensor([[0.0164, 0.8693]])
    """
    n_draws, n_pairs = values.shape[-2:]
    names = like.problem
    if names is None:
        units = range(n_pairs) if like.cluster is None else like.cluster.tolist()
        names = tuple(map(str, units))
    return replace(
        like,
        per_pair=values.flatten(-2),
        template=tuple(f"draw/{draw}" for draw in range(n_draws) for _ in range(n_pairs)),
        problem=names * n_draws,
        cluster=torch.arange(n_draws * n_pairs),
        held_norm=None,
    )
