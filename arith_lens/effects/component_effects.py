"""The effects of a whole model: its heads and its MLPs, from one experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Component, Head
from arith_lens.effects.effects import Effects


@dataclass(frozen=True)
class ComponentEffects:
    """The effects of every head and every MLP of a model, from one experiment.

    `logit` is the answer's logit in the unpatched reference run, from the same kernels as the
    effects. `n_left_out` pairs had no positive logit and take no part in a ratio. `computation`
    says how it was computed: engine, shards, dtype, certificate.
    """

    heads: Effects
    mlps: Effects
    logit: Float[Tensor, "pair"]
    n_left_out: int = 0
    computation: Mapping[str, Any] = field(default_factory=dict)

    def top(self, k: int) -> list[Component]:
        """The k most negative components, heads and MLPs together."""
        candidates: list[Component] = [*self.heads.top(k), *self.mlps.top(k)]
        heads, mlps = self.heads.mean(), self.mlps.mean()

        def strength(sender: Component) -> float:
            value = heads[sender.layer, sender.index] if isinstance(sender, Head) else None
            return float(mlps[sender.layer] if value is None else value)

        return sorted(candidates, key=strength)[:k]

    def __repr__(self) -> str:
        return f"ComponentEffects(heads={self.heads!r}, mlps={self.mlps!r})"

    def _repr_html_(self) -> str:
        return self.heads._repr_html_() + self.mlps._repr_html_()
