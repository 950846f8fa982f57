"""Token batches as models want them: equal lengths, and a mask wherever there is padding."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

Tokens: TypeAlias = Tensor | Sequence[Any] | str
"""Int[Tensor, "batch pos"], or rows of equally many ids; text goes to the bridge as it is."""

PAD = 0
"""What this package puts under a mask: an id that every vocabulary has."""


def check_tokens(
    tokens: Tokens, attention_mask: Tensor | None, tokenizer: Any, device: torch.device
) -> tuple[Any, Tensor | None]:
    """The tokens as Int[Tensor, "batch pos"] on `device`, and their mask there.

    Text passes through: upstream tokenizes it, pads on the left and makes the mask.

    Raises:
        ValueError: rows of unequal lengths, a mask of another shape, padding without a mask
        TypeError: tokens that are no integers
    """
    if isinstance(tokens, str) or (len(tokens) and isinstance(tokens[0], str)):
        return tokens, attention_mask
    rows = _as_tensor(tokens)
    if attention_mask is None:
        _refuse_padding(rows, tokenizer)
        return rows.to(device), None
    if attention_mask.shape != rows.shape:
        raise ValueError(
            f"expected a mask of the tokens' shape {tuple(rows.shape)}, found "
            f"{tuple(attention_mask.shape)}; give one entry a token, 0 at padding"
        )
    return rows.to(device), attention_mask.to(device)


def _as_tensor(tokens: Any) -> Int[Tensor, "batch pos"]:
    rows = tokens if isinstance(tokens, Tensor) else _rows_of_one_length(tokens)
    if rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
        raise TypeError(f"expected token ids (integers), found {rows.dtype}")
    if rows.ndim not in (1, 2) or rows.numel() == 0:
        raise ValueError(f"expected tokens [batch pos], found {list(rows.shape)}")
    return rows[None] if rows.ndim == 1 else rows


def _rows_of_one_length(tokens: Sequence[Any]) -> Tensor:
    lengths = sorted({len(row) for row in tokens if not isinstance(row, int)})
    if len(lengths) > 1:
        raise ValueError(
            f"expected prompts of one length, found lengths {lengths}; pad them on the left and "
            "give attention_mask, or run them by length"
        )
    return torch.stack([torch.as_tensor(row) for row in tokens])


def _refuse_padding(tokens: Int[Tensor, "batch pos"], tokenizer: Any) -> None:
    """Without a mask, left padding is attended to and shifts positions: wrong, and silent."""
    for pad in {PAD, getattr(tokenizer, "pad_token_id", None)} - {None}:
        padded = tokens[:, 0] == pad
        # Where padding and BOS are one token, a first one is BOS if all rows have it.
        n_leading = 2 if pad == tokenizer.bos_token_id and bool(padded.all()) else 1
        padded = (tokens[:, :n_leading] == pad).all(-1)
        if tokens.shape[1] > n_leading and bool(padded.any()):
            row = int(padded.int().argmax())
            raise ValueError(
                f"expected attention_mask with padded tokens, found none: row {row} starts "
                f"with the padding token {pad}, which the model would read; give the mask (all "
                "ones, if that token is meant)"
            )
