"""Parts of a result, saved one by one as they finish, and the processes that share the work.

A killed computation continues with the parts that are missing.
"""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.runs.files import (
    RunError,
    check_digest,
    digest,
    make_folder,
    plain,
    with_digest,
    write,
)

PART = "ARITH_LENS_PART"
JOIN = timedelta(minutes=10)
"""How long the first process waits for the last one to start."""
WORK = timedelta(days=30)
"""How long a process that has done its share waits for the others. One that dies ends them all."""


class PartDone(RunError):
    """This process has done its part; what others compute apart from it is still missing."""


@dataclass(frozen=True)
class Processes:
    """This process among those that work on a run."""

    index: int = 0
    count: int = 1
    apart: bool = False
    """Whether each has a folder of its own, to be merged afterwards."""

    @property
    def leads(self) -> bool:
        """Whether this one writes the run's record and results."""
        return self.apart or self.index == 0

    def share(self, parts: list[int]) -> list[int]:
        """Which of the parts this process computes."""
        return parts[self.index :: self.count]

    def wait(self) -> None:
        """Go on when every process has come here. Raises RunError where one has ended."""
        self.agree(None)

    def agree(self, value: Any) -> Any:
        """The value of the first process, for all of them; waits for each. Errors as `wait`."""
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
    """What the launcher, or `ARITH_LENS_PART`, says.

    Raises:
        RunError: a part that cannot be; or not all processes start.
    """
    if PART in os.environ:
        return _apart(os.environ[PART])
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Processes()
    _waiting_room()
    return Processes(int(os.environ["RANK"]), count)


def claim_rank_zero() -> bool:
    """Leave all work to the first of the processes that were started together.

    Whether this is that one; to it, it is then as if it had been started alone.
    """
    first = os.environ.get("RANK", "0") == "0"
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    return first


def _apart(text: str) -> Processes:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise RunError(f"expected {PART} such as 2/3, the second of three parts, found {text!r}")
    return Processes(int(index) - 1, int(count), apart=True)


@cache
def _waiting_room() -> Any:
    """The group in which processes wait for one another, on the CPU whatever they compute on."""
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


FOLDER = "shards"
_QUESTION = "part.json"


class Shards:
    """The finished shards of one computation, by number. What another one left is not seen.

    A shard's file holds its own digest and that of the question, so that none is trusted that was
    damaged or holds other numbers. They are removed once the whole result is saved.
    """

    def __init__(
        self, folder: Path, question: Mapping[str, Any], *, prepare: Callable[[], Any] | None = None
    ) -> None:
        """
        Args:
            folder: of the shards of one result.
            question: what decides the numbers of these.
            prepare: called before the first one is written.
        """
        self._question = question
        self._digest = identity_digest(question)
        self._prepare = prepare
        self.folder = folder / self._digest[:12]

    def load(self, index: int) -> Arrays | None:
        """Shard `index`, its notes as the header; None where none can be trusted.

        Warns of one that is damaged: it is computed again.
        """
        path = self._path(index)
        try:
            return check_shard(path.read_bytes(), self._digest, index)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RunError) as error:
            warnings.warn(f"{path} is damaged ({error}); it is computed again", stacklevel=3)
            return None

    def save(
        self, index: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any] | None = None
    ) -> None:
        """Keep a finished shard, with JSON values worth knowing of it.

        Raises:
            RunError: the disk refuses. The shards saved before stay.
        """
        if not (file := self.folder / _QUESTION).exists():
            if self._prepare is not None:
                self._prepare()
            make_folder(self.folder)
            write(file, json.dumps(plain(self._question), indent=2).encode())
        header = {"shard": [self._digest, index], **(notes or {})}
        write(self._path(index), with_digest(Arrays(tensors, header)))

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05d}.safetensors"


def copy_shards(source: Path, target: Path) -> None:
    """Take the shards of one computation over. Raises RunError for one that is damaged."""
    make_folder(target)
    question = source / _QUESTION
    try:
        key = identity_digest(json.loads(question.read_bytes()))
    except (OSError, ValueError) as error:
        raise RunError(f"{question} is damaged ({error}); remove that folder of shards") from error
    write(target / _QUESTION, question.read_bytes())
    for path in sorted(source.glob("*.safetensors")):
        data = path.read_bytes()
        try:
            check_shard(data, key, int(path.stem))
        except RunError as error:
            raise RunError(f"{path} is damaged ({error}); remove it") from error
        write(target / path.name, data)


def check_shard(data: bytes, identity: str, index: int) -> Arrays:
    """The shard in a file's contents. Raises RunError unless it is this one, undamaged."""
    arrays = check_digest(data)
    notes = dict(arrays.header)
    if notes.pop("shard", None) != [identity, index]:
        raise RunError("it is a part of another computation")
    return Arrays(arrays.tensors, notes)


def every_shard(
    compute: Callable[[int], Arrays],
    count: int,
    *,
    finished: Shards | None,
    title: str,
    progress: bool,
    unit: str = "shard",
    sizes: Sequence[int] | None = None,
) -> list[Arrays]:
    """Shards 0 to `count` in order: those that are kept are read, the others computed and kept.

    Where several processes work on one run, each computes its share and reads the others'.

    Args:
        compute: a shard's tensors, with notes as their header.
        finished: where they are kept; None: nothing is kept, and each process computes everything.
        title: of the progress bar.
        unit, sizes: what the bar counts, and how many of it each shard has; None: shards.

    Raises:
        PartDone: this process works apart, and shards that it did not compute are missing.
        RunError: shards that another process should have written are missing.
    """
    from tqdm.auto import tqdm

    team = processes() if finished else Processes()
    done = {} if finished is None else _loaded(finished, range(count))
    missing = team.agree([index for index in range(count) if index not in done])
    share = team.share(missing)
    hidden = None if progress and team.leads else True
    steps = sizes or [1] * count
    total = sum(steps if team.count == 1 else [steps[index] for index in share])
    before = sum(steps[index] for index in done) if team.count == 1 else 0
    with tqdm(total=total, initial=before, desc=title, unit=unit, disable=hidden) as bar:
        for index in share:
            done[index] = compute(index)
            if finished:
                finished.save(index, done[index].tensors, done[index].header)
            bar.update(steps[index])
    team.wait()
    if finished and team.count > 1:
        done |= _of_others(finished, [index for index in range(count) if index not in done], team)
        team.wait()  # until all have read them, before any are removed
    return [done[index] for index in range(count)]


def _loaded(shards: Shards, indices: Iterable[int]) -> dict[int, Arrays]:
    loaded = {index: shards.load(index) for index in indices}
    return {index: shard for index, shard in loaded.items() if shard is not None}


def _of_others(shards: Shards, indices: list[int], team: Processes) -> dict[int, Arrays]:
    loaded = _loaded(shards, indices)
    missing = len(indices) - len(loaded)
    if missing and team.apart:
        raise PartDone(
            f"{team} is done and kept in {shards.folder}; {missing} shards are the others'. Bring "
            "the folders together with arith_lens.runs.merge_runs, then run the same without a part"
        )
    if missing:
        raise RunError(
            f"expected {missing} shards of other processes in {shards.folder}, found none. Let all "
            "write to one file system, or compute parts apart and merge them: see docs/runs.md"
        )
    return loaded


def identity_digest(identity: Mapping[str, Any]) -> str:
    """SHA-256 of an identity, whatever the order of its keys."""
    return digest(json.dumps(plain(identity), sort_keys=True).encode())
