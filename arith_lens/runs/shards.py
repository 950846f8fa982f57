"""Parts of a result, kept one by one as they finish, so that a killed computation goes on."""

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.runs.files import RunError, digest, plain, write
from arith_lens.runs.stored import sealed, unsealed

FOLDER = "shards"


class Shards:
    """The finished parts of one result, by number. What another computation left is not seen.

    A shard's file holds its own digest and that of the identity, so that none is trusted that was
    damaged or is of other numbers. `run.save` removes them once the whole result is saved.
    """

    def __init__(self, run_folder: Path, name: str, identity: Mapping[str, Any]) -> None:
        self._identity = identity
        self._digest = identity_digest(identity)
        self.folder = run_folder / FOLDER / f"{name}-{self._digest[:12]}"

    def load(self, index: int) -> Arrays | None:
        """Shard `index`, its notes as the header; None where there is none that can be trusted.

        Warns of one that is damaged: it is to be computed again.
        """
        path = self._path(index)
        try:
            arrays = unsealed(path.read_bytes())
            if (found := dict(arrays.header)).pop("shard", None) != [self._digest, index]:
                raise RunError("it is a part of another computation")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RunError) as error:
            warnings.warn(f"{path} is damaged ({error}); it is computed again", stacklevel=3)
            return None
        return Arrays(arrays.tensors, found)

    def save(
        self, index: int, tensors: Mapping[str, Tensor], notes: Mapping[str, Any] | None = None
    ) -> None:
        """Keep a finished shard, with JSON values worth knowing of it.

        Raises:
            RunError: the disk refuses. The shards saved before stay.
        """
        if not (about := self.folder / "identity.json").exists():
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(
                    f"cannot make {self.folder}: {error.strerror or error}. Remove what stands "
                    "there, free some space, or choose another root; what was saved is unharmed."
                ) from error
            write(about, json.dumps(plain(self._identity), indent=2).encode())
        header = {"shard": [self._digest, index], **(notes or {})}
        write(self._path(index), sealed(Arrays(tensors, header)))

    def discard(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05d}.safetensors"


def identity_digest(identity: Mapping[str, Any]) -> str:
    """SHA-256 of an identity, whatever the order of its keys."""
    return digest(json.dumps(plain(identity), sort_keys=True).encode())


def shard_folders(run_folder: Path, name: str) -> list[Path]:
    """Those of one result, of all its identities."""
    return [
        folder
        for folder in sorted((run_folder / FOLDER).glob(f"{name}-*"))
        if folder.name.rpartition("-")[0] == name
    ]


def count_shards(run_folder: Path) -> dict[str, int]:
    """How many shards are kept of each unfinished result."""
    counts: dict[str, int] = {}
    for path in sorted((run_folder / FOLDER).glob("*/*.safetensors")):
        name = path.parent.name.rpartition("-")[0]
        counts[name] = counts.get(name, 0) + 1
    return counts
