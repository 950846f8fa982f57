"""Orders of components for knockouts and circuits: random, matched and greedy.

Effects of single components do not say what components do together. The greedy searches measure,
in each step, every candidate together with the components that were chosen before.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.components import (
    Component,
    Components,
    Head,
    check_components,
    every_head,
    parse_component,
)
from arith_lens.effects import Effects
from arith_lens.knockout.circuits import (
    complement,
    components_among,
    metric_candidates,
    read_metric,
    with_other_answers,
)
from arith_lens.knockout.curves import KnockoutCurve
from arith_lens.knockout.engine import checked_components, engine_of
from arith_lens.knockout.knock_out import knockout_curve_of, knockout_slot
from arith_lens.knockout.settings import Knockout, KnockoutOptions
from arith_lens.model import HookedLike
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs
from arith_lens.runs import Run

if TYPE_CHECKING:
    from pandas import DataFrame


def random_order(n_layers: int, n_heads: int, seed: int) -> list[Head]:
    """All heads of a model in an order drawn with `seed`, the same on every machine."""
    heads = every_head(n_layers, n_heads)
    random.Random(seed).shuffle(heads)
    return heads


def matched_order(key_heads: Iterable[Head], n_layers: int, n_heads: int, seed: int) -> list[Head]:
    """For each key head, in order, an unused head of the same layer that is not a key head.

    If the layer has none left, a head of the nearest layer is used (the lower of two equally near
    layers). So the control is as long as the list of key heads, and as near in depth as possible.

    Raises:
        ValueError: there are more key heads than other heads, or a head is given twice.
        IndexError: the model does not have a head.
    """
    keys = list(key_heads)
    check_components(keys, n_layers, n_heads)
    others = sorted({*every_head(n_layers, n_heads)} - {*keys})
    if len({*keys}) != len(keys) or len(others) < len(keys):
        raise ValueError(
            f"expected distinct key heads, and at least as many others, found {len(keys)} key "
            f"heads ({len({*keys})} distinct) and {len(others)} others; match fewer of them"
        )
    rng = random.Random(seed)
    rng.shuffle(others)
    order = []
    for key in keys:
        layer = min((abs(head.layer - key.layer), head.layer) for head in others)[1]
        taken = next(head for head in others if head.layer == layer)
        others.remove(taken)
        order.append(taken)
    return order


def halves(pairs: PromptPairs, seed: int = 0) -> tuple[PromptPairs, PromptPairs]:
    """Two sets of pairs without a problem in common, each with half of the problems.

    The order of components is chosen on one half, and its curve is drawn on the other.
    """
    inside = half_of_problems(pairs.problem, seed)
    return pairs[inside], pairs[~inside]


def half_of_problems(problem: Sequence[str], seed: int = 0) -> Bool[Tensor, " pair"]:
    """Which pairs have a problem of the half on which components are chosen."""
    problems = sorted({*problem})
    random.Random(seed).shuffle(problems)
    first = {*problems[: (len(problems) + 1) // 2]}
    return torch.tensor([one in first for one in problem])


@dataclass(frozen=True)
class GreedyMask:
    """The result of a greedy search: what it knocked out, and what each step cost."""

    curve: KnockoutCurve
    """The outcomes after each step. Its `order` is the components in the order of the search."""
    candidates: tuple[Component, ...]
    """The components that the search could choose from."""
    n_variants: int
    """The number of knockouts that were tried: per step, one per remaining candidate."""
    n_forwards: float
    """The cost of all of them, in whole forwards of the pairs."""

    @property
    def order(self) -> tuple[Component, ...]:
        return self.curve.order

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        header = {
            "candidates": [*map(str, self.candidates)],
            "n_variants": self.n_variants,
            "n_forwards": self.n_forwards,
        }
        return joined_arrays("greedy_mask", {"curve": self.curve.to_arrays()}, {}, header)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "GreedyMask":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("greedy_mask")
        return cls(
            curve=KnockoutCurve.from_arrays(arrays.part("curve")),
            candidates=tuple(map(parse_component, arrays.header["candidates"])),
            n_variants=arrays.header["n_variants"],
            n_forwards=arrays.header["n_forwards"],
        )

    def to_dataframe(self) -> "DataFrame":
        """The table of the curve."""
        return self.curve.to_dataframe()


def mask_greedily(
    model: HookedLike,
    pairs: PromptPairs,
    candidates: Components,
    *,
    n: int | None = None,
    run: Run | None = None,
    name: str = "iterative",
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> GreedyMask:
    """Knock out one more candidate per step: the one whose knockout costs most accuracy.

    The components of earlier steps stay out. Between equal accuracies, the lower p(C) decides, and
    then the order of the candidates. The search finds heads that replace one another, of which each
    alone has a small effect. A ranking of single effects does not find them.

    Args:
        candidates: such as `effects.heads.top(24)`, the strongest heads by path patching.
        n: the number of steps; None: until all candidates are out.
        ablation, positions, means, seed: as in `knock_out`.
        run: an open run, which stores the shards of each step, and then the result.
        name: the name of the result in the run.

    Raises:
        ValueError: `n` is not between 1 and the number of candidates; see also `knock_out`.
    """
    refuse_unknown_options(mask_greedily, options, Knockout)
    knockout = value_object(Knockout, options)
    choice = checked_components(model, candidates)
    n = len(choice) if n is None else n
    if not 1 <= n <= len(choice):
        raise ValueError(f"expected n from 1 to the {len(choice)} candidates, found {n}")
    question = {"method": "mask_greedily", "candidates": [*map(str, choice)], "n": n}
    slot = knockout_slot(run, name, model, pairs, knockout, **question)
    if (arrays := slot.stored(progress=progress)) is not None:
        return GreedyMask.from_arrays(arrays)
    engine = engine_of(model, pairs, choice, knockout)
    order: list[Component] = []
    along = [engine([frozenset()], progress=False)]
    n_variants, cost = 1, 1.0
    for step in range(n):
        left = [candidate for candidate in choice if candidate not in order]
        variants = [frozenset([*order, candidate]) for candidate in left]
        values = engine(variants, slot=slot, progress=progress, step=step)
        accuracy, probability = _means(values[:2], pairs).tolist()
        best = min(range(len(left)), key=lambda row: (accuracy[row], probability[row]))
        order.append(left[best])
        along.append(values[:, best : best + 1])
        n_variants, cost = n_variants + len(variants), cost + engine.forwards(variants)
    curve = knockout_curve_of(
        torch.cat(along, dim=1),
        pairs,
        order,
        range(n + 1),
        means=engine.replacements.kind,
        n_forwards=cost,
        **knockout.question,
    )
    return slot.save(GreedyMask(curve, choice, n_variants, cost))


def grow_greedily(
    model: HookedLike,
    pairs: PromptPairs,
    candidates: Components,
    *,
    n: int,
    among: str = "heads",
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> list[Component]:
    """A circuit that grows: add, one at a time, the candidate that raises mean p(C) most.

    All other components of `among` are replaced. It costs one `keep_only` per step and candidate.
    A curve of another metric, such as `digit_contrast`, judges this order by what it was not chosen
    for. `shrink_greedily(metric=...)` chooses by the curve's own metric.

    Args:
        model, pairs: as in `keep_only`.
        candidates: the components to choose from.
        n: how many are chosen.
        among, ablation, positions, means, seed, progress: as in `keep_only`.

    Raises:
        ValueError: `n` is not between 1 and the number of candidates; or as in `keep_only`.
    """
    refuse_unknown_options(grow_greedily, options, Knockout)
    choice = checked_components(model, candidates)
    if not 1 <= n <= len(choice):
        raise ValueError(f"expected n from 1 to the {len(choice)} candidates, found {n}")
    complement(model, choice, among)
    components = frozenset(components_among(model, among))
    engine = engine_of(model, pairs, [*components], value_object(Knockout, options))
    order: list[Component] = []
    for _ in range(n):
        left = [candidate for candidate in choice if candidate not in order]
        variants = [components - {*order, candidate} for candidate in left]
        probability = engine(variants, progress=progress)[1]
        order.append(left[int(_means(probability, pairs).argmax())])
    return order


def shrink_greedily(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    among: str = "all",
    metric: str = "probability",
    candidates: Sequence[int] | None = None,
    share: float = 0.05,
    progress: bool = True,
    **options: Unpack[KnockoutOptions],
) -> list[Component]:
    """All components, those first that a shrinking circuit keeps longest.

    In each step the components leave the circuit without which the mean metric stays closest to the
    whole model's. So components that replace one another are not lost together: of two such
    components, each alone seems to do nothing. It costs one `keep_only` per step and remaining
    component. Choose the order on other problems than those on which `circuit_curve` draws it.

    Args:
        model, pairs, among, metric, candidates, ablation, positions, means, seed, progress: as in
            `circuit_curve`.
        share: the share of the remaining components that leave in a step; at least one does.

    Raises:
        ValueError: `share` is not between 0 and 1; or as in `circuit_curve`.
    """
    refuse_unknown_options(shrink_greedily, options, Knockout)
    if not 0 <= share < 1:
        raise ValueError(f"expected a share from 0 to below 1, found {share}")
    left = components_among(model, among)
    tokens = metric_candidates(model, pairs, metric, candidates)
    engine = engine_of(model, pairs, left, value_object(Knockout, options))
    answered = with_other_answers(engine, metric)
    read = partial(read_metric, metric=metric, pairs=answered, candidates=tokens)

    def mean(variants: list[frozenset[Component]]) -> Float[Tensor, " variant"]:
        return _means(engine(variants, progress=progress, read=read)[1], pairs)

    full_mean, out = mean([frozenset()])[0], []
    while left:
        apart = (mean([frozenset([*out, component]) for component in left]) - full_mean).abs()
        leaving = apart.argsort(stable=True)[: max(1, math.floor(share * len(left)))].tolist()
        out += [left[i] for i in leaving]
        left = [component for i, component in enumerate(left) if i not in leaving]
    return out[::-1]


def _means(
    values: Float[Tensor, "*measure variant pair"], pairs: PromptPairs
) -> Float[Tensor, "*measure variant"]:
    """The mean of each variant. Templates have equal weight."""
    axes = ("measure", "variant")[3 - values.ndim :]
    return Effects(values.float(), axes, "", **pairs.units).mean()
