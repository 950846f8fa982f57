"""What each component adds to a logit at END: direct logit attribution, for any tokens."""

from collections.abc import Sequence
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import Head, every_head, every_mlp
from arith_lens.edges import EMBEDDINGS
from arith_lens.effects import Effects
from arith_lens.metrics import logit_tolerance
from arith_lens.model import HookedLike, PartWrites, active_hooks, check_writes, weights_loaded
from arith_lens.pairs import PromptPairs, check_pairs
from arith_lens.path_patching import (
    PromptBatch,
    Recording,
    Trunk,
    Unembedding,
    record_batch,
    trunk_of,
)

BATCH = 64
BIASES = "biases"


@torch.no_grad()
def logit_attribution(
    model: HookedLike,
    pairs: PromptPairs,
    tokens: Int[Tensor, "pair token"] | Sequence[int] | None = None,
) -> Effects:
    """What each component adds to the logits of some tokens at END (not in the paper).

    The residual stream at END is a sum of what the embeddings, the heads and the MLPs write. With
    the final norm's scale held at that of the reference run, the norm and W_U are linear, so the
    logit is a sum too. It is what a component writes into the logit, and not what the answer loses
    without it: later components also read what it writes (`path_patch`).

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts; their references are read.
        tokens: token ids, the same for all pairs or one row per pair; None: the answers.

    Returns:
        Logits, [component token pair]. Components are `embeddings`, all heads, all MLPs, and
        `biases` (of attention, final norm and W_U). They add up to the logit, before a soft cap.
        Where a norm follows attention, its scale is held too.

    Raises:
        UnsupportedTrunk: the model's layers do not add to one stream.
        ValueError: the writes do not add up to the model's logits, or tokens do not fit.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, n=6, templates="symbols")
        >>> al.logit_attribution(model, pairs).axes
        ('component', 'token')
    """
    check_pairs(model, pairs)
    advice = "path_patch with engine='hooks' computes effects of its components"
    trunk, columns = trunk_of(model, advice=advice), _columns(pairs, tokens, int(model.cfg.d_vocab))
    parts, hooked = [], bool(active_hooks(model))
    for start in range(0, len(pairs), BATCH):
        chosen = slice(start, start + BATCH)
        some = pairs[chosen]
        batch = PromptBatch(some.reference, some.attention_mask, _ends(some))
        recording = record_batch(model, batch, logits=torch.arange(len(some)), hooked=hooked)
        parts.append(_of_batch(model, trunk, recording, columns[chosen]))
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    components = [*every_head(n_layers, n_heads), *every_mlp(n_layers)]
    names = [EMBEDDINGS, *map(str, components), BIASES]
    by_token = tokens is not None and not isinstance(tokens, Tensor)
    labels = tuple(map(str, columns[0].tolist())) if by_token else _places(columns, tokens)
    return Effects(
        torch.cat(parts, dim=-1),
        ("component", "token"),
        "logit",
        **pairs.units,
        labels={"component": tuple(names), "token": labels},
    )


def _ends(pairs: PromptPairs) -> Int[Tensor, " pair"]:
    """The column of END in each prompt."""
    return torch.full((len(pairs),), pairs.reference.shape[1] - 1)


def _columns(pairs: PromptPairs, tokens: Any, d_vocab: int) -> Int[Tensor, "pair token"]:
    """The tokens of each pair."""
    if tokens is None:
        return pairs.answer[:, None]
    try:
        columns = torch.as_tensor(tokens)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected token ids, found {tokens!r}; take those of texts from "
            "model.tokenizer.encode(text, add_special_tokens=False)"
        ) from error
    if columns.ndim == 1 and not isinstance(tokens, Tensor):
        columns = columns.expand(len(pairs), -1)
    if columns.ndim != 2 or len(columns) != len(pairs) or columns.is_floating_point():
        raise ValueError(
            f"expected a list of token ids, or ids [pair token] for {len(pairs)} pairs, found "
            f"{tuple(columns.shape)} of {columns.dtype}"
        )
    if not columns.numel() or not 0 <= int(columns.min()) <= int(columns.max()) < d_vocab:
        raise ValueError(f"expected token ids from 0 to {d_vocab - 1}, found others or none")
    return columns


def _places(columns: Int[Tensor, "pair token"], tokens: Any) -> tuple[str, ...]:
    return ("answer",) if tokens is None else tuple(f"token {i}" for i in range(columns.shape[1]))


def _of_batch(
    model: HookedLike, trunk: Trunk, recording: Recording, columns: Int[Tensor, "pair token"]
) -> Float[Tensor, "component token pair"]:
    """The parts of each logit, and a check that they add up to it."""
    heads, mlps, biases = [], [], torch.zeros_like(recording.end[0].float())
    for layer in trunk.each_layer():
        attention, mlp_out = recording.attn_out[0, layer].float(), recording.mlp_out[0, layer]
        z = recording.z[0, layer]
        writes = trunk.head_writes(layer, z, range(z.shape[1]))
        nothing = torch.zeros_like(attention)
        whole = trunk.layers[layer].written(attention, nothing)
        added = PartWrites.of(model.blocks[layer], Head, attention)
        check_writes(added.whole, whole, f"the attention of layer {layer}")
        shares = added(writes)
        heads += [*shares]
        biases += whole - shares.sum(0)
        mlps.append(trunk.layers[layer].written(attention, mlp_out) - whole)
    streams = torch.stack([recording.stream[0].float(), *heads, *mlps, biases])
    end = recording.end[0].float()
    with weights_loaded(*trunk.last):
        ends = Unembedding.of(trunk.unembed, trunk.logit_scale)
        scale = trunk.final_scale
        final = scale.exchanged(trunk.final_norm(streams), streams, end) - scale.bias
        w_u = ends.w_u[:, columns.to(ends.w_u.device)].float()
        factor = trunk.logit_scale.factor
        logits = factor * einsum(
            final.to(w_u.device), w_u, "component pair d, d pair token -> component token pair"
        )
        constant = torch.zeros_like(end) + scale.bias
        offset = einsum(constant.to(w_u.device), w_u, "pair d, d pair token -> token pair")
        if ends.b_u is not None:
            offset = offset + ends.b_u[columns.to(w_u.device)].float().T
        logits[-1] += factor * offset
        _require_sum(logits.sum(0), recording, columns, trunk)
    return logits.cpu()


def _require_sum(
    sums: Float[Tensor, "token pair"],
    recording: Recording,
    columns: Int[Tensor, "pair token"],
    trunk: Trunk,
) -> None:
    assert recording.logits is not None
    returned = recording.logits[0].float()
    own = returned.gather(1, columns.to(returned.device)).T
    cap = trunk.logit_scale.cap
    capped = sums if cap is None else cap * torch.tanh(sums / cap)
    error = float((capped.to(own.device) - own).abs().max() / returned.abs().max())
    if not error <= logit_tolerance(recording.z.dtype):
        raise ValueError(
            "expected components whose writes add up to the model's logits, found a difference of "
            f"{error:.1e} of the largest logit; path_patch measures this model's components"
        )
