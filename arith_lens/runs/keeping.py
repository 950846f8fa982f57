"""What stays in a run folder and what goes: replaced results, used shards, broken-off files."""

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from arith_lens.runs.files import PARTIAL, RunError, listed
from arith_lens.runs.results import remove, remove_old_files
from arith_lens.runs.shards import FOLDER, count_shards, shard_folders


def remove_replaced(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Remove all shards of a saved result, and the files of the one it replaced."""
    for shards in shard_folders(folder, name):
        shutil.rmtree(shards, ignore_errors=True)
    remove_old_files(folder, name, entry)
    _remove_if_empty(folder / FOLDER)


def tidy(folder: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Remove what a killed process left that is of no use. Only who holds the folder may."""
    for partial in folder.rglob(f".*{PARTIAL}"):
        remove(partial)
    for name, entry in results.items():
        for shards in entry.get("shard_folders", ()):
            shutil.rmtree(folder / FOLDER / shards, ignore_errors=True)
        remove_old_files(folder, name, entry)
    _remove_if_empty(folder / FOLDER)


def kept_line(folder: Path, names: Collection[str], error: BaseException) -> str:
    """For the user whose computation was ended by `error`: what is saved, and how to go on."""
    parts = [f"{count} shards of {name}" for name, count in count_shards(folder).items()]
    if not (names or parts):
        return f"kept in {folder}: nothing yet."
    kept = " and ".join([listed(names), *parts] if names else parts)
    ends = isinstance(error, KeyboardInterrupt | MemoryError | RunError | SystemExit)
    when = "" if ends else " once this error is mended"
    return f"kept in {folder}: {kept}. Run the same again{when} to go on from there."


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
