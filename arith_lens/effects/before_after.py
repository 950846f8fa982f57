"""Effects of one model's components before and after something was done to the model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arith_lens.arrays import Arrays, joined
from arith_lens.effects.component_effects import ComponentEffects
from arith_lens.effects.effects import Effects

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class BeforeAfter:
    """Effects on the same pairs, such as those of a model as it was and as it was tuned.

    Raises:
        ValueError: other components, metrics, paths or pairs on the two sides
    """

    before: ComponentEffects
    after: ComponentEffects

    def __post_init__(self) -> None:
        for name in ("heads", "mlps"):
            _check_same(getattr(self.before, name), getattr(self.after, name))

    @property
    def heads(self) -> Effects:
        """What changed at each head, after less before, pair by pair [layer, head, pair].

        A pair that is left out on either side is left out here. Means and intervals are those of
        the difference within a pair: what both sides share, such as a hard prompt, drops out.
        """
        return _less(self.after.heads, self.before.heads)

    @property
    def mlps(self) -> Effects:
        """The same at each MLP [layer, pair]."""
        return _less(self.after.mlps, self.before.mlps)

    @property
    def computation(self) -> Mapping[str, Any]:
        """How both sides were computed."""
        return {"before": dict(self.before.computation), "after": dict(self.after.computation)}

    def to_arrays(self) -> Arrays:
        """For a file: both sides."""
        sides = {"before": self.before.to_arrays(), "after": self.after.to_arrays()}
        return joined("before_after", sides, header={"computation": dict(self.computation)})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "BeforeAfter":
        """Read `to_arrays` back, bit for bit. Raises ValueError for another kind of result."""
        arrays.require("before_after")
        sides = (ComponentEffects.from_arrays(arrays.part(name)) for name in ("before", "after"))
        return cls(*sides)

    def to_dataframe(self) -> "DataFrame":
        """A row a component: layer, head (empty for an MLP), mean before and after, their
        difference within pairs with the ends of its 95% bootstrap interval, and pairs used."""
        from pandas import concat

        parts = [_changes(self, name) for name in ("heads", "mlps")]
        return concat(parts, ignore_index=True).astype({"head": "Int64"})


def _changes(both: BeforeAfter, name: str) -> "DataFrame":
    before, after = (getattr(side, name).mean().flatten() for side in (both.before, both.after))
    table = getattr(both, name).to_dataframe().rename(columns={"mean": "difference"})
    if name == "mlps":
        table.insert(1, "head", None)
    table.insert(2, "before", before.numpy())
    table.insert(3, "after", after.numpy())
    return table


def _less(a: Effects, b: Effects) -> Effects:
    return replace(a, per_pair=a.per_pair - b.per_pair)


def _check_same(a: Effects, b: Effects) -> None:
    if a.axes != b.axes or a.per_pair.shape[:-1] != b.per_pair.shape[:-1]:
        raise ValueError(
            f"expected the same components before and after, found {a.axes} "
            f"{tuple(a.per_pair.shape[:-1])} and {b.axes} {tuple(b.per_pair.shape[:-1])}; compare "
            "a model with what it was tuned from"
        )
    if a.metric != b.metric or a.paths != b.paths:
        raise ValueError(
            f"expected one metric and one meaning of paths, found {a.metric!r} over {a.paths!r} "
            f"and {b.metric!r} over {b.paths!r}; recompute one of them"
        )
    if a.n_pairs != b.n_pairs or a.template != b.template or not _same_clusters(a, b):
        raise ValueError(
            f"expected effects on the same pairs, found {a.n_pairs} and {b.n_pairs} that are not "
            "the same; patch both models on one set of pairs"
        )


def _same_clusters(a: Effects, b: Effects) -> bool:
    if a.cluster is None or b.cluster is None:
        return a.cluster is b.cluster
    return a.cluster.tolist() == b.cluster.tolist()
