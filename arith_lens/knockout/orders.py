"""Orders in which components are knocked out: control orders, and a greedy search."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.arrays import Arrays, joined
from arith_lens.components import (
    Component,
    Components,
    Head,
    check_components,
    every_head,
    parse_component,
)
from arith_lens.effects import Effects
from arith_lens.knockout.curves import KnockoutCurve
from arith_lens.knockout.engine import checked_components, engine_of
from arith_lens.knockout.knock_out import curve_of, knockout_slot
from arith_lens.knockout.means import Means
from arith_lens.model import HookedLike
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
    """For each key head, in order, an unused head of the same layer that is no key head.

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
        return joined("greedy_mask", {"curve": self.curve.to_arrays()}, {}, header)

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
    ablation: str = "mean",
    positions: str = "all",
    means: Means = None,
    seed: int = 0,
    run: Run | None = None,
    name: str = "iterative",
    progress: bool = True,
) -> GreedyMask:
    """Knock out one more candidate per step: the one whose knockout costs most accuracy.

    The components of earlier steps stay out. Between equal accuracies, the lower p(C) decides, and
    then the order of the candidates. The search finds heads that replace one another, of which each
    alone has a small effect. A ranking of single effects does not find them.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the prompts and their answers.
        candidates: such as `effects.heads.top(24)`, the strongest heads by path patching.
        n: the number of steps; None: until all candidates are out.
        ablation, positions, means, seed: as in `knock_out`.
        run: an open run, which stores the shards of each step, and then the result.
        name: the name of the result in the run.
        progress: whether to show progress bars.

    Raises:
        ValueError: `n` is not between 1 and the number of candidates; see also `knock_out`.
    """
    choice = checked_components(model, candidates)
    n = len(choice) if n is None else n
    if not 1 <= n <= len(choice):
        raise ValueError(f"expected n from 1 to the {len(choice)} candidates, found {n}")
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions}
    question = {"method": "mask_greedily", "candidates": [*map(str, choice)], "n": n, "seed": seed}
    slot = knockout_slot(run, name, model, pairs, means, **question, **settings)
    if (arrays := slot.stored(progress=progress)) is not None:
        return GreedyMask.from_arrays(arrays)
    engine = engine_of(model, pairs, choice, means=means, seed=seed, **settings)
    order: list[Component] = []
    along = [engine([frozenset()], progress=False)]
    n_variants, cost = 1, 1.0
    for step in range(n):
        left = [candidate for candidate in choice if candidate not in order]
        variants = [frozenset([*order, candidate]) for candidate in left]
        values = engine(variants, slot=slot, progress=progress, step=step)
        best = _costliest(values[:2], pairs)
        order.append(left[best])
        along.append(values[:, best : best + 1])
        n_variants, cost = n_variants + len(variants), cost + engine.forwards(variants)
    curve = curve_of(
        torch.cat(along, dim=1),
        pairs,
        order,
        range(n + 1),
        means=engine.replacements.kind,
        n_forwards=cost,
        **settings,
    )
    return slot.save(GreedyMask(curve, choice, n_variants, cost))


def _costliest(values: Float[Tensor, "measure=2 variant pair"], pairs: PromptPairs) -> int:
    """The variant with the lowest accuracy, then with the lowest p(C), then the first."""
    effects = Effects(
        values.float(),
        ("measure", "variant"),
        "",
        **pairs.units,
    )
    accuracy, probability = effects.mean().tolist()
    return min(range(len(accuracy)), key=lambda row: (accuracy[row], probability[row]))
