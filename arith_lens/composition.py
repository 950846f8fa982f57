"""Which earlier components feed a head, through its queries, its keys or its values.

A head's output at END is another one in the counterfactual run. Here one earlier component at a
time gets its counterfactual output, at every position, and only the queries (or the keys, or the
values) of the head see it. The number is the share of the head's whole change that this makes. Each
head is computed on its own; nothing after it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import (
    Component,
    Head,
    Heads,
    as_heads,
    check_components,
    every_component,
    mlp_out_name,
    resid_pre_name,
    z_name,
)
from arith_lens.effects import Effects
from arith_lens.model import (
    HookedLike,
    LayerInputs,
    PlainLayer,
    layer_inputs,
    plain_layers,
    record,
    weights_loaded,
)
from arith_lens.pairs import PromptPairs, check_pairs

INPUTS = ("q", "k", "v")
EMBEDDINGS = "embeddings"
"""The first sender: what the token embeddings write."""
BATCH = 16
SENDERS_AT_ONCE = 64
MIN_CHANGE = 1e-5
"""A head whose output changes by less than this share of itself has no shares."""


@torch.no_grad()
def composition(model: HookedLike, pairs: PromptPairs, heads: Heads) -> Effects:
    """Which components before each head change its output, through its q, k and v (not in the
    paper).

    The share of a sender is the part of the head's change, from the reference to the counterfactual
    run, that the sender makes alone: the projection of the change that it makes in what the head
    writes at END on the whole change, divided by the whole change's length. 1 is the whole change,
    a negative share is one that the other senders undo. Shares of all senders need not sum to 1,
    because attention is not linear.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts.
        heads: the heads that receive.

    Returns:
        [head input sender pair]: inputs `q`, `k`, `v`; senders `embeddings`, then all heads and
        MLPs. NaN for senders that do not come before the head, and for pairs in which the head's
        output does not change.

    Raises:
        ValueError: no head is given, or the model's layers cannot be run one by one, or do not
            simply add to the residual stream.
        IndexError: the model does not have a head.
    """
    chosen = as_heads(heads)
    n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
    if not chosen:
        raise ValueError("expected heads that receive, found none; see key_heads(effects.heads)")
    check_components(chosen, n_layers, n_heads)
    check_pairs(model, pairs)
    layers = plain_layers(model)
    if layers is None:
        raise ValueError(
            "expected a model whose layers can be run one by one, found one of another family or "
            "with active hooks; path_patch with engine='hooks' works on all models"
        )
    senders = every_component(n_layers, n_heads)
    parts = [_shares(model, layers, batch, chosen, senders) for batch in pairs.batches(BATCH)]
    return Effects(
        torch.cat(parts, dim=-1),
        ("head", "input", "sender"),
        "share of the head's change",
        **pairs.units,
        labels={
            "head": tuple(map(str, chosen)),
            "input": INPUTS,
            "sender": (EMBEDDINGS, *map(str, senders)),
        },
    )


def _shares(
    model: HookedLike,
    layers: Sequence[PlainLayer],
    pairs: PromptPairs,
    heads: Sequence[Head],
    senders: Sequence[Component],
) -> Float[Tensor, "head input=3 sender pair"]:
    runs = _Runs.of(model, pairs)
    inputs = layer_inputs(model, pairs.reference, pairs.attention_mask)
    if inputs is None:
        raise ValueError("expected layers whose arguments split by position, found others")
    shares = torch.full((len(heads), len(INPUTS), 1 + len(senders), len(pairs)), float("nan"))
    for layer in sorted({head.layer for head in heads}):
        before = [-1, *(i for i, sender in enumerate(senders) if sender.layer < layer)]
        changes = runs.changes(model, [senders[i] for i in before[1:]])
        _check_additive(changes.sum(0), runs.change(resid_pre_name(layer)))
        with weights_loaded(model.blocks[layer]):
            receiver = _Receiver(
                layers[layer], layer, inputs, runs.reference[resid_pre_name(layer)]
            )
            w_o = model.blocks[layer].attn.W_O.float()
            of_layer = [(i, head.index) for i, head in enumerate(heads) if head.layer == layer]
            change = runs.change(z_name(layer))[:, -1]
            for part in torch.arange(len(before)).split(SENDERS_AT_ONCE):
                rows = [1 + before[i] for i in part]
                for (i, index), z in receiver.z_changes(changes[part], of_layer):
                    written, target = z @ w_o[index], change[:, index] @ w_o[index]
                    along = einsum(
                        written, target, "input sender pair d, pair d -> input sender pair"
                    )
                    length = target.square().sum(-1)
                    small = length.sqrt() <= MIN_CHANGE * runs.written(layer, index, w_o)
                    shares[i][:, rows] = (along / length).masked_fill(small, float("nan")).cpu()
    return shares


def _check_additive(changes: Tensor, total: Tensor) -> None:
    error = float((changes - total).norm())
    if error > 1e-3 * float(total.norm()) + 1e-6:
        raise ValueError(
            "expected layers that add what heads and MLPs write to the residual stream, found a "
            f"stream that differs by {error:.3g}; norms after attention or MLP are not supported"
        )


@dataclass(frozen=True)
class _Runs:
    """What both runs recorded, at every position."""

    reference: dict[str, Tensor]
    counterfactual: dict[str, Tensor]

    @classmethod
    def of(cls, model: HookedLike, pairs: PromptPairs) -> "_Runs":
        layers = range(int(model.cfg.n_layers))
        names = [f(layer) for layer in layers for f in (resid_pre_name, z_name, mlp_out_name)]
        mask = pairs.attention_mask
        tokens = (pairs.reference, pairs.counterfactual)
        return cls(*(record(model, run, names, attention_mask=mask) for run in tokens))

    def change(self, name: str) -> Float[Tensor, "pair pos *rest"]:
        """Counterfactual less reference."""
        return self.counterfactual[name].float() - self.reference[name].float()

    def written(self, layer: int, head: int, w_o: Tensor) -> Float[Tensor, " pair"]:
        """The length of what a head writes at END in the reference run."""
        return (self.reference[z_name(layer)][:, -1, head].float() @ w_o[head]).norm(dim=-1)

    def changes(
        self, model: HookedLike, senders: Sequence[Component]
    ) -> Float[Tensor, "sender pair pos d_model"]:
        """The change of what the embeddings and each sender write."""
        parts = [self.change(resid_pre_name(0))]
        for sender in senders:
            if isinstance(sender, Head):
                w_o = model.blocks[sender.layer].attn.W_O[sender.index].float()
                parts.append(self.change(z_name(sender.layer))[:, :, sender.index] @ w_o)
            else:
                parts.append(self.change(mlp_out_name(sender.layer)))
        return torch.stack(parts)


@dataclass(frozen=True)
class _Receiver:
    """The attention of one layer, given streams at its entry."""

    plain: PlainLayer
    layer: int
    inputs: LayerInputs
    stream: Float[Tensor, "pair pos d_model"]

    def z_changes(
        self, changes: Float[Tensor, "sender pair pos d_model"], heads: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], Float[Tensor, "input=3 sender pair d_head"]]]:
        """For each head: how z at END changes if q, k or v alone see a changed stream."""
        query, key, value, options = self._project(
            torch.cat([self.stream[None], self.stream + changes])
        )
        group = query.shape[1] // key.shape[1]
        for name in heads:
            q = query[:, name[1], :, -1:]  # END alone asks
            k, v = key[:, name[1] // group], value[:, name[1] // group]
            plain = [q[:1], k[:1], v[:1]]
            changed = []
            for index, new in enumerate((q[1:], k[1:], v[1:])):
                seen = [*plain[:index], new, *plain[index + 1 :]]
                changed.append(self._attend(*seen, **options))
            yield name, torch.stack(changed) - self._attend(*plain, **options)

    def _attend(
        self,
        query: Float[Tensor, "s1 pair 1 d_head"],
        key: Float[Tensor, "s2 pair pos d_head"],
        value: Float[Tensor, "s3 pair pos d_head"],
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> Float[Tensor, "s pair d_head"]:
        scores = (query @ key.mT) * scaling
        if softcap is not None:
            scores = (scores / softcap).tanh() * softcap
        weights = (scores + self.inputs.masks[self.layer][:, 0, -1:]).float().softmax(-1)
        return (weights @ value.float())[:, :, 0]

    def _project(self, streams: Float[Tensor, "state pair pos d_model"]) -> Any:
        n_pairs, n_pos = streams.shape[1:3]
        prompt = torch.arange(n_pairs).repeat_interleave(n_pos)
        inputs = self.inputs.at(self.layer, prompt, torch.arange(n_pos).repeat(n_pairs))
        flat = rearrange(streams, "state pair pos d -> state (pair pos) d").to(self.inputs.stream)
        *parts, options = self.plain.queries_keys_values(flat, inputs)
        shape = "state head (pair pos) d -> state head pair pos d"
        return (*(rearrange(part, shape, pair=n_pairs) for part in parts), options)
