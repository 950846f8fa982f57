"""The hook that changes an activation, and what makes one: names, shapes, indices."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.activations import Positions, position_mask
from arith_lens.components import Activations, Heads, Mlps, as_heads, as_mlps


@dataclass(frozen=True, eq=False)
class Edit:
    """A hook that changes what some heads (or one MLP) put out at some positions, and nothing else.

    Attributes:
        change: from the activation to what shall stand in its place, of a shape that broadcasts
        heads: heads of the layer; None where the activation has no head axis, or for all heads
        positions: where in the prompt
    """

    change: Callable[[Tensor], Tensor]
    heads: tuple[int, ...] | None = None
    positions: Positions = None

    @property
    def is_uniform(self) -> bool:
        """Whether it does the same to every prompt and position."""
        value = getattr(self.change, "keywords", {}).get("value")
        return self.positions is None and (value is None or value.shape[:2] == (1, 1))

    def __repr__(self) -> str:
        """Without tensors: TransformerLens writes down each hook it adds, once a run."""
        return f"Edit(heads={self.heads})"

    def __call__(
        self, activation: Float[Tensor, "batch pos *rest"], hook: Any = None
    ) -> Float[Tensor, "batch pos *rest"]:
        chosen = position_mask(self.positions, activation)
        chosen = chosen.reshape(*chosen.shape, *[1] * (activation.ndim - 2))
        if self.heads is not None:
            chosen = chosen & _head_mask(self.heads, activation)
        return torch.where(chosen, self.change(activation), activation)


def heads_by_layer(heads: Heads) -> dict[int, tuple[int, ...]]:
    """The indices of the heads of each layer. Raises TypeError for what is no head."""
    layers: dict[int, list[int]] = defaultdict(list)
    for head in as_heads(heads):
        layers[head.layer].append(head.index)
    return {layer: tuple(indices) for layer, indices in layers.items()}


def layers_of_mlps(mlps: Mlps) -> list[int]:
    """The layers of the MLPs. Raises TypeError for what is no MLP, ValueError for one below 0."""
    return [mlp.layer for mlp in as_mlps(mlps)]


def replacement(
    source: Activations, name: str, ndim: int, heads: tuple[int, ...] = ()
) -> Callable[[Tensor], Tensor]:
    """The change that puts `source[name]` in place, once its shape has been found right."""
    if not isinstance(source, Mapping):
        raise TypeError(
            f"expected activations by hook name, found {type(source).__name__}; record(model, "
            f"tokens, [{name!r}]) gives them"
        )
    if name not in source:
        raise KeyError(
            f"expected {name} in the source, found {sorted(source)}; record it with "
            f"record(model, tokens, [{name!r}])"
        )
    value = source[name]
    if value.ndim not in (ndim, ndim - 2):
        axes = "[batch pos n_heads d_head]" if ndim == 4 else "[batch pos d_model]"
        raise ValueError(
            f"expected {name} as {axes}, or without batch and pos, found {list(value.shape)}"
        )
    if heads and max(heads) >= value.shape[-2]:
        raise IndexError(
            f"expected heads from 0 to {value.shape[-2] - 1}, found {max(heads)} at {name}; the "
            f"model has {value.shape[-2]} heads a layer"
        )
    return partial(_put, value=value.reshape(*[1] * (ndim - value.ndim), *value.shape), name=name)


def _put(
    activation: Float[Tensor, "batch pos *rest"],
    *,
    value: Float[Tensor, "value_batch value_pos *rest"],
    name: str,
) -> Float[Tensor, "value_batch value_pos *rest"]:
    for axis, what in ((0, "prompts"), (1, "positions")):
        if value.shape[axis] not in (1, activation.shape[axis]):
            raise ValueError(
                f"{name}: expected a source of {activation.shape[axis]} {what} (or of one, used "
                f"for all), found {value.shape[axis]}; record it on prompts aligned with these, "
                "and while generating use one position (a mean), or hook_steps='prompt'"
            )
    return value.to(activation)


def _head_mask(
    heads: tuple[int, ...], activation: Float[Tensor, "batch pos n_heads d_head"]
) -> Tensor:
    n_heads = activation.shape[-2]
    if max(heads) >= n_heads:
        raise IndexError(
            f"expected heads from 0 to {n_heads - 1} in each layer, found {max(heads)}; "
            "heads are written layer.index"
        )
    chosen = torch.zeros(n_heads, 1, dtype=torch.bool, device=activation.device)
    chosen[list(heads)] = True
    return chosen
