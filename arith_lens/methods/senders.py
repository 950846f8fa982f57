"""Which components a method asks about, and the maps that their numbers form."""

from collections.abc import Iterable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from arith_lens.components import (
    Component,
    Components,
    Head,
    as_components,
    check_components,
    every_component,
    in_forward_order,
)


def as_senders(components: Components | None, n_layers: int, n_heads: int) -> tuple[Component, ...]:
    """The components layer by layer, heads before the MLP, without repeats; None: all of them.

    Raises:
        IndexError: the model does not have a component.
        TypeError: a value names no component.
        ValueError: there are none.
    """
    chosen = every_component(n_layers, n_heads) if components is None else as_components(components)
    if not chosen:
        raise ValueError(
            "expected senders such as Head(12, 22) or Mlp(12), found none; leave senders out to "
            "patch every component"
        )
    check_components(chosen, n_layers, n_heads)
    return tuple(in_forward_order({*chosen}))


@dataclass(frozen=True)
class Senders:
    """The components to patch, by layer.

    Row 0 of a sweep is the unpatched run. The next rows are the heads of layer 0 in order, its MLP,
    the heads of layer 1, and so on.
    """

    heads: tuple[tuple[int, ...], ...]
    """For each layer, the indices of its heads."""
    mlps: frozenset[int]
    """The layers whose MLP is patched."""

    @classmethod
    def of(cls, components: Iterable[Component], n_layers: int) -> "Senders":
        chosen = set(components)
        heads = [sorted(c.index for c in chosen if isinstance(c, Head) and c.layer == layer)
                 for layer in range(n_layers)]  # fmt: skip
        return cls(
            heads=tuple(tuple(layer) for layer in heads),
            mlps=frozenset(c.layer for c in chosen if not isinstance(c, Head)),
        )

    @property
    def first_layer(self) -> int:
        """The first layer that has a sender."""
        return min(layer for layer, heads in enumerate(self.heads) if heads or layer in self.mlps)

    @property
    def n_rows(self) -> int:
        """The number of rows at the end of the sweep, with the unpatched one."""
        return 1 + sum(map(len, self.heads)) + len(self.mlps)

    def split(
        self, rows: Float[Tensor, "row pair"], n_heads: int
    ) -> tuple[Float[Tensor, "layer head pair"], Float[Tensor, "layer pair"]]:
        """Arrange patched rows (without row 0) as maps of heads and of MLPs.

        Components that were not patched are NaN.
        """
        n_layers, n_pairs = len(self.heads), rows.shape[1]
        heads = rows.new_full((n_layers, n_heads, n_pairs), float("nan"))
        mlps = rows.new_full((n_layers, n_pairs), float("nan"))
        start = 0
        for layer, indices in enumerate(self.heads):
            heads[layer, list(indices)] = rows[start : start + len(indices)]
            start += len(indices)
            if layer in self.mlps:
                mlps[layer] = rows[start]
                start += 1
        return heads, mlps

    def rows_through_mlps(self) -> list[int]:
        """For each layer, the number of rows that pass its MLP."""
        passing, live = [], 1
        for layer, heads in enumerate(self.heads):
            live += len(heads)
            passing.append(live if layer >= self.first_layer else 0)
            live += layer in self.mlps
        return passing
