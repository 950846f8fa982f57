"""Claims about which heads and MLPs the answer depends on, and where they are (section 5.1)."""

import numpy as np

from arith_lens.effects import Effects
from experiments import results
from figures.claims import effect_maps
from figures.claims.effect_maps import NO_KEY, stored_effects
from figures.claims.estimate import of_each
from figures.claims.evidence import Evidence

Parts = dict[str, tuple[Effects, ...]]
"""Effects of the same pairs, by the name of their number."""


def _heads(evidence: Evidence) -> Parts:
    return {name: (effects.heads,) for name, effects in stored_effects(evidence).items()}


def _heads_and_mlps(evidence: Evidence) -> Parts:
    return {
        name: (effects.heads, effects.mlps) for name, effects in stored_effects(evidence).items()
    }


def _with_strongest(evidence: Evidence) -> Parts:
    heads = {name: effects.heads for name, effects in stored_effects(evidence).items()}
    return {f"{name} (head {of_one.top(1)[0]})": (of_one,) for name, of_one in heads.items()}


def _direct_and_via_mlps(evidence: Evidence) -> Parts:
    """The effects of the heads that were measured on both kinds of paths."""
    parts: Parts = {}
    for name, run in evidence.runs("which_paths").items():
        both = [
            results.PATH_EFFECTS.load(run, name, paths).heads for paths in ("direct", "via_mlps")
        ]
        measured = ~both[0].per_pair.isnan().all(-1)
        parts[f"{name} ({int(measured.sum())} heads)"] = tuple(
            Effects(e.per_pair[measured], ("sender",), e.metric, **e.units) for e in both
        )
    return parts


strongest_head = of_each(_with_strongest, lambda heads: float(np.nanmin(heads)), "heads")
few_key_heads = of_each(_heads, effect_maps.share_of_key, NO_KEY)
sparse_effect = of_each(_heads, effect_maps.share_of_few, NO_KEY)
middle_layers = of_each(_heads, effect_maps.share_in_middle, NO_KEY)
no_early_key_heads = of_each(_heads, effect_maps.n_early, NO_KEY, "count")
mlps_before = of_each(
    _heads_and_mlps, effect_maps.largest_before, "an MLP below its first key head"
)
mlps_after = of_each(_heads_and_mlps, effect_maps.mean_after, NO_KEY)
via_mlps = of_each(_direct_and_via_mlps, lambda direct, via: 1 - direct.sum() / via.sum(), "heads")
