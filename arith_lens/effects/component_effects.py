"""The effects of a whole model: its heads and its MLPs, from one experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined
from arith_lens.components import Component, Head
from arith_lens.effects.effects import Effects
from arith_lens.statistics import false_discovery_control

if TYPE_CHECKING:
    from pandas import DataFrame


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

    def __add__(self, other: "ComponentEffects") -> "ComponentEffects":
        """The effects on the pairs of both, such as those of two operations.

        Raises:
            ValueError: effects of another shape, or measured in another way.
        """
        if not isinstance(other, ComponentEffects):
            return NotImplemented
        parts = [
            part
            for one in (self, other)
            for part in one.computation.get("parts", [one.computation])
        ]
        return ComponentEffects(
            heads=self.heads + other.heads,
            mlps=self.mlps + other.mlps,
            logit=torch.cat([self.logit, other.logit]),
            n_left_out=self.n_left_out + other.n_left_out,
            computation={"parts": parts},
        )

    def top(self, k: int) -> list[Component]:
        """The k most negative components, heads and MLPs together."""
        candidates: list[Component] = [*self.heads.top(k), *self.mlps.top(k)]
        heads, mlps = self.heads.mean(), self.mlps.mean()

        def strength(sender: Component) -> float:
            value = heads[sender.layer, sender.index] if isinstance(sender, Head) else None
            return float(mlps[sender.layer] if value is None else value)

        return sorted(candidates, key=strength)[:k]

    def q_values(self) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer"]]:
        """Of heads and of MLPs: sign tests, false discoveries controlled over both together.

        Benjamini and Hochberg's control, over all components of the experiment: calling all with
        q below 0.05 real, one expects that at most 5% of those are not.
        """
        heads, mlps = self.heads.sign_test(), self.mlps.sign_test()
        together = false_discovery_control(torch.cat([heads.flatten(), mlps.flatten()]))
        return together[: heads.numel()].reshape(heads.shape), together[heads.numel() :]

    def to_arrays(self) -> Arrays:
        """For a file: heads, MLPs and logits; how they were computed is in the header."""
        parts = {"heads": self.heads.to_arrays(), "mlps": self.mlps.to_arrays()}
        header = {"n_left_out": self.n_left_out, "computation": dict(self.computation)}
        return joined("component_effects", parts, {"logit": self.logit}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "ComponentEffects":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("component_effects")
        return cls(
            heads=Effects.from_arrays(arrays.part("heads")),
            mlps=Effects.from_arrays(arrays.part("mlps")),
            logit=arrays.tensors["logit"],
            n_left_out=arrays.header["n_left_out"],
            computation=arrays.header["computation"],
        )

    def to_dataframe(self) -> "DataFrame":
        """One row a component: layer, head (empty for an MLP), mean, stderr, interval, pairs, q."""
        from pandas import concat

        table = concat([self.heads.to_dataframe(), self.mlps.to_dataframe()], ignore_index=True)
        table["q"] = torch.cat([part.flatten() for part in self.q_values()]).numpy()
        if "head" in table:
            table["head"] = table["head"].astype("Int64")
        return table

    def __repr__(self) -> str:
        return f"ComponentEffects(heads={self.heads!r}, mlps={self.mlps!r})"

    def _repr_html_(self) -> str:
        return self.heads.drawn("heads") + self.mlps.drawn("MLPs")
