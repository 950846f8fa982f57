"""One row of END's residual stream per edge: a sender's change, as one receiver passes it on.

A sender changes the residual stream at some tokens. All other heads are held, so tokens do not mix
before the receiver, and a change is one row per token (`Changes`). The receiver reads the changed
stream through one of its inputs (`receivers`). What it then writes at END goes through the rest of
the model as in path patching: attention outputs are constants, MLPs are computed again or held.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from math import prod
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import Component, Head, Mlp
from arith_lens.edges.receivers import AttentionCode, Receiver, project, senders_at_once
from arith_lens.edges.recording import Changes, Positions, Via, forward_rows
from arith_lens.memory import fitting_pairs, in_chunks
from arith_lens.methods import TINY, Certificate, Senders
from arith_lens.metrics import SMALL_TOTAL, Metric, logit_tolerance
from arith_lens.model import HookedLike, compute_device
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    SWEEP_CLAIM,
    AdditiveLayer,
    Layer,
    LayerInput,
    PatchSettings,
    Recording,
    SweepEngine,
    Trunk,
    head_changes,
    rows_bytes,
)

Group: TypeAlias = Literal["shared", "head"]
Tokens: TypeAlias = tuple[Int[Tensor, " token"], Int[Tensor, " token"]]
"""The pair and the column of each token."""
Places = Callable[[PromptPairs], Sequence[Bool[Tensor, "pair pos"]]]
"""The tokens at which senders act: one mask, or one for each role."""

MLP_INPUT = "mlp"
"""The input of an MLP that receives."""
ROUNDING = 16 * torch.finfo(torch.float32).eps
"""How far two ways to one logit may round apart, as a share of the largest logit."""


@dataclass(frozen=True)
class EdgeSettings:
    """Which edges are computed, and how. The tail is that of path patching the receivers."""

    receivers: tuple[Component, ...]
    inputs: tuple[str, ...]
    """Any of q, k, v, or several letters together; `mlp` for MLPs that receive."""
    senders: tuple[Component, ...]
    embeddings: bool
    """Whether the embeddings are a sender, the first one."""
    together: bool
    """Whether everything before a receiver is one sender: the counterfactual run's own stream."""
    n_places: int
    """The number of masks of the tokens at which senders act."""
    group: Group
    via: Via
    patching: PatchSettings
    """Path patching of the receivers: metric, candidates, paths from them to the logits."""

    @property
    def n_senders(self) -> int:
        return self.together + self.embeddings + len(self.senders)

    @property
    def grid(self) -> tuple[int, int, int, int]:
        return len(self.receivers), len(self.inputs), self.n_senders, self.n_places

    @property
    def by_layer(self) -> Senders:
        return Senders.of(self.senders, self.patching.n_layers)

    @property
    def rows_of_senders(self) -> list[int]:
        """The row of each sender in `grid`, in the order in which the layers begin them."""
        order = [self.embeddings + row for row in forward_rows(self.senders)]
        return [0, *order] if self.embeddings or self.together else order

    @property
    def end_from(self) -> int:
        """The first layer whose receivers, and all later ones, read the stream at END alone: MLPs,
        and heads through their queries."""
        others = [name for name in self.inputs if name not in ("q", MLP_INPUT)]
        heads = [one.layer for one in self.receivers if isinstance(one, Head) and others]
        return 1 + max(heads, default=-1)

    def n_before(self, receiver: Component) -> int:
        """The number of senders that come before a receiver."""
        heads_too = not isinstance(receiver, Head)
        return (
            self.together
            + self.embeddings
            + sum(
                c.layer < receiver.layer or (heads_too and is_head_of(c, receiver.layer))
                for c in self.senders
            )
        )

    @property
    def n_rows(self) -> int:
        """The rows at END: unpatched; each edge; each receiver with all senders together."""
        return 1 + sum(map(self.n_edges, self.receivers)) + len(self.receivers)

    def n_edges(self, receiver: Component) -> int:
        """The number of edges into a receiver."""
        taken = sum(self.takes(receiver, name) for name in self.inputs)
        return self.n_before(receiver) * self.n_places * taken

    def takes(self, receiver: Component, name: str) -> bool:
        """Whether a receiver has this input."""
        return isinstance(receiver, Head) == (name != MLP_INPUT)


def is_head_of(component: Component, layer: int) -> bool:
    return isinstance(component, Head) and component.layer == layer


@dataclass(frozen=True)
class EdgeRows:
    """END's residual stream before the final norm, and what each row is."""

    rows: Float[Tensor, "row pair d_model"]
    """The first and the last row are unpatched."""
    index: Sequence[int]
    """For each row between them, its place among the values: the grid of edges, then the receivers
    with all senders together."""
    unchanged: Sequence[int]
    """The places of edges that change nothing, because their input reads no changed token. Their
    values are those of the last row."""
    ends: Recording
    """Both runs at END."""
    errors: Mapping[str, float]
    """Relative differences of what was computed in two ways."""


@dataclass
class EdgeEngine:
    """All edges into some receivers. The first shard is certified before it is returned.

    The values are the unpatched logit, the grid of edges (NaN where a sender does not come before
    the receiver), the receivers with all senders together; and the last two again with the final
    norm's scale held.
    """

    model: HookedLike
    settings: EdgeSettings
    places: Places
    sweep: SweepEngine
    """Path patching of the receivers, which certifies the tail."""
    certificate: Certificate | None = None
    pending_notes: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "value pair"]:
        errors: list[Mapping[str, float]] = []

        def part(chosen: slice) -> Tensor:
            some = pairs[chosen]
            edges = self._rows(some)
            errors.append(edges.errors)
            return self._values(edges, some, None if foil is None else foil[chosen])

        settings = self.settings
        n_tokens = 2 * settings.n_senders * pairs.reference.shape[1]
        one_pair = rows_bytes(settings.n_rows + n_tokens, int(self.model.cfg.d_model))
        device = compute_device(self.model.unembed)
        values, chunk = in_chunks(part, len(pairs), fitting_pairs(one_pair, len(pairs), device))
        if self.certificate is None:
            self._certify(values, pairs, foil, errors)
        self.pending_notes.setdefault("chunk_sizes", []).append(min(chunk, len(pairs)))
        return values

    def notes(self) -> dict[str, Any]:
        notes, self.pending_notes = self.pending_notes, {}
        return notes

    def _values(
        self, edges: EdgeRows, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "value pair"]:
        read = self.sweep.effects(edges.rows, edges.ends, self.sweep.patching.targets(pairs, foil))
        width = prod(self.settings.grid) + len(self.settings.receivers)
        values = read.new_full((2, width, len(pairs)), float("nan"))
        own_and_held = read[1:].unflatten(0, (2, -1))
        values[:, edges.index] = own_and_held[:, :-1]
        values[:, edges.unchanged] = own_and_held[:, -1:]
        return torch.cat([read[:1], values.flatten(0, 1)]).cpu()

    def _certify(
        self,
        values: Float[Tensor, "value pair"],
        pairs: PromptPairs,
        foil: Int[Tensor, " pair"] | None,
        errors: Sequence[Mapping[str, float]],
    ) -> None:
        """Compare each receiver, with all senders together, with path patching of the receiver."""
        swept = self.sweep(pairs, foil).cpu()
        receivers, start = self.settings.receivers, 1 + prod(self.settings.grid)
        order = [receivers.index(c) for c in self.sweep.patching.components]
        together = values[start : start + len(receivers)][order].nan_to_num()
        expected = swept[1 : 1 + len(receivers)].nan_to_num()
        largest = {name: max(one[name] for one in errors) for name in errors[0]}
        allowed = logit_tolerance(self.model.W_U.dtype)
        least = _rounding(swept[0], self.settings.patching.measure) / allowed
        scale = expected.abs().max().clamp(min=least)
        largest["all senders together = the receiver's own effect"] = float(
            ((together - expected).abs() / scale).max()
        )
        if self.sweep.certificate is not None:
            largest |= self.sweep.certificate.found
        self.certificate = Certificate(largest, allowed, len(pairs))
        self.certificate.require(SWEEP_CLAIM, self.sweep.cure)
        self.pending_notes["certificate"] = asdict(self.certificate)

    def _rows(self, pairs: PromptPairs) -> EdgeRows:
        """All rows at the end of the model, for some pairs."""
        settings, trunk = self.settings, self.sweep.trunk
        layers = frozenset(receiver.layer for receiver in settings.receivers)
        positions = Positions.of(self.model, pairs, layers)
        into = _Into(self.model, settings, trunk, positions, pairs, self.places(pairs))
        changes = Changes.of(
            trunk, positions, settings.by_layer, embeddings=settings.embeddings, via=settings.via
        )
        recomputed = settings.patching.paths == "via_mlps"
        first = positions.ends.stream[0].float()
        rows = first.new_empty(settings.n_rows + 1, *first.shape)
        rows[0], live = first, 1
        for layer in trunk.each_layer():
            if layer == settings.end_from:
                changes.keep_end()
            attention, of_layer = positions.ends.attn_out[0, layer], trunk.layers[layer]
            deltas = into.heads(layer, changes) if layer in layers else None
            written = into.mlp(layer, changes) if layer in layers else None
            stop = live + (0 if deltas is None else len(deltas))
            if recomputed:
                of_layer.advance(LayerInput(rows[:stop], attention, slice(live, stop), deltas))
            else:
                of_layer.advance(LayerInput(rows[:1], attention, slice(1, 1), None))
                if deltas is not None:
                    rows[live:stop] = of_layer.written_change(attention, deltas)
            live = stop
            if written is not None:
                rows[live : live + len(written)] = written + (rows[0] if recomputed else 0)
                live += len(written)
            if layer < max(layers):
                changes.advance(layer)
        if not recomputed:
            rows[1:live] += rows[0]
        rows[live] = rows[0]
        return EdgeRows(rows[: live + 1], into.index, into.unchanged, positions.ends, into.errors)


@dataclass
class _Into:
    """What the receivers of a layer write at END, for each changed stream."""

    model: HookedLike
    settings: EdgeSettings
    trunk: Trunk
    positions: Positions
    pairs: PromptPairs
    masks: Sequence[Bool[Tensor, "pair pos"]]
    index: list[int] = field(default_factory=list)
    unchanged: list[int] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    code: AttentionCode | None = None

    def heads(self, layer: int, changes: Changes) -> Float[Tensor, "row pair d_model"] | None:
        """The changes of the attention's output by the edges into a layer's heads."""
        heads = [r for r in self.settings.receivers if isinstance(r, Head) and r.layer == layer]
        if not heads:
            return None
        if self.code is None:
            self.code = AttentionCode.of(self.model, self.pairs)
        entries, at = self.positions.entries[layer], _tokens(changes.positions)
        receiver = Receiver.of(self.code, layer, entries[0])
        reference, other = (run[at].float() for run in entries)
        deltas, before = changes.now(), self.settings.rows_of_senders
        self._note_sum(deltas, other - reference)
        if self.settings.together:
            deltas = (other - reference)[None]
        before, rows = before[: len(deltas)], []
        for place, mask in enumerate(self.masks):
            visible = mask.to(deltas.device)[at]
            tokens = (at[0][visible], at[1][visible])
            names, silent = self._inputs(tokens)
            for head, name in product(heads, silent):
                self.unchanged += self._rows(head, name, before, place)
            for some in torch.arange(len(deltas)).split(senders_at_once(deltas)) if names else ():
                streams = reference[visible] + deltas[some][:, visible]
                for head, name, written in self._read(receiver, streams, tokens, heads, names):
                    rows.append(written)
                    self.index += self._rows(head, name, [before[i] for i in some.tolist()], place)
        n_edges = prod(self.settings.grid)
        at = _tokens(self.positions)
        whole = entries[1][at].float()[None]
        for head, _, written in self._read(receiver, whole, at, heads, ("qkv",), alone=True):
            rows.append(written)
            self.index.append(n_edges + self.settings.receivers.index(head))
            self._note_z(receiver, head, written[0])
        return torch.cat(rows)

    def mlp(self, layer: int, changes: Changes) -> Float[Tensor, "row pair d_model"] | None:
        """The changes of an MLP's output at END by the edges into it."""
        receiver = Mlp(layer)
        if receiver not in self.settings.receivers:
            return None
        of_layer, ends = self.trunk.layers[layer], self.positions.ends
        entry, other = (run[:, -1].float() for run in self.positions.entries[layer])
        attention = ends.attn_out[:, layer].float()
        deltas = changes.now()
        at_end = entry.new_zeros(len(deltas), *entry.shape)
        is_end = changes.positions.is_end
        at_end[:, changes.positions.prompt[is_end]] = deltas[:, is_end]
        streams = [entry[None], entry + at_end]
        attentions = [attention[:1], attention[:1].expand(len(deltas), -1, -1)]
        heads = self.settings.by_layer.heads[layer]
        if heads:  # they come before the MLP of their own layer
            own = head_changes(self.trunk, ends, layer, heads)
            streams.append(entry.expand(len(heads), -1, -1))
            attentions.append(attention[0] + own)
        written = _mlp_writes(of_layer, torch.cat(streams), torch.cat(attentions))
        together = _mlp_writes(of_layer, other[None], attention[1:])
        edges, rows = written[1:] - written[0], []
        if self.settings.together:
            edges = together - written[0]
        order = self.settings.rows_of_senders[: len(edges)]
        for place, mask in enumerate(self.masks):
            at_place = mask[:, -1].to(edges.device)[:, None]
            if bool(at_place.any()):
                rows.append(edges * at_place)
            places = self.index if bool(at_place.any()) else self.unchanged
            places += self._rows(receiver, MLP_INPUT, order, place)
        self.index.append(prod(self.settings.grid) + self.settings.receivers.index(receiver))
        return torch.cat([*rows, together - written[0]])

    def _inputs(self, tokens: Tokens) -> tuple[list[str], list[str]]:
        """The inputs of heads that read some of these tokens, and the others. Queries read END."""
        at_end = bool((tokens[1] == self.pairs.reference.shape[1] - 1).any())
        read, silent = [], []
        for name in self.settings.inputs:
            if name != MLP_INPUT:
                reads = at_end if name == "q" else len(tokens[1]) > 0
                (read if reads else silent).append(name)
        return read, silent

    def _rows(
        self, receiver: Component, name: str, senders: Sequence[int], place: int
    ) -> list[int]:
        """The places of edges in the grid."""
        _, n_inputs, n_senders, n_places = self.settings.grid
        row = self.settings.receivers.index(receiver) * n_inputs + self.settings.inputs.index(name)
        return [(row * n_senders + sender) * n_places + place for sender in senders]

    def _read(
        self,
        receiver: Receiver,
        streams: Float[Tensor, "state token d_model"],
        tokens: Tokens,
        heads: Sequence[Head],
        inputs: Sequence[str],
        *,
        alone: bool = False,
    ) -> Iterator[tuple[Head, str, Float[Tensor, "state pair d_model"]]]:
        """The change of the attention's output for each head and input that reads the streams.

        Args:
            receiver: the attention of the reference run.
            streams: at the tokens whose stream differs.
            tokens: the pair and the column of each token.
            heads: the receivers.
            inputs: the inputs that read the streams.
            alone: whether heads with the same keys and values keep those of the reference run.
        """
        w_o = self.trunk.w_o(receiver.layer).float()
        parts = project(receiver.code, receiver.layer, streams, *tokens)[:3]
        for head in heads:
            own = receiver.inputs_of(head.index, parts, *tokens)
            for name in inputs:
                shared = self.settings.group == "shared" and not alone and name != "q"
                written: Tensor | float = 0.0
                for index in receiver.sharing(head.index) if shared else (head.index,):
                    changed = {kind: part for kind, part in own.items() if kind[0] in name}
                    if index != head.index:  # its queries are its own
                        changed.pop("query", None)
                    z = receiver.z(index, **changed) - receiver.z(index)
                    written = written + z.to(w_o.device) @ w_o[index]
                assert isinstance(written, Tensor)
                yield head, name, written.to(streams.device)

    def _note_z(
        self, receiver: Receiver, head: Head, written: Float[Tensor, "pair d_model"]
    ) -> None:
        """How far a head's output is from the recorded one, in both runs."""
        layer, ends = receiver.layer, self.positions.ends
        z = ends.z[:, layer, :, head.index].float()
        scale = z.abs().max().clamp(min=TINY)
        self._note("a head's own output", (receiver.z(head.index)[0] - z[0]).abs().max() / scale)
        writes = self.trunk.head_writes(layer, ends.z[:, layer].flatten(0, 1), [head.index])
        reference, other = writes[0].view(2, *written.shape)
        size = writes.abs().max().clamp(min=TINY)
        error = (written - (other - reference)).abs().max() / size
        self._note("a head's output from X_c's stream", error)

    def _note_sum(self, deltas: Tensor, total: Tensor) -> None:
        """All senders' own changes add up to the stream's, where layers simply add."""
        settings = self.settings
        n_layers, n_heads = settings.patching.n_layers, settings.patching.n_heads
        every = settings.embeddings and len(settings.senders) == n_layers * (n_heads + 1)
        additive = all(isinstance(layer, AdditiveLayer) for layer in self.trunk.layers)
        if every and additive and settings.via == "direct":
            size = total.norm().clamp(min=TINY)
            self._note("the senders' changes add up", (deltas.sum(0) - total).norm() / size)

    def _note(self, name: str, error: Tensor) -> None:
        self.errors[name] = max(self.errors.get(name, 0.0), float(error))


def _rounding(logit: Float[Tensor, " pair"], measure: Metric) -> Float[Tensor, " pair"]:
    """How large an effect's rounding error may be: divided as the metric divides the change."""
    error = ROUNDING * logit.abs().max().clamp(min=1).expand_as(logit)
    if measure.share_of == "reference":
        return error / logit.abs().clamp(min=TINY)
    return error / SMALL_TOTAL if measure.share_of == "total" else error


def _tokens(positions: Positions) -> Tokens:
    return positions.prompt, positions.column


def _mlp_writes(
    layer: Layer,
    entry: Float[Tensor, "row pair d_model"],
    attention: Float[Tensor, "row pair d_model"],
) -> Float[Tensor, "row pair d_model"]:
    """What an MLP adds to the stream, for streams at the layer's entry and attention outputs."""
    outputs = attention.flatten(0, 1)
    rows = entry.reshape(1, *outputs.shape).clone()
    layer.advance(LayerInput(rows, outputs, slice(1, 1), None))
    without = layer.written(outputs, torch.zeros_like(outputs))
    return (rows[0] - without).view(entry.shape) - entry
