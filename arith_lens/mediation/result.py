"""What MLPs carry of heads' effects: four measured effects a head, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined
from arith_lens.components import Head
from arith_lens.effects import Effects

if TYPE_CHECKING:
    from pandas import DataFrame

PARTS = ("via_mlps", "direct", "but", "only")
VIEWS = ("carried", "conveyed")


@dataclass(frozen=True)
class Mediation:
    """Effects of patching each head, every other head held, under four rules for the MLPs.

    MLPs below a head see none of its change: `carried` and `conveyed` are 0 there.

    Attributes:
        via_mlps: all MLPs recomputed, [head, pair]: `path_patch(paths="via_mlps")`
        direct: all MLPs held, [head, pair]: `path_patch(paths="direct")`
        but: all recomputed but that of one layer, [head, layer, pair]
        only: that of one layer alone recomputed, [head, layer, pair]
        logit: the answer's logit in the unpatched run, [pair]
        computation: how it was computed: engine, shards, dtype, certificate
    """

    heads: tuple[Head, ...]
    via_mlps: Effects
    direct: Effects
    but: Effects
    only: Effects
    logit: Float[Tensor, "pair"]
    n_left_out: int = 0
    computation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def carried(self) -> Effects:
        """What the effect loses when one MLP stays held, [head, layer, pair]."""
        change = self.via_mlps.per_pair[:, None] - self.but.per_pair
        return replace(self.but, per_pair=change, paths="carried")

    @property
    def conveyed(self) -> Effects:
        """What one MLP alone adds to the direct effect, [head, layer, pair]."""
        change = self.only.per_pair - self.direct.per_pair[:, None]
        return replace(self.only, per_pair=change, paths="conveyed")

    @property
    def interaction(self) -> Effects:
        """What is left of `via_mlps` after the direct effect and the sum of all layers, [head,
        view, pair]: of what is carried, and of what is conveyed. 0 if MLPs acted independently."""
        through = self.via_mlps.per_pair - self.direct.per_pair
        left = [through - part.per_pair.sum(1) for part in (self.carried, self.conveyed)]
        labels = {**(self.direct.labels or {}), "view": VIEWS}
        axes = ("head", "view")
        together = torch.stack(left, dim=1)
        return replace(
            self.direct, per_pair=together, axes=axes, labels=labels, paths="interaction"
        )

    def to_dataframe(self) -> "DataFrame":
        """A row a head and layer: means and intervals of what is carried and conveyed there, and
        of the head's direct effect and its effect via MLPs."""
        from pandas import DataFrame

        def columns(name: str, part: Effects) -> DataFrame:
            table: Any = part.to_dataframe()
            names = {"mean": name, "ci_low": f"{name}_low", "ci_high": f"{name}_high"}
            return table[[*part.axes, *names]].rename(columns=names)

        tables = [columns(name, getattr(self, name)) for name in (*VIEWS, "direct", "via_mlps")]
        return reduce(DataFrame.merge, tables)

    def to_arrays(self) -> Arrays:
        """For a file: the four effects and the logits."""
        parts = {name: getattr(self, name).to_arrays() for name in PARTS}
        header = {
            "heads": [str(head) for head in self.heads],
            "n_left_out": self.n_left_out,
            "computation": dict(self.computation),
        }
        return joined("mediation", parts, {"logit": self.logit}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Mediation":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("mediation")
        return cls(
            heads=tuple(Head.parse(name) for name in arrays.header["heads"]),
            **{name: Effects.from_arrays(arrays.part(name)) for name in PARTS},
            logit=arrays.tensors["logit"],
            n_left_out=arrays.header["n_left_out"],
            computation=arrays.header["computation"],
        )

    def __repr__(self) -> str:
        heads = " ".join(map(str, self.heads))
        return f"Mediation({heads}; {self.but.per_pair.shape[1]} layers, {len(self.logit)} pairs)"

    def _repr_html_(self) -> str:
        return self.carried._repr_html_()
