"""Floating-point operations of a model's parts, counted as torch counts them.

Two operations for a multiplication with an addition, in matrix products alone. Mixtures of experts
are counted as if every expert ran.
"""

from typing import Any

from torch import nn

from arith_lens.model import HookedLike
from arith_lens.path_patching.question import Question


def rows_flops(model: HookedLike, asked: Question) -> int:
    """The sweep of one pair: heads' writes, MLPs of one token a row, and what is read of a row."""
    cfg, senders = model.cfg, asked.senders
    through_mlps = 0
    if asked.paths == "via_mlps":
        mlps = [_weights(block.mlp) for block in model.blocks]
        passing = senders.rows_through_mlps()
        through_mlps = sum(rows * size for rows, size in zip(passing, mlps, strict=True))
    writes = sum(map(len, senders.heads)) * cfg.d_head * cfg.d_model
    columns = 1 + asked.reads_foil + asked.reads_vocabulary * cfg.d_vocab
    return 2 * (through_mlps + writes + senders.n_rows * cfg.d_model * columns)


def forward_flops(model: HookedLike, length: int) -> int:
    """One prompt of `length` tokens, with eager attention and without the vocabulary matrix."""
    cfg = model.cfg
    weights = sum(_weights(block.attn) + _weights(block.mlp) for block in model.blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head * length
    return 2 * length * (weights + scores)


def _weights(module: nn.Module | Any) -> int:
    """Elements of the matrices of a module, each weight once."""
    return sum(value.numel() for value in module.parameters() if value.ndim > 1)
