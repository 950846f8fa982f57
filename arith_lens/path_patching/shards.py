"""Pairs in shards of a fixed size: computed one after another, and kept as they finish.

A shard's numbers depend on nothing but its own pairs, so that a computation that was killed goes on
with the shards it lacks, and ends with the bits of an unbroken one.
"""

import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.memory import in_chunks
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import Engine
from arith_lens.runs import Run, Shards, every_shard


@dataclass(frozen=True)
class Place:
    """Where in a run a result goes, and what decides its numbers."""

    run: Run
    name: str
    identity: dict[str, Any]

    @property
    def shards(self) -> Shards:
        return self.run.shards(self.name, self.identity)

    def saved(self, progress: bool) -> Arrays | None:
        """The result, where the run has it from the same computation; that is said."""
        if not self.run.has(self.name, self.identity):
            return None
        if progress:
            print(f"{self.name}: saved before in {self.run.path}, not computed again",
                  file=sys.stderr)  # fmt: skip
        return self.run.load_arrays(self.name)

    def save(self, result: Storable, pairs: PromptPairs) -> None:
        self.run.save(self.name, result, pairs=pairs, identity=self.identity)


def by_shards(
    compute: Engine,
    pairs: PromptPairs,
    foil: Int[Tensor, "pair"] | None,
    size: int,
    *,
    kept: Shards | None,
    progress: bool,
    title: str = "path patching",
) -> tuple[Float[Tensor, "row pair"], dict[str, Any]]:
    """Row 0: the unpatched logit; then the engine's effects. And how that was computed."""
    starts = range(0, len(pairs), size)

    def one(index: int) -> Arrays:
        chosen = slice(starts[index], starts[index] + size)
        return _shard(compute, pairs[chosen], None if foil is None else foil[chosen])

    done = every_shard(one, len(starts), kept=kept, title=title, progress=progress)
    values = torch.cat([shard.tensors["values"] for shard in done], dim=-1)
    return values, _together([dict(shard.header) for shard in done])


def _shard(compute: Engine, pairs: PromptPairs, foil: Int[Tensor, "pair"] | None) -> Arrays:
    """One shard's values, and its engine's notes. Halved where it is too large for the memory."""
    started = time.perf_counter()

    def part(chosen: slice) -> Tensor:
        return compute(pairs[chosen], None if foil is None else foil[chosen]).cpu()

    values, _ = in_chunks(part, len(pairs), len(pairs))
    seconds = time.perf_counter() - started
    return Arrays({"values": values}, {"seconds": seconds, **compute.notes()})


def _together(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """What a result says of all its shards.

    Each process that took part has certified its own first shard: the first certificate is that of
    the first shard, the others are those of processes that went on after it.
    """
    together: dict[str, Any] = {"seconds": sum(note["seconds"] for note in notes)}
    chunks = {size for note in notes for size in note.get("chunk_sizes", [])}
    certificates = [note["certificate"] for note in notes if "certificate" in note]
    if chunks:
        together["chunk_sizes"] = sorted(chunks, reverse=True)
    if certificates:
        together["certificate"] = certificates[0]
    if certificates[1:]:
        together["certificates_after_resuming"] = certificates[1:]
    return together
