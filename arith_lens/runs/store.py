"""Results by identity: each is stored once, and every run that needs it refers to it.

The folder `store/<identity>/` of a result contains `identity.json`, which says what decided its
numbers. A complete result also has `result.json` with a digest of each file: arrays
(`result.safetensors`), table (`result.csv`) and prompts (`result.pairs.jsonl`). A result that
replaces another is written to new files first, and then `result.json` names these. The finished
shards of an unfinished result are in `shards/`.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from arith_lens.arrays import Arrays, Storable
from arith_lens.runs.files import (
    RunError,
    digest,
    digests,
    folder_locked,
    from_bytes,
    is_digest,
    listed,
    make_folder,
    now,
    plain_value,
    refuse_links,
    remove,
    remove_partials,
    replace,
    write,
)
from arith_lens.runs.manifest import SavedPairs, software
from arith_lens.runs.shards import SHARDS_FOLDER, Shards, identity_digest
from arith_lens.untrusted import parse_json

STORE_FOLDER = "store"
ENTRY_FILE, IDENTITY_FILE = "result.json", "identity.json"
COMPUTED_TENSOR = "pairs.computed"
"""A tensor of the pairs, stored with a result's own."""
WRITING = 60.0
"""Seconds to wait while another process writes the same result."""


class Store:
    """The results under one root, by identity."""

    def __init__(self, root: Path) -> None:
        self.folder = root / STORE_FOLDER

    def folder_of(self, identity: str) -> Path:
        """The folder of a result, from the digest of its identity."""
        return self.folder / identity[:16]

    def entry(self, identity: str) -> dict[str, Any] | None:
        """The contents of `result.json`; None if there is no complete result.

        Raises:
            RunError: `result.json` is damaged, or belongs to another identity; or there is a link.
        """
        folder = self.folder_of(identity)
        refuse_links(folder)
        file = folder / ENTRY_FILE
        try:
            entry = parse_json(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise _damaged(file, f"it is no JSON: {error}") from error
        if not isinstance(entry, dict) or entry.get("identity") != identity:
            raise _damaged(file, "it is the entry of another result")
        parts = {"saved": str, "kind": str, "generation": int, "sha256": dict}
        if missing := [
            name for name, kind in parts.items() if not isinstance(entry.get(name), kind)
        ]:
            raise _damaged(file, f"it lacks {listed(missing)}")
        if foreign := _foreign_files(entry):
            raise _damaged(file, f"it names {listed(foreign)}, which are no files of this result")
        return entry

    def load(self, identity: str) -> Arrays:
        """The arrays of a complete result, with those of its pairs.

        Raises:
            RunError: there is no such result, or its file was changed.
        """
        data = self._read(identity) or self._read(identity)  # a writer may have replaced it
        if data is None:
            raise _damaged(self.folder_of(identity), "it changes while it is read")
        return from_bytes(data)

    def save(
        self, identity: Mapping[str, Any], result: Storable, pairs: SavedPairs | None
    ) -> dict[str, Any]:
        """Write a result. Its shards and the result that it replaces are removed.

        Returns:
            The contents of `result.json`.

        Raises:
            RunError: a file cannot be written. What was stored before stays.
        """
        arrays = result.to_arrays()
        key = identity_digest(identity)
        with self._writing(key, identity) as folder:
            previous = self.entry(key) or {"generation": 0}
            generation = previous["generation"] + 1
            entry = {
                "identity": key,
                "saved": now(),
                "versions": software()["versions"],
                "kind": arrays.header["kind"],
                "computation": plain_value(arrays.header.get("computation", {})),
                "generation": generation,
                "sha256": _write_files(folder, _stem(generation), arrays, result, pairs),
            }
            write(folder / ENTRY_FILE, json.dumps(entry, indent=2).encode())
            _remove_other_files(folder, entry)
            shutil.rmtree(folder / SHARDS_FOLDER, ignore_errors=True)
        return entry

    def shards(self, identity: Mapping[str, Any], part: Mapping[str, Any]) -> Shards:
        """The finished shards of a result, or of one part of its computation."""
        key = identity_digest(identity)
        folder = self.folder_of(key) / SHARDS_FOLDER
        return Shards(folder, {"result": key, **part}, lambda: self._prepare(key, identity))

    def count_shards(self, identity: str) -> int:
        """The number of finished shards of a result."""
        return len(list((self.folder_of(identity) / SHARDS_FOLDER).glob("*/*.safetensors")))

    def _read(self, identity: str) -> bytes | None:
        """The result's file; None if another process replaced it during the reading."""
        entry = self.entry(identity)
        folder = self.folder_of(identity)
        if entry is None:
            raise RunError(
                f"expected a stored result at {folder}, found none. A run's results are in the "
                f"folder {STORE_FOLDER}/ beside the experiments: copy it with the run, or run the "
                "experiment again."
            )
        file = folder / f"{_stem(entry['generation'])}.safetensors"
        with suppress(OSError):
            if digest(data := file.read_bytes()) == entry["sha256"].get(file.name):
                return data
        if self.entry(identity) != entry:
            return None
        problem = "another" if file.exists() else "none"
        raise RunError(
            f"expected the file that was written at {file}, found {problem}. Delete {folder} and "
            "run the experiment again."
        )

    def _prepare(self, key: str, identity: Mapping[str, Any]) -> Path:
        """Make the folder of a result, with `identity.json`."""
        folder = self.folder_of(key)
        refuse_links(folder)
        make_folder(folder)
        if not (folder / IDENTITY_FILE).exists():
            write(folder / IDENTITY_FILE, json.dumps(plain_value(identity), indent=2).encode())
        remove_partials(folder)
        return folder

    @contextmanager
    def _writing(self, key: str, identity: Mapping[str, Any]) -> Iterator[Path]:
        """Lock the folder of a result for this process."""
        folder = self._prepare(key, identity)
        with folder_locked(folder, patience=WRITING):
            yield folder


def _write_files(
    folder: Path, stem: str, arrays: Arrays, result: Storable, pairs: SavedPairs | None
) -> dict[str, str]:
    """Write a result's files and return their digests. After a RunError, none is left."""
    tensors = dict(arrays.tensors)
    if pairs is not None and pairs.computed is not None:
        tensors[COMPUTED_TENSOR] = pairs.computed
    contents = {
        f"{stem}.safetensors": Arrays(tensors, arrays.header).to_bytes(),
        f"{stem}.csv": result.to_dataframe().to_csv(index=False).encode(),
    }
    prompts = folder / f"{stem}.pairs.jsonl"
    try:
        for file, data in contents.items():
            write(folder / file, data)
        hashes = {file: digest(data) for file, data in contents.items()}
        if pairs is not None and pairs.reference_text is not None:
            replace(prompts, pairs.to_jsonl)
            hashes[prompts.name] = digests([prompts])[0]
    except BaseException:
        for path in (*(folder / file for file in contents), prompts):
            remove(path)
        raise
    return hashes


def _stem(generation: int) -> str:
    """The beginning of the names of a result's files."""
    return "result" if generation == 1 else f"result.{generation}"


_FILES = re.compile(r"result(\.\d+)?\.(safetensors|csv|pairs\.jsonl)")


def _remove_other_files(folder: Path, entry: Mapping[str, Any]) -> None:
    """Remove the files of results that were replaced or never completed."""
    for path in folder.glob("result*"):
        if _FILES.fullmatch(path.name) and path.name not in entry["sha256"]:
            remove(path)


def without_pairs(arrays: Arrays) -> Arrays:
    """The arrays of a result without those of its pairs."""
    tensors = {key: value for key, value in arrays.tensors.items() if key != COMPUTED_TENSOR}
    return Arrays(tensors, arrays.header)


def _foreign_files(entry: Mapping[str, Any]) -> list[str]:
    """What `result.json` names besides the files of its result, or without a digest."""
    stem = _stem(entry["generation"])
    own = {f"{stem}.{kind}" for kind in ("safetensors", "csv", "pairs.jsonl")}
    return [
        repr(name) for name, key in entry["sha256"].items() if name not in own or not is_digest(key)
    ]


def _damaged(file: Path, why: str) -> RunError:
    return RunError(
        f"{file} is damaged: expected a complete result, found that {why}. Delete {file.parent} "
        "and run the experiment again."
    )
