"""How many neurons the MLPs of a model have, and which MLPs have neurons that can be named."""

from collections.abc import Iterable

from torch import Tensor

from arith_lens.components import Component, Mlp, Neuron
from arith_lens.model.hooked import HookedLike
from arith_lens.model.state import weights_loaded


def n_neurons(model: HookedLike, layer: int) -> int:
    """The number of neurons of a layer's MLP.

    Raises:
        ValueError: the MLP has no one matrix that its neurons are multiplied by, such as a mixture
            of experts.
    """
    module = model.blocks[layer].mlp
    with weights_loaded(module):
        matrix = getattr(module, "W_out", None)
    if not isinstance(matrix, Tensor):
        raise ValueError(
            f"expected an MLP that writes its neurons times W_out, found {Mlp(layer)} without one "
            "W_out for all tokens (a mixture of experts has one for each expert); use path_patch, "
            "which patches whole MLPs"
        )
    return len(matrix)


def check_neurons(model: HookedLike, components: Iterable[Component]) -> None:
    """Check the neurons among components; their layers are checked before (`check_components`).

    Raises:
        IndexError: the MLP does not have such a neuron.
        ValueError: as `n_neurons`.
    """
    sizes: dict[int, int] = {}
    for one in components:
        if not isinstance(one, Neuron):
            continue
        if one.layer not in sizes:
            sizes[one.layer] = n_neurons(model, one.layer)
        if one.index >= sizes[one.layer]:
            raise IndexError(
                f"expected a neuron from 0 to {sizes[one.layer] - 1} in {Mlp(one.layer)}, found "
                f"{one}; neurons are written MLP layer.index"
            )


def every_neuron(model: HookedLike, mlps: Iterable[Mlp]) -> list[Neuron]:
    """All neurons of some MLPs, in order. Raises ValueError as `n_neurons`."""
    return [Neuron(mlp.layer, i) for mlp in mlps for i in range(n_neurons(model, mlp.layer))]
