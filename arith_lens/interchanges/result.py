"""What interchanges did at each site, pair by pair, with the subspaces that were exchanged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.effects import Effects, crossed_draws, draws_of

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
    draws: Mapping[str, Bool[Tensor, "site draw pair"]] = field(default_factory=dict)
    """By random control, whether each draw gives the expected answer."""

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

    def of_draws(self, space: str) -> Float[Tensor, "site draw"]:
        """The interchange accuracy of each draw of a random control.

        Raises:
            KeyError: the control has no draws.
        """
        return draws_of(self.draws, space, self.effects)

    def ci(self, **options: Any) -> Float[Tensor, "bound=2 site space"]:
        """95% intervals of shares, over problems; of random controls, over draws and problems.

        The options are those of `Effects.ci`.
        """
        ends = self.effects.ci(**options)
        for space, crossed in self._crossed():
            ends[:, :, self.spaces.index(space)] = crossed.ci(**options)
        return ends

    def _crossed(self) -> Iterator[tuple[str, Effects]]:
        """All draws of each random control, [site draw-and-pair]."""
        like = replace(
            self.effects, per_pair=self.effects.per_pair[:, 0], axes=("site",), labels=None
        )
        for space, right in self.draws.items():
            yield space, crossed_draws(right.float(), like)

    @property
    def n_problems(self) -> int:
        """The number of problems that were tested."""
        return len({*(self.effects.problem or ())})

    def to_dataframe(self) -> "DataFrame":
        """One row per site and space: mean and interval of the interchange accuracy.

        Of random controls also the number of draws, and the lowest, the median and the highest
        accuracy of a draw.
        """
        table: Any = self.effects.to_dataframe()
        of_draws = torch.full((4, *self.iia.shape), float("nan"))
        stderr = self.effects.stderr()
        for space, crossed in self._crossed():
            column, accuracies = self.spaces.index(space), self.of_draws(space)
            stderr[:, column] = crossed.stderr()
            of_draws[0, :, column] = accuracies.shape[1]
            of_draws[1:, :, column] = accuracies.quantile(torch.tensor([0.0, 0.5, 1.0]), dim=1)
        columns = dict(zip(("stderr", "ci_low", "ci_high"), (stderr, *self.ci()), strict=True))
        columns |= dict(zip(("draws", "lowest", "median", "highest"), of_draws, strict=True))
        return table.assign(**{name: one.flatten().numpy() for name, one in columns.items()})

    def to_arrays(self) -> Arrays:
        """The arrays for a file."""
        parts = {"effects": self.effects.to_arrays()}
        tensors = {f"basis.{name}": basis for name, basis in self.bases.items()}
        tensors |= {f"draws.{name}": right for name, right in self.draws.items()}
        header = {"computation": dict(self.computation)}
        return joined_arrays("interchange", parts, tensors, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Interchange":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("interchange")
        bases, draws = (arrays.within(prefix) for prefix in ("basis", "draws"))
        effects = Effects.from_arrays(arrays.part("effects"))
        return cls(effects, bases, arrays.header["computation"], draws)

    def __repr__(self) -> str:
        best = int(torch.nan_to_num(self.iia[:, min(1, len(self.spaces) - 1)], nan=-1.0).argmax())
        return (
            f"Interchange({len(self.sites)} sites, {', '.join(self.spaces[:2])}; highest at "
            f"{self.sites[best]}; {self.n_problems} problems)"
        )
