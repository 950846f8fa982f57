"""Does a class of neurons matter for its own problems more than for others?

A class has the neurons that follow one rule. They are knocked out at END. If they serve the rule,
the answer suffers more on problems that the rule selects than on others of the same difficulty. The
null is the same difference for random neurons: as many of each layer, with effects as large.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.components import Neuron
from arith_lens.knockout import Knockout, engine_of, metric_candidates, read_metric
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.statistics import permutation_p_value

if TYPE_CHECKING:
    from pandas import DataFrame

N_BINS = 10
"""Neurons are matched within bins of equal numbers of neurons, by the size of their effect."""
METRIC = "digit_contrast"


@dataclass(frozen=True)
class ClassKnockouts:
    """The drop on related problems less that on matched others, of each class and its null."""

    classes: tuple[str, ...]
    difference: Float[Tensor, " class"]
    """In logits of C's lead over the other digits."""
    null: Float[Tensor, "class draw"]
    """The same difference for random neurons."""
    n_neurons: tuple[int, ...]
    n_related: tuple[int, ...]
    """The number of related problems."""

    def p_values(self) -> Float[Tensor, " class"]:
        """The share of random sets, the class itself included, with as large a difference."""
        return permutation_p_value(self.null.T, self.difference).float()

    def holm(self) -> Float[Tensor, " class"]:
        """`p_values` after Holm's correction over the classes."""
        p, n = self.p_values(), len(self.classes)
        if not n:
            return p
        order = p.argsort()
        raised = (p[order] * torch.arange(n, 0, -1)).cummax(0).values.clamp(max=1)
        return torch.empty_like(p).scatter(0, order, raised)

    def to_dataframe(self) -> "DataFrame":
        """One row per class."""
        from pandas import DataFrame

        return DataFrame(
            {
                "class": list(self.classes),
                "neurons": list(self.n_neurons),
                "related": list(self.n_related),
                "difference": self.difference.tolist(),
                "null": self.null.mean(1).tolist(),
                "p": self.holm().tolist(),
            }
        )

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        header = {"kind": "class_knockouts", "classes": [*self.classes]}
        header |= {"n_neurons": [*self.n_neurons], "n_related": [*self.n_related]}
        return Arrays({"difference": self.difference, "null": self.null}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "ClassKnockouts":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("class_knockouts")
        header = arrays.header
        return cls(
            classes=tuple(header["classes"]),
            n_neurons=tuple(header["n_neurons"]),
            n_related=tuple(header["n_related"]),
            difference=arrays.tensors["difference"],
            null=arrays.tensors["null"],
        )


def class_knockouts(
    model: HookedLike,
    pairs: PromptPairs,
    classes: Mapping[str, Sequence[Neuron]],
    related: Mapping[str, Bool[Tensor, " pair"]],
    sizes: Mapping[Neuron, float],
    *,
    n: int = 1000,
    seed: int = 0,
) -> ClassKnockouts:
    """Knock out each class at END, and random sets of neurons that match it.

    Choose the classes on other problems than those of `pairs`. Neurons are replaced by their means
    over the counterfactual prompts. The problems that are not related are weighted so that they
    have the related problems' distribution of C's lead without a knockout, in quintiles.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        classes: the neurons of each class.
        related: which pairs each class is about.
        sizes: the size of the effect of each neuron that may be drawn.
        n: the number of random sets of each class.
        seed: the seed of the draws.

    Raises:
        ValueError: no class; a class without neurons, without related or without other problems; a
            neuron without a size; or too few neurons to draw from.
    """
    if not classes:
        raise ValueError("expected classes of neurons, found none; name one at least")
    for name, neurons in classes.items():
        if name not in related:
            raise ValueError(
                f"expected the related problems of the class {name!r}, found those of "
                f"{', '.join(related) or 'none'}; name them in related"
            )
        if not neurons or not 0 < int(related[name].sum()) < len(pairs):
            raise ValueError(
                f"expected neurons, related and other problems of the class {name!r}, found "
                f"{len(neurons)} neurons and {int(related[name].sum())} of {len(pairs)} problems "
                "related; leave this class out"
            )
    bins = _bins(sizes)
    generator = torch.Generator().manual_seed(seed)
    everything = sorted({*sizes, *(one for neurons in classes.values() for one in neurons)})
    knockout = Knockout(positions="end")
    engine = engine_of(model, pairs, everything, knockout)
    tokens = metric_candidates(model, pairs, METRIC, None)
    read = partial(read_metric, metric=METRIC, pairs=pairs, candidates=tokens)
    base = engine([frozenset()], progress=False, read=read)[1, 0]
    differences, nulls = [], []
    for name, neurons in classes.items():
        sets = [frozenset(neurons), *(_sampled(neurons, bins, generator) for _ in range(n))]
        drop = base - engine(sets, progress=False, read=read)[1]
        own = _difference(drop, base, related[name])
        differences.append(own[0])
        nulls.append(own[1:])
    return ClassKnockouts(
        classes=tuple(classes),
        difference=torch.stack(differences).float(),
        null=torch.stack(nulls).float(),
        n_neurons=tuple(map(len, classes.values())),
        n_related=tuple(int(related[name].sum()) for name in classes),
    )


def _bins(sizes: Mapping[Neuron, float]) -> dict[tuple[int, int], list[Neuron]]:
    """The neurons by layer and tenth of the size of their effect within the layer."""
    bins: dict[tuple[int, int], list[Neuron]] = {}
    for layer in sorted({one.layer for one in sizes}):
        own = sorted((one for one in sizes if one.layer == layer), key=lambda one: sizes[one])
        for place, one in enumerate(own):
            bins.setdefault((layer, place * N_BINS // len(own)), []).append(one)
    return bins


def _sampled(
    neurons: Sequence[Neuron],
    bins: Mapping[tuple[int, int], Sequence[Neuron]],
    generator: torch.Generator,
) -> frozenset[Neuron]:
    """As many other neurons of each bin as the class has; a bin with too few others takes from the
    rest of its layer."""
    inside, chosen = {*neurons}, set()
    for (layer, _), members in bins.items():
        count = len(inside.intersection(members))
        own = _shuffled([one for one in members if one not in inside | chosen], generator)
        if count > len(own):
            rest = {one for (at, _), part in bins.items() for one in part if at == layer}
            own += _shuffled(sorted(rest - inside - chosen - {*own}), generator)
        chosen |= {*own[:count]}
    if len(chosen) < len(inside):
        raise ValueError(
            f"expected neurons to draw {len(inside)} others like the class from, found "
            f"{len(chosen)}; give the sizes of more neurons"
        )
    return frozenset(chosen)


def _shuffled(neurons: list[Neuron], generator: torch.Generator) -> list[Neuron]:
    return [neurons[i] for i in torch.randperm(len(neurons), generator=generator).tolist()]


def _difference(
    drop: Float[Tensor, "state pair"], base: Float[Tensor, " pair"], related: Bool[Tensor, " pair"]
) -> Float[Tensor, " state"]:
    """The mean drop of related pairs less the mean of others, weighted to the same base lead."""
    edges = base[related].quantile(torch.linspace(0.2, 0.8, 4, dtype=base.dtype))
    level: Int[Tensor, " pair"] = torch.bucketize(base, edges)
    parts, weights = [], []
    for number in range(5):
        own, others = related & (level == number), ~related & (level == number)
        if bool(own.any()) and bool(others.any()):
            parts.append(drop[:, own].mean(1) - drop[:, others].mean(1))
            weights.append(float(own.sum()))
    if not parts:
        return drop[:, related].mean(1) - drop[:, ~related].mean(1)
    total = torch.tensor(weights, dtype=drop.dtype)
    return (torch.stack(parts, dim=1) * total).sum(1) / total.sum()
