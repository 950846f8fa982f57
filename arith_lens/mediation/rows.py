"""Each head's effect with one MLP held, and with one MLP alone, in one pass over the layers.

As in the sweep, an intervention is one row: END's residual stream. A row in which MLP k is held is
the head's own row up to layer k, so it branches off there, and layers below are not computed again.
A row in which MLP k alone answers runs beside the unpatched one but for that layer, so one
evaluation is all that it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Head
from arith_lens.path_patching.recording import Recording
from arith_lens.path_patching.sweep import Senders, head_changes
from arith_lens.path_patching.trunk import Trunk

Free: TypeAlias = Literal["all", "none", "but", "only"]
"""Which MLPs are recomputed: all, none, all but one, one alone."""


@dataclass(frozen=True)
class Row:
    """A head that is patched, and the MLPs that may answer."""

    head: Head
    free: Free
    mlp: int | None = None
    """The one that is held ("but") or free ("only")."""

    def frees(self, layer: int) -> bool:
        """Whether the MLP of this layer is recomputed."""
        if self.free in ("all", "none"):
            return self.free == "all"
        return (layer == self.mlp) == (self.free == "only")

    def __str__(self) -> str:
        which = self.free if self.mlp is None else f"{self.free} {self.mlp}"
        return f"with {self.head} patched and MLPs recomputed: {which}"


def rows_of(senders: Senders) -> list[Row]:
    """What the rows after the unpatched one are, in the order of `mediated_rows`."""
    carried: list[Row] = []
    heads: list[Head] = []
    after: list[tuple[Head, int]] = []
    for layer, indices in enumerate(senders.heads):
        new = [Head(layer, index) for index in indices]
        heads += new
        carried += [Row(head, "all") for head in new]
        carried += [Row(head, "but", layer) for head in heads]
        after += [(head, layer) for head in heads]
    direct = [Row(head, "none") for head in heads]
    return [*carried, *direct, *(Row(head, "only", layer) for head, layer in after)]


def rows_through_mlps(senders: Senders) -> list[int]:
    """How many rows pass each layer's MLP: no two of them are in the same state."""
    passing, live, joined = [], 1, 0
    for heads in senders.heads:
        passing.append(live + len(heads) + joined)  # of earlier heads, a row of that MLP alone
        joined += len(heads)
        live += len(heads) + joined
    return passing


def mediated_rows(
    trunk: Trunk, recording: Recording, senders: Senders
) -> Float[Tensor, "row pair d_model"]:
    """END's residual stream before the final norm: unpatched, then as `rows_of` says."""
    n_pairs, d_model = recording.stream.shape[1:]
    n_heads = sum(map(len, senders.heads))
    n_rows = 1 + len(rows_of(senders))
    first_direct = 1 + (n_rows - 1) // 2  # as many rows are carried as are added at the end
    rows = torch.empty(n_rows, n_pairs, d_model, device=recording.stream.device)
    changes = rows[first_direct : first_direct + n_heads]
    alone = rows[first_direct + n_heads :]
    rows[0] = recording.stream[0]
    live, joined, done = 1, 0, 0
    own: list[int] = []
    for layer, heads in zip(trunk.layers(), senders.heads, strict=True):
        rows[:live] += recording.attn_out[0, layer]
        earlier, joined = joined, joined + len(heads)
        if heads:
            changes[earlier:joined] = head_changes(trunk, recording, layer, heads)
            own += range(live, live + len(heads))
            live += len(heads)
            torch.add(changes[earlier:joined], rows[0], out=rows[live - len(heads) : live])
        found = _through_mlp(trunk, layer, rows, own, (live, earlier), changes)
        rows[live : live + joined], alone[done : done + joined] = found
        live, done = live + joined, done + joined
    rows[first_direct:] += rows[0]
    return rows


def _through_mlp(
    trunk: Trunk,
    layer: int,
    rows: Float[Tensor, "row pair d_model"],
    own: Sequence[int],
    counts: tuple[int, int],
    changes: Float[Tensor, "head pair d_model"],
) -> tuple[Float[Tensor, "joined pair d_model"], Float[Tensor, "joined pair d_model"]]:
    """Let the live rows pass the MLP, and give for each head that has joined its row with this MLP
    held, and how it differs from the unpatched row where this MLP alone has answered.

    Args:
        own: where in `rows` each head's own row is
        counts: live rows, and heads that joined in earlier layers; a head of this layer has met no
            MLP before, so its own row is that of this MLP alone
    """
    live, earlier = counts
    before = rows[[0, *own]]
    torch.add(changes[:earlier], rows[0], out=rows[live : live + earlier])
    trunk.add_mlp(layer, rows[: live + earlier].view(-1, rows.shape[-1]))
    held = before[1:] + (rows[0] - before[0])
    answered = torch.cat([rows[live : live + earlier], rows[list(own[earlier:])]])
    return held, answered - rows[0]
