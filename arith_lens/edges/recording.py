"""Both runs of some pairs at every position, and what earlier components change there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Component,
    in_forward_order,
    resid_post_name,
    resid_pre_name,
    z_name,
)
from arith_lens.methods import Senders
from arith_lens.model import HookedLike, mlp_exit, record
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    Recording,
    Trunk,
    advance_senders,
    direct_changes,
    exit_point,
    joined_runs,
)

EMBEDDINGS = "embeddings"
"""The sender that writes the token embeddings (and positions, where they are added)."""

Via: TypeAlias = Literal["via_mlps", "direct"]
"""Whether the MLPs between a sender and a receiver react to the change."""


def forward_rows(senders: Sequence[Component]) -> list[int]:
    """The place of each sender among `senders`, in the order in which the layers begin them."""
    return [senders.index(sender) for sender in in_forward_order(senders)]


@dataclass(frozen=True)
class Positions:
    """The tokens at which the two runs differ. Everything elsewhere is as in the reference run."""

    everywhere: Recording
    """Both runs; its axis `pair` counts these tokens, pair by pair."""
    ends: Recording
    """Both runs at END; its axis `pair` counts pairs."""
    prompt: Int[Tensor, " token"]
    """The pair of each token."""
    column: Int[Tensor, " token"]
    """The column of each token."""
    entries: dict[int, Float[Tensor, "run=2 pair pos d_model"]]
    """The residual stream at the entry of the receivers' layers, at every position."""

    @classmethod
    def of(cls, model: HookedLike, pairs: PromptPairs, layers: frozenset[int]) -> "Positions":
        """Run both prompts of each pair once.

        Args:
            layers: the receivers' layers.

        Raises:
            FloatingPointError: an activation is not finite; the message names its layer.
        """
        tokens = (pairs.reference, pairs.counterfactual)
        runs = [_run(model, prompts, pairs.attention_mask, layers) for prompts in tokens]
        both = joined_runs([run for run, _ in runs])
        n_pairs, width = pairs.reference.shape
        differs = _differs(both).view(n_pairs, width) & pairs.attention_mask.to(both.stream.device)
        if not bool(differs.any()):  # equal prompts: one token, so that no array is empty
            differs[0, -1] = True
        prompt, column = differs.nonzero().unbind(-1)
        end = torch.arange(n_pairs, device=prompt.device) * width + width - 1
        return cls(
            everywhere=both.pairs((prompt * width + column).tolist()),
            ends=both.pairs(end.tolist()),
            prompt=prompt,
            column=column,
            entries={k: torch.stack([entries[k] for _, entries in runs]) for k in layers},
        )

    def at_end(self) -> "Positions":
        """The same at END alone. If no stream differs at END, all tokens stay."""
        ends = self.is_end
        if not bool(ends.any()):
            return self
        everywhere = self.everywhere.pairs(ends.nonzero()[:, 0].tolist())
        return replace(
            self, everywhere=everywhere, prompt=self.prompt[ends], column=self.column[ends]
        )

    @property
    def is_end(self) -> Bool[Tensor, " token"]:
        """Whether each token is END."""
        width = next(iter(self.entries.values())).shape[2]
        return self.column == width - 1


def _differs(both: Recording) -> Bool[Tensor, " token"]:
    """Where the stream, a head or an MLP has another value in the counterfactual run."""
    parts = [both.stream[:, None], both.z.flatten(-2), both.mlp_out, both.end[:, None]]
    return torch.stack([(one[0] != one[1]).any(-1).any(0) for one in parts]).any(0)


def _run(
    model: HookedLike,
    tokens: Int[Tensor, "pair pos"],
    mask: Bool[Tensor, "pair pos"],
    layers: frozenset[int],
) -> tuple[Recording, dict[int, Float[Tensor, "pair pos d_model"]]]:
    """One run at every position as a `Recording` of one run, and the entries of some layers."""
    blocks = list(model.blocks)
    entries = {layer: resid_pre_name(layer) for layer in {0, *layers}}
    ends = resid_post_name(len(blocks) - 1)
    z = [z_name(layer) for layer in range(len(blocks))]
    exits = {
        part: [exit_point(block, f"hook_{part}", module) for block, module in modules]
        for part, modules in (
            ("attn_out", [(block, block.attn) for block in blocks]),
            ("mlp_out", [(block, mlp_exit(block)) for block in blocks]),
        )
    }
    names = [*entries.values(), ends, *z, *(name for part in exits.values() for name, _ in part)]
    recorded = record(model, tokens, names, attention_mask=mask)
    flat = partial(rearrange, pattern="pair pos ... -> (pair pos) ...")

    def outputs(part: str) -> Float[Tensor, "run=1 layer token d_model"]:
        shape = tokens.shape
        values = [recorded[name].reshape(*shape, -1) / factor for name, factor in exits[part]]
        return torch.stack([flat(value) for value in values])[None]

    recording = Recording(
        stream=flat(recorded[entries[0]])[None],
        z=torch.stack([flat(recorded[name]) for name in z])[None],
        attn_out=outputs("attn_out"),
        mlp_out=outputs("mlp_out"),
        end=flat(recorded[ends])[None],
    )
    return recording, {layer: recorded[entries[layer]] for layer in layers}


@dataclass
class Changes:
    """What each sender changes in the stream at the entry of a layer, layer by layer."""

    trunk: Trunk
    positions: Positions
    senders: Senders
    via: Via
    rows: Float[Tensor, "row token d_model"]
    """With MLPs in between: the stream itself, row 0 that of the reference. Else the changes, after
    a row of zeros."""
    live: int

    @classmethod
    def of(
        cls, trunk: Trunk, positions: Positions, senders: Senders, *, embeddings: bool, via: Via
    ) -> "Changes":
        """The changes before the first layer: those of the embeddings, if they are a sender."""
        streams = positions.everywhere.stream.float()
        rows = streams.new_empty(embeddings + senders.n_rows, *streams.shape[1:])
        rows[0] = streams[0] if via == "via_mlps" else 0
        if embeddings:
            rows[1] = rows[0] + streams[1] - streams[0]
        return cls(trunk, positions, senders, via, rows, 1 + embeddings)

    def now(self) -> Float[Tensor, "sender token d_model"]:
        """The changes at the entry of the next layer, for the senders before it."""
        return self.rows[1 : self.live] - self.rows[0]

    def keep_end(self) -> None:
        """Forget the changes at other tokens: what comes from now on reads END alone."""
        ends = self.positions.at_end()
        if ends is not self.positions:
            self.rows = self.rows[:, self.positions.is_end]
            self.positions = ends

    def advance(self, layer: int) -> None:
        """Pass a layer, and add its own senders."""
        recording, senders = self.positions.everywhere, self.senders
        if self.via == "via_mlps":
            self.live = advance_senders(self.trunk, recording, senders, layer, self.rows, self.live)
            return
        for changes in direct_changes(self.trunk, recording, senders, layer):
            self.rows[self.live : self.live + len(changes)] = changes
            self.live += len(changes)
