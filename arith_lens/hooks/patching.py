"""Put recorded activations in place of what components put out, and copy what they put out."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor

from arith_lens.activations import Positions, keep_activation
from arith_lens.components import Activations, Heads, Mlps, NamedHook, mlp_out_name, z_name
from arith_lens.hooks.edits import Edit, heads_by_layer, layers_of_mlps, replacement


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
