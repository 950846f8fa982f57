"""The residual stream and attention's outputs as senders, layer by layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import (
    Activations,
    NamedHook,
    attn_out_name,
    resid_post_name,
    resid_pre_name,
)
from arith_lens.effects import ComponentEffects, Effects
from arith_lens.hooks import Edit, replacement
from arith_lens.model import HookedLike

HOOK_NAMES: Mapping[str, Any] = {
    "resid_pre": lambda layer, n_layers: resid_pre_name(layer),
    "resid_mid": lambda layer, n_layers: _exit_name(layer, n_layers),
    "resid_post": lambda layer, n_layers: _exit_name(layer, n_layers),
    "attn_out": lambda layer, n_layers: attn_out_name(layer),
}
"""By sender, where it is patched. A token's stream between attention and MLP determines what the
block puts out at this token, so `resid_mid` is patched at the exit, with the same effect."""
STREAM_AXES = ("layer",)


def _exit_name(layer: int, n_layers: int) -> str:
    """A layer's exit is the next one's entry, from which a forward can begin."""
    return resid_pre_name(layer + 1) if layer + 1 < n_layers else resid_post_name(layer)


@dataclass(frozen=True)
class Stream:
    """The stream of one layer, or what its attention puts out."""

    kind: str
    layer: int
    n_layers: int

    def __str__(self) -> str:
        return f"{self.kind} {self.layer}"

    @property
    def hook_name(self) -> str:
        return HOOK_NAMES[self.kind](self.layer, self.n_layers)

    def patch(self, source: Activations, positions: Any) -> list[NamedHook]:
        """The hook that puts the values of `source` at some positions."""
        return [(self.hook_name, Edit(replacement(source, self.hook_name, 3), None, positions))]


def streams_of(kind: str, model: HookedLike) -> tuple[Stream, ...]:
    """One sender per layer. Raises ValueError for a stream that the model's blocks do not have."""
    if kind == "resid_mid" and getattr(model.cfg, "parallel_attn_mlp", False):
        raise ValueError(
            "expected blocks whose MLP follows attention with senders='resid_mid', found attention "
            "and MLP in parallel; take 'resid_pre' or 'resid_post'"
        )
    n_layers = int(model.cfg.n_layers)
    return tuple(Stream(kind, layer, n_layers) for layer in range(n_layers))


def stream_effects(
    values: Float[Tensor, "layer place pair"], n_heads: int, axes: tuple[str, ...], **common: Any
) -> ComponentEffects:
    """Effects of the stream; those of heads and MLPs are NaN.

    Args:
        values: the effects.
        n_heads: the model's number of heads per layer.
        axes: the axis of the places, or none, if there is one.
        common: of the effects, and of `ComponentEffects`: `logit`, `n_left_out`, `computation`.
    """
    own = {name: common.pop(name) for name in ("logit", "n_left_out", "computation")}
    stream = Effects(values if axes else values[:, 0], STREAM_AXES + axes, **common)
    common.pop("labels", None)
    n_layers, _, n_pairs = values.shape
    none = torch.full((n_layers, n_heads, n_pairs), float("nan"))
    heads = Effects(none, ("layer", "head"), **common)
    return ComponentEffects(heads, Effects(none[:, 0], ("layer",), **common), **own, stream=stream)
