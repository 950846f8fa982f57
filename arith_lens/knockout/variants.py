"""Many knockouts of the same pairs in one walk up the layers.

A variant is a set of components to knock out. Two variants differ only from the first layer in
which their sets differ, so below it they are one state, computed once: the layers below the lowest
knocked-out component are computed once for all, the top k = 0..K of one order share all but what
the last head changes, and so do several orders and the candidates of a search.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Activations,
    Component,
    Head,
    NamedHook,
    mlp_out_name,
    z_name,
)
from arith_lens.model import HookedLike, run_layers
from arith_lens.pairs import PromptPairs

Variant = AbstractSet[Component]
N_TOP = 5


@dataclass(frozen=True)
class Stage:
    """The layers from `start` to before `stop`; components are out in the first of them alone."""

    start: int
    stop: int
    parent: Int[Tensor, "state"]
    """The state of the stage below that each state continues."""
    out: Bool[Tensor, "state slot"]
    """Which heads of layer `start`, and in the last slot its MLP, are out."""


@dataclass(frozen=True, eq=False)
class StackedEdit:
    """A hook for a stack of states, each of which has other components out.

    Attributes:
        where: what is replaced, and in which state
        value: by what, for every pair
    """

    where: Bool[Tensor, "state pair pos *slot"]
    value: Float[Tensor, "value_pair value_pos *rest"]

    def __repr__(self) -> str:
        """Without tensors: TransformerLens writes down each hook it adds, once a run."""
        return f"StackedEdit({len(self.where)} states)"

    def __call__(
        self, activation: Float[Tensor, "state_pair pos *rest"], hook: Any = None
    ) -> Float[Tensor, "state_pair pos *rest"]:
        stacked = activation.unflatten(0, self.where.shape[:2])
        where, value = self.where.to(activation.device), self.value.to(activation)
        return torch.where(where, value, stacked).flatten(0, 1)


def stages_of(
    variants: Sequence[Variant], n_layers: int, n_heads: int
) -> tuple[list[Stage], Int[Tensor, "variant"]]:
    """The stages, and the state of the last one that each variant ends in."""
    out = torch.zeros(len(variants), n_layers, n_heads + 1, dtype=torch.bool)
    for row, variant in enumerate(variants):
        for component in variant:
            slot = component.index if isinstance(component, Head) else n_heads
            out[row, component.layer, slot] = True
    starts = sorted({0, *out.any(0).any(-1).nonzero().flatten().tolist()})
    state = torch.zeros(len(variants), dtype=torch.long)
    stages = []
    for start, stop in zip(starts, [*starts[1:], n_layers], strict=True):
        key = torch.cat([state[:, None], out[:, start].long()], dim=1)
        distinct, state = torch.unique(key, dim=0, return_inverse=True)
        stages.append(Stage(start, stop, distinct[:, 0], distinct[:, 1:].bool()))
    return stages, state


def n_forwards(variants: Sequence[Variant], n_layers: int, n_heads: int) -> float:
    """What the variants cost, in whole forwards of the pairs."""
    stages, _ = stages_of(variants, n_layers, n_heads)
    return sum(len(stage.parent) * (stage.stop - stage.start) for stage in stages) / n_layers


@torch.no_grad()
def run_variants(
    model: HookedLike,
    pairs: PromptPairs,
    variants: Sequence[Variant],
    values: Callable[[list[str]], Activations],
    chosen: Bool[Tensor, "pair pos"],
    states_at_once: int,
) -> Float[Tensor, "what variant pair"]:
    """What the model answers at END under each variant: see `reading`.

    Args:
        pairs: a shard, all of which is run at once
        values: what stands in, by hook name [#pair #pos ...], for the hook names it is asked for
        chosen: where
        states_at_once: how many states of all the pairs go through the model together
    """
    stages, ending = stages_of(variants, int(model.cfg.n_layers), int(model.cfg.n_heads))
    read = partial(reading, answer=pairs.answer)
    stream: Tensor | None = None
    for stage in stages:
        last = stage is stages[-1]
        stand_in = values(_names(stage))
        done = []
        for states in torch.arange(len(stage.parent)).split(states_at_once):
            n_states = len(states)
            hooks = _hooks(stage, stage.out[states], stand_in, chosen)
            below = None if stream is None else stream[stage.parent[states].to(stream.device)]
            after = run_layers(
                model,
                pairs.reference.repeat(n_states, 1),
                start=stage.start,
                stop=None if last else stage.stop,
                stream=None if stage.start == 0 or below is None else below.flatten(0, 1),
                attention_mask=pairs.attention_mask.repeat(n_states, 1),
                fwd_hooks=hooks,
            ).unflatten(0, (n_states, len(pairs)))
            done.append(read(after[:, :, -1]) if last else after)
        stream = torch.cat(done, dim=1 if last else 0)
    assert stream is not None, "there is a stage at layer 0"
    return stream[:, ending]


def reading(
    logits: Float[Tensor, "state pair d_vocab"], answer: Int[Tensor, "pair"]
) -> Float[Tensor, "what state pair"]:
    """Whether top-1 is C, p(C) over the vocabulary, and the likeliest tokens, on the CPU.

    In double precision, which holds token ids exactly.
    """
    target = answer.to(logits.device).expand(logits.shape[:2])[..., None]
    logprob = logits.float().log_softmax(-1)
    top = logprob.topk(min(N_TOP, logits.shape[-1]), dim=-1).indices
    correct = logprob.argmax(-1, keepdim=True) == target
    parts = [correct, logprob.gather(-1, target).exp(), top]
    return torch.cat([part.double() for part in parts], dim=-1).movedim(-1, 0).cpu()


def _names(stage: Stage) -> list[str]:
    heads, mlp = bool(stage.out[:, :-1].any()), bool(stage.out[:, -1].any())
    return [z_name(stage.start)] * heads + [mlp_out_name(stage.start)] * mlp


def _hooks(
    stage: Stage,
    out: Bool[Tensor, "state slot"],
    values: Activations,
    chosen: Bool[Tensor, "pair pos"],
) -> list[NamedHook]:
    """The hooks of one stage for a stack of states, each with its own components out."""
    where = chosen[None, :, :, None]
    parts = {
        z_name(stage.start): (where & out[:, None, None, :-1])[..., None],
        mlp_out_name(stage.start): where & out[:, None, None, -1:],
    }
    return [(name, StackedEdit(parts[name], value)) for name, value in values.items()]
