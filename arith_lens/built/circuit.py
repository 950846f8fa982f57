"""A circuit as equations, in float64, and what is true of a model that computes them.

The residual stream is a row of named slots, such as the one that holds A's digit at END. A head
looks at a distance or for a token and copies one slot into another. An MLP is a list of neurons.
`run` evaluates these equations. It knows no weight matrix, no rotary angle and no library, so that
it is an oracle for the model that `models` makes from the same circuit. `Truth` has the closed-form
effects of the components, and the circuit's heads, MLPs and edges.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Component,
    Components,
    Head,
    Mlp,
    as_components,
    check_components,
    every_head,
    every_mlp,
)
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.metrics import Readout, Targets, get_metric, mean_of_others
from arith_lens.options import check_choice
from arith_lens.pairs import NO_ANSWER, PromptPairs

N_TOKENS = 16
"""The size of the vocabulary, of a head, and of most slots."""
EPS = 1e-12
"""What the norms add to the mean square."""

Activation: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edge:
    """One link of the circuit: a component reads what another writes."""

    sender: Component
    receiver: Component | None
    """None: the logits."""
    input: str
    """What the receiver reads: a head's `q`, `k` or `v`; `in` for an MLP and the logits."""
    carries: frozenset[str]
    """The parts of the prompt on which it depends: `a`, `operator`, `b`."""

    def __str__(self) -> str:
        if isinstance(self.receiver, Head):
            return f"{self.sender} -> {self.receiver}.{self.input}"
        return f"{self.sender} -> {self.receiver or 'logits'}"


@dataclass(frozen=True, eq=False)
class CopyHead:
    """A head that finds one position and copies a slot from it.

    The score of the key at distance D is beta * sum over v of query[v] * cos(D - offsets[v]); with
    `matches`, it is beta * (the sum of these entries of the key's slot).
    """

    head: Head
    reads: str
    """The slot that is copied, of N_TOKENS channels."""
    writes: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By entry of the query's slot, the distance in tokens at which the head then looks."""
    query: str = "one"
    """The slot that is the query."""
    key: str = "one"
    """The slot that is the key."""
    matches: tuple[int, ...] = ()
    """The entries of the key's slot for which the head looks; none: it looks at a distance."""
    code: Float[Tensor, "token channel"] | None = None
    """What is written for each entry of the slot; None: the same entry."""
    gain: float = 1.0

    @property
    def table(self) -> Float[Tensor, "token channel"]:
        """What the head writes for each entry of the slot that it reads."""
        code = torch.eye(N_TOKENS, dtype=torch.float64) if self.code is None else self.code
        return self.gain * code


@dataclass(frozen=True, eq=False)
class Neurons:
    """An MLP: neuron n writes act(gate_n * x) * (up_n * x) * down_n."""

    gate: Float[Tensor, "neuron channel"]
    up: Float[Tensor, "neuron channel"]
    down: Float[Tensor, "neuron channel"]
    writes: str = ""
    """The slot that it writes, with a vector of length 1; empty: it has no neuron."""


@dataclass(frozen=True, eq=False)
class Circuit:
    """Everything that decides what a built model computes."""

    slots: Mapping[str, slice]
    """The channels of each slot."""
    tokens: tuple[str, ...]
    heads: tuple[CopyHead, ...]
    mlps: tuple[Neurons, ...]
    """One for each layer."""
    readout: Float[Tensor, "token channel"]
    """How the logit of each token reads the stream."""
    edges: frozenset[Edge]
    """The links of the computation, by construction. Other components only distract."""
    beta: float
    """The sharpness of attention: the score of the right position, before the softmax."""
    act: Activation = torch.nn.functional.silu
    query_key_norm: bool = False
    """Whether queries and keys have length 1 before the score."""
    sandwich: bool = False
    """Whether a norm follows attention and MLP."""

    @property
    def n_channels(self) -> int:
        return max(slot.stop for slot in self.slots.values())

    @property
    def components(self) -> list[Component]:
        """The heads that copy, and the MLPs, in the order of the forward."""
        return [
            part
            for layer in range(len(self.mlps))
            for part in (*(copy_head.head for copy_head in self.heads_of(layer)), Mlp(layer))
        ]

    def heads_of(self, layer: int) -> list[CopyHead]:
        return [copy_head for copy_head in self.heads if copy_head.head.layer == layer]

    def lengths(self) -> list[float]:
        """The squared length of END's stream before each norm: two for each layer, and the last.

        It counts what is written: the token, the constant, one vector for each head and MLP.
        """
        sums = {"token": 1.0, "one": 1.0}
        squares = []
        for layer, mlp in enumerate(self.mlps):
            squares.append(sum(value**2 for value in sums.values()))
            for copy_head in self.heads_of(layer):
                length = float(copy_head.table.norm(dim=1).max())
                sums[copy_head.writes] = sums.get(copy_head.writes, 0) + length * (
                    1 if copy_head.gain > 0 else -1
                )
            squares.append(sum(value**2 for value in sums.values()))
            if mlp.writes:
                sums[mlp.writes] = sums.get(mlp.writes, 0) + 1.0
        return [*squares, sum(value**2 for value in sums.values())]

    def branch_lengths(self) -> list[float]:
        """The squared length of what each attention and each MLP adds; 1 where it adds nothing."""
        squares = []
        for layer in range(len(self.mlps)):
            added = sum(
                float(copy_head.table.norm(dim=1).max()) ** 2 for copy_head in self.heads_of(layer)
            )
            squares += [added or 1.0, 1.0]
        return squares


Outputs: TypeAlias = dict[Component, Float[Tensor, "pair pos channel"]]
Replaced: TypeAlias = Mapping[Component, tuple[Tensor, Bool[Tensor, "pair pos"]]]
"""By component, the output that replaces its own, and the positions at which it does."""


def run(
    circuit: Circuit,
    tokens: Int[Tensor, "pair pos"],
    mask: Bool[Tensor, "pair pos"],
    replaced: Replaced | None = None,
) -> tuple[Float[Tensor, "pair token"], Outputs]:
    """Evaluate the circuit.

    Args:
        tokens: the prompts, padded on the left.
        mask: False where a token is padding.
        replaced: outputs that are replaced.

    Returns:
        The logits at END, and what each component writes at each position.
    """
    lengths, branches = iter(circuit.lengths()), iter(circuit.branch_lengths())
    stream = circuit_embedding(circuit)[tokens]
    outputs: Outputs = {}

    def written(component: Component, value: Tensor) -> Tensor:
        if replaced and component in replaced:
            other, where = replaced[component]
            value = torch.where(where[..., None], other, value)
        outputs[component] = value
        return value

    for layer, mlp in enumerate(circuit.mlps):
        normed = scaled(stream, next(lengths))
        attention = torch.zeros_like(stream)
        for copy_head in circuit.heads_of(layer):
            read = (
                _pattern(circuit, copy_head, normed, mask)
                @ normed[..., circuit.slots[copy_head.reads]]
            )
            out = torch.zeros_like(stream)
            out[..., circuit.slots[copy_head.writes]] = read @ copy_head.table
            attention = attention + written(copy_head.head, out)
        branch = next(branches)
        stream = stream + (scaled(attention, branch) if circuit.sandwich else attention)
        normed = scaled(stream, next(lengths))
        out = (circuit.act(normed @ mlp.gate.T) * (normed @ mlp.up.T)) @ mlp.down
        branch = next(branches)
        stream = stream + written(Mlp(layer), scaled(out, branch) if circuit.sandwich else out)
    return scaled(stream, next(lengths))[:, -1] @ circuit.readout.T, outputs


def scaled(rows: Float[Tensor, "*row channel"], square: float) -> Float[Tensor, "*row channel"]:
    """The rows, stretched to this squared length, as an RMSNorm does it: 0 stays 0."""
    return rows * (square / (rows.square().sum(-1, keepdim=True) + EPS)).sqrt()


def circuit_embedding(circuit: Circuit) -> Float[Tensor, "token channel"]:
    """Each token as one entry of the slot `token`, with the constant."""
    rows = torch.zeros(N_TOKENS, circuit.n_channels, dtype=torch.float64)
    rows[:, circuit.slots["token"]] = torch.eye(N_TOKENS, dtype=torch.float64)
    rows[:, circuit.slots["one"]] = 1.0
    return rows


def _pattern(
    circuit: Circuit, copy_head: CopyHead, normed: Float[Tensor, "pair pos channel"], mask: Tensor
) -> Float[Tensor, "pair query key"]:
    """The attention weights of a head, by its formula."""
    query, key = (normed[..., circuit.slots[slot]] for slot in (copy_head.query, copy_head.key))
    pos = torch.arange(mask.shape[1], dtype=torch.float64)
    distance = pos[:, None] - pos
    if copy_head.matches:
        queries, keys = query[..., 0], key[..., [*copy_head.matches]].sum(-1)
        score = queries[:, :, None] * keys[:, None]
        size = queries.abs()[:, :, None] * keys.abs()[:, None]
    else:
        parts = [
            query[..., v, None] * torch.cos(distance - d) for v, d in copy_head.offsets.items()
        ]
        turned = [
            query[..., v] * torch.exp(torch.tensor(-1j * d)) for v, d in copy_head.offsets.items()
        ]
        score = torch.stack(parts).sum(0) * key[:, None, :, 0]
        size = torch.stack(turned).sum(0).abs()[:, :, None] * key[:, None, :, 0].abs()
    if circuit.query_key_norm:
        score = score / size.clamp(min=EPS)
    seen = mask[:, None] & (distance >= 0) | torch.eye(len(pos), dtype=torch.bool)
    return (circuit.beta * score).masked_fill(~seen, -torch.inf).softmax(-1)


DIGITS = torch.arange(10)


@dataclass(frozen=True, eq=False)
class Truth:
    """What is true of a built model on its pairs, from the circuit's equations in float64.

    Nothing here runs the model or a method of this package.
    """

    circuit: Circuit
    pairs: PromptPairs
    n_heads: int
    """The number of heads in each layer, those included that do nothing."""
    changed: frozenset[str]
    """The parts of the prompt in which X_c differs: `a`, `operator`, `b`."""

    @property
    def n_layers(self) -> int:
        return len(self.circuit.mlps)

    @property
    def edges(self) -> frozenset[Edge]:
        """Who reads whom on the way from a changed part of the prompt to the logits."""
        return frozenset(edge for edge in self.circuit.edges if edge.carries & self.changed)

    @property
    def heads(self) -> frozenset[Head]:
        """The heads of the circuit: those that carry a changed part of the prompt."""
        return frozenset(edge.sender for edge in self.edges if isinstance(edge.sender, Head))

    @property
    def mlps(self) -> frozenset[Mlp]:
        """The MLPs of the circuit."""
        return frozenset(edge.sender for edge in self.edges if isinstance(edge.sender, Mlp))

    def logits(self, *, counterfactual: bool = False) -> Float[Tensor, "pair token"]:
        """The logits at END of the reference prompts, or of the counterfactual ones."""
        return self._runs[counterfactual][0]

    def patched(
        self, components: Components, *, paths: str = "via_mlps", mlps: Iterable[int] | None = None
    ) -> Float[Tensor, "pair token"]:
        """The logits at END if components get their counterfactual output at END, all together.

        Args:
            components: heads and MLPs.
            paths: `"via_mlps"`, `"direct"` or `"total"`, as in `path_patch`.
            mlps: the layers whose MLPs are computed again; None: as `paths` says.

        Raises:
            ValueError: another name of paths.
        """
        check_choice("paths", paths, ("via_mlps", "direct", "total"))
        senders = self._checked(components)
        frozen = [] if paths == "total" else [copy_head.head for copy_head in self.circuit.heads]
        if mlps is not None:
            frozen += [mlp for mlp in every_mlp(self.n_layers) if mlp.layer not in {*mlps}]
        elif paths == "direct":
            frozen += every_mlp(self.n_layers)
        (_, reference), (_, counterfactual) = self._runs
        everywhere = torch.ones_like(self.pairs.attention_mask)
        end = torch.zeros_like(everywhere)
        end[:, -1] = True
        replaced: dict[Component, Any] = {
            component: (reference[component], everywhere) for component in frozen
        }
        for component in senders:
            if component in reference:
                stream = counterfactual[component].clone()
                if component in frozen:
                    stream[:, :-1] = reference[component][:, :-1]
                replaced[component] = (stream, everywhere if component in frozen else end)
        return self._run(self.pairs.reference, replaced)[0]

    def effects(
        self, *, paths: str = "via_mlps", metric: str = "relative_logit"
    ) -> ComponentEffects:
        """The effect of each head and each MLP, as `path_patch` returns it.

        Raises:
            ValueError: another name of paths; an unknown metric, or one that needs a foil.
        """
        units: dict[str, Any] = {"metric": metric, "paths": paths, **self.pairs.units}

        def values(components: Iterable[Component]) -> list[Tensor]:
            return [self.effect(component, paths=paths, metric=metric) for component in components]

        heads = torch.stack(values(every_head(self.n_layers, self.n_heads)))
        mlps = torch.stack(values(every_mlp(self.n_layers)))
        answer = self.logits().gather(1, self.pairs.answer[:, None])[:, 0]
        return ComponentEffects(
            Effects(heads.unflatten(0, (self.n_layers, self.n_heads)), HEAD_AXES, **units),
            Effects(mlps, MLP_AXES, **units),
            answer,
            computation={"engine": "closed form", "paths": paths, "metric": metric},
        )

    def effect(
        self,
        components: Components,
        *,
        paths: str = "via_mlps",
        metric: str = "relative_logit",
        mlps: Iterable[int] | None = None,
    ) -> Float[Tensor, " pair"]:
        """The effect of patching components together; arguments as in `patched`."""
        runs = [self.patched(components, paths=paths, mlps=mlps), *(run[0] for run in self._runs)]
        return get_metric(metric).effect(*map(self._read, runs))

    def _read(self, logits: Float[Tensor, "pair token"]) -> Readout:
        """What metrics read. In float64, unlike the logits that methods read."""
        answer, own = self.pairs.answer, self.pairs.counterfactual_answer
        other = torch.where(own == NO_ANSWER, answer, own)
        return Readout(
            answer=logits.gather(1, answer[:, None])[:, 0],
            log_total=logits.logsumexp(-1),
            others=mean_of_others(logits[:, DIGITS], DIGITS, answer),
            other_answer=logits.gather(1, other[:, None])[:, 0],
            answers_other=Targets.of(self.pairs, "likeliest").is_other(logits.argmax(-1)),
        )

    def knocked_out(
        self, components: Components, *, ablation: str = "mean", positions: str = "all"
    ) -> Float[Tensor, "pair token"]:
        """The logits at END without components, as in `knock_out`.

        Args:
            components: heads and MLPs.
            ablation: `"mean"`, over the counterfactual prompts of the same length, or `"zero"`.
            positions: `"all"`: every token but BOS and padding; or `"end"`.
        """
        mask = self.pairs.attention_mask
        where = mask & (mask.cumsum(1) > 1)
        if positions == "end":
            where = torch.zeros_like(mask)
            where[:, -1] = True
        outputs = self._runs[True][1]
        replaced = {}
        for component in self._checked(components):
            if component in outputs:
                value = torch.zeros_like(outputs[component])
                if ablation == "mean":
                    value = _mean_of_lengths(outputs[component], self.pairs.lengths)
                replaced[component] = (value, where)
        return self._run(self.pairs.reference, replaced)[0]

    def kept_only(
        self, components: Components, *, among: str = "heads", ablation: str = "mean"
    ) -> Float[Tensor, "pair token"]:
        """The logits at END if all heads, all MLPs or both (`"all"`) but these are knocked out."""
        chosen = {*self._checked(components)}
        pool: list[Component] = []
        pool += [] if among == "mlps" else every_head(self.n_layers, self.n_heads)
        pool += [] if among == "heads" else every_mlp(self.n_layers)
        return self.knocked_out([one for one in pool if one not in chosen], ablation=ablation)

    def probability(self, logits: Float[Tensor, "pair token"]) -> Float[Tensor, " pair"]:
        """p(C) of each pair, between 0 and 1."""
        return logits.softmax(-1).gather(1, self.pairs.answer[:, None])[:, 0]

    def _checked(self, components: Components) -> list[Component]:
        chosen = as_components(components)
        check_components(chosen, self.n_layers, self.n_heads)
        return chosen

    @cached_property
    def _runs(self) -> tuple[tuple[Tensor, Outputs], tuple[Tensor, Outputs]]:
        """Logits and outputs of the reference prompts and of the counterfactual ones."""
        reference, other = (run(self.circuit, *side, None) for side in self.pairs.sides)
        return reference, other

    def _run(
        self, tokens: Int[Tensor, "pair pos"], replaced: Replaced | None = None
    ) -> tuple[Tensor, Outputs]:
        return run(self.circuit, tokens, self.pairs.attention_mask, replaced)


def _mean_of_lengths(
    output: Float[Tensor, "pair pos channel"], lengths: Int[Tensor, " pair"]
) -> Float[Tensor, "pair pos channel"]:
    """For each pair, the mean over the pairs of its length."""
    same = (lengths[:, None] == lengths).double()
    return torch.einsum("pq, qtc -> ptc", same / same.sum(1, keepdim=True), output)
