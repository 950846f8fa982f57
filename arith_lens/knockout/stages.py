"""Which layers several knockouts of the same pairs have in common.

A variant is a set of components to knock out. Two variants differ only from the first layer in
which their sets differ, so below it they are one state, computed once: the layers below the lowest
knocked-out component are computed once for all, the top k = 0..K of one order share all but what
the last head changes, and so do several orders and the candidates of a search.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.components import Component, Head, mlp_out_name, z_name

Variant = AbstractSet[Component]


@dataclass(frozen=True)
class Stage:
    """The layers from `start` to before `stop`; components are out in the first of them alone."""

    start: int
    stop: int
    parent: Int[Tensor, "state"]
    """The state of the stage below that each state continues."""
    out: Bool[Tensor, "state slot"]
    """Which heads of layer `start`, and in the last slot its MLP, are out."""

    @property
    def hook_names(self) -> list[str]:
        """Where components are out in any of the states."""
        heads, mlp = bool(self.out[:, :-1].any()), bool(self.out[:, -1].any())
        return [z_name(self.start)] * heads + [mlp_out_name(self.start)] * mlp


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
