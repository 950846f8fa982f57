"""Runs with planted truths, for claims to be measured on."""

from collections.abc import Mapping
from pathlib import Path

import torch
from made_runs import Pairs

from arith_lens.effects import ComponentEffects, Effects
from arith_lens.problems import FOUR
from arith_lens.runs import Run, open_run

N_LAYERS, N_HEADS, N_PAIRS = 12, 8, 18
SHARED = {
    "template": tuple(f"t/{i % 3}" for i in range(N_PAIRS)),
    "cluster": torch.arange(N_PAIRS),
}
Places = Mapping[tuple[int, int], float]


def effects(
    heads: Places, mlps: Mapping[int, float] | None = None, noise: float = 1e-3, seed: int = 0
) -> ComponentEffects:
    """Small noise everywhere, and the given means of some heads and MLPs."""
    generator = torch.Generator().manual_seed(seed)
    per_head = noise * torch.randn(N_LAYERS, N_HEADS, N_PAIRS, generator=generator)
    per_mlp = noise * torch.randn(N_LAYERS, N_PAIRS, generator=generator)
    for (layer, head), mean in heads.items():
        per_head[layer, head] += mean
    for layer, mean in (mlps or {}).items():
        per_mlp[layer] += mean
    told = {"metric": "relative_logit", "paths": "via_mlps", **SHARED}
    return ComponentEffects(
        Effects(per_head, ("layer", "head"), **told),
        Effects(per_mlp, ("layer",), **told),
        torch.full((N_PAIRS,), 9.0),
    )


def which_heads(
    root: Path,
    heads: Mapping[str, Places] | Places,
    mlps: Mapping[int, float] | None = None,
    *,
    model: str = "made",
    noise: float = 1e-3,
    **config: object,
) -> Run:
    """A run of path patching; `heads` of all operations alike, or by operation."""
    told = {"paths": "via_mlps", "metric": "relative_logit", "keep": "correct", "seed": 7}
    with open_run("which_heads", {**told, "model": model, **config}, root=root) as run:
        for seed, name in enumerate(FOUR):
            own = heads.get(name, heads)  # pyright: ignore
            run.save(name, effects(own, mlps, noise, seed), pairs=Pairs())  # pyright: ignore
    return run
