"""Many knockouts in one walk over plain layers and a tree of prefixes: the fast way.

Tokens with the same prefix are computed once; of the last layer only what END needs; and where END
alone is knocked out, END alone of each state, since nothing before it changes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import Activations, mlp_out_name, z_name
from arith_lens.knockout.prefix_tree import EndAttention, PrefixTree, TreeAttention, prefix_tree
from arith_lens.knockout.stages import Stage
from arith_lens.model import (
    HookedLike,
    LayerInputs,
    PlainLayer,
    end_logits,
    in_order,
    layer_inputs,
)
from arith_lens.pairs import PromptPairs

LOGITS_AT_ONCE = 2**22
"""How many logits are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a stream: positions of prompts, and at which of them components are out."""

    prompt: Int[Tensor, "row"]
    pos: Int[Tensor, "row"]
    chosen: Bool[Tensor, "row"]

    def values(self, replacement: Float[Tensor, "pair_or_1 pos_or_1 *rest"]) -> Tensor:
        """What stands in at each row, [row ...]."""
        n_prompts, n_pos = replacement.shape[:2]
        prompt, pos = self.prompt.clamp(max=n_prompts - 1), self.pos.clamp(max=n_pos - 1)
        return replacement[prompt.to(replacement.device), pos.to(replacement.device)]


@dataclass(frozen=True, eq=False)
class Replacement:
    """An edit for a stack of states, each of which has other components out."""

    where: Bool[Tensor, "state row slot"]
    value: Float[Tensor, "row slot_or_1 d_or_1"]

    def __call__(self, activation: Float[Tensor, "state row d"]) -> Float[Tensor, "state row d"]:
        split = activation.unflatten(-1, (self.where.shape[-1], -1))
        where, value = self.where.to(activation.device), self.value.to(activation)
        return torch.where(where[..., None], value, split).flatten(-2)


@dataclass(frozen=True, eq=False)
class TreeWalk:
    """Some pairs, ready to be run under any variants."""

    model: HookedLike
    layers: Sequence[PlainLayer]
    inputs: LayerInputs
    tree: PrefixTree
    nodes: Rows
    ends: Rows
    tokens: Int[Tensor, "pair"]
    """Each prompt's token at END."""

    @property
    def end_alone(self) -> bool:
        """Whether components are out at END only."""
        return not bool((self.nodes.chosen & (self.nodes.pos < self.ends.pos[0])).any())

    def run(
        self,
        stages: Sequence[Stage],
        values: Callable[[list[str]], Activations],
        states_at_once: int,
        read: Callable[[Float[Tensor, "state pair d_vocab"]], Tensor],
    ) -> Tensor:
        """What `read` makes of END's logits, states of the last stage along dimension 1.

        Args:
            values: what stands in, by hook name, as in `run_variants`
            states_at_once: how many states of all the pairs go through a layer together
        """
        if self.end_alone:
            rows_at_once = states_at_once * len(self.nodes.pos)
            ends = self._ends_alone(stages, values, max(1, rows_at_once // len(self.tokens)))
        else:
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
        """END's stream behind the last layer."""
        stream, top = self._embedded(), len(self.layers) - 1
        for stage in stages:
            replacements = values(stage.hook_names)
            chunks = torch.arange(len(stage.parent)).split(states_at_once)
            streams = [stream[stage.parent[states].to(stream.device)] for states in chunks]
            del stream
            for layer in self._in_order(stage):
                rows = self.ends if layer == top else self.nodes
                inputs = self._inputs(layer, self.nodes)
                attention = TreeAttention(self.tree, self.inputs.masks[layer])
                for index, states in enumerate(chunks):
                    edits = _edits(stage, layer, states, replacements, rows)
                    if layer == top:
                        streams[index] = self._end_of(layer, streams[index], edits)
                    else:
                        streams[index] = self.layers[layer](
                            streams[index], inputs, attention, **edits
                        )
            stream = torch.cat(streams)
        return stream

    def _end_of(
        self, layer: int, stream: Float[Tensor, "state node d_model"], edits: dict[str, Any]
    ) -> Float[Tensor, "state pair d_model"]:
        """END's stream behind a layer, from all nodes' before it."""
        known = self.layers[layer].keys_and_values(stream, self._inputs(layer, self.nodes))
        attention = EndAttention(self.tree, self.inputs.masks[layer], *known)
        inputs = self._inputs(layer, self.ends)
        return self.layers[layer](stream[:, self.tree.ends], inputs, attention, **edits)

    def _ends_alone(
        self,
        stages: Sequence[Stage],
        values: Callable[[list[str]], Activations],
        states_at_once: int,
    ) -> Float[Tensor, "state pair d_model"]:
        """The same where components are out at END only: before it, all states are one."""
        before, top = self._embedded(), len(self.layers) - 1
        stream = before[:, self.tree.ends]
        for stage in stages:
            replacements = values(stage.hook_names)
            chunks = torch.arange(len(stage.parent)).split(states_at_once)
            streams = [stream[stage.parent[states].to(stream.device)] for states in chunks]
            for layer in self._in_order(stage):
                plain, inputs = self.layers[layer], self._inputs(layer, self.nodes)
                known, at_end = (
                    plain.keys_and_values(before, inputs),
                    self._inputs(layer, self.ends),
                )
                attention = EndAttention(self.tree, self.inputs.masks[layer], *known)
                for index, states in enumerate(chunks):
                    edits = _edits(stage, layer, states, replacements, self.ends)
                    streams[index] = plain(streams[index], at_end, attention, **edits)
                if layer < top:
                    before = plain(before, inputs, TreeAttention(self.tree, attention.mask))
            stream = torch.cat(streams)
        return stream

    def _embedded(self) -> Float[Tensor, "1 node d_model"]:
        return self.inputs.stream[self.tree.prompt, self.tree.pos][None]

    def _inputs(self, layer: int, rows: Rows) -> dict[str, Any]:
        return self.inputs.at(layer, rows.prompt, rows.pos)

    def _in_order(self, stage: Stage) -> Iterator[int]:
        """The stage's layers, each with its weights in place."""
        blocks = list(self.model.blocks)[stage.start : stage.stop]
        return (stage.start + index for index in in_order(blocks))


def tree_walk(
    model: HookedLike,
    layers: Sequence[PlainLayer],
    pairs: PromptPairs,
    chosen: Bool[Tensor, "pair pos"],
    group: Int[Tensor, "pair"],
) -> TreeWalk | None:
    """The walk over some pairs; None where the model's layers need more than rows of prompts.

    Args:
        layers: the model's plain layers
        chosen: where components are out
        group: of pairs that the same values stand in for
    """
    inputs = layer_inputs(model, pairs.reference, pairs.attention_mask)
    if inputs is None:
        return None
    device = inputs.stream.device
    tree = prefix_tree(pairs.reference, pairs.attention_mask, group).to(device)
    chosen = chosen.to(device)
    pair = torch.arange(len(pairs), device=device)
    last = torch.full_like(pair, chosen.shape[1] - 1)
    return TreeWalk(
        model=model,
        layers=layers,
        inputs=inputs,
        tree=tree,
        nodes=Rows(tree.prompt, tree.pos, chosen[tree.prompt, tree.pos]),
        ends=Rows(pair, last, chosen[:, -1]),
        tokens=pairs.reference[:, -1],
    )


def _edits(
    stage: Stage,
    layer: int,
    states: Int[Tensor, "state"],
    replacements: Activations,
    rows: Rows,
) -> dict[str, Replacement]:
    """What is changed in a layer of a stage: components are out in its first layer alone."""
    if layer != stage.start:
        return {}
    out = stage.out[states].to(rows.chosen.device)[:, None] & rows.chosen[:, None]
    points = {"z": (z_name(layer), out[..., :-1]), "mlp_out": (mlp_out_name(layer), out[..., -1:])}
    return {
        point: Replacement(where, _by_slot(rows.values(replacements[name]), point))
        for point, (name, where) in points.items()
        if name in replacements
    }


def _by_slot(value: Tensor, point: str) -> Float[Tensor, "row slot_or_1 d_or_1"]:
    return value if point == "z" else value[:, None]
