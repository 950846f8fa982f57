"""Hooks that patch, ablate and scale neurons of MLPs. They work like those of heads."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from arith_lens.activations import Positions
from arith_lens.components import Activations, NamedHook, Neurons, as_neurons, neurons_name
from arith_lens.hooks.interventions import Ablation, Edit, replacement, stand_in


def neurons_by_layer(neurons: Neurons) -> dict[int, tuple[int, ...]]:
    """The indices of the neurons of each layer. Raises TypeError if a value is not a neuron."""
    layers: dict[int, list[int]] = defaultdict(list)
    for neuron in as_neurons(neurons):
        layers[neuron.layer].append(neuron.index)
    return {layer: tuple(indices) for layer, indices in layers.items()}


def patch_neurons(
    neurons: Neurons, source: Activations, *, positions: Positions = None
) -> list[NamedHook]:
    """Replace the activations of neurons by those recorded in `source` (not in the paper).

    Args:
        neurons: the neurons to patch. Neurons of one layer share one hook.
        source: activations by hook name (`blocks.3.mlp.hook_post`), [#batch #pos d_mlp] or [d_mlp],
            for their layers.
        positions: the positions to patch.

    Raises:
        KeyError: `source` lacks a layer.
        IndexError: `source` does not have a neuron.
    """
    return [
        (name, Edit(replacement(source, name, 3, neurons=indices), None, positions, indices))
        for name, indices in _by_name(neurons).items()
    ]


def ablate_neurons(
    neurons: Neurons,
    source: Activations | None = None,
    *,
    ablation: Ablation = "mean",
    positions: Positions = None,
    seed: int = 0,
) -> list[NamedHook]:
    """Replace the activations of neurons at every position. Arguments and errors as in
    `ablate_heads`, with activations of neurons in place of z."""
    if ablation == "zero":
        return _change_neurons(neurons, torch.zeros_like, positions)
    means = stand_in(source, list(_by_name(neurons)), ablation, seed)
    return patch_neurons(neurons, means, positions=positions)


def scale_neurons(
    neurons: Neurons, factor: float, *, positions: Positions = None
) -> list[NamedHook]:
    """Multiply the activations of neurons by `factor`: 0 removes them, 1 changes nothing."""
    return _change_neurons(neurons, partial(torch.mul, other=factor), positions)


def _change_neurons(
    neurons: Neurons, change: Callable[[Tensor], Tensor], positions: Positions
) -> list[NamedHook]:
    return [
        (name, Edit(change, None, positions, indices))
        for name, indices in _by_name(neurons).items()
    ]


def _by_name(neurons: Neurons) -> dict[str, tuple[int, ...]]:
    return {neurons_name(layer): indices for layer, indices in neurons_by_layer(neurons).items()}
