"""Hooks that patch, ablate, scale and freeze components, and that copy what they put out."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.activations import Positions, keep_activation, position_mask
from arith_lens.components import (
    Activations,
    Heads,
    Mlps,
    NamedHook,
    as_heads,
    as_mlps,
    mlp_out_name,
    z_name,
)


@dataclass(frozen=True, eq=False)
class Edit:
    """A hook that changes what some heads (or one MLP) put out at some positions only."""

    change: Callable[[Tensor], Tensor]
    """From the activation to its replacement, of a shape that broadcasts."""
    heads: tuple[int, ...] | None = None
    """Heads of the layer; None where the activation has no head axis, or for all heads."""
    positions: Positions = None
    """Where in the prompt."""

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


def patch_heads(
    heads: Heads, source: Activations, *, positions: Positions = None
) -> list[NamedHook]:
    """Make `heads` output what they output in the run recorded in `source`.

    Hook lists compose with `+`, and where two touch one head the later wins:
    `patch_heads(every_head, reference) + patch_heads([sender], counterfactual)` freezes the heads,
    then lets one sender see the other prompt.

    Args:
        heads: the heads to patch; of one layer they share one hook
        source: by hook name, z [#batch #pos n_heads d_head] or [n_heads d_head], for their layers
        positions: where; `source` is read at the same positions unless it holds only one

    Raises:
        KeyError: `source` lacks a layer
        IndexError: a head that `source` does not have
    """
    return [
        (z_name(layer), Edit(replacement(source, z_name(layer), 4, indices), indices, positions))
        for layer, indices in heads_by_layer(heads).items()
    ]


def patch_mlps(mlps: Mlps, source: Activations, *, positions: Positions = None) -> list[NamedHook]:
    """Make `mlps` (or the MLPs of these layers) add what they added in the run in `source`.

    `source` holds mlp_out [#batch #pos d_model] or [d_model] by hook name. Raises KeyError where it
    lacks a layer.
    """
    return [
        (mlp_out_name(layer), Edit(replacement(source, mlp_out_name(layer), 3), None, positions))
        for layer in layers_of_mlps(mlps)
    ]


def freeze(
    layers: Any,
    source: Activations,
    *,
    heads: bool = True,
    mlps: bool = True,
    positions: Positions = None,
) -> list[NamedHook]:
    """Hold every head and every MLP of `layers` at the run in `source`.

    Args:
        layers: a model (all its layers), or the layers; a later list lifts some of them
        source: z and mlp_out of these layers, by hook name
        heads: hold the heads
        mlps: hold the MLPs
        positions: where
    """
    chosen = layers_of_mlps(range(layers.cfg.n_layers) if hasattr(layers, "cfg") else layers)
    held = [z_name(layer) for layer in chosen if heads]
    hooks: list[NamedHook] = [
        (name, Edit(replacement(source, name, 4), None, positions)) for name in held
    ]
    return hooks + (patch_mlps(chosen, source, positions=positions) if mlps else [])


def capture(
    names: Iterable[str], into: dict[str, Tensor], positions: Positions = None
) -> list[NamedHook]:
    """Copy the activations called `names` into the dictionary `into`, at `positions` alone.

    The one hook with an effect outside the model. Put last in a sum, it sees what the hooks before
    it left; under `generate` each step overwrites the one before.
    """
    return [
        (name, partial(keep_activation, name=name, into=into, positions=positions))
        for name in names
    ]


Ablation: TypeAlias = Literal["mean", "zero", "resample"]
"""What stands in for a component's output: its mean over counterfactual prompts, nothing, or its
output on another prompt drawn at random."""


def ablate_heads(
    heads: Heads,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Take `heads` out: knockout as in the paper's Section 4 (its choice: the mean).

    Args:
        heads: the heads to take out
        source: for `mean`, the means themselves (see `mean_activations`), [n_heads d_head] or
            [1 #pos n_heads d_head], one for all prompts; for `resample`, a counterfactual run of
            the same length, from whose rows one is drawn for each row; for `zero`, nothing
        ablation: what stands in for the heads' output
        positions: where; the paper's knockout spares BOS and padding: give a mask
        seed: of the draw in `resample`

    Raises:
        ValueError: the ablation is unknown, its source is missing, or what is given for `mean`
            holds several prompts. (A run of one prompt cannot be told from a mean.) Where each
            prompt has a mean of its own, give the means, a row a prompt, to `patch_heads`.
        KeyError, IndexError: as `patch_heads`
    """
    heads = as_heads(heads)
    if ablation == "zero":
        return _change_heads(heads, torch.zeros_like, positions)
    names = [z_name(layer) for layer in heads_by_layer(heads)]
    return patch_heads(heads, _stand_in(source, names, ablation, seed), positions=positions)


def ablate_mlps(
    mlps: Mlps,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Take `mlps` out; arguments and errors as `ablate_heads`, with mlp_out in place of z."""
    layers = layers_of_mlps(mlps)
    if ablation == "zero":
        return _change_mlps(layers, torch.zeros_like, positions)
    names = [mlp_out_name(layer) for layer in layers]
    return patch_mlps(layers, _stand_in(source, names, ablation, seed), positions=positions)


def scale_heads(heads: Heads, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply what `heads` put out by `factor`: 0 silences, 1 changes nothing, 2 doubles."""
    return _change_heads(heads, partial(torch.mul, other=factor), positions)


def scale_mlps(mlps: Mlps, factor: float, *, positions: Positions = None) -> list[NamedHook]:
    """Multiply what `mlps` add to the residual stream by `factor`."""
    return _change_mlps(mlps, partial(torch.mul, other=factor), positions)


def _change_heads(
    heads: Heads, change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [
        (z_name(layer), Edit(change, indices, positions))
        for layer, indices in heads_by_layer(heads).items()
    ]


def _change_mlps(
    mlps: Mlps, change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [(mlp_out_name(layer), Edit(change, None, positions)) for layer in layers_of_mlps(mlps)]


def _stand_in(
    source: Activations | None, names: Sequence[str], ablation: str, seed: int
) -> Activations:
    """What the components put out instead, by hook name."""
    if ablation not in ("mean", "resample"):
        raise ValueError(f"expected ablation 'mean', 'zero' or 'resample', found {ablation!r}")
    if source is None:
        raise ValueError(
            f"expected activations to take for ablation={ablation!r}, found none; give the means "
            "over counterfactual prompts (mean_activations), or choose ablation='zero'"
        )
    if ablation == "mean":
        _refuse_runs(source, names)
        return source
    rows = {len(source[name]) for name in names if name in source}
    generator = torch.Generator().manual_seed(seed)
    order = {n: torch.randint(n, (n,), generator=generator) for n in sorted(rows)}
    return {
        name: source[name][order[len(source[name])].to(source[name].device)]
        for name in names
        if name in source
    }


def _refuse_runs(means: Activations, names: Sequence[str]) -> None:
    """A run of several prompts would be patched as it is, unaveraged, and nobody would notice."""
    for name in names:
        value = means.get(name) if isinstance(means, Mapping) else None
        if value is not None and value.ndim in (3, 4) and len(value) != 1:
            raise ValueError(
                f"expected for ablation='mean' one mean for all prompts, found {name} of "
                f"{len(value)} prompts {list(value.shape)}; average them with mean_activations, or "
                "put each row's own value in place with patch_heads or patch_mlps"
            )
