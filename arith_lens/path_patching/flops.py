"""Floating-point operations of a model's parts, counted as torch counts them.

Two operations for a multiplication with an addition, in matrix products alone. Mixtures of experts
are counted as if every expert ran.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from arith_lens.model import HookedLike

if TYPE_CHECKING:  # a question counts operations to know how prompts are recorded
    from arith_lens.path_patching.question import Question


def rows_flops(model: HookedLike, asked: "Question") -> int:
    """The sweep of one pair, or its closed form where no MLP is recomputed."""
    senders = asked.senders
    passing = senders.rows_through_mlps() if asked.paths == "via_mlps" else [0] * asked.n_layers
    return flops_of_rows(model, asked, passing, senders.n_rows)


def flops_of_rows(model: HookedLike, asked: "Question", passing: Sequence[int], n_rows: int) -> int:
    """One pair: heads' writes, MLPs of one token a row, and what is read of a row.

    `passing` says how many rows pass each layer's MLP; `n_rows` are read.
    """
    cfg = model.cfg
    mlps = [_weights(block.mlp) for block in model.blocks]
    through_mlps = sum(rows * size for rows, size in zip(passing, mlps, strict=True))
    writes = sum(map(len, asked.senders.heads)) * cfg.d_head * cfg.d_model
    columns = 1 + asked.reads_foil + asked.reads_vocabulary * cfg.d_vocab
    return 2 * (through_mlps + writes + n_rows * cfg.d_model * columns)


def forward_flops(model: HookedLike, length: int) -> int:
    """One prompt of `length` tokens, with eager attention and without the vocabulary matrix."""
    cfg = model.cfg
    weights = sum(_weights(block.attn) + _weights(block.mlp) for block in model.blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head * length
    return 2 * length * (weights + scores)


def recording_flops(model: HookedLike, length: int) -> int:
    """The same as the sweep records it: the last layer's output projection and MLP for END alone.

    Where hooks are in place, a recording is a whole forward.
    """
    return recording_operations(model)(length)


def recording_operations(model: HookedLike) -> Callable[..., int]:
    """`recording_flops` as a function of a prompt's tokens, and of how many stand before them whose
    keys and values are known."""
    cfg, blocks = model.cfg, list(model.blocks)
    weights = sum(_weights(block.attn) + _weights(block.mlp) for block in blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head
    last = cfg.n_heads * cfg.d_head * cfg.d_model + _weights(blocks[-1].mlp)

    def operations(length: int, before: int = 0) -> int:
        products = length * (weights + scores * (before + length))
        return int(2 * (products - (length - 1) * last))

    return operations


def _weights(module: nn.Module | Any) -> int:
    """Elements of the matrices of a module, each weight once."""
    return sum(value.numel() for value in module.parameters() if value.ndim > 1)
