"""What a sweep will cost, before it runs: floating-point operations and bytes.

Counted as torch counts them: two operations for a multiplication with an addition, in matrix
products alone.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from arith_lens.components import every_head, every_mlp
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.recording import both_runs
from arith_lens.path_patching.sweep import Senders


@dataclass(frozen=True)
class Plan:
    """The cost of `path_patch(model, pairs)` with every head and MLP as sender."""

    n_pairs: int
    n_senders: int
    recording_flops: int
    """Two forwards without the vocabulary matrix."""
    sweep_flops: int
    row_bytes: int
    """The sweep's rows for one pair; MLPs need a few times as much while they run."""

    @property
    def flops(self) -> int:
        return self.recording_flops + self.sweep_flops

    def __str__(self) -> str:
        return (
            f"{self.n_pairs} pairs, {self.n_senders} senders: {self.flops:.3g} FLOPs "
            f"({self.recording_flops:.3g} to record, {self.sweep_flops:.3g} to sweep), "
            f"{self.row_bytes:.3g} bytes of rows a pair"
        )


def plan(model: HookedLike, pairs: PromptPairs) -> Plan:
    """FLOPs and bytes of the sweep over all components of `model` on `pairs`.

    Mixtures of experts are counted as if every expert ran.
    """
    cfg = model.cfg
    components = every_head(cfg.n_layers, cfg.n_heads) + every_mlp(cfg.n_layers)
    senders = Senders.of(components, cfg.n_layers)
    n_pairs, length = len(pairs), both_runs(pairs)[0].shape[1]
    return Plan(
        n_pairs=n_pairs,
        n_senders=len(components),
        recording_flops=2 * n_pairs * forward_flops(model, length),
        sweep_flops=n_pairs * sweep_flops(model, senders),
        row_bytes=4 * senders.n_rows * cfg.d_model,
    )


def sweep_flops(model: HookedLike, senders: Senders) -> int:
    """One pair: heads' writes, MLPs of one token a row, and a column of W_U a row."""
    cfg = model.cfg
    mlps = [_weights(block.mlp) for block in model.blocks]
    passing = senders.rows_through_mlps()
    through_mlps = sum(rows * size for rows, size in zip(passing, mlps, strict=True))
    writes = sum(map(len, senders.heads)) * cfg.d_head * cfg.d_model
    return 2 * (through_mlps + writes + senders.n_rows * cfg.d_model)


def forward_flops(model: HookedLike, length: int) -> int:
    """One prompt of `length` tokens, with eager attention and without the vocabulary matrix."""
    cfg = model.cfg
    weights = sum(_weights(block.attn) + _weights(block.mlp) for block in model.blocks)
    scores = 2 * cfg.n_layers * cfg.n_heads * cfg.d_head * length
    return 2 * length * (weights + scores)


def _weights(module: nn.Module | Any) -> int:
    """Elements of the matrices of a module, each weight once."""
    return sum(value.numel() for value in module.parameters() if value.ndim > 1)
