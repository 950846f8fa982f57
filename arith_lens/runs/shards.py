"""A result that is computed in shards: the processes that share them, their files, and the slot.

A killed computation continues with the shards that are missing. A method uses a slot in four steps:

    slot = ResultSlot.of(run, name, model, pairs, method="mine", metric=metric)
    if (arrays := slot.stored(progress=progress)) is not None:
        return Mine.from_arrays(arrays)
    shards = slot.shards(one_shard, n_shards, title="my method", progress=progress)
    return slot.save(Mine(...))

Without a run the same code computes, and nothing is stored.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from arith_lens.arrays import Arrays, Storable
from arith_lens.caller_warnings import warn_caller
from arith_lens.progress import bar
from arith_lens.runs.files import (
    RunError,
    digest,
    from_bytes,
    make_folder,
    plain_value,
    write,
)
from arith_lens.runs.manifest import SavedPairs

if TYPE_CHECKING:
    from arith_lens.runs.run import Run

PART_VARIABLE = "ARITH_LENS_PART"
JOIN = timedelta(minutes=10)
"""How long the first process waits for the last one to start."""
WORK = timedelta(days=30)
"""How long a process that has finished its share waits. If one process dies, all end."""


class PartDone(RunError):
    """This process has finished its part. The parts of other processes are still missing."""


@dataclass(frozen=True)
class Processes:
    """The processes that work on a run, and which of them this process is."""

    index: int = 0
    """The number of this process, from 0."""
    count: int = 1
    """The number of all processes."""
    apart: bool = False
    """Whether each process writes to a root of its own, to be copied into one afterwards."""

    @property
    def leads(self) -> bool:
        """Whether this process writes the run's manifest and results."""
        return self.apart or self.index == 0

    def share(self, parts: list[int]) -> list[int]:
        """Which of the parts this process computes."""
        return parts[self.index :: self.count]

    def wait(self) -> None:
        """Wait until every process has called this. Raises RunError if one has ended."""
        self.agree(None)

    def agree(self, value: Any) -> Any:
        """Return the value of the first process in every process. Waits, and raises, as `wait`."""
        if self.count == 1 or self.apart:
            return value
        import torch.distributed

        values = [value]
        try:
            torch.distributed.barrier(group=_waiting_room())
            torch.distributed.broadcast_object_list(values, src=0, group=_waiting_room())
        except RuntimeError as error:
            raise RunError(
                f"expected {self.count} processes at work, found that one has ended ({error}). "
                "Start them again: what was finished is kept."
            ) from error
        return values[0]

    def __str__(self) -> str:
        return f"part {self.index + 1} of {self.count}"


def processes() -> Processes:
    """The processes that the launcher or `ARITH_LENS_PART` names.

    Raises:
        RunError: the part is not valid, or not all processes start.
    """
    if (part := os.environ.get(PART_VARIABLE)) is not None:
        index, _, parts = part.partition("/")
        if not (index.isdigit() and parts.isdigit() and 1 <= int(index) <= int(parts)):
            raise RunError(
                f"expected {PART_VARIABLE} such as 2/3, the second of three parts, found {part!r}"
            )
        return Processes(int(index) - 1, int(parts), apart=True)
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes()
    _waiting_room()
    return Processes(int(os.environ["RANK"]), count)


def claim_rank_zero() -> bool:
    """Leave all work to the first of the processes that were started together.

    The variables of the launcher are removed, so that the first process works as if it were alone.

    Returns:
        Whether this is the first process.
    """
    first = os.environ.get("RANK", "0") == "0"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    return first


@cache
def _waiting_room() -> Any:
    """The process group for waiting. It is on the CPU, on whatever device processes compute."""
    import torch.distributed
    from accelerate import PartialState

    try:
        PartialState(timeout=JOIN)  # starts the default group, and takes this process's GPU
    except torch.distributed.DistError as error:
        raise RunError(
            f"expected {os.environ['WORLD_SIZE']} processes, found that some did not start within "
            f"{JOIN} ({error}). Start them again: what was finished is kept."
        ) from error
    return torch.distributed.new_group(backend="gloo", timeout=WORK)


SHARDS_FOLDER = "shards"
_QUESTION = "part.json"
ATTEMPTS = 5
"""How often a shard is written anew. A process that has finished the same result removes the folder
of the shards, also while others write into it."""


class Shards:
    """The finished shards of one computation, by number. Shards of others are not used.

    The file of a shard contains its own digest and the digest of the question. So a shard that is
    damaged or belongs to another computation is recognised. Shards are removed when the result is
    saved.
    """

    def __init__(
        self, folder: Path, question: Mapping[str, Any], prepare: Callable[[], Any]
    ) -> None:
        """
        Args:
            folder: the folder of all shards of one result.
            question: what decides the numbers of these shards.
            prepare: a function that is called before the first shard is written.
        """
        self._question = question
        self._digest = identity_digest(question)
        self._prepare = prepare
        self.folder = folder / self._digest[:12]

    def load(self, index: int) -> Arrays | None:
        """Read a shard; its notes are the header.

        Returns:
            None if the shard is missing, or damaged (with a warning): it is then computed again.
        """
        path = self._path(index)
        try:
            return check_shard(path.read_bytes(), self._digest, index)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RunError) as error:
            warn_caller(f"{path} is damaged ({error}); it is computed again")
            return None

    def save(
        self, index: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any] | None = None
    ) -> None:
        """Write a finished shard.

        Args:
            index: the number of the shard.
            tensors: its arrays, by name.
            notes: JSON values to store with it.

        Raises:
            RunError: the file cannot be written. Earlier shards stay.
        """
        header = {"shard": [self._digest, index], **(notes or {})}
        header["sha256"] = digest(Arrays(tensors, header).to_bytes())
        data = Arrays(tensors, header).to_bytes()
        for attempt in range(ATTEMPTS):
            try:
                self._write(index, data)
                return
            except RunError as error:
                is_gone = isinstance(error.__cause__, FileNotFoundError)
                if not is_gone or attempt == ATTEMPTS - 1:
                    raise

    def _write(self, index: int, data: bytes) -> None:
        """Write a shard's file, and its folder's question if that is missing."""
        if not (file := self.folder / _QUESTION).exists():
            self._prepare()
            make_folder(self.folder)
            write(file, json.dumps(plain_value(self._question), indent=2).encode())
        write(self._path(index), data)

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05d}.safetensors"


def check_shard(data: bytes, identity: str, index: int) -> Arrays:
    """Read a shard from a file's contents.

    Raises:
        RunError: it is damaged, or a shard of another number or computation.
    """
    arrays = from_bytes(data)
    notes = dict(arrays.header)
    written = notes.pop("sha256", None)
    if digest(Arrays(arrays.tensors, notes).to_bytes()) != written:
        raise RunError("its contents are not those that were written")
    if notes.pop("shard", None) != [identity, index]:
        raise RunError("it is a part of another computation")
    return Arrays(arrays.tensors, notes)


def identity_digest(identity: Mapping[str, Any]) -> str:
    """The SHA-256 of an identity. The order of its keys does not matter."""
    return digest(json.dumps(plain_value(identity), sort_keys=True).encode())


Result = TypeVar("Result", bound=Storable)


@dataclass(frozen=True)
class ResultSlot:
    """One result, which is stored once by its identity.

    It is computed in shards. Several processes can share them, and a killed computation continues
    with those that are missing.
    """

    run: "Run | None"
    """The run that stores the result; None: nothing is stored."""
    name: str
    """The name of the result in the run."""
    identity: Mapping[str, Any]
    """What decides the numbers."""
    pairs: SavedPairs | None
    """The pairs that the result is about."""

    @classmethod
    def of(
        cls, run: "Run | None", name: str, model: Any, pairs: SavedPairs | None, **question: Any
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

        If several processes work on one run, each computes its share and reads the shards of the
        others. Without a run, each process computes all.

        Args:
            compute: returns the tensors of a shard, with notes as their header, from its number.
            count: the number of shards.
            title: the title of the progress bar.
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
        team = processes() if finished else Processes()
        done = {} if finished is None else _loaded(finished, range(count))
        missing = team.agree([index for index in range(count) if index not in done])
        share = team.share(missing)
        steps = sizes or [1] * count
        total = sum(steps if team.count == 1 else [steps[index] for index in share])
        before = sum(steps[index] for index in done) if team.count == 1 else 0
        options = {"total": total, "initial": before, "desc": title, "unit": unit}
        with bar(shown=progress and team.leads, **options) as shown:
            for index in share:
                done[index] = compute(index)
                if finished:
                    finished.save(index, done[index].tensors, done[index].header)
                shown.update(steps[index])
        team.wait()
        if finished and team.count > 1:
            done |= _of_others(finished, [n for n in range(count) if n not in done], team)
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


def _of_others(shards: Shards, indices: list[int], team: Processes) -> dict[int, Arrays]:
    loaded = _loaded(shards, indices)
    missing = len(indices) - len(loaded)
    if missing and team.apart:
        raise PartDone(
            f"{team} is done and kept in {shards.folder}; {missing} shards are the others'. Copy "
            "the folder store/ of each machine into one, then run the same there without a part"
        )
    if missing:
        raise RunError(
            f"expected {missing} shards of other processes in {shards.folder}, found none. Let all "
            "write to one file system, or compute parts apart and copy them: see docs/runs.md"
        )
    return loaded
