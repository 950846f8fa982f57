"""What a page of the explorer takes, before it is computed and while it is."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import comb
from typing import Any

from arith_lens.components import every_head, every_mlp
from arith_lens.edges import plan_edges
from arith_lens.exploration.graph_tables import N_PAGE_HEADS, N_PAGE_MLPS
from arith_lens.exploration.tables import (
    KNOCKOUT_POSITIONS,
    N_DRAWS,
    problem_rows,
    sample_rows,
    stream_rows,
)
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import fitting_engine, forward_flops, plan

N_STRONGEST = 10
"""Heads whose joint knockouts a page knows."""
N_WRITERS = 2
"""MLPs of which a page knows every joint knockout: the most that its summary names."""
MAP_SETTINGS: Sequence[Mapping[str, Any]] = (
    {"paths": "via_mlps", "metric": "relative_logit"},
    {"paths": "direct", "metric": "relative_logit"},
    {"paths": "via_mlps", "metric": "digit_contrast"},
)
"""The paths and metrics of a page's maps."""
NARROW, HOOKED = 6, 3
"""How many times as long as their FLOPs products as wide as one head take, and runs with hooks
(SmolLM2 135M, a CPU)."""
STEPS = {
    **{"stream": "the residual stream by layer and token", "attention": "where END looks"},
    **{"patterns": "attention on single prompts", "inputs": "which parts feed each head"},
    **{"numbers": "what heads write", "digits": "what heads write on single prompts"},
    **{"mediation": "the MLPs through which each head works", "mlp_neurons": "strong neurons"},
    **{"mlp_numbers": "what MLPs read and write", "mlp_digits": "the same on single prompts"},
    **{"knock_out": "the model without sets of parts", "keep_only": "sets of parts alone"},
    "edges": "edges between the strongest parts",
}
"""The parts of a page, in words."""


def step_flops(model: HookedLike, pairs: PromptPairs) -> dict[str, int]:
    """As many FLOPs as take the time of the maps, and of other large parts of `explored`."""
    cfg, length, rows = model.cfg, pairs.reference.shape[1], problem_rows(pairs)
    heads, mlps = every_head(cfg.n_layers, cfg.n_heads), every_mlp(cfg.n_layers)
    forward, sample = forward_flops(model, length), len(sample_rows(pairs))
    maps = [plan(model, pairs, paths=one["paths"], engine=fitting_engine(model, one["paths"])).flops
            for one in MAP_SETTINGS]  # fmt: skip
    n_sets = 2**N_STRONGEST + len(heads + mlps) + comb(len(mlps), N_WRITERS)
    n_sets += N_DRAWS * (N_STRONGEST + N_WRITERS)
    sets = n_sets * len(rows) * forward // length
    inputs = len(heads) * len(heads + mlps) // 2 * sample * length * 6 * cfg.d_model * cfg.d_head
    flops = {
        "maps": sum(maps),
        "stream": HOOKED * len(stream_rows(pairs)) * cfg.n_layers * length * forward // 2,
        "inputs": NARROW * inputs,
        "mediation": maps[0] * cfg.n_layers * sample // (2 * len(pairs)),
        **dict.fromkeys(KNOCKOUT_POSITIONS, sets),
    }
    receivers = [*heads[:: -(-len(heads) // N_PAGE_HEADS)], *mlps[-N_PAGE_MLPS:]]
    with suppress(ValueError):  # a model whose edges cannot be computed
        flops["edges"] = plan_edges(model, pairs[rows], receivers, positions="each").flops
    return flops


def page_flops(model: HookedLike, pairs: PromptPairs) -> int:
    """As many FLOPs as take the time of `explored`."""
    return sum(step_flops(model, pairs).values())


def countdown(
    flops: Mapping[str, int], names: Sequence[str], started: float
) -> Callable[[str], None]:
    """What prints which step begins and, after a tenth of all, how long is left at that rate."""

    def begin(name: str) -> None:
        number = names.index(name)
        done = flops["maps"] + sum(flops.get(one, 0) for one in names[:number])
        left = sum(flops.get(one, 0) for one in names[number:])
        seconds = (time.monotonic() - started) * left / done
        rest = f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
        rest = f", about {rest} left" * (done >= left / 9)
        print(f"  {number + 1} of {len(names)}: {STEPS[name]}{rest}", flush=True)

    return begin
