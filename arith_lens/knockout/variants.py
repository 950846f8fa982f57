"""What a model answers under many knockouts of the same pairs, all in one walk up the layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import (
    Activations,
    NamedHook,
    mlp_out_name,
    z_name,
)
from arith_lens.knockout.stages import Stage, Variant, stages_of
from arith_lens.knockout.tree_walk import TreeWalk
from arith_lens.metrics import logit_tolerance
from arith_lens.model import HookedLike, run_layers
from arith_lens.pairs import PromptPairs

N_TOP = 5


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


@torch.no_grad()
def run_variants(
    model: HookedLike,
    pairs: PromptPairs,
    variants: Sequence[Variant],
    values: Callable[[list[str]], Activations],
    chosen: Bool[Tensor, "pair pos"],
    states_at_once: int,
    walk: TreeWalk | None = None,
    read: Callable[[Float[Tensor, "state pair d_vocab"]], Tensor] | None = None,
) -> Float[Tensor, "what variant pair"]:
    """What the model answers at END under each variant.

    Args:
        pairs: a shard, all of which is run at once
        values: what stands in, by hook name [#pair #pos ...], for the hook names it is asked for
        chosen: where
        states_at_once: how many states of all the pairs go through the model together
        walk: over these pairs, where they can be run fast; None: by hooks, which is general
        read: what is made of the logits at END; None: `reading`
    """
    stages, ending = stages_of(variants, int(model.cfg.n_layers), int(model.cfg.n_heads))
    read = read or partial(reading, answer=pairs.answer)
    if walk is not None:
        return walk.run(stages, values, states_at_once, read)[:, ending]
    stream: Tensor | None = None
    for stage in stages:
        last = stage is stages[-1]
        replacements = values(stage.hook_names)
        done = []
        for states in torch.arange(len(stage.parent)).split(states_at_once):
            n_states = len(states)
            hooks = _hooks(stage, stage.out[states], replacements, chosen)
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


def walk_agrees(
    model: HookedLike,
    pairs: PromptPairs,
    variant: Variant,
    values: Callable[[list[str]], Activations],
    chosen: Bool[Tensor, "pair pos"],
    walk: TreeWalk,
) -> bool:
    """Whether a walk gives the logits that hooks give. Arguments as `run_variants`."""
    common = (model, pairs, [variant], values, chosen, 1)
    found, expected = (run_variants(*common, way, _float_logits) for way in (walk, None))
    allowed = logit_tolerance(walk.inputs.stream.dtype)
    return float((found - expected).abs().max()) <= allowed * float(expected.abs().max())


def _float_logits(
    logits: Float[Tensor, "state pair d_vocab"],
) -> Float[Tensor, "d_vocab state pair"]:
    return logits.float().movedim(-1, 0)


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
