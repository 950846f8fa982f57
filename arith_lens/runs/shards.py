"""Parts of a result, kept one by one as they finish, so that a killed computation goes on."""

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from arith_lens.arrays import Arrays
from arith_lens.runs.files import RunError, digest, plain, write
from arith_lens.runs.processes import PartDone, Processes, processes
from arith_lens.runs.stored import sealed, unsealed

FOLDER, IDENTITY = "shards", "identity.json"


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
        if not (about := self.folder / IDENTITY).exists():
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


def check_shard(data: bytes, identity: str, index: int) -> Arrays:
    """The shard in a file's contents. Raises RunError unless it is this one, undamaged."""
    arrays = unsealed(data)
    notes = dict(arrays.header)
    if notes.pop("shard", None) != [identity, index]:
        raise RunError("it is a part of another computation")
    return Arrays(arrays.tensors, notes)


def every_shard(
    compute: Callable[[int], Arrays], count: int, *, kept: Shards | None, title: str, progress: bool
) -> list[Arrays]:
    """Shards 0 to `count` in order: those that are kept are read, the others computed and kept.

    Where several processes work on one run, each computes its share and reads the others'.

    Args:
        compute: a shard's tensors, with notes as their header.
        kept: None: nothing is kept, and each process computes everything.
        title: of the progress bar.

    Raises:
        PartDone: this process works apart, and shards that it did not compute are missing.
        RunError: shards that another process should have written are missing.
    """
    from tqdm.auto import tqdm

    team = processes() if kept else Processes()
    done = {} if kept is None else _loaded(kept, range(count))
    missing = [index for index in range(count) if index not in done]
    team.wait()  # until all have seen the same ones missing
    share = team.share(missing)
    hidden = None if progress and team.leads else True
    total, before = (count, len(done)) if team.count == 1 else (len(share), 0)
    with tqdm(total=total, initial=before, desc=title, unit="shard", disable=hidden) as bar:
        for index in share:
            done[index] = compute(index)
            if kept:
                kept.save(index, done[index].tensors, done[index].header)
            bar.update()
    team.wait()
    if kept and team.count > 1:
        done |= _of_others(kept, [index for index in missing if index not in share], team)
        team.wait()  # until all have read them, before any are removed
    return [done[index] for index in range(count)]


def _loaded(kept: Shards, indices: Iterable[int]) -> dict[int, Arrays]:
    found = {index: kept.load(index) for index in indices}
    return {index: shard for index, shard in found.items() if shard is not None}


def _of_others(kept: Shards, indices: list[int], team: Processes) -> dict[int, Arrays]:
    found = _loaded(kept, indices)
    lacking = len(indices) - len(found)
    if lacking and team.apart:
        raise PartDone(
            f"{team} is done and kept in {kept.folder}; {lacking} shards are the others'. Bring "
            "the folders together with arith_lens.runs.merge_runs, then run the same without a part"
        )
    if lacking:
        raise RunError(
            f"expected {lacking} shards of other processes in {kept.folder}, found none. Let all "
            "write to one file system, or compute parts apart and merge them: see docs/runs.md"
        )
    return found


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
