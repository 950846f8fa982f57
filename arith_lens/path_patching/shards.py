"""Pairs in shards of a fixed size, and what a result says of how they were computed.

A shard's numbers depend on nothing but its own pairs, so that a computation that was killed goes on
with the shards it lacks, and ends with the bits of an unbroken one.
"""

import time
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.memory import in_chunks
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching.engines import Engine
from arith_lens.runs import ResultSlot


def by_shards(
    compute: Engine,
    pairs: PromptPairs,
    foil: Int[Tensor, "pair"] | None,
    size: int,
    *,
    slot: ResultSlot,
    progress: bool,
    title: str = "path patching",
) -> tuple[Float[Tensor, "row pair"], dict[str, Any]]:
    """Row 0: the unpatched logit; then the engine's effects. And how that was computed."""
    starts = range(0, len(pairs), size)

    def one(index: int) -> Arrays:
        chosen = slice(starts[index], starts[index] + size)
        return _shard(compute, pairs[chosen], None if foil is None else foil[chosen])

    shards = slot.shards(one, len(starts), title=title, progress=progress)
    values = torch.cat([shard.tensors["values"] for shard in shards], dim=-1)
    return values, _together([dict(shard.header) for shard in shards])


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
