"""The processes that share a computation in shards, and the files of the shards."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.caller_warnings import warn_caller
from arith_lens.runs.files import (
    RunError,
    digest,
    from_bytes,
    make_folder,
    plain_value,
    write,
)

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
            warn_caller(
                f"expected a shard in {path}, found it damaged ({error}); it is computed again"
            )
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
        raise RunError("expected the contents that were written, found others")
    if notes.pop("shard", None) != [identity, index]:
        raise RunError("expected a part of this computation, found one of another")
    return Arrays(arrays.tensors, notes)


def identity_digest(identity: Mapping[str, Any]) -> str:
    """The SHA-256 of an identity. The order of its keys does not matter."""
    return digest(json.dumps(plain_value(identity), sort_keys=True).encode())
