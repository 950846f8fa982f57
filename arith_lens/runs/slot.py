"""Storage for the result of a method, in the same steps for every method that takes long.

    slot = ResultSlot.of(run, name, model, pairs, method="mine", metric=metric)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Mine.from_arrays(arrays)
    shards = slot.shards(one_shard, n_shards, title="my method", progress=progress)
    return slot.save(Mine(...))

Without a run the same code computes, and nothing is stored.
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
    """One result, which is stored once by its identity.

    It is computed in shards. Several processes can share them, and a killed computation continues
    with those that are missing.
    """

    run: Run | None
    """The run that stores the result; None: nothing is stored."""
    name: str
    """The name of the result in the run."""
    identity: Mapping[str, Any]
    """What decides the numbers."""
    pairs: SavedPairs | None
    """The pairs that the result is about."""

    @classmethod
    def of(
        cls, run: Run | None, name: str, model: Any, pairs: SavedPairs | None, **question: Any
    ) -> "ResultSlot":
        """The slot of a computation.

        Args:
            run: an open run, or None.
            name: the name of the result in the run.
            model: the model that computes.
            pairs: the data; None if `question` says what the data are.
            question: the other JSON values that decide the numbers: the method, its settings and,
                if it has shards, their size.

        Raises:
            RunError: see `Run.identity`.
        """
        identity = {} if run is None else run.identity(model, pairs, **question)
        return cls(run, name, identity, pairs)

    def stored(self, *, progress: bool, **facts: Any) -> Arrays | None:
        """The arrays of the result if any run has stored it; this run then refers to it.

        Args:
            progress: print a line if the result is stored.
            facts: JSON values to store in this run.

        Returns:
            None if the result must be computed.
        """
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
        """All shards in order. Finished shards are read, the others are computed and stored.

        Args:
            compute: returns the tensors of a shard, with notes as their header, from its number.
            count: the number of shards.
            title, progress, unit, sizes: the progress bar's, as in `every_shard`.
            part: names one part of the computation, if several parts have shards.

        Raises:
            RunError: the run is not open; see also `every_shard`.
        """
        finished = None if self.run is None else self.run.shards(self.name, self.identity, **part)
        bar: dict[str, Any] = {"title": title, "unit": unit, "sizes": sizes, "progress": progress}
        return every_shard(compute, count, finished=finished, **bar)

    def save(self, result: Result, **facts: Any) -> Result:
        """Store the complete result and remove its shards. Returns the result."""
        if self.run is not None:
            self.run.save(self.name, result, pairs=self.pairs, identity=self.identity, **facts)
        return result
