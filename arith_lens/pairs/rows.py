"""Rows of tokens: the checks and operations of PromptPairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.model.hooked import PAD


def left_pad(
    rows: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "pair pos"], Bool[Tensor, "pair pos"]]:
    """Pad rows of unequal length on the left.

    Returns:
        One tensor, with the last tokens in column -1, and its mask.
    """
    width = max(len(row) for row in rows)
    tokens = torch.tensor([[PAD] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return tokens, mask


def check_shapes(
    reference: Tensor, counterfactual: Tensor, answer: Tensor, mask: Tensor | None
) -> None:
    """Raise ValueError, with the shapes, if tensors cannot be aligned pairs."""
    if reference.ndim != 2 or reference.shape != counterfactual.shape:
        raise ValueError(
            "reference and counterfactual need one shape [pair, pos]: found "
            f"{list(reference.shape)} and {list(counterfactual.shape)}.\n"
            "Patching moves activations position by position, so both prompts of a pair need "
            "the same number of tokens."
        )
    if not reference.numel():
        raise ValueError(f"no pairs: reference has shape {list(reference.shape)}")
    if answer.shape != reference.shape[:1]:
        raise ValueError(
            f"one answer token per pair: expected [{len(reference)}], found {list(answer.shape)}"
        )
    if mask is not None and mask.shape != reference.shape:
        raise ValueError(
            "attention_mask needs the prompts' shape: expected "
            f"{list(reference.shape)}, found {list(mask.shape)}"
        )


def check_mask(mask: Bool[Tensor, "pair pos"]) -> None:
    """Raise ValueError for rows without a token, and for masks with holes."""
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(f"pair {row} has no token: attention_mask is False everywhere in its row")
    starts = mask[:, 0].int() + (mask.int().diff(dim=1) == 1).sum(1)
    if (starts > 1).any():
        row = int((starts > 1).nonzero()[0])
        raise ValueError(
            f"pair {row}: attention_mask has a hole; expected one run of True, with padding "
            "on the left or on the right"
        )


def refuse_padding(reference: Tensor, counterfactual: Tensor, pad_token: int | None) -> None:
    """Raise ValueError for padded rows, which need a mask.

    These are rows that begin with two padding tokens or end in one, and rows that this package has
    padded on the left.
    """
    padded = (reference[:, 0] == PAD) & (counterfactual[:, 0] == PAD)
    if padded.any() and not padded.all():
        raise ValueError(
            f"reference is padded (token {PAD}, pair {int(padded.nonzero()[0])}) but there is no "
            "mask: give attention_mask, True where a token is to be read (ones, if that token is "
            "meant)"
        )
    if pad_token is None:
        return
    for name, tokens in (("reference", reference), ("counterfactual", counterfactual)):
        is_pad = tokens == pad_token
        padded = is_pad[:, -1] | is_pad[:, :2].all(1)
        if padded.any():
            raise ValueError(
                f"{name} is padded (token {pad_token}, pair {int(padded.nonzero()[0])}) but there "
                "is no mask: give attention_mask, True where a token is to be read"
            )


def take(value: Any, rows: Int[Tensor, " kept"]) -> Any:
    """Some rows of a field of PromptPairs: a tensor, a tuple, or a mapping of tensors."""
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(value, tuple):
        return tuple(value[row] for row in rows.tolist())
    if isinstance(value, Mapping):
        return {key: take(rows_of_key, rows) for key, rows_of_key in value.items()}
    return value


def join(first: Any, second: Any) -> Any:
    """Join a field of two PromptPairs; None if either has None."""
    if first is None or second is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    if isinstance(first, Mapping):
        if any(isinstance(value, Tensor) for value in first.values()):
            return {key: torch.cat([first[key], second[key]]) for key in first}
        return {**first, **second}
    return first + second
