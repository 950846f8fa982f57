"""The files of a computation's finished shards."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.caller_warnings import warn_caller
from arith_lens.runs.files import RunError, digest, from_bytes, make_folder, plain_value, write

SHARDS_FOLDER = "shards"
_QUESTION = "part.json"
ATTEMPTS = 5
"""How often a shard is written anew. A process that has finished the same result removes the folder
of the shards, also while others write into it."""


class PartDone(RunError):
    """This process has finished its part. The parts of other processes are still missing."""


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
