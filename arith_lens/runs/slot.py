"""A result of a run that is computed in shards, and stored once.

A killed computation continues with the shards that are missing. A method uses a slot in four steps:

    slot = ResultSlot.of(run, name, model, pairs, method="mine", metric=metric)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Mine.from_arrays(arrays)
    shards = slot.shards(one_shard, n_shards, title="my method", progress=progress)
    return slot.save(Mine(...))

Without a run the same code computes, and nothing is stored.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from arith_lens.arrays import Arrays, Storable
from arith_lens.progress import bar
from arith_lens.runs.files import RunError
from arith_lens.runs.manifest import SavedPairs
from arith_lens.runs.processes import Processes
from arith_lens.runs.run import Run
from arith_lens.runs.shards import PartDone, Shards

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

        If several processes work on one run, each takes the next shard when it is free, and reads
        those of the others. What a process that has ended did not finish, the others compute.
        Without a run, each process computes all.

        Args:
            compute: returns the tensors of a shard, with notes as their header, from its number.
            count: the number of shards.
            title: the title of the progress bar; with a run, the result's name follows it.
            progress: whether to show the bar.
            unit: what the bar counts.
            sizes: how many units each shard has; None: one.
            part: names one part of the computation, if several parts have shards.

        Raises:
            PartDone: this process works apart, and shards of other parts are missing.
            RunError: the run is not open, or shards that another process should have written are
                missing.
        """
        finished = None if self.run is None else self.run.shards(self.name, self.identity, **part)
        team = Processes() if self.run is None else self.run.team
        done = {} if finished is None else _loaded(finished, range(count))
        steps = sizes or [1] * count
        label = title if self.run is None else ", ".join(dict.fromkeys([title, self.name]))
        options = {"total": sum(steps), "desc": label, "unit": unit}
        options["initial"] = sum(steps[index] for index in done)
        with bar(visible=progress, **options) as shown_bar:
            while missing := team.agree([index for index in range(count) if index not in done]):
                dealt = 0
                for position in team.deal(len(missing)):
                    index = missing[position]
                    done[index] = compute(index)
                    if finished and (team.leads or not team.together):
                        finished.save(index, done[index].tensors, done[index].header)
                    shown_bar.update(sum(steps[n] for n in missing[dealt : position + 1]))
                    dealt = position + 1
                ended = team.wait()
                shown_bar.update(sum(steps[n] for n in missing[dealt:]))
                if finished and team.count > 1:
                    done |= _loaded(finished, [n for n in missing if n not in done])
                    if not ended:
                        _require_all(done, count, finished, team)
        if finished:
            _require_all(done, count, finished, team)
        team.wait()  # shards are removed only after all processes have read them
        return [done[index] for index in range(count)]

    def save(self, result: Result, **facts: Any) -> Result:
        """Store the complete result and remove its shards. Returns the result."""
        if self.run is not None:
            self.run.save(self.name, result, pairs=self.pairs, identity=self.identity, **facts)
        return result


def _loaded(shards: Shards, indices: Iterable[int]) -> dict[int, Arrays]:
    loaded = {index: shards.load(index) for index in indices}
    return {index: shard for index, shard in loaded.items() if shard is not None}


def _require_all(done: Mapping[int, Arrays], count: int, shards: Shards, team: Processes) -> None:
    """Raise an error unless the shards of the others, which have all finished, are here, too."""
    missing = count - len(done)
    if missing and team.apart:
        raise PartDone(
            f"{team} is done and kept in {shards.folder}; {missing} shards are the others'. Copy "
            "the folder store/ of each machine into one, then run the same there without a part"
        )
    if missing:
        raise RunError(
            f"expected {missing} shards of other processes in {shards.folder}, found none. Let all "
            "write to one file system, or compute parts apart and copy them: see docs/clusters.md"
        )
