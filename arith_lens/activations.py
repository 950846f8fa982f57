"""Recorded activations at chosen positions of the prompt."""

from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Positions: TypeAlias = int | slice | Tensor | None
"""Positions in the prompt. None: all; an int: this position (-1 is END, because prompts are padded
on the left); a slice; Int[Tensor, "batch"]: one per row; Bool[Tensor, "batch pos"]: a mask."""


def check_positions(positions: Any) -> None:
    """Raise TypeError for what names no positions, such as the `"end"` of `knock_out`."""
    whole_numbers = isinstance(positions, int) and not isinstance(positions, bool)
    if positions is not None and not (whole_numbers or isinstance(positions, slice | Tensor)):
        raise TypeError(
            "expected positions as None (all), a number (-1 is END), a slice, or a tensor with one "
            f"position per prompt or a mask, found {positions!r}; name END by -1"
        )


def position_axis(name: str) -> int:
    """The axis of an activation that has the prompt's positions."""
    return 2 if name.endswith(("hook_pattern", "hook_attn_scores")) else 1


def position_mask(
    positions: Positions, like: Float[Tensor, "batch pos *rest"]
) -> Bool[Tensor, "#batch pos"]:
    """A mask of positions of an activation. Raises IndexError for positions beyond the prompt."""
    batch, length = like.shape[:2]
    everywhere = torch.ones(1, length, dtype=torch.bool, device=like.device)
    if positions is None:
        return everywhere
    if isinstance(positions, slice):
        steps = torch.zeros_like(everywhere)
        steps[:, positions] = True
        return steps
    if isinstance(positions, Tensor) and positions.dtype == torch.bool:
        if positions.shape != (batch, length):
            raise IndexError(
                f"expected a mask over the activation's {batch} rows and {length} positions, found "
                f"{tuple(positions.shape)}; while generating, a step holds only the new token"
            )
        return positions.to(like.device)
    index = _one_a_row(positions, batch, length, like.device)
    return torch.arange(length, device=like.device) == index[:, None]


def take_positions(
    value: Float[Tensor, " batch *rest"], positions: Positions, axis: int = 1
) -> Float[Tensor, " batch *kept"]:
    """A copy of `value` at some positions. The axis stays: one position gives length 1.

    It is a copy because a view would keep the whole activation in memory. A Bool mask is an error,
    because rows may not have different numbers of positions.
    """
    if positions is None:
        return value.clone()
    if isinstance(positions, slice):
        return value[(slice(None),) * axis + (positions,)].clone()
    if isinstance(positions, Tensor) and positions.dtype == torch.bool:
        raise ValueError(
            "expected one position, a slice or one position a row, found a mask; record every "
            "position and apply the mask afterwards"
        )
    index = _one_a_row(positions, value.shape[0], value.shape[axis], value.device)
    if index.numel() == 1:
        return value.narrow(axis, int(index), 1).clone()
    rows = torch.arange(len(index), device=value.device)
    return value.movedim(axis, 1)[rows, index].unsqueeze(axis)


def _one_a_row(
    positions: int | Tensor, batch: int, length: int, device: torch.device
) -> Int[Tensor, "#batch"]:
    """One position, or one position per row, as indices from 0."""
    indices = [positions] if isinstance(positions, int) else positions.reshape(-1).tolist()
    if len(indices) not in (1, batch):
        raise IndexError(f"expected one position a row for {batch} rows, found {len(indices)}")
    if not all(-length <= position < length for position in indices):
        raise IndexError(
            f"expected positions from {-length} to {length - 1}, found {indices}; while "
            "generating, a step holds only the new token"
        )
    return torch.tensor([position % length for position in indices], device=device)


def keep_activation(
    activation: Tensor,
    hook: Any = None,
    *,
    name: str,
    into: dict[str, Tensor],
    positions: Positions,
) -> None:
    """The function of a hook that copies an activation into `into`, at some positions."""
    into[name] = take_positions(activation.detach(), positions, position_axis(name))
