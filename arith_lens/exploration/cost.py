"""What a page of the explorer takes before it is computed."""

from math import comb

from arith_lens.exploration import exploring
from arith_lens.exploration.exploring import MAP_SETTINGS, N_WRITERS
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


def page_flops(model: HookedLike, pairs: PromptPairs) -> int:
    """Most FLOPs of `explored`: of its maps, the stream, joint knockouts and the heads' inputs."""
    cfg, length = model.cfg, pairs.reference.shape[1]
    n_heads, n_parts = cfg.n_layers * cfg.n_heads, cfg.n_layers * (cfg.n_heads + 1)
    forward, sample = forward_flops(model, length), len(sample_rows(pairs))
    maps = [plan(model, pairs, paths=one["paths"], engine=fitting_engine(model, one["paths"])).flops
            for one in MAP_SETTINGS]  # fmt: skip
    streams = len(stream_rows(pairs)) * cfg.n_layers * length * forward // 2
    n_sets = 2**exploring.N_STRONGEST + n_parts + comb(cfg.n_layers, N_WRITERS)
    n_sets += N_DRAWS * (exploring.N_STRONGEST + N_WRITERS)
    sets = len(KNOCKOUT_POSITIONS) * n_sets * len(problem_rows(pairs)) * forward // length
    inputs = n_heads * n_parts // 2 * sample * length * 3 * 2 * cfg.d_model * cfg.d_head
    return sum(maps) + streams + sets + inputs
