"""Attention from END to each kind of token (the paper, sections 4.2 and 5.2, Figure 5)."""

from collections.abc import Callable, Mapping

import torch
from einops import einsum
from jaxtyping import Bool
from torch import Tensor

from arith_lens.components import Heads, as_heads, check_components, pattern_name
from arith_lens.effects import Effects
from arith_lens.model import HookedLike, record
from arith_lens.pairs import PromptPairs, Role, check_pairs

ROLES = tuple(
    str(role)
    for role in (Role.BOS, Role.OPERAND_A, Role.OPERATOR, Role.OPERAND_B, Role.OTHER, Role.END)
)
"""In the order of a sum: BOS, A, the operator, B, other words, END itself."""

Masks = Mapping[str, Bool[Tensor, "pair pos"]]
"""Which tokens are of each kind."""

BATCH = 64


def attention_by_role(model: HookedLike, pairs: PromptPairs, heads: Heads) -> Effects:
    """How much of its weight each head gives to each role's tokens, from END of the references.

    A role's weight is the sum over its tokens; the roles share out all of a head's weight, BOS
    included, and nothing is renormalised. Much weight on a token does not say that anything of it
    is used: patching says that.

    Returns:
        weights between 0 and 1, axes ("head", "role")

    Raises:
        ValueError: pairs without roles; no head
        IndexError: a head that the model has not
    """
    return attention_to(model, pairs, heads, _roles, axis="role")


@torch.no_grad()
def attention_to(
    model: HookedLike,
    pairs: PromptPairs,
    heads: Heads,
    kinds: Callable[[PromptPairs], Masks],
    *,
    axis: str,
) -> Effects:
    """The same for kinds of tokens of your own, which should share out every prompt.

    Of each batch only END's rows are kept: a full pattern is never held for more than one layer.

    Args:
        kinds: for some of the pairs, which tokens are of each kind, by name
        axis: what the kinds are called
    """
    chosen = as_heads(heads)
    if not chosen:
        raise ValueError("expected heads to look at, found none; see key_heads(effects.heads)")
    check_components(chosen, int(model.cfg.n_layers), int(model.cfg.n_heads))
    check_pairs(model, pairs)
    names = sorted({pattern_name(head.layer) for head in chosen})
    parts, labels = [], ()
    for batch in pairs.batches(BATCH):
        mask = batch.attention_mask
        kept = record(model, batch.reference, names, attention_mask=mask, positions=-1)
        looks = torch.stack([kept[pattern_name(h.layer)][:, h.index, 0] for h in chosen]).float()
        masks = kinds(batch)
        labels = tuple(masks)
        columns = torch.stack([*masks.values()]).to(looks)
        parts.append(einsum(looks, columns, "head pair key, kind pair key -> head kind pair").cpu())
    return Effects(
        per_pair=torch.cat(parts, dim=-1),
        axes=("head", axis),
        metric="attention weight from END",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"head": tuple(map(str, chosen)), axis: labels},
    )


def _roles(pairs: PromptPairs) -> Masks:
    return {name: pairs.role_mask(Role(name)) for name in ROLES}
