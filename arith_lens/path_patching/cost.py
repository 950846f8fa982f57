"""What a path patching will cost, before it runs: floating-point operations, bytes, time."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from arith_lens.components import Components
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.flops import forward_flops, rows_flops
from arith_lens.path_patching.patch import engine_for, shard_size
from arith_lens.path_patching.peak import hooks_peak, sweep_peak
from arith_lens.path_patching.prefixes import shard_recording_flops
from arith_lens.path_patching.question import Question, ask
from arith_lens.path_patching.recording import both_runs


@dataclass(frozen=True)
class Plan:
    """The cost of a `path_patch` of the same arguments."""

    n_pairs: int
    n_senders: int
    engine: str
    recording_flops: int
    """Two forwards without the vocabulary matrix; in a sweep, the last layer's for END alone, and
    what prompts have in common once."""
    patching_flops: int
    """The sweep; with hooks, a forward for each sender and one unpatched."""
    peak_bytes: int
    """The largest shard's, above the model's own; with the memory that is free now."""

    @property
    def flops(self) -> int:
        return self.recording_flops + self.patching_flops

    def seconds(self, part: "Plan", took: float | int) -> float:
        """How long this takes where `part` of it, such as a first shard, took so many seconds."""
        return took * self.flops / part.flops

    def __str__(self) -> str:
        how = "to sweep" if self.engine == "sweep" else "to run once for each sender"
        return (
            f"{self.n_pairs} pairs, {self.n_senders} senders: {self.flops:.3g} FLOPs "
            f"({self.recording_flops:.3g} to record, {self.patching_flops:.3g} {how}), at most "
            f"{self.peak_bytes:.3g} bytes beside the model"
        )


def plan(
    model: HookedLike,
    pairs: PromptPairs,
    *,
    senders: Components | None = None,
    paths: str = "via_mlps",
    metric: str = "relative_logit",
    foil: Int[Tensor, "pair"] | None = None,
    engine: str = "sweep",
    batch_size: int | None = None,
) -> Plan:
    """FLOPs and bytes of `path_patch` with these arguments, without the certificate's few pairs.

    FLOPs are those that torch's FlopCounterMode counts; bytes are right within a quarter for
    gated MLPs and eager attention. For the time, patch a first shard and ask `Plan.seconds`;
    `path_patch` shows the time that is left once its first shard is done.

    Raises:
        IndexError, ValueError: as `path_patch`.
    """
    asked = ask(model, senders, paths=paths, metric=metric, foil=foil, pairs=pairs)
    engine_for(engine, model, asked, certify=False)  # refuses what path_patch would refuse
    by_shard = _sweep if engine == "sweep" else _hooks
    costs = [
        by_shard(model, asked, shard) for shard in pairs.batches(shard_size(batch_size, engine))
    ]
    recording, patching, peaks = zip(*costs, strict=True)
    return Plan(
        n_pairs=len(pairs),
        n_senders=len(asked.components),
        engine=engine,
        recording_flops=sum(recording),
        patching_flops=sum(patching),
        peak_bytes=max(peaks),
    )


def _sweep(model: HookedLike, asked: Question, shard: PromptPairs) -> tuple[int, int, int]:
    n_pairs, length = len(shard), both_runs(shard)[0].shape[1]
    return (
        shard_recording_flops(model, shard, asked.own_tokens),
        n_pairs * rows_flops(model, asked),
        sweep_peak(model, asked, n_pairs, length),
    )


def _hooks(model: HookedLike, asked: Question, shard: PromptPairs) -> tuple[int, int, int]:
    n_pairs, length = shard.reference.shape
    forward = forward_flops(model, length)
    vocabulary = 2 * model.cfg.d_model * model.cfg.d_vocab
    return (
        2 * n_pairs * forward,
        n_pairs * (1 + len(asked.components)) * (forward + vocabulary),
        hooks_peak(model, n_pairs, length),
    )
