"""Which component each number of effects is of: axes of heads, MLPs and neurons, and names."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from arith_lens.components import Component, Head, Mlp, Neuron, head_columns

HEAD_AXES = ("layer", "head")
MLP_AXES = ("layer",)
NEURON_AXES = ("mlp", "neuron")


def place_of(
    component: Component,
    of_axes: tuple[str, ...],
    shape: Sequence[int],
    labels: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The axes of heads or of MLPs, and a component's index on them."""
    names = labels.get("head")
    mlps = labels.get("mlp", ())
    if isinstance(component, Neuron):
        mlp = str(Mlp(component.layer))
        if mlp not in mlps:
            raise KeyError(
                f"expected a neuron of {', '.join(mlps)}, found {component}; compute the "
                "effects of its MLP, too"
            )
        axes, place = NEURON_AXES, (mlps.index(mlp), component.index)
    elif not isinstance(component, Head):
        axes, place = MLP_AXES, (component.layer,)
    elif names is None:
        axes, place = HEAD_AXES, (component.layer, component.index)
    elif str(component) in names:
        axes, place = ("head",), (names.index(str(component)),)
    else:
        raise KeyError(
            f"expected one of the heads {', '.join(names)}, found {component}; compute its "
            "effects, too"
        )
    if of_axes[: len(axes)] != axes or (axes == MLP_AXES and "head" in of_axes):
        raise TypeError(
            f"expected a component of these effects, whose axes are {of_axes}, found "
            f"{component}; .heads has the heads, .mlps the MLPs, .select(mask) chooses pairs"
        )
    for axis, index, size in zip(axes, place, shape, strict=False):
        if index >= size:
            raise IndexError(
                f"expected a {axis} from 0 to {size - 1}, found {component}; choose one of "
                "this model's components"
            )
    return axes, place


def place_columns(
    axes: tuple[str, ...], shape: Sequence[int], labels: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """The columns of `Effects.places`."""
    grid = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), int)
    columns: dict[str, Any] = {
        axis: [labels[axis][i] for i in indices] if axis in labels else indices
        for axis, indices in zip(axes, grid, strict=True)
    }
    named: dict[str, Any] = {}
    if "head" in labels and "head" in columns:
        with suppress(ValueError):  # labels of one's own may name something else
            named = head_columns(map(Head.parse, columns["head"]))
    elif columns.keys() >= {*HEAD_AXES}:
        rows = zip(columns.pop("layer").tolist(), columns["head"].tolist(), strict=True)
        named = head_columns(Head(*row) for row in rows)
    return {
        name: values
        for axis, numbers in columns.items()
        for name, values in (named if named and axis == "head" else {axis: numbers}).items()
    }
