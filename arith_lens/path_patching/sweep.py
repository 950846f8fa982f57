"""Every sender's effect on the logits in one pass over the layers (Algorithm 1, Appendix B).

All heads but the sender are frozen at the reference run. So attention outputs at END are constants,
and only END's residual stream can change. A patched run is therefore one row of `d_model` numbers,
which goes from its sender's layer to the last one. All rows pass each layer's MLP together, so the
weights of an MLP are read once per chunk. This is exact, not an approximation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Component, Head
from arith_lens.path_patching.layers import Entry
from arith_lens.path_patching.recording import Recording
from arith_lens.path_patching.trunk import Trunk


@dataclass(frozen=True)
class Senders:
    """The components to patch, by layer.

    Row 0 of a sweep is the unpatched run. The next rows are the heads of layer 0 in order, its MLP,
    the heads of layer 1, and so on.
    """

    heads: tuple[tuple[int, ...], ...]
    """For each layer, the indices of its heads."""
    mlps: frozenset[int]
    """The layers whose MLP is patched."""

    @classmethod
    def of(cls, components: Iterable[Component], n_layers: int) -> "Senders":
        chosen = set(components)
        heads = [sorted(c.index for c in chosen if isinstance(c, Head) and c.layer == layer)
                 for layer in range(n_layers)]  # fmt: skip
        return cls(
            heads=tuple(tuple(layer) for layer in heads),
            mlps=frozenset(c.layer for c in chosen if not isinstance(c, Head)),
        )

    @property
    def n_rows(self) -> int:
        """The number of rows at the end of the sweep, with the unpatched one."""
        return 1 + sum(map(len, self.heads)) + len(self.mlps)

    def split(
        self, rows: Float[Tensor, "row pair"], n_heads: int
    ) -> tuple[Float[Tensor, "layer head pair"], Float[Tensor, "layer pair"]]:
        """Arrange patched rows (without row 0) as maps of heads and of MLPs.

        Components that were not patched are NaN.
        """
        n_layers, n_pairs = len(self.heads), rows.shape[1]
        heads = rows.new_full((n_layers, n_heads, n_pairs), float("nan"))
        mlps = rows.new_full((n_layers, n_pairs), float("nan"))
        start = 0
        for layer, indices in enumerate(self.heads):
            heads[layer, list(indices)] = rows[start : start + len(indices)]
            start += len(indices)
            if layer in self.mlps:
                mlps[layer] = rows[start]
                start += 1
        return heads, mlps

    def rows_through_mlps(self) -> list[int]:
        """For each layer, the number of rows that pass its MLP."""
        passing, live = [], 1
        for layer, heads in enumerate(self.heads):
            live += len(heads)
            passing.append(live)
            live += layer in self.mlps
        return passing


def sweep(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm, unpatched and for each sender.

    This is `paths="via_mlps"`: attention outputs stay those of the reference, and MLPs are computed
    again.
    """
    n_pairs, d_model = recording.stream.shape[1:]
    rows = torch.empty(senders.n_rows, n_pairs, d_model, device=recording.stream.device)
    rows[0] = recording.stream[0]
    live = 1
    for layer, heads in zip(trunk.each_layer(), senders.heads, strict=True):
        attention = recording.attn_out[0, layer]
        after_mlp = None
        if layer in senders.mlps:  # this row begins after the MLP and must not enter it
            mlp_out = recording.mlp_out[1, layer]
            after_mlp = rows[0] + trunk.layers[layer].written(attention, mlp_out)
        sent = slice(live, live + len(heads))
        changes = head_changes(trunk, recording, layer, heads) if heads else None
        trunk.layers[layer].advance(Entry(rows[: sent.stop], attention, sent, changes))
        live = sent.stop
        if after_mlp is not None:
            rows[live] = after_mlp
            live += 1
    return rows


def direct_rows(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm, with MLPs frozen too: `paths="direct"`.

    Each sender's own change is added to the unpatched stream. This is the closed form of Algorithm
    1 to the letter. The final norm is computed again by the caller.
    """
    run = recording.stream[0].float()
    changes = [torch.zeros_like(run)[None]]
    for index, heads in zip(trunk.each_layer(), senders.heads, strict=True):
        layer, attention = trunk.layers[index], recording.attn_out[0, index]
        written, other = (layer.written(attention, out) for out in recording.mlp_out[:, index])
        run = run + written
        if heads:
            sent = head_changes(trunk, recording, index, heads)
            changes.append(layer.written_change(attention, sent))
        if index in senders.mlps:
            changes.append((other - written)[None])
    return run + torch.cat(changes)


def head_changes(
    trunk: Trunk, recording: Recording, layer: int, heads: Sequence[int]
) -> Float[Tensor, "chosen pair d_model"]:
    """The change of the attention's output at END if a head has its z of the counterfactual run."""
    reference, counterfactual = recording.z[:, layer].float()
    return trunk.head_writes(layer, counterfactual - reference, heads)


def rows_bytes(n_rows: int, d_model: int) -> int:
    """The bytes that one pair needs at the end of a sweep: its rows in float32, and two copies in
    the norm."""
    return 3 * 4 * d_model * n_rows
