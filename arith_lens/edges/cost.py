"""The cost of edges before they are computed: floating-point operations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxtyping import Bool
from torch import Tensor

from arith_lens.components import Component, Components, Head
from arith_lens.edges.effects import EdgeReading, edge_settings, places_of
from arith_lens.edges.engine import MLP_INPUT, EdgeSettings
from arith_lens.metrics import MetricFunction
from arith_lens.model import HookedLike, planned_model
from arith_lens.pairs import PromptPairs, Role
from arith_lens.path_patching import flops_of_rows, forward_flops, matrix_elements


@dataclass(frozen=True)
class EdgePlan:
    """The cost of an `edge_effects` with the same arguments, in floating-point operations."""

    n_pairs: int
    n_edges: int
    """Edges of each pair: sender, receiver, input, and role if there are several."""
    recording_flops: int
    """Two forwards at every token, without the vocabulary matrix."""
    sender_flops: int
    """The changes of the stream between senders and receivers."""
    receiver_flops: int
    """What receivers write."""
    tail_flops: int
    """From the receivers to the logits."""

    @property
    def flops(self) -> int:
        return self.recording_flops + self.sender_flops + self.receiver_flops + self.tail_flops

    def __str__(self) -> str:
        return (
            f"{self.n_pairs} pairs, {self.n_edges} edges: {self.flops:.3g} FLOPs "
            f"({self.recording_flops:.3g} to record, {self.sender_flops:.3g} up to the receivers, "
            f"{self.receiver_flops:.3g} in them, {self.tail_flops:.3g} after them)"
        )


def plan_edges(
    model: HookedLike | str | Path,
    pairs: PromptPairs,
    receivers: Components,
    *,
    senders: Components | None = None,
    inputs: Sequence[str] = ("q", "k", "v"),
    positions: str | int | Role = "all",
    via: str = "via_mlps",
    paths: str = "via_mlps",
    metric: str | MetricFunction = "relative_logit",
) -> EdgePlan:
    """FLOPs of `edge_effects` with these arguments, without the certificate's few pairs (not in the
    paper).

    No weight is read. A token counts as changed from the first one on that differs in X_c.

    Args:
        model: as in `edge_effects`; or a folder or a hub id, as in `plan`.
        pairs, receivers, senders, inputs, positions, via, paths, metric: as in `edge_effects`;
            heads that share keys and values read together.

    Raises:
        IndexError, ValueError: as in `edge_effects`.
    """
    model = planned_model(model)
    reading = EdgeReading(inputs=inputs, positions=positions, via=via)
    settings = edge_settings(model, pairs, receivers, senders, reading, paths=paths, metric=metric)
    masks_of, labels = places_of(pairs, positions)
    settings = replace(settings, n_places=len(labels))
    n_pairs, changed = len(pairs), _changed(pairs)
    n_tokens = int(changed.sum())
    places = [_ChangedTokens.of(changed & mask) for mask in masks_of(pairs)]
    return EdgePlan(
        n_pairs=n_pairs,
        n_edges=sum(map(settings.n_edges, settings.receivers)),
        recording_flops=2 * n_pairs * forward_flops(model, changed.shape[1]),
        sender_flops=_sender_flops(model, settings, n_tokens, n_pairs),
        receiver_flops=sum(
            _receiver_flops(model, settings, layer, places, changed)
            for layer in sorted({receiver.layer for receiver in settings.receivers})
        ),
        tail_flops=n_pairs * _tail_flops(model, settings, places),
    )


@dataclass(frozen=True)
class _ChangedTokens:
    """Changed tokens at which senders act."""

    n_tokens: int
    n_ends: int
    """How many of them are END."""

    @classmethod
    def of(cls, mask: Bool[Tensor, "pair pos"]) -> "_ChangedTokens":
        return cls(int(mask.sum()), int(mask[:, -1].sum()))

    def n_inputs(self, settings: EdgeSettings, receiver: Component) -> int:
        """The number of inputs of a receiver that read some of these tokens."""
        names = [name for name in settings.inputs if settings.takes(receiver, name)]
        ends = sum(name in ("q", MLP_INPUT) for name in names)
        return ends * (self.n_ends > 0) + (len(names) - ends) * (self.n_tokens > 0)


def _n_computed(
    settings: EdgeSettings, receiver: Component, places: Sequence[_ChangedTokens]
) -> int:
    """The edges into a receiver that are not 0 because their input reads no changed token."""
    return settings.n_before(receiver) * sum(one.n_inputs(settings, receiver) for one in places)


def _changed(pairs: PromptPairs) -> Bool[Tensor, "pair pos"]:
    """The tokens from the first one on that differs in X_c; END alone where none does."""
    changed = (pairs.reference != pairs.counterfactual).cumsum(1) > 0
    changed[:, -1] = True
    return changed


def _sender_flops(model: HookedLike, settings: EdgeSettings, n_tokens: int, n_pairs: int) -> int:
    """Of all pairs: the senders' writes, and MLPs that react to the changes."""
    top = max(receiver.layer for receiver in settings.receivers)
    senders, cfg = settings.by_layer, model.cfg
    live, flops = 1 + settings.embeddings, 0
    for layer, block in enumerate(model.blocks):
        if layer == top:
            break
        own = len(senders.heads[layer])
        live += own
        of_token = own * cfg.d_head * cfg.d_model
        of_token += live * matrix_elements(block.mlp) * (settings.via == "via_mlps")
        flops += 2 * of_token * (n_pairs if layer >= settings.end_from else n_tokens)
        live += layer in senders.mlps
    return flops


def _receiver_flops(
    model: HookedLike,
    settings: EdgeSettings,
    layer: int,
    places: Sequence[_ChangedTokens],
    changed: Bool[Tensor, "pair pos"],
) -> int:
    """Of all pairs: the projections of a layer, attention at END, and its MLP."""
    cfg, block, (n_pairs, width) = model.cfg, model.blocks[layer], changed.shape
    heads = [r for r in settings.receivers if isinstance(r, Head) and r.layer == layer]
    own, flops = cfg.n_heads * cfg.d_head * cfg.d_model, 0
    if heads:
        if layer >= settings.end_from:
            places = [_ChangedTokens(one.n_ends, one.n_ends) for one in places]
        n_sent = settings.n_before(heads[0]) * sum(one.n_tokens for one in places)
        projections = matrix_elements(block.attn) - own
        flops += 2 * projections * (int(changed.sum()) + n_sent + changed.numel())
        size = int(cfg.n_heads) // int(cfg.n_key_value_heads or cfg.n_heads)
        queries = int("q" in settings.inputs) * sum(one.n_ends > 0 for one in places)
        n_inputs = sum(one.n_inputs(settings, heads[0]) for one in places)
        outputs = settings.n_before(heads[0]) * (queries + size * (n_inputs - queries)) + 1
        of_output = 4 * width * cfg.d_head + 2 * cfg.d_head * cfg.d_model
        flops += n_pairs * len(heads) * outputs * of_output
    mlps = [r for r in settings.receivers if not isinstance(r, Head) and r.layer == layer]
    return flops + sum(
        2 * n_pairs * (2 + settings.n_before(mlp)) * matrix_elements(block.mlp) for mlp in mlps
    )


def _tail_flops(model: HookedLike, settings: EdgeSettings, places: Sequence[_ChangedTokens]) -> int:
    """Of one pair: the rows of edges through the MLPs after their receivers, and their logits."""
    passing, live = [], 1
    for layer in range(settings.patching.n_layers):
        of_layer = [r for r in settings.receivers if r.layer == layer]
        rows = [(isinstance(r, Head), 1 + _n_computed(settings, r, places)) for r in of_layer]
        live += sum(n for is_head, n in rows if is_head)
        passing.append(live if settings.patching.paths == "via_mlps" else 1)
        live += sum(n for is_head, n in rows if not is_head)
    n_rows = 2 + sum(1 + _n_computed(settings, one, places) for one in settings.receivers)
    return flops_of_rows(model, settings.patching, passing, 2 * n_rows)
