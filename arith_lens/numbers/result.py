"""What swaps of values did, swap by swap, beside their controls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.effects import Effects, crossed_draws, draws_of
from arith_lens.statistics import permutation_p_value

if TYPE_CHECKING:
    from pandas import DataFrame

UNSEEN, OWN, WHOLE = "unseen values", "the subspace", "whole vector"
LABELS = "labels permuted"
UNSEEN_LABELS = f"{UNSEEN}, {LABELS}"


@dataclass(frozen=True)
class Swaps:
    """How often a swap of one value gave the answer to the other value."""

    effects: Effects
    """Whether the answer was that of the source's value, [space swap], on problems that were not
    fitted. Controls with several draws have the share of draws. The tests of unseen values are
    swaps of their own: there all other spaces are NaN, and the other way round."""
    draws: Mapping[str, Bool[Tensor, "draw swap"]]
    """By control with several draws, whether each gave the source's value, on the swaps that the
    control has."""
    computation: Mapping[str, Any] = field(default_factory=dict)
    """The shape, the place, the value, and the settings."""

    @property
    def spaces(self) -> tuple[str, ...]:
        """What was exchanged: unseen values first, the subspace, then its controls."""
        return (self.effects.labels or {})["space"]

    def of(self, space: str = OWN) -> Effects:
        """The swaps of one space, as effects of one number.

        Raises:
            KeyError: the space was not exchanged.
        """
        if space not in self.spaces:
            raise KeyError(
                f"expected a space among {', '.join(self.spaces)}, found {space!r}; name its "
                "control in swap_values(controls=)"
            )
        own = self.effects.per_pair[self.spaces.index(space)]
        one = self.effects.select(~own.isnan())
        row = one.per_pair[self.spaces.index(space)]
        return Effects(row, (), metric=one.metric, **one.units)

    @property
    def null(self) -> Mapping[str, Float[Tensor, " permutation"]]:
        """The share for each permutation of the labels, by what was permuted."""
        permuted = {OWN: LABELS, UNSEEN: UNSEEN_LABELS}
        return {
            name: self.of_draws(control)
            for name, control in permuted.items()
            if control in self.draws
        }

    def of_draws(self, space: str) -> Float[Tensor, " draw"]:
        """The accuracy of each draw of a control. Raises KeyError: the control has no draws."""
        return draws_of(self.draws, space, self.of(space) if space in self.draws else self.effects)

    def iia(self, space: str = OWN) -> float:
        """The interchange accuracy: the share of swaps that answer the source's value."""
        return float(self.of(space).mean())

    def ci(self, space: str = OWN, **options: Any) -> tuple[float, float]:
        """Its 95% interval over problems; of controls with draws, over draws and problems.

        The options are those of `Effects.ci`.
        """
        low, high = self._crossed(space).ci(**options).tolist()
        return low, high

    def _crossed(self, space: str) -> Effects:
        """The swaps of one space; all draws of those that have several."""
        own = self.of(space)
        return crossed_draws(self.draws[space].float(), own) if space in self.draws else own

    def p_value(self, space: str = OWN) -> float:
        """The share of permutations of the labels that reach the accuracy, this order included.

        Raises:
            KeyError: the labels of this space were not permuted.
        """
        if space not in self.null:
            raise KeyError(
                f"expected permuted labels of {space!r}, found those of "
                f"{', '.join(self.null) or 'none'}; compute swap_values(controls=('labels', …))"
            )
        own = torch.tensor(self.iia(space), dtype=torch.float64)
        return float(permutation_p_value(self.null[space], own))

    def to_dataframe(self) -> "DataFrame":
        """One row per space: mean and interval of the accuracy, and p of permuted labels."""
        table: Any = self.effects.to_dataframe()
        table["stderr"] = [float(self._crossed(name).stderr()) for name in self.spaces]
        table["ci_low"], table["ci_high"] = zip(*map(self.ci, self.spaces), strict=True)
        known = [self.p_value(name) if name in self.null else float("nan") for name in self.spaces]
        table["p"] = known
        return table

    def to_arrays(self) -> Arrays:
        """The arrays for a file."""
        parts = {"effects": self.effects.to_arrays()}
        tensors = {f"draws.{name}": values for name, values in self.draws.items()}
        return joined_arrays("swaps", parts, tensors, {"computation": dict(self.computation)})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Swaps":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("swaps")
        effects = Effects.from_arrays(arrays.part("effects"))
        return cls(effects, arrays.within("draws"), arrays.header["computation"])

    def __repr__(self) -> str:
        parts = [f"{name} {self.iia(name):.0%}" for name in self.spaces]
        shape, place = (self.computation.get(name, "?") for name in ("shape", "site"))
        return f"Swaps({shape} at {place}: {', '.join(parts)})"
