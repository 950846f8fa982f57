"""Which share of a head's change each earlier component makes, through its queries, keys or values.

A head's output at END is another one in the counterfactual run. Here one earlier component at a
time gets its counterfactual output, and one input of the head alone sees it. The number is the
share of the head's whole change that this makes; nothing after the head is computed.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Head, Heads, as_heads, check_components, every_component
from arith_lens.edges.receivers import AttentionCode, Receiver, project, senders_at_once
from arith_lens.edges.recording import EMBEDDINGS, Changes, Positions, forward_rows
from arith_lens.effects import Effects
from arith_lens.methods import Senders
from arith_lens.model import HookedLike, PartWrites
from arith_lens.pairs import PromptPairs, check_pairs
from arith_lens.path_patching import Trunk, trunk_of

INPUTS = ("q", "k", "v")
BATCH = 16
MIN_CHANGE = 1e-5
"""A head whose output changes by less than this share of itself has no shares."""


@torch.no_grad()
def composition(model: HookedLike, pairs: PromptPairs, heads: Heads) -> Effects:
    """Which components before each head change its output, through its q, k and v (not in the
    paper).

    The share of a sender is the part of the head's change, from the reference to the counterfactual
    run, that the sender makes alone: the projection of the change that it makes in what the head
    writes at END on the whole change, divided by the whole change's length. Where a norm follows
    the attention, its scale is held at that of the reference run. 1 is the whole change, a negative
    share is one that the other senders undo. Shares of all senders need not sum to 1,
    because attention is not linear. `edge_effects` says what such a change does to the answer.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts.
        heads: the heads that receive.

    Returns:
        [head input sender pair]: inputs `q`, `k`, `v`; senders `embeddings`, then all heads and
        MLPs. NaN for senders that do not come before the head, and for pairs in which the head's
        output does not change.

    Raises:
        UnsupportedTrunk, UnsupportedReceiver: the model's layers cannot be computed one by one.
        ValueError: no head is given.
        IndexError: the model does not have a head.
    """
    check_pairs(model, pairs)
    chosen = as_heads(heads)
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    if not chosen:
        raise ValueError("expected heads that receive, found none; see key_heads(effects.heads)")
    check_components(chosen, n_layers, n_heads)
    advice = "path_patch with engine='hooks' computes effects of its components alone"
    trunk, every = trunk_of(model, advice=advice), every_component(n_layers, n_heads)
    parts = [_shares(model, trunk, batch, chosen) for batch in pairs.batches(BATCH)]
    return Effects(
        torch.cat(parts, dim=-1),
        ("head", "input", "sender"),
        "share of the head's change",
        **pairs.units,
        labels={
            "head": tuple(map(str, chosen)),
            "input": INPUTS,
            "sender": (EMBEDDINGS, *map(str, every)),
        },
    )


def _shares(
    model: HookedLike, trunk: Trunk, pairs: PromptPairs, heads: list[Head]
) -> Float[Tensor, "head input=3 sender pair"]:
    n_layers, n_heads = trunk.n_layers, int(model.cfg.n_heads)
    every = every_component(n_layers, n_heads)
    senders = Senders.of(every, n_layers)
    layers = frozenset(head.layer for head in heads)
    positions, code = Positions.of(model, pairs, layers), AttentionCode.of(model, pairs)
    changes = Changes.of(trunk, positions, senders, embeddings=True, via="direct")
    shares = torch.full((len(heads), len(INPUTS), 1 + len(every), len(pairs)), float("nan"))
    order = [0, *(1 + row for row in forward_rows(every))]
    for layer in trunk.each_layer():
        if layer > max(layers):
            break
        if layer in layers:
            receiver, deltas = Receiver.of(code, layer, positions.entries[layer][0]), changes.now()
            for i, head in enumerate(heads):
                if head.layer == layer:
                    of_head = _of_head(trunk, positions, receiver, deltas, head)
                    shares[i][:, order[: len(deltas)]] = of_head.cpu()
        changes.advance(layer)
    return shares


def _of_head(
    trunk: Trunk,
    positions: Positions,
    receiver: Receiver,
    deltas: Float[Tensor, "sender token d_model"],
    head: Head,
) -> Float[Tensor, "input=3 sender pair"]:
    """The shares of a head's change that each sender makes through each input."""
    layer, tokens = head.layer, (positions.prompt, positions.column)
    stream = positions.entries[layer][0][tokens].float()
    added = PartWrites.of(trunk.blocks[layer], Head, positions.ends.attn_out[0, layer])
    writes = trunk.head_writes(layer, positions.ends.z[:, layer].flatten(0, 1), [head.index])[0]
    reference, other = added(writes.unflatten(0, (2, -1)))
    own = receiver.z(head.index)
    target, w_o = other - reference, trunk.w_o(layer)[head.index].float()
    parts = []
    for some in deltas.split(senders_at_once(deltas)):
        inputs = project(receiver.code, layer, stream + some, *tokens)[:3]
        changed = receiver.inputs_of(head.index, inputs, *tokens)
        z = torch.stack(
            [receiver.z(head.index, **{name: changed[name]}) for name in ("query", "key", "value")]
        )
        written = added((z - own) @ w_o)
        parts.append(einsum(written, target, "input sender pair d, pair d -> input sender pair"))
    small = target.norm(dim=-1) <= MIN_CHANGE * reference.norm(dim=-1)
    return (torch.cat(parts, 1) / target.square().sum(-1)).masked_fill(small, float("nan"))
