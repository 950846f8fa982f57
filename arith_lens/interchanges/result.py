"""What interchanges did at each site, pair by pair, with the subspaces that were exchanged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.effects import Effects

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Interchange:
    """How often an interchange gave the expected answer, at each site and in each subspace."""

    effects: Effects
    """Whether the answer was the expected one, [site space pair], on the tested half. Controls with
    several draws have the share of draws; NaN where a control does not exist."""
    bases: Mapping[str, Float[Tensor, "width k"]]
    """By site, the orthonormal basis that was exchanged; none for the whole space."""
    computation: Mapping[str, Any] = field(default_factory=dict)
    """Causal model, variable, halves, base rates, the length that is written at each site."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the sites, in order."""
        return (self.effects.labels or {})["site"]

    @property
    def spaces(self) -> tuple[str, ...]:
        """`whole`, the subspace, then its controls."""
        return (self.effects.labels or {})["space"]

    @property
    def iia(self) -> Float[Tensor, "site space"]:
        """The interchange accuracy: the share of pairs with the expected answer."""
        return self.effects.mean()

    def ci(self, **options: Any) -> Float[Tensor, "bound=2 site space"]:
        """95% bootstrap intervals over problems. The options are those of `Effects.ci`."""
        return self.effects.ci(**options)

    @property
    def n_problems(self) -> int:
        """The number of problems that were tested."""
        return len({*(self.effects.problem or ())})

    def to_dataframe(self) -> "DataFrame":
        """One row per site and space: mean and interval of the interchange accuracy."""
        return self.effects.to_dataframe()

    def to_arrays(self) -> Arrays:
        """The arrays for a file."""
        parts = {"effects": self.effects.to_arrays()}
        tensors = {f"basis.{name}": basis for name, basis in self.bases.items()}
        header = {"computation": dict(self.computation)}
        return joined_arrays("interchange", parts, tensors, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Interchange":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("interchange")
        bases = {
            name.removeprefix("basis."): tensor
            for name, tensor in arrays.tensors.items()
            if name.startswith("basis.")
        }
        effects = Effects.from_arrays(arrays.part("effects"))
        return cls(effects, bases, arrays.header["computation"])

    def __repr__(self) -> str:
        best = int(torch.nan_to_num(self.iia[:, min(1, len(self.spaces) - 1)], nan=-1.0).argmax())
        return (
            f"Interchange({len(self.sites)} sites, {', '.join(self.spaces[:2])}; highest at "
            f"{self.sites[best]}; {self.n_problems} problems)"
        )
