"""Sites: where an interchange exchanges a model's state."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from arith_lens.components import Component, Head, Mlp, as_components, check_components
from arith_lens.pairs import Role


@dataclass(frozen=True)
class Site:
    """The residual stream at the exit of a layer, at END or at the tokens of a role or a span."""

    layer: int
    at: Role | str = Role.END
    token: int | None = None
    """One token of the role, from its first (0) or its last (-1); None: all of them."""

    def __post_init__(self) -> None:
        names = {role.value.lower(): role for role in Role}
        object.__setattr__(self, "at", names.get(self.at.lower(), self.at))
        if self.layer < 0:
            raise ValueError(f"expected a layer counted from 0, found Site({self.layer})")

    @property
    def role(self) -> str:
        """Where the site is: a `Role`, or the name of a span of one's own."""
        return self.at

    @property
    def is_end(self) -> bool:
        """Whether the site is END."""
        return self.at is Role.END

    def __str__(self) -> str:
        token = "" if self.token is None else f", token {self.token}"
        return f"stream {self.layer} at {self.at}{token}"


AnySite: TypeAlias = Site | Component
"""A site of the stream; or, at END, a head's output (z), an MLP's, or a neuron's activation."""


def as_sites(sites: Any) -> tuple[AnySite, ...]:
    """Sites and components as a tuple, one or several.

    Raises:
        TypeError: a value names neither a site nor a component.
        ValueError: there is none, or one is named twice.
    """
    several = isinstance(sites, Iterable) and not isinstance(sites, str)
    values: list[Any] = list(sites) if several else [sites]
    named = tuple(
        value if isinstance(value, Site) else as_components(value, neurons=True)[0]
        for value in values
    )
    if not named or len({*named}) < len(named):
        raise ValueError(
            f"expected different sites, at least one, found {len(named)}, "
            f"{len({*named})} of them different; give for instance [Site(8), Site(9)]"
        )
    return named


def heads_and_mlps(components: Iterable[Component]) -> tuple[Head | Mlp, ...]:
    """The components. Raises TypeError for one that is neither a head nor an MLP."""
    chosen = []
    for one in components:
        if not isinstance(one, Head | Mlp):
            raise TypeError(
                f"expected heads and MLPs, found {one}; take the MLP that has it, {Mlp(one.layer)}"
            )
        chosen.append(one)
    return tuple(chosen)


def check_sites(sites: Iterable[AnySite], n_layers: int, n_heads: int) -> None:
    """Raise IndexError for the first site that a model of this size does not have."""
    for site in sites:
        if not isinstance(site, Site):
            check_components([site], n_layers, n_heads)
            continue
        last = n_layers - 1 if site.is_end else n_layers - 2
        if site.layer > last:
            why = "" if site.is_end else " (no layer reads this token after that)"
            raise IndexError(
                f"expected a layer from 0 to {last}{why}, found {site}; choose among the model's "
                f"{n_layers} layers"
            )
