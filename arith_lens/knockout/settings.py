"""What replaces the outputs of components that are knocked out, as one value."""

from dataclasses import dataclass
from typing import Any, TypedDict

from arith_lens.knockout.means import Means


@dataclass(frozen=True, eq=False)
class Knockout:
    """What replaces an output, and at which tokens."""

    ablation: str = "mean"
    """`"mean"`, `"zero"`, `"resample"` or `"counterfactual"`."""
    positions: str = "all"
    """`"all"`: every token but BOS and padding; `"end"`: END alone."""
    means: Means = None
    """The means; None: over the counterfactuals of the pairs."""
    seed: int = 0
    """The seed of `"resample"`."""

    @property
    def question(self) -> dict[str, Any]:
        """What a result says about its knockout beside the means."""
        return {"ablation": self.ablation, "positions": self.positions}


class KnockoutOptions(TypedDict, total=False):
    """The fields of `Knockout`, as keyword arguments."""

    ablation: str
    positions: str
    means: Means
    seed: int
