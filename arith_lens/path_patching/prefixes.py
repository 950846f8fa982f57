"""Prompts with a common beginning: whether it is recorded once, and how much of it.

Prompts with the same examples before the question differ only in their last tokens. The keys and
values of the common beginning are then computed once for all prompts that have it, and only the
last tokens run for each prompt. The numbers differ from those of whole prompts by rounding. So all
pairs of a path patching are recorded in one way, whichever shard they are in.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from arith_lens.model import HookedLike, continues_prompts
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.recording import both_runs

LEAST_SHARE = 0.25
"""The share of a recording's operations that must be saved; else whole prompts are recorded."""
LEAST_OPERATIONS = 1.5e8
"""The overhead of a second forward, in operations per layer and 64 pairs."""
BLOCK = 64
"""The number of pairs that are planned together, as in a shard of the default size."""


def own_tokens(model: HookedLike, pairs: PromptPairs) -> int | None:
    """The number of tokens at the end of each prompt that are recorded for this prompt alone.

    The tokens before them are recorded once for all prompts of a shard that have them. Each prompt
    has at least one such token. The number depends on the model and on all pairs.

    Returns:
        The number with the fewest operations. None if that saves too little, or if it is not tested
        that this architecture continues a prompt in the same way as it computes a whole one.
    """
    blocks = [both_runs(block) for block in pairs.batches(BLOCK)]
    longest = max(tokens.shape[1] for tokens, _ in blocks)
    candidates = range(1, int(pairs.lengths.min()))
    if not candidates or not continues_prompts(model, longest):
        return None
    counts = [(len(tokens), tokens.shape[1], n_distinct(tokens, mask)) for tokens, mask in blocks]
    n_tokens = sum(n_prompts * width for n_prompts, width, _ in counts)

    def saved_tokens(n_own: int) -> int:
        return sum((n - distinct[width - n_own]) * (width - n_own) for n, width, distinct in counts)

    if max(map(saved_tokens, candidates)) < LEAST_SHARE * n_tokens:
        return None
    operations = recording_operations(model)

    def with_prefixes(n_own: int) -> int:
        return sum(
            distinct[width - n_own] * operations(width - n_own)
            + n * operations(n_own, width - n_own)
            for n, width, distinct in counts
        )

    without_prefixes = sum(n * operations(width) for n, width, _ in counts)
    best = min(candidates, key=with_prefixes)
    saved = without_prefixes - with_prefixes(best)
    overhead = LEAST_OPERATIONS * len(blocks) * int(model.cfg.n_layers)
    least = max(LEAST_SHARE * without_prefixes, overhead)
    return best if saved >= least else None


def shard_recording_flops(model: HookedLike, pairs: PromptPairs, own: int | None) -> int:
    """FLOPs of both runs of a shard, without the vocabulary matrix.

    Args:
        model: the model.
        pairs: the pairs of the shard.
        own: the number of tokens at the end of each prompt that run for this prompt alone.
    """
    tokens, mask = both_runs(pairs)
    n_prompts, width = tokens.shape
    operations = recording_operations(model)
    if own is None:
        return n_prompts * operations(width)
    shared = width - own
    return n_distinct(tokens, mask)[shared] * operations(shared) + n_prompts * operations(
        own, shared
    )


def n_distinct(tokens: Int[Tensor, "prompt pos"], mask: Bool[Tensor, "prompt pos"]) -> list[int]:
    """The numbers of different beginnings of 0, 1, 2, ... columns that the prompts have."""
    rows = torch.tensor(sorted(tokens.masked_fill(~mask, -1).tolist()))
    differences = rows.diff(dim=0).ne(0)
    first = differences.int().argmax(1)[differences.any(1)]  # the column at which neighbours part
    parted = torch.bincount(first, minlength=rows.shape[1]).cumsum(0)
    return [1, *(1 + parted).tolist()]


def recording_flops(model: HookedLike, length: int) -> int:
    """FLOPs of one prompt as the sweep records it.

    The last layer's output projection and MLP are computed for END alone. If hooks are active, a
    recording is a whole forward instead.
    """
    return recording_operations(model)(length)


def recording_operations(model: HookedLike) -> Callable[..., int]:
    """`recording_flops` as a function of the number of tokens that run, and of the number of tokens
    before them whose keys and values are known."""
    cfg, blocks = model.cfg, list(model.blocks)
    weights = sum(matrix_elements(block.attn) + matrix_elements(block.mlp) for block in blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head
    last = cfg.n_heads * cfg.d_head * cfg.d_model + matrix_elements(blocks[-1].mlp)

    def operations(length: int, before: int = 0) -> int:
        products = length * (weights + scores * (before + length))
        return int(2 * (products - (length - 1) * last))

    return operations


def matrix_elements(module: nn.Module | Any) -> int:
    """The number of elements in all matrices of a module."""
    return sum(value.numel() for value in module.parameters() if value.ndim > 1)
