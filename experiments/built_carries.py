"""Does an interchange find a carry that was built? Part of the exam on known circuits."""

from collections.abc import Mapping
from typing import Any

import arith_lens as al
from arith_lens.runs import Run
from experiments.results import BUILT_CARRY

CARRY_MODELS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "carry": {"carry": {}, "rotated": {"rotation": 0}},
    "carry_plane": {"carry_plane": {}},
}
"""By built model, its variants. They add two digits. The carry is in the stream from the exit of
layer 1 on, and layer 2 reads it."""
SITES = tuple(map(al.Site, range(3)))
SPACES: Mapping[str, tuple[tuple[al.Site, ...], Mapping[str, Any]]] = {
    "mean": (SITES, {"space": "mean"}),
    "das_1": (SITES[1:2], {"space": "das", "k": 1}),
    "das_2": (SITES[1:2], {"space": "das", "k": 2}),
}
"""The sites and the settings of each subspace. The searches are slow, and have one site."""


def built_pairs(model: al.HookedModel, *, n: int = 400, seed: int = 0) -> al.InterchangePairs:
    """Matched pairs of the carry of the ones, of sums below 100."""
    options: dict[str, Any] = {"templates": ["addition/0"], "answers": range(100)}
    causal = al.causal_model("addition", "carry")
    return al.interchange_pairs(
        model, causal, "ones_carry", n=n, sources="matched", seed=seed, **options
    )


def save_carries(run: Run, built: str, seed: int) -> None:
    """The interchanges of each subspace, in each variant of a built model."""
    for variant, options in CARRY_MODELS[built].items():
        model = al.built_model(built, n=2, **options).model
        pairs = built_pairs(model, seed=seed)
        for name, (sites, settings) in SPACES.items():
            if not BUILT_CARRY.is_in(run, variant, name):
                result = al.interchange(model, pairs, sites, seed=seed, **settings)
                BUILT_CARRY.save(run, result, variant, name, pairs=pairs.pairs[pairs.test])
