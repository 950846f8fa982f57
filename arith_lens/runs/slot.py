"""Where a method's result goes: the same few steps for every method that computes for long.

    slot = ResultSlot.of(run, name, model, pairs, method="mine", metric=metric)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Mine.from_arrays(arrays)
    shards = slot.shards(one_shard, n_shards, title="my method", progress=progress)
    return slot.save(Mine(...))

Without a run the same steps compute, and nothing is kept.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from arith_lens.arrays import Arrays, Storable
from arith_lens.runs.provenance import SavedPairs
from arith_lens.runs.run import Run
from arith_lens.runs.shards import every_shard

Result = TypeVar("Result", bound=Storable)


@dataclass(frozen=True)
class ResultSlot:
    """One result: stored once by its identity, computed in shards that survive a kill and that
    several processes share."""

    run: Run | None
    """None: nothing is kept."""
    name: str
    """Of the result in the run."""
    identity: Mapping[str, Any]
    pairs: SavedPairs | None

    @classmethod
    def of(
        cls, run: Run | None, name: str, model: Any, pairs: SavedPairs | None, **question: Any
    ) -> "ResultSlot":
        """The slot of a computation.

        Args:
            question: JSON values that decide the numbers beside model and pairs, among them the
                method and, where it has shards, their size.

        Raises:
            RunError: as `Run.identity`.
        """
        identity = {} if run is None else run.identity(model, pairs, **question)
        return cls(run, name, identity, pairs)

    def stored(self, *, progress: bool, **facts: Any) -> Arrays | None:
        """The result's arrays where any run has computed it; the run then refers to it."""
        if self.run is None or (arrays := self.run.stored(self.identity)) is None:
            return None
        self.run.refer(self.name, self.identity, pairs=self.pairs, **facts)
        if progress:
            folder = self.run.folder(self.name)
            print(f"{self.name}: saved before in {folder}, not computed again", file=sys.stderr)
        return arrays

    def shards(
        self,
        compute: Callable[[int], Arrays],
        count: int,
        *,
        title: str,
        progress: bool,
        unit: str = "shard",
        sizes: Sequence[int] | None = None,
        **part: Any,
    ) -> list[Arrays]:
        """All shards in order; those that are finished are read, the others computed and kept.

        Args:
            compute: from a shard's number, its tensors, with notes as their header.
            title, unit, sizes: of the progress bar, as in `every_shard`.
            part: which part of the computation, where there are several with shards.

        Raises:
            RunError: the run is not open; else as `every_shard`.
        """
        finished = None if self.run is None else self.run.shards(self.name, self.identity, **part)
        bar: dict[str, Any] = {"title": title, "unit": unit, "sizes": sizes, "progress": progress}
        return every_shard(compute, count, finished=finished, **bar)

    def save(self, result: Result, **facts: Any) -> Result:
        """Store the whole result; its shards are removed."""
        if self.run is not None:
            self.run.save(self.name, result, pairs=self.pairs, identity=self.identity, **facts)
        return result
