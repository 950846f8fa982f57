"""Many knockouts in one pass over plain layers and a tree of prefixes: the fast way.

Three things save work. Layers that several knockouts have in common are computed once (`Stage`).
Tokens with the same prefix are computed once (`PrefixTree`). And the last layer computes only what
END needs. If components are knocked out at END alone, nothing before END changes, so all layers
compute only END of each state.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Activations,
    Component,
    Head,
    Neuron,
    mlp_out_name,
    neurons_name,
    z_name,
)
from arith_lens.model import (
    EndAttention,
    HookedLike,
    LayerArguments,
    PlainLayer,
    attention_weights,
    capped,
    end_logits,
    layer_arguments,
    layers_with_weights,
)
from arith_lens.pairs import PromptPairs

Variant = AbstractSet[Component]


@dataclass(frozen=True)
class Stage:
    """The layers from `start` to before `stop`. Components are out in the first of them only."""

    start: int
    stop: int
    parent: Int[Tensor, " state"]
    """For each state, the state of the stage below that it continues."""
    out: Bool[Tensor, "state slot"]
    """Which heads of layer `start` are out, in the next slot whether its MLP is, and then which of
    its `neurons`."""
    neurons: tuple[int, ...] = ()
    """The neurons of layer `start` that are out in any state."""
    n_heads: int = 0
    """The number of heads."""

    @property
    def hook_names(self) -> list[str]:
        """The hook names at which components are out in any state."""
        heads, mlp = bool(self.heads.any()), bool(self.mlp.any())
        names = [z_name(self.start)] * heads + [neurons_name(self.start)] * bool(self.neurons)
        return names + [mlp_out_name(self.start)] * mlp

    @property
    def heads(self) -> Bool[Tensor, "state head"]:
        """Which heads are out."""
        return self.out[:, : self.n_heads]

    @property
    def mlp(self) -> Bool[Tensor, "state 1"]:
        """Whether the MLP is out."""
        return self.out[:, self.n_heads : self.n_heads + 1]

    def neurons_out(self, states: Int[Tensor, " chosen"], n: int) -> Bool[Tensor, "chosen n"]:
        """Which of the MLP's `n` neurons are out in some states."""
        mask = torch.zeros(len(states), n, dtype=torch.bool)
        mask[:, list(self.neurons)] = self.out[states, self.n_heads + 1 :]
        return mask


def stages_of(
    variants: Sequence[Variant], n_layers: int, n_heads: int
) -> tuple[list[Stage], Int[Tensor, " variant"]]:
    """The stages, and for each variant its state in the last stage."""
    named: list[set[int]] = [set() for _ in range(n_layers)]
    for component in {one for variant in variants for one in variant}:
        if isinstance(component, Neuron):
            named[component.layer].add(component.index)
    neurons = [tuple(sorted(indices)) for indices in named]
    slots = [
        {("neuron", index): n_heads + 1 + slot for slot, index in enumerate(indices)}
        for indices in neurons
    ]
    out = [
        torch.zeros(len(variants), n_heads + 1 + len(indices), dtype=torch.bool)
        for indices in neurons
    ]
    rows: list[list[tuple[int, int]]] = [[] for _ in range(n_layers)]
    for row, variant in enumerate(variants):
        for one in variant:
            if isinstance(one, Neuron):
                slot = slots[one.layer]["neuron", one.index]
            else:
                slot = one.index if isinstance(one, Head) else n_heads
            rows[one.layer].append((row, slot))
    for layer, places in enumerate(rows):
        if places:
            out[layer][tuple(torch.tensor(places).T)] = True
    starts = sorted({0, *(layer for layer, places in enumerate(rows) if places)})
    state = torch.zeros(len(variants), dtype=torch.long)
    stages = []
    for start, stop in zip(starts, [*starts[1:], n_layers], strict=True):
        key = torch.cat([state[:, None], out[start].long()], dim=1)
        distinct, state = torch.unique(key, dim=0, return_inverse=True)
        of_layer = distinct[:, 1:].bool()
        stages.append(Stage(start, stop, distinct[:, 0], of_layer, neurons[start], n_heads))
    return stages, state


def n_forwards(variants: Sequence[Variant], n_layers: int, n_heads: int) -> float:
    """The cost of the variants, in whole forwards of the pairs."""
    stages, _ = stages_of(variants, n_layers, n_heads)
    return sum(len(stage.parent) * (stage.stop - stage.start) for stage in stages) / n_layers


@dataclass(frozen=True, eq=False)
class Branches:
    """The prompts whose own nodes begin at one column. Earlier nodes are those of other prompts."""

    prompts: Int[Tensor, " branch"]
    start: int
    nodes: slice
    """The nodes of these prompts, prompt after prompt, from column `start` to the last."""


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The nodes of a batch of prompts that are padded on the left."""

    node: Int[Tensor, "pair pos"]
    """The node of each token; arbitrary at padding."""
    prompt: Int[Tensor, " node"]
    """For each node, a prompt that it belongs to."""
    pos: Int[Tensor, " node"]
    """For each node, its column."""
    branches: tuple[Branches, ...]

    @property
    def ends(self) -> Int[Tensor, " pair"]:
        """The node of each prompt's END."""
        return self.node[:, -1]

    def to(self, device: torch.device) -> "PrefixTree":
        """The same tree, its tensors on `device`."""
        branches = tuple(
            Branches(branch.prompts.to(device), branch.start, branch.nodes)
            for branch in self.branches
        )
        node, prompt, pos = (part.to(device) for part in (self.node, self.prompt, self.pos))
        return PrefixTree(node, prompt, pos, branches)


def prefix_tree(
    tokens: Int[Tensor, "pair pos"], mask: Bool[Tensor, "pair pos"], group: Int[Tensor, " pair"]
) -> PrefixTree:
    """The tree of the prompts. Only prompts of one group and one length share nodes.

    Args:
        mask: False at padding, which is on the left
        group: the number of each prompt's group; prompts of a group have the same replacements
    """
    width = tokens.shape[1]
    first = (width - mask.sum(1)).tolist()
    numbers: dict[tuple[int, int], int] = {}
    roots: dict[tuple[int, int], int] = {}
    paths: list[list[int]] = []
    starts: dict[int, list[int]] = {}  # the prompts whose own nodes begin at each column
    for prompt, (row, label) in enumerate(zip(tokens.tolist(), group.tolist(), strict=True)):
        parent = roots.setdefault((first[prompt], label), -1 - len(roots))
        path, n_known = [], len(numbers)
        for token in row[first[prompt] :]:
            parent = numbers.setdefault((parent, token), len(numbers))
            path.append(parent)
        paths.append(path)
        if n_own := len(numbers) - n_known:
            starts.setdefault(width - n_own, []).append(prompt)
    return _in_branches(paths, starts, width)


def _in_branches(paths: list[list[int]], starts: dict[int, list[int]], width: int) -> PrefixTree:
    """Renumber the nodes so that those of each branch are together."""
    branches, order, n_nodes = [], [], 0
    prompt_of, pos_of = [], []
    for start, prompts in sorted(starts.items()):
        n_own = width - start
        nodes = slice(n_nodes, n_nodes + n_own * len(prompts))
        branches.append(Branches(torch.tensor(prompts), start, nodes))
        n_nodes = nodes.stop
        for prompt in prompts:
            order += paths[prompt][-n_own:]
            prompt_of += [prompt] * n_own
            pos_of += range(start, width)
    number = torch.empty(n_nodes, dtype=torch.long)
    number[torch.tensor(order)] = torch.arange(n_nodes)
    node = torch.stack([number[[path[0]] * (width - len(path)) + path] for path in paths])
    return PrefixTree(node, torch.tensor(prompt_of), torch.tensor(pos_of), tuple(branches))


@dataclass(frozen=True, eq=False)
class TreeAttention:
    """Attention of every node to its prefix."""

    tree: PrefixTree
    mask: Float[Tensor, "rows 1 pos pos"]
    """The mask that a layer adds to the scores of the prompts' tokens; `rows` may be 1."""

    def __call__(
        self,
        query: Float[Tensor, "state n_heads node d_head"],
        key: Float[Tensor, "state n_kv node d_head"],
        value: Float[Tensor, "state n_kv node d_head"],
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> Float[Tensor, "state node n_heads d_head"]:
        n_heads, n_kv, parts = query.shape[1], key.shape[1], []
        for branch in self.tree.branches:
            n_rows = len(branch.prompts)
            known = self.tree.node[branch.prompts].flatten()
            keys, values = (
                rearrange(
                    x.index_select(2, known),
                    "state kv (row pos) d_head -> state kv row pos d_head",
                    row=n_rows,
                )
                for x in (key, value)
            )
            rows = rearrange(  # queries that share keys: one matrix
                query[:, :, branch.nodes],
                "state (kv group) (row node) d_head -> state kv row (group node) d_head",
                kv=n_kv,
                row=n_rows,
            )
            scores = capped(rows @ keys.mT, scaling, softcap)
            mask = self.mask.expand(len(self.tree.node), -1, -1, -1)[branch.prompts]
            spread = scores.unflatten(3, (n_heads // n_kv, -1))
            spread += mask[:, :, branch.start :]
            z = rearrange(
                attention_weights(scores) @ values,
                "state kv row (group node) d_head -> state (row node) (kv group) d_head",
                group=n_heads // n_kv,
            )
            parts.append(z)
        return torch.cat(parts, dim=1)


LOGITS_AT_ONCE = 2**22
"""The number of logits in memory at once."""


@dataclass(frozen=True, eq=False)
class StreamRows:
    """The rows of a residual stream: positions of prompts, and whether components are out there."""

    prompt: Int[Tensor, " row"]
    pos: Int[Tensor, " row"]
    chosen: Bool[Tensor, " row"]

    def values(self, replacement: Float[Tensor, "pair_or_1 pos_or_1 *rest"]) -> Tensor:
        """The replacement at each row, [row ...]."""
        n_prompts, n_pos = replacement.shape[:2]
        prompt, pos = self.prompt.clamp(max=n_prompts - 1), self.pos.clamp(max=n_pos - 1)
        return replacement[prompt.to(replacement.device), pos.to(replacement.device)]


@dataclass(frozen=True, eq=False)
class Replacement:
    """An edit for a stack of states. Each state has other components out."""

    where: Bool[Tensor, "state row slot"]
    value: Float[Tensor, "row slot_or_1 d_or_1"]

    def __call__(self, activation: Float[Tensor, "state row d"]) -> Float[Tensor, "state row d"]:
        split = activation.unflatten(-1, (self.where.shape[-1], -1))
        where, value = self.where.to(activation.device), self.value.to(activation)
        return torch.where(where[..., None], value, split).flatten(-2)


@dataclass(frozen=True, eq=False)
class NeuronReplacement:
    """An edit of neurons for a stack of states. Each state has other neurons out."""

    stage: Stage
    states: Int[Tensor, " state"]
    chosen: Bool[Tensor, " row"]
    value: Float[Tensor, "row d_mlp_or_1"]

    def __call__(
        self, activation: Float[Tensor, "state row d_mlp"]
    ) -> Float[Tensor, "state row d_mlp"]:
        out = self.stage.neurons_out(self.states, activation.shape[-1]).to(activation.device)
        where = out[:, None] & self.chosen.to(activation.device)[:, None]
        return torch.where(where, self.value.to(activation), activation)


@dataclass(frozen=True, eq=False)
class TreeForward:
    """Some pairs, which can be run under any variants."""

    model: HookedLike
    layers: Sequence[PlainLayer]
    inputs: LayerArguments
    tree: PrefixTree
    nodes: StreamRows
    ends: StreamRows
    tokens: Int[Tensor, " pair"]
    """Each prompt's token at END."""

    @property
    def end_alone(self) -> bool:
        """Whether components are knocked out at END only."""
        return not bool((self.nodes.chosen & (self.nodes.pos < self.ends.pos[0])).any())

    @torch.no_grad()
    def run(
        self,
        stages: Sequence[Stage],
        values: Callable[[list[str]], Activations],
        states_at_once: int,
        read: Callable[[Float[Tensor, "state pair d_vocab"]], Tensor],
    ) -> Tensor:
        """The values that `read` returns for END's logits. Dimension 1 is the last stage's states.

        Args:
            values: returns the replacements for a list of hook names, as in `run_variants`.
            states_at_once: the number of states of all pairs that go through a layer together.
        """
        if self.end_alone:  # a state is END alone
            states_at_once = max(1, states_at_once * len(self.nodes.pos) // len(self.tokens))
        ends = self._ends(stages, values, states_at_once)
        n_pairs, d_vocab = len(self.tokens), int(self.model.cfg.d_vocab)
        parts = []
        for states in ends.split(max(1, LOGITS_AT_ONCE // (n_pairs * d_vocab))):
            tokens = self.tokens.repeat(len(states))
            logits = end_logits(self.model, tokens, states.flatten(0, 1))
            parts.append(read(logits.unflatten(0, (len(states), n_pairs))))
        return torch.cat(parts, dim=1)

    def _ends(
        self,
        stages: Sequence[Stage],
        values: Callable[[list[str]], Activations],
        states_at_once: int,
    ) -> Float[Tensor, "state pair d_model"]:
        """END's residual stream after the last layer.

        If components are out at END only, all states share the earlier tokens, which are computed
        once (`before`).
        """
        alone, top = self.end_alone, len(self.layers) - 1
        before = self.inputs.stream[self.tree.prompt, self.tree.pos][None]
        stream = before[:, self.tree.ends] if alone else before
        for stage in stages:
            replacements = values(stage.hook_names)
            chunks = torch.arange(len(stage.parent)).split(states_at_once)
            streams = [stream[stage.parent[states].to(stream.device)] for states in chunks]
            del stream
            for layer in self._in_order(stage):
                plain, inputs = self.layers[layer], self._inputs(layer, self.nodes)
                attention = TreeAttention(self.tree, self.inputs.masks[layer])
                known = plain.keys_and_values(before, inputs) if alone else None
                rows = self.ends if alone or layer == top else self.nodes
                for index, states in enumerate(chunks):
                    edits = _edits(stage, layer, states, replacements, rows)
                    if rows is self.ends:
                        streams[index] = self._end_of(layer, streams[index], known, edits)
                    else:
                        streams[index] = plain(streams[index], inputs, attention, **edits)
                if alone and layer < top:
                    before = plain(before, inputs, attention)
            stream = torch.cat(streams)
        return stream

    def _end_of(
        self,
        layer: int,
        stream: Float[Tensor, "state row d_model"],
        known: tuple[Tensor, Tensor] | None,
        edits: "dict[str, Replacement | NeuronReplacement]",
    ) -> Float[Tensor, "state pair d_model"]:
        """END's residual stream after a layer.

        Args:
            stream: END's residual stream before it; without `known`, that of all nodes.
            known: the keys and values of all nodes.
            edits: the layer's edits.
        """
        if known is None:
            known = self.layers[layer].keys_and_values(stream, self._inputs(layer, self.nodes))
            stream = stream[:, self.tree.ends]
        before = self.tree.node[:, :-1]
        keys, values = (x[:, :, before] for x in known)
        attention = EndAttention(self.inputs.masks[layer], keys, values)
        return self.layers[layer](stream, self._inputs(layer, self.ends), attention, **edits)

    def _inputs(self, layer: int, rows: StreamRows) -> dict[str, Any]:
        return self.inputs.at(layer, rows.prompt, rows.pos)

    def _in_order(self, stage: Stage) -> Iterator[int]:
        """The stage's layers, each with its weights loaded."""
        blocks = list(self.model.blocks)[stage.start : stage.stop]
        return (stage.start + index for index in layers_with_weights(blocks))


def tree_forward(
    model: HookedLike,
    layers: Sequence[PlainLayer],
    pairs: PromptPairs,
    chosen: Bool[Tensor, "pair pos"],
    group: Int[Tensor, " pair"],
) -> TreeForward | None:
    """The forward of some pairs; None if the model's layers need more than rows of prompts.

    Args:
        chosen: the positions at which components are out.
        group: the group of each pair; pairs of a group have the same replacements.
    """
    inputs = layer_arguments(model, pairs.reference, pairs.attention_mask)
    if inputs is None:
        return None
    device = inputs.stream.device
    tree = prefix_tree(pairs.reference, pairs.attention_mask, group).to(device)
    chosen = chosen.to(device)
    pair = torch.arange(len(pairs), device=device)
    last = torch.full_like(pair, chosen.shape[1] - 1)
    return TreeForward(
        model=model,
        layers=layers,
        inputs=inputs,
        tree=tree,
        nodes=StreamRows(tree.prompt, tree.pos, chosen[tree.prompt, tree.pos]),
        ends=StreamRows(pair, last, chosen[:, -1]),
        tokens=pairs.reference[:, -1],
    )


def _edits(
    stage: Stage,
    layer: int,
    states: Int[Tensor, " state"],
    replacements: Activations,
    rows: StreamRows,
) -> dict[str, Replacement | NeuronReplacement]:
    """The edits in a layer of a stage. Components are out in its first layer only."""
    if layer != stage.start:
        return {}

    def where(out: Bool[Tensor, "state slot"]) -> Bool[Tensor, "state row slot"]:
        return out.to(rows.chosen.device)[:, None] & rows.chosen[:, None]

    z, mlp_out, post = z_name(layer), mlp_out_name(layer), neurons_name(layer)
    edits: dict[str, Replacement | NeuronReplacement] = {}
    if z in replacements:
        edits["z"] = Replacement(where(stage.heads[states]), rows.values(replacements[z]))
    if post in replacements:
        value = rows.values(replacements[post])
        edits["neurons"] = NeuronReplacement(stage, states, rows.chosen, value)
    if mlp_out in replacements:
        value = rows.values(replacements[mlp_out])
        edits["mlp_out"] = Replacement(where(stage.mlp[states]), value[:, None])
    return edits
