"""The heads that matter for calculation as a whole: by their mean effect over four operations."""

from collections.abc import Iterable
from functools import reduce
from operator import add

import arith_lens as al
from arith_lens.problems import FOUR


def all_operations(
    model: al.HookedModel,
    *,
    n: int | None = None,
    seed: int = 0,
    operations: Iterable[str] = FOUR,
    keep: str = "correct",
) -> al.PromptPairs:
    """The pairs of all operations together; each has nine templates, so each weighs the same."""
    drawn = [al.sample_pairs(model, name, n=n, seed=seed, keep=keep) for name in operations]
    return reduce(add, drawn)


def by_effect(effects: al.ComponentEffects, k: int) -> tuple[al.Head, ...]:
    """The k heads with the most negative mean effect."""
    return tuple(head for head in effects.heads.top(k) if isinstance(head, al.Head))
