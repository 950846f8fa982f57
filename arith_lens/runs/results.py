"""A result's files: arrays, table, prompts. They count once run.json names them, with digests.

A result that replaces another has files of its own, so that the old ones count until then.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from arith_lens.arrays import Arrays, Storable
from arith_lens.runs.files import RunError, digest, digests, replace, write
from arith_lens.runs.provenance import SavedPairs
from arith_lens.runs.stored import to_bytes

COMPUTED = "pairs.computed"  # stands beside a result's own tensors


def check_name(name: str, what: str = "a result's name") -> None:
    """Raise ValueError for a name that could leave the folder or meet another's files."""
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"expected {what} of letters, digits, _ and -, found {name!r}")


def write_files(
    folder: Path, stem: str, result: Storable, pairs: SavedPairs | None
) -> dict[str, str]:
    """Write a result's files; the digest of each. Raises RunError, and then none is left."""
    arrays = result.to_arrays()
    tensors = dict(arrays.tensors)
    if pairs is not None and pairs.computed is not None:
        tensors[COMPUTED] = pairs.computed
    files = {
        f"{stem}.safetensors": to_bytes(Arrays(tensors, arrays.header)),
        f"{stem}.csv": result.to_dataframe().to_csv(index=False).encode(),
    }
    prompts = folder / f"{stem}.pairs.jsonl"
    hashes = {file: digest(data) for file, data in files.items()}
    try:
        for file, data in files.items():
            write(folder / file, data)
        if pairs is not None and pairs.reference_text is not None:
            replace(prompts, pairs.to_jsonl)
            hashes[prompts.name] = digests([prompts])[0]
    except BaseException:
        for path in (*(folder / file for file in files), prompts):
            remove(path)
        raise
    return hashes


def read_file(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    """Of a result's arrays. Raises RunError where they are not those that were written."""
    path = folder / f"{stem_of(name, entry)}.safetensors"
    expected = entry["sha256"].get(path.name)
    if not path.is_file() or digest(data := path.read_bytes()) != expected:
        raise RunError(
            f"{path} is {'damaged' if path.exists() else 'missing'}: it is not the file that "
            f"the run wrote. Delete {folder} and run the experiment again."
        )
    return data


def stem_of(name: str, entry: Mapping[str, Any]) -> str:
    """How the names of a result's files begin."""
    generation = entry["generation"]
    return name if generation == 1 else f"{name}.{generation}"


def remove_old_files(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Those of the results of this name that were replaced, or never completed."""
    ours = re.compile(re.escape(name) + r"(\.\d+)?\.(safetensors|csv|pairs\.jsonl)")
    for path in folder.glob(f"{name}.*"):
        if ours.fullmatch(path.name) and path.name not in entry["sha256"]:
            remove(path)


def remove(path: Path) -> None:
    """Unless it is gone, or cannot be removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
