"""`attribute_edges`: the effects of edges, approximated by gradients (EAP and EAP-IG).

The score of an edge is the change that a sender makes in the stream, times the gradient with
respect to the input of the receiver that reads it, summed over tokens. The gradient is made of two
parts: from the logits to the receiver's output at END (`graph`), and through the receiver alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.attribution.graph import (
    EMBEDDING_LAYER,
    Forward,
    GradientBatch,
    weights_without_gradient,
)
from arith_lens.components import Component, Components, Head, mlp_out_name, z_name
from arith_lens.edges import (
    MLP_INPUT,
    AttentionCode,
    Changes,
    EdgeReading,
    EdgeSettings,
    Group,
    Positions,
    Receiver,
    UnsupportedReceiver,
    edge_labels,
    edge_settings,
)
from arith_lens.effects import Effects
from arith_lens.methods import Computation, Notes, Storage, StorageOptions, shard_size
from arith_lens.metrics import MetricFunction
from arith_lens.model import HookedLike
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    AdditiveLayer,
    Trunk,
    head_changes,
    patching_details,
    trunk_of,
    warn_of_left_out,
)
from arith_lens.runs import Run

EDGE_METHODS = ("eap", "eap_ig")
Slopes = Mapping[tuple[Component, str], Float[Tensor, "pair pos d_model"]]
"""For each receiver and input, the gradient with respect to the stream that it reads."""


@dataclass(frozen=True)
class EdgeSlopes:
    """Where gradients are taken, and whose keys and values they pass."""

    steps: int = 5
    """The points of EAP-IG."""
    group: str = "shared"
    """Whether heads that share keys and values with the receiver pass the gradient too."""


class EdgeScoreOptions(StorageOptions, total=False):
    """The options of `attribute_edges`."""

    steps: int
    group: str


def attribute_edges(
    model: HookedLike,
    pairs: PromptPairs,
    receivers: Components,
    *,
    method: str = "eap",
    metric: str | MetricFunction = "relative_logit",
    run: Run | None = None,
    progress: bool = True,
    **options: Unpack[EdgeScoreOptions],
) -> Effects:
    """Approximate `edge_effects(via="direct")`: EAP (Syed et al., 2023), EAP-IG (Hanna et al.,
    2024).

    `"eap"` takes the gradient at the reference run, `"eap_ig"` its mean between both prompts'
    embeddings, at the points of `attribute`. As in `edge_effects`, the receiver acts at END, and
    from there through MLPs; the published methods let all later heads react, too.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        receivers: heads and MLPs that read.
        method: `"eap"` or `"eap_ig"`.
        metric: as in `attribute`.
        run: an open run, which stores the result and each finished shard.
        progress: whether to show a progress bar.
        steps: the number of points of `"eap_ig"`.
        group: `"shared"` or `"head"`, as in `edge_effects`.
        batch_size: the number of pairs in a shard.
        name: the name of the result in the run. The default is that of the method.

    Returns:
        [receiver input sender pair], as `edge_effects` gives it.

    Raises:
        UnsupportedTrunk, UnsupportedReceiver: as `edge_effects`; or an MLP receives, and the model
            has a norm after attention or MLP.
        ValueError, IndexError, FloatingPointError, RunError: as `edge_effects` and `attribute`.
        TypeError: an option does not exist.
    """
    refuse_unknown_options(attribute_edges, options, EdgeSlopes, Storage)
    slopes, storage = value_object(EdgeSlopes, options), value_object(Storage, options)
    check_choice("a method", method, EDGE_METHODS)
    if slopes.steps < 1:
        raise ValueError(f"expected at least one step, found {slopes.steps}")
    reading = EdgeReading(via="direct", group=slopes.group)
    how: dict[str, Any] = {"paths": "via_mlps", "metric": metric}
    settings = edge_settings(model, pairs, receivers, None, reading, **how)
    trunk = trunk_of(model, advice="attribute scores whole components")
    identity = patching_details(settings.patching, None, run) | {
        "method": f"attribute_edges {method}",
        "receivers": [str(receiver) for receiver in settings.receivers],
        "group": slopes.group,
    }

    def result(values: Tensor, computation: Notes) -> Effects:
        warn_of_left_out(values, pairs, settings.patching.metric, settings.patching.measure)
        return Effects(
            values[1:].unflatten(0, settings.grid[:3]),
            ("receiver", "input", "sender"),
            settings.patching.metric,
            paths=settings.patching.paths,
            **pairs.units,
            labels=edge_labels(settings),
        )

    computation = Computation(
        title="edge attribution",
        make_engine=lambda: EdgeScoreEngine(
            model, settings, trunk, slopes.steps if method == "eap_ig" else 1
        ),
        result=result,
        read=Effects.from_arrays,
        settings={"metric": settings.patching.metric}
        | ({"steps": slopes.steps} if method == "eap_ig" else {}),
        identity=identity,
        shard_size=shard_size(storage.batch_size),
    )
    name = storage.name or method
    return computation.run(model, pairs, run=run, name=name, progress=progress)


@dataclass(frozen=True)
class EdgeScoreEngine:
    """Computes the scores of a shard of pairs."""

    model: HookedLike
    settings: EdgeSettings
    trunk: Trunk
    steps: int
    counts: dict[str, int] = field(default_factory=dict)
    """Forwards and backwards of the last batch."""

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]:
        settings = self.settings
        batch = GradientBatch(self.model, pairs, settings.patching, foil, self.steps)
        layers = frozenset(receiver.layer for receiver in settings.receivers)
        positions = Positions.of(self.model, pairs, layers)
        with torch.enable_grad(), weights_without_gradient(self.model):
            (counterfactual, reference), slopes = self._slopes(batch, positions)
        left_out = batch.effect(reference, reference, counterfactual).isnan().cpu()
        scores = torch.full((*settings.grid[:3], len(pairs)), float("nan"))
        changes = Changes.of(
            self.trunk, positions, settings.by_layer, embeddings=True, via="direct"
        )
        for layer in range(1 + max(layers)):
            if layer in layers:
                self._score(scores, layer, positions, changes, slopes)
            changes.advance(layer)
        scores = scores.masked_fill(left_out, float("nan"))
        self.counts.update(batch.counts)
        logit = reference.readout.answer.detach().cpu()
        return torch.cat([logit[None], scores.flatten(0, -2)])

    def notes(self) -> Notes:
        return dict(self.counts)

    def _slopes(
        self, batch: GradientBatch, positions: Positions
    ) -> tuple[tuple[Forward, Forward], Slopes]:
        """Both runs, the counterfactual's first, and the mean gradients at all points."""
        counterfactual, reference = batch.runs(streams=True)
        code = AttentionCode.of(self.model, batch.pairs)
        start, end = (run.streams[EMBEDDING_LAYER] for run in (counterfactual, reference))
        total: dict[tuple[Component, str], Tensor] = {}
        for step in range(1, self.steps + 1):
            run = reference
            if step < self.steps:
                run = batch.between(start + (step / self.steps) * (end - start))
            gradient = batch.gradient(run, reference, counterfactual)
            for key, slope in self._of_run(run, gradient, code, positions):
                total[key] = total.get(key, torch.zeros_like(slope)) + slope / self.steps
        return (counterfactual, reference), total

    def _of_run(
        self, run: Forward, gradient: Mapping[str, Tensor], code: AttentionCode, at: Positions
    ) -> Iterator[tuple[tuple[Component, str], Tensor]]:
        """The gradients through each receiver at the values of one run."""
        receivers = self.settings.receivers
        for layer in sorted({receiver.layer for receiver in receivers}):
            stream = run.streams[layer].float()
            heads = [r for r in receivers if isinstance(r, Head) and r.layer == layer]
            if heads:
                of_z, group = gradient[z_name(layer)].float(), self.settings.group
                yield from _head_slopes(heads, stream, of_z, code, group)
            for mlp in (r for r in receivers if not isinstance(r, Head) and r.layer == layer):
                attention = at.ends.attn_out[0, layer].float() + self._attention_change(
                    run, at, layer
                )
                output = gradient[mlp_out_name(layer)].float()
                yield (mlp, MLP_INPUT), self._mlp_slope(layer, stream, attention, output)

    def _attention_change(self, run: Forward, at: Positions, layer: int) -> Tensor:
        """How far the attention's output at END is from that of the reference run."""
        z = run.outputs[z_name(layer)].float() - at.ends.z[0, layer].float()
        return self.trunk.head_writes(layer, z, range(z.shape[1])).sum(0)

    def _mlp_slope(
        self,
        layer: int,
        stream: Float[Tensor, "pair pos d_model"],
        attention: Float[Tensor, "pair d_model"],
        gradient: Float[Tensor, "pair d_model"],
    ) -> Float[Tensor, "pair pos d_model"]:
        of_layer = self.trunk.layers[layer]
        if not isinstance(of_layer, AdditiveLayer):
            raise UnsupportedReceiver(
                f"expected layers that add attention and MLP to the stream, found another one in "
                f"layer {layer}; take heads as receivers, or edge_effects, which is exact"
            )
        entry = stream[:, -1].detach().requires_grad_()
        written = of_layer.mlp(entry + attention.detach())
        (slope,) = torch.autograd.grad((written * gradient).sum(), entry)
        slopes = torch.zeros_like(stream)
        slopes[:, -1] = slope
        return slopes

    def _score(
        self,
        scores: Float[Tensor, "receiver input sender pair"],
        layer: int,
        positions: Positions,
        changes: Changes,
        slopes: Slopes,
    ) -> None:
        """The scores of all edges into a layer's receivers, in place."""
        settings, tokens = self.settings, (positions.prompt, positions.column)
        deltas = changes.now()
        heads = settings.by_layer.heads[layer]
        for (receiver, name), slope in slopes.items():
            if receiver.layer != layer:
                continue
            products = einsum(deltas, slope[tokens], "sender token d, token d -> sender token")
            of_pairs = products.new_zeros(len(deltas), len(slope))
            of_pairs.index_add_(1, positions.prompt, products)
            if name == MLP_INPUT and heads:  # they come before the MLP of their own layer
                own = head_changes(self.trunk, positions.ends, layer, heads)
                of_heads = einsum(own, slope[:, -1], "head pair d, pair d -> head pair")
                of_pairs = torch.cat([of_pairs, of_heads])
            order = settings.rows_of_senders[: len(of_pairs)]
            at = settings.receivers.index(receiver), settings.inputs.index(name)
            scores[at][order] = of_pairs.detach().cpu()


def _head_slopes(
    heads: Sequence[Head],
    stream: Float[Tensor, "pair pos d_model"],
    gradient: Float[Tensor, "pair head d_head"],
    code: AttentionCode,
    group: Group,
) -> Iterator[tuple[tuple[Component, str], Tensor]]:
    """The gradients through the queries, keys and values of some heads of a layer."""
    layer = heads[0].layer
    leaves = [stream.detach().clone().requires_grad_() for _ in "qkv"]
    by_queries, by_keys, by_values = (Receiver.of(code, layer, leaf) for leaf in leaves)
    receiver = replace(by_queries, key=by_keys.key, value=by_values.value)
    own: dict[int, Any] = {}

    def readers(head: Head) -> Sequence[int]:
        """The heads whose keys and values are those of the receiver."""
        return receiver.sharing(head.index) if group == "shared" else (head.index,)

    for index in sorted({one for head in heads for one in readers(head)}):
        product = (receiver.z(index)[0] * gradient[:, index]).sum()
        own[index] = torch.autograd.grad(product, leaves, retain_graph=True)
    for head in heads:
        yield (head, "q"), own[head.index][0]
        for row, letter in enumerate("kv", 1):
            parts = (own[one][row] for one in readers(head))
            yield (head, letter), sum(parts, torch.tensor(0.0))
