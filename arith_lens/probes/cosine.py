"""Which numbers a layer's MLP sees and writes: cosines with columns of W_U (the paper, 5.2).

`<x, W_U[t]>` over their lengths, at END: x is the residual stream that an MLP reads (MLP_in), what
it adds (the write, MLP_out - MLP_in), or the stream after it (MLP_out).
"""

from collections.abc import Callable
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from arith_lens.effects import Effects
from arith_lens.model import HookedLike, in_float32, in_place
from arith_lens.pairs import PromptPairs
from arith_lens.probes.reading import (
    DIGITS,
    digit_tokens,
    end_states,
    operand_tokens,
    refuse_not_finite,
    require_final_norm,
)

ROLES = ("A", "B", "C", "others without C", "others without A, B, C")
"""The operands, the answer, and means over the other digits."""


@torch.no_grad()
def mlp_probe(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    read: str = "mlp_in",
    final_norm: bool = False,
    tokens: str = "roles",
) -> Effects:
    """The cosine at END of what each layer's MLP reads or writes with the numbers' columns of W_U.

    It says which directions are there, not what the model does with them: a stream that holds a
    digit for copying looks the same as one that computes with it.

    Args:
        read: "mlp_in" (the stream before the MLP, hook_resid_mid; the block's input,
            hook_resid_pre, where attention and MLP run in parallel), "write" (what the MLP adds,
            hook_mlp_out) or "mlp_out" (the stream after it, hook_resid_post)
        final_norm: send the vector through the final norm first, whose weight then counts, as in
            the logit lens; the paper's cosines are without it
        tokens: "roles" (`ROLES`: A, B, C, and the mean over other digits, twice) or "digits" (0
            to 9, each as it would follow END)

    Returns:
        cosines between -1 and 1, axes ("layer", "token"), NaN where a pair has no other digits

    Raises:
        ValueError: pairs without roles or text, operands of several tokens, another `read`
        FloatingPointError: NaN or infinity, and where
    """
    if tokens not in ("roles", "digits"):
        raise ValueError(f"expected tokens to be 'roles' or 'digits', found {tokens!r}")
    require_final_norm(model)
    digits = digit_tokens(model, pairs)
    chosen = digits
    if tokens == "roles":
        chosen = torch.cat([operand_tokens(pairs), pairs.answer[:, None], digits], dim=1)
    states = end_states(model, pairs, read)
    norm: Callable[[Tensor], Tensor] = in_float32(model.ln_final) if final_norm else _as_it_is
    with in_place(model.ln_final, model.unembed):
        states = norm(states).cpu()
        columns = columns_of(model, chosen)
    refuse_not_finite(states, "the final norm")
    refuse_not_finite(columns, "W_U")
    cosines = einsum(
        normalize(states, dim=-1),
        columns,
        "layer pair d_model, pair token d_model -> layer token pair",
    )
    if tokens == "roles":
        cosines = _by_role(cosines, chosen, pairs.operands)
    names = ROLES if tokens == "roles" else tuple(map(str, DIGITS))
    normed = " through the final norm" if final_norm else ""
    return Effects(
        cosines,
        ("layer", "token"),
        f"cosine of {read}{normed} with W_U",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"token": names},
    )


def columns_of(
    model: Any, tokens: Int[Tensor, "pair token"]
) -> Float[Tensor, "pair token d_model"]:
    """The tokens' columns of W_U, of length 1."""
    unique, places = tokens.unique(return_inverse=True)
    columns = model.W_U[:, unique.to(model.W_U.device)].float().T.cpu()
    return normalize(columns, dim=-1)[places]


def _by_role(
    cosines: Float[Tensor, "layer token pair"],
    tokens: Int[Tensor, "pair token"],
    operands: Int[Tensor, "pair a_b=2"] | None,
) -> Float[Tensor, "layer role=5 pair"]:
    """A, B and C as they are; of the digits behind them, means over those that are others.

    An operand may be another token in the prompt than after END (" 3" and "3"), so that a digit is
    an operand by its value too.
    """
    named, digits = tokens[:, :3], tokens[:, 3:]
    parts = [cosines[:, :3]]
    for left_out in (named[:, 2:], named):
        other = (digits[:, :, None] != left_out[:, None, :]).all(-1)
        if left_out is named and operands is not None:
            other &= (torch.tensor(DIGITS)[:, None] != operands[:, None, :]).all(-1)
        parts.append(cosines[:, 3:].masked_fill(~other.T, float("nan")).nanmean(1, keepdim=True))
    return torch.cat(parts, dim=1)


def _as_it_is(states: Tensor) -> Tensor:
    return states
