"""One batch of pairs, its forwards with a leaf at every component's output, and their gradients.

A leaf is a zero that is added to an output at END. The gradient with respect to it is the gradient
with respect to the output, whether or not the output itself depends on earlier components. Values
of heads and MLPs that the paths hold are cut off from what comes before them, so one backward gives
the gradients of all components on exactly these paths.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import NamedHook, layer_of, mlp_out_name, resid_pre_name, z_name
from arith_lens.metrics import Readout, read_logits
from arith_lens.model import (
    HookedLike,
    accepted_options,
    require_finite,
    starting_at,
    without_patterns,
)
from arith_lens.model.state import parts_of
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import PatchSettings

EMBEDDING_LAYER = -1
"""The number of the embeddings among the residual streams at the entries of layers."""


ByName: TypeAlias = Mapping[str, Tensor]
"""One vector per pair at END for each component, by its layer's hook name: z [pair head d_head] and
MLP outputs [pair d_model]. They are outputs, or gradients with respect to them."""


def mean_of(parts: Sequence[ByName]) -> dict[str, Tensor]:
    """The mean of each tensor."""
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


@dataclass(frozen=True)
class Forward:
    """One run of the model on the paths that the settings name."""

    outputs: dict[str, Tensor]
    """What the components write at END, by hook name."""
    streams: dict[int, Float[Tensor, "pair pos d_model"]]
    """The embeddings (-1), and the residual stream at the entry of each layer."""
    readout: Readout
    """The logits at END; they depend on `leaves` if the run has a graph."""
    leaves: dict[str, Tensor]
    """By hook name."""

    def with_leaf(self, name: str, end: Tensor) -> Tensor:
        """Note an output, and add a leaf to it if gradients are enabled."""
        self.outputs[name] = end.detach()
        if not torch.is_grad_enabled():
            return end
        self.leaves[name] = torch.zeros_like(end, requires_grad=True)
        return end + self.leaves[name]


@dataclass(frozen=True)
class Scores:
    """One score per component and pair."""

    logit: Float[Tensor, " pair"]
    """The answer's logit in the reference run."""
    heads: Float[Tensor, "layer head pair"]
    mlps: Float[Tensor, "layer pair"]

    def rows(self) -> Float[Tensor, "row pair"]:
        """The logit, then the components layer by layer, heads before the MLP."""
        both = torch.cat([self.heads, self.mlps[:, None]], dim=1)
        return torch.cat([self.logit[None], both.flatten(0, 1)])


@dataclass(eq=False)
class Gate:
    """A hook that multiplies the gradient by `value`, which may change between backwards."""

    value: float = 1.0

    def __call__(self, values: Tensor, hook: Any = None) -> Tensor:
        return _Gated.apply(values, self)  # pyright: ignore[reportReturnType]


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, gate: Gate) -> Tensor:
        ctx.gate = gate
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.gate.value, None


@dataclass(frozen=True)
class GradientBatch:
    """Some pairs, with the forwards and backwards that the methods are made of."""

    model: HookedLike
    pairs: PromptPairs
    patching: PatchSettings
    """Paths and metric."""
    foil: Int[Tensor, " pair"] | None = None
    steps: int = 5
    """The number of points of methods that integrate."""
    counts: Counter[str] = field(default_factory=Counter)
    """Forwards and backwards so far."""

    @property
    def layers(self) -> range:
        return range(self.patching.n_layers)

    def runs(
        self,
        *,
        streams: bool = False,
        gates: Mapping[str, Gate] | None = None,
        both_graphs: bool = False,
    ) -> tuple[Forward, Forward]:
        """The counterfactual run, and the reference run, which has a graph.

        Args:
            streams: whether to keep the residual streams.
            gates: gates behind the components' outputs, by hook name.
            both_graphs: whether the counterfactual run has a graph too.
        """
        pairs = self.pairs
        prompts = [(pairs.counterfactual, both_graphs), (pairs.reference, True)]
        counterfactual, reference = self._forwards(prompts, streams=streams, gates=gates)
        return counterfactual, reference

    def between(self, embeddings: Float[Tensor, "pair pos d_model"]) -> Forward:
        """The reference run behind other embeddings of its tokens."""
        (run,) = self._forwards([(self.pairs.reference, True)], embeddings=embeddings)
        return run

    def _forwards(
        self,
        prompts: Sequence[tuple[Int[Tensor, "pair pos"], bool]],
        *,
        streams: bool = True,
        embeddings: Float[Tensor, "pair pos d_model"] | None = None,
        gates: Mapping[str, Gate] | None = None,
    ) -> list[Forward]:
        """A run of each batch of prompts, and whether it has a graph from leaves to logits."""
        runs: list[Forward] = []

        def stream(activation: Tensor, hook: Any = None, *, layer: int) -> Tensor:
            if layer == EMBEDDING_LAYER and embeddings is not None:
                activation = embeddings.to(activation)
            runs[-1].streams[layer] = activation.detach()
            return activation

        def leaf(activation: Tensor, hook: Any = None, *, name: str) -> Tensor:
            if self._frozen(name):  # at every token: else zeros go back through the attention
                activation = activation.detach()
            end = runs[-1].with_leaf(name, activation[:, -1])
            if not torch.is_grad_enabled():
                return activation
            return _with_end(activation, gates[name](end) if gates else end)

        hooks: list[NamedHook] = [
            (name, partial(leaf, name=name)) for layer in self.layers for name in names_of(layer)
        ]
        if streams:
            hooks.append(("hook_embed", partial(stream, layer=EMBEDDING_LAYER)))
            hooks += [(resid_pre_name(k), partial(stream, layer=k)) for k in self.layers]
        with self._hooked(hooks):
            for tokens, graph in prompts:
                runs.append(Forward({}, {}, Readout(torch.empty(0)), {}))
                with torch.set_grad_enabled(graph):
                    runs[-1] = replace(runs[-1], readout=self._read(tokens))
        return runs

    def moved(self, reference: Forward, name: str, end: Tensor) -> Forward:
        """The reference run with one leaf alone, behind another value of its component.

        Only the layers from this component's on are computed; with all heads frozen, at END
        alone. Components that the paths freeze are held at the reference run.

        Args:
            reference: the reference run.
            name: the hook name of the component's output.
            end: its value at END.
        """
        run = Forward({}, {}, Readout(torch.empty(0)), {})

        def hold(activation: Tensor, hook: Any = None, *, held: Tensor) -> Tensor:
            return _with_end(activation, held.to(activation))

        def leaf(activation: Tensor, hook: Any = None) -> Tensor:
            return _with_end(activation, run.with_leaf(name, end.to(activation)))

        def enter(activation: Tensor, hook: Any = None) -> Tensor:
            return stream

        layer = layer_of(name) or 0
        chosen = slice(None) if self.patching.paths == "total" else slice(-1, None)
        stream = reference.streams[layer][:, chosen]
        others = (other for at in self.layers[layer:] for other in names_of(at))
        hooks: list[NamedHook] = [
            (other, partial(hold, held=reference.outputs[other]))
            for other in others
            if other != name and self._frozen(other)
        ]
        hooks += [(name, leaf)] if layer else [(resid_pre_name(0), enter), (name, leaf)]
        with ExitStack() as stack:
            if layer:
                stack.enter_context(starting_at(self.model, layer, stream))
            stack.enter_context(self._hooked(hooks))
            return replace(run, readout=self._read(self.pairs.reference[:, chosen]))

    def _frozen(self, name: str) -> bool:
        """Whether the paths freeze the component with this hook name."""
        return self.patching.paths == "direct" or (
            self.patching.paths == "via_mlps" and name.endswith(".hook_z")
        )

    @contextmanager
    def _hooked(self, hooks: list[NamedHook]) -> Iterator[None]:
        """A context in which hooks act on all forwards, of which END's logits alone are read."""
        with without_patterns(self.model, hooks, fused=False, at_end=True), self.model.hooks(hooks):
            yield

    def _read(self, tokens: Int[Tensor, "pair pos"]) -> Readout:
        self.counts["forwards"] += 1
        device = torch.device(self.model.cfg.device)
        mask = self.pairs.attention_mask[:, -tokens.shape[1] :]
        options = accepted_options(self.model, logits_to_keep=1, use_cache=False)
        logits = self.model(tokens.to(device), attention_mask=mask.to(device), **options)
        return read_logits(logits[:, -1], self.patching.targets(self.pairs, self.foil))

    def gradient(
        self,
        run: Forward,
        reference: Forward,
        counterfactual: Forward,
        *,
        retain_graph: bool = False,
    ) -> dict[str, Tensor]:
        """The gradient of the effect with respect to each output, at the values of `run`.

        Args:
            run: the run, with a graph.
            reference, counterfactual: the runs that the metric relates the effect to.
            retain_graph: whether the graph is needed again.
        """
        self.counts["backwards"] += 1
        effect = self.effect(run, reference, counterfactual)
        if not effect.requires_grad:
            raise ValueError(
                f"expected a metric with a gradient, found {self.patching.metric!r}, which has "
                "none; take another metric, or path_patch, which needs no gradient"
            )
        leaves = list(run.leaves.values())
        gradients = torch.autograd.grad(effect.sum(), leaves, retain_graph=retain_graph)
        return dict(zip(run.leaves, gradients, strict=True))

    def scores(self, gradient: ByName, reference: Forward, counterfactual: Forward) -> Scores:
        """The change of each output times its gradient; NaN where the metric leaves a pair out.

        Raises:
            FloatingPointError: an activation is NaN or infinite.
        """

        def product(name: str) -> Float[Tensor, "*head pair"]:
            change = counterfactual.outputs[name].float() - reference.outputs[name].float()
            score = einsum(change, gradient[name].float(), "pair ... d, pair ... d -> pair ...")
            return score.movedim(0, -1).cpu()

        heads, mlps = (
            torch.stack([product(name(layer)) for layer in self.layers])
            for name in (z_name, mlp_out_name)
        )
        if not (heads.isfinite().all() and mlps.isfinite().all()):
            for tokens in (self.pairs.reference, self.pairs.counterfactual):
                require_finite(self.model, tokens, attention_mask=self.pairs.attention_mask)
            raise FloatingPointError(
                "expected finite gradients, found NaN or infinity; load the model in float32"
            )
        left_out = self.effect(reference, reference, counterfactual).detach().isnan().cpu()
        values = (values.masked_fill(left_out, float("nan")) for values in (heads, mlps))
        return Scores(reference.readout.answer.detach().cpu(), *values)

    def effect(
        self, run: Forward, reference: Forward, counterfactual: Forward
    ) -> Float[Tensor, " pair"]:
        """The effect of a run on the metric; NaN where the metric leaves a pair out."""
        others = (other.readout.detached() for other in (reference, counterfactual))
        return self.patching.measure.effect(run.readout, *others)


def names_of(layer: int) -> tuple[str, str]:
    """The hook names of a layer's heads and of its MLP."""
    return z_name(layer), mlp_out_name(layer)


def _with_end(activation: Tensor, end: Tensor) -> Tensor:
    return torch.cat([activation[:, :-1], end[:, None]], dim=1)


ScoreMethod = Callable[[GradientBatch], Scores]
"""A method of attribution: the scores of all components of a batch."""


@contextmanager
def weights_without_gradient(model: HookedLike) -> Iterator[None]:
    """A context in which no weight asks for a gradient, which saves memory.

    That of the unembedding does, and saves no more than END's rows: torch multiplies a matrix
    without gradients row by row there.
    """
    bridge: Any = getattr(model, "bridge", model)
    last = {id(weight) for weight in bridge.unembed.parameters()}
    parts = parts_of(bridge, bridge.original_model)
    weights = {id(one): one for part in parts for one in part._parameters.values()}
    changed = [
        w for key, w in weights.items() if w is not None and w.requires_grad == (key not in last)
    ]
    try:
        for weight in changed:
            weight.requires_grad_(not weight.requires_grad)
        yield
    finally:
        for weight in changed:
            weight.requires_grad_(not weight.requires_grad)
