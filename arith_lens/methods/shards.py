"""The loop over pairs: shard by shard, with finished shards stored in a run.

The numbers of a shard depend on its own pairs only. A computation that was killed therefore
continues with the shards that are missing, and ends with the same bits as one without a break.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.memory import in_chunks
from arith_lens.pairs import PromptPairs
from arith_lens.runs import ResultSlot

SHARD = 64
"""Pairs that are recorded in one batch and computed together."""
HOOKS_SHARD = 8
"""The same where each number needs a forward of its own. It is smaller, because such a computation
is slow, and a stopped one loses one shard."""

Notes: TypeAlias = dict[str, Any]
"""What a result should record about its computation, as JSON values."""


@runtime_checkable
class Engine(Protocol):
    """A function that computes the numbers of a batch of pairs, with notes for the record."""

    def __call__(
        self, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None
    ) -> Float[Tensor, "row pair"]: ...

    def notes(self) -> Notes:
        """The notes on the batches since the last call, such as a certificate."""
        ...


def shard_size(batch_size: int | None, default: int = SHARD) -> int:
    """The number of pairs in a shard. Raises ValueError if it is below one."""
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"expected a batch_size of at least 1 pair, found {batch_size}")
    return batch_size or default


@dataclass(frozen=True)
class ShardLoop:
    """All pairs of a computation, cut into shards."""

    pairs: PromptPairs
    """The pairs."""
    foil: Int[Tensor, " pair"] | None
    """A token for each pair; None: the method needs none."""
    size: int
    """The number of pairs in a shard."""
    slot: ResultSlot
    """The place in a run that stores finished shards."""
    title: str
    """The title of the progress bar."""
    progress: bool
    """Whether to show the progress bar."""

    def of_pairs(self, rows: Int[Tensor, " chosen"]) -> "ShardLoop":
        """The loop over some of the pairs."""
        foil = None if self.foil is None else self.foil[rows]
        return replace(self, pairs=self.pairs[rows], foil=foil)

    def __call__(self, engine: Engine, **part: Any) -> tuple[Float[Tensor, "row pair"], Notes]:
        """Compute the numbers of all pairs.

        Args:
            engine: computes a batch of pairs.
            part: names one part of the computation, if it has several.

        Returns:
            What the engine returns, for all pairs; and notes on the computation.
        """
        starts = range(0, len(self.pairs), self.size)

        def compute(index: int) -> Arrays:
            chosen = slice(starts[index], starts[index] + self.size)
            foil = None if self.foil is None else self.foil[chosen]
            return compute_shard(engine, self.pairs[chosen], foil)

        titles = {"title": self.title, "progress": self.progress}
        shards = self.slot.shards(compute, len(starts), **titles, **part)
        values = torch.cat([shard.tensors["values"] for shard in shards], dim=-1)
        return values, joined_notes([dict(shard.header) for shard in shards])


def compute_shard(engine: Engine, pairs: PromptPairs, foil: Int[Tensor, " pair"] | None) -> Arrays:
    """One shard's values, and its engine's notes. It is halved if it does not fit in memory."""
    started, worked = time.perf_counter(), time.process_time()

    def part(chosen: slice) -> Tensor:
        return engine(pairs[chosen], None if foil is None else foil[chosen]).cpu()

    values, _ = in_chunks(part, len(pairs), len(pairs))
    spent = {
        "seconds": time.perf_counter() - started,
        "processor_seconds": time.process_time() - worked,
    }
    return Arrays({"values": values}, {**spent, **engine.notes()})


def joined_notes(notes: Sequence[Notes]) -> Notes:
    """Join the notes of all shards.

    Each process has certified its own first shard. So the first certificate is that of the first
    shard, and the others are those of processes that continued the computation.
    """
    together: Notes = {
        name: sum(note[name] for note in notes)
        for name in ("seconds", "processor_seconds")
        if all(name in note for note in notes)  # not in shards of earlier versions
    }
    chunks = {size for note in notes for size in note.get("chunk_sizes", [])}
    certificates = [note["certificate"] for note in notes if "certificate" in note]
    if chunks:
        together["chunk_sizes"] = sorted(chunks, reverse=True)
    if certificates:
        together["certificate"] = certificates[0]
    together |= {name: notes[0][name] for name in ("forwards", "backwards") if name in notes[0]}
    if certificates[1:]:
        together["certificates_after_resuming"] = certificates[1:]
    return together
