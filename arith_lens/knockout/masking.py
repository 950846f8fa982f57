"""Iterative masking: take out, one after another, the component whose loss costs most."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Component, Components
from arith_lens.effects import Effects
from arith_lens.knockout.curve import KnockoutCurve
from arith_lens.knockout.engine import checked_components, engine_of
from arith_lens.knockout.knock_out import curve_of, identity_of
from arith_lens.knockout.means import Means
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs


@dataclass(frozen=True)
class GreedyMask:
    """What a greedy search took out, and what each step cost.

    Attributes:
        curve: the outcomes along the search; its `order` is what was taken out, in order
        candidates: what there was to choose from
        n_variants: knockouts that were tried, one for each step and each candidate left
        n_forwards: what they cost together, in whole forwards of the pairs
    """

    curve: KnockoutCurve
    candidates: tuple[Component, ...]
    n_variants: int
    n_forwards: float

    @property
    def order(self) -> tuple[Component, ...]:
        return self.curve.order


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
    run: Any = None,
    name: str = "iterative",
    progress: bool = True,
) -> GreedyMask:
    """Add, one at a time, the candidate whose knockout costs most, given those already out.

    Cost is accuracy; p(C) decides between equals, and then the earlier candidate. Heads that stand
    in for one another, each harmless alone, are found so, and not by ranking single effects.

    Args:
        candidates: such as `effects.heads.top(24)`, the strongest by path patching
        n: how many to take out; None: all
        ablation, positions, means, seed: as in `knock_out`
        run: an open run, which keeps the shards of each step as they finish, until the caller saves
            a result under `name`

    Raises:
        ValueError: `n` is not between 1 and the number of candidates; else as `knock_out`
    """
    given = checked_components(model, candidates)
    n = len(given) if n is None else n
    if not 1 <= n <= len(given):
        raise ValueError(f"expected n from 1 to the {len(given)} candidates, found {n}")
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions}
    engine = engine_of(model, pairs, given, means=means, seed=seed, **settings)
    asked = {"method": "mask_greedily", "seed": seed, **settings}
    identity = run and identity_of(run, model, pairs, means, **asked)
    order: list[Component] = []
    along = [engine([frozenset()], progress=False)]
    n_variants, cost = 1, 1.0
    for _ in range(n):
        left = [candidate for candidate in given if candidate not in order]
        variants = [frozenset([*order, candidate]) for candidate in left]
        kept = run and run.shards(name, {**identity, "variants": [*map(_named, variants)]})
        values = engine(variants, kept=kept, progress=progress)
        best = _costliest(values[:2], pairs)
        order.append(left[best])
        along.append(values[:, best : best + 1])
        n_variants, cost = n_variants + len(variants), cost + engine.forwards(variants)
    curve = curve_of(
        torch.cat(along, dim=1),
        pairs,
        order,
        range(n + 1),
        means=engine.stand_ins.kind,
        n_forwards=cost,
        **settings,
    )
    return GreedyMask(curve, given, n_variants, cost)


def _named(variant: Iterable[Component]) -> list[str]:
    return sorted(map(str, variant))


def _costliest(values: Float[Tensor, "measure=2 variant pair"], pairs: PromptPairs) -> int:
    """The variant of the lowest accuracy; of equals, the lowest p(C); of those, the first."""
    effects = Effects(
        values.float(),
        ("measure", "variant"),
        "",
        template=pairs.template,
        cluster=pairs.cluster,
    )
    accuracy, probability = effects.mean().tolist()
    return min(range(len(accuracy)), key=lambda row: (accuracy[row], probability[row]))
