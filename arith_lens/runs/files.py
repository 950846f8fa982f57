"""Write files atomically, lock folders, and read the arrays of results."""

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from arith_lens.arrays import Arrays
from arith_lens.arrays import plain_value as plain_value
from arith_lens.untrusted import parse_json


class RunError(ValueError):
    """A run folder is missing, damaged, foreign, of another version, or cannot be written."""


PARTIAL = ".partial"
"""The end of the name of a file that is being written; host and process precede it."""


def write(path: Path, data: bytes) -> None:
    """Write `data` to a temporary file, then rename it to `path`.

    Raises:
        RunError: the file cannot be written; see `replace`.
    """
    replace(path, lambda partial: partial.write_bytes(data))


def replace(path: Path, make: Callable[[Path], Any]) -> None:
    """Let `make` write a temporary file, then rename it to `path`.

    Raises:
        RunError: the file cannot be written. No temporary file is left, and the old file stays.
    """
    partial = path.with_name(f".{path.name}.{_host()}.{os.getpid()}{PARTIAL}")
    try:
        make(partial)
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise RunError(
            f"expected to write {path}, found: {error.strerror or error}. Free some space, or "
            "choose another root; what was saved before is unharmed."
        ) from error
    finally:
        remove(partial)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless it exists.

    Raises:
        RunError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"expected to make the folder {folder}, found: {error.strerror or error}. Remove what "
            "is in its place, free some space, or choose another root; what was saved is unharmed."
        ) from error


def refuse_links(folder: Path) -> None:
    """Check that a run's or result's folder, the one around it, and all that is in it are no
    symbolic links. What is written there, or removed, would be elsewhere.

    Raises:
        RunError: there is a link.
    """
    for path in (folder.parent, folder, *_paths_in(folder)):
        if path.is_symlink():
            raise RunError(
                f"expected folders and files of results alone in {folder}, found the link {path} "
                f"to {path.readlink()}. Put what it leads to in its place, or remove it."
            )


def remove(path: Path) -> None:
    """Remove a file; nothing happens if it is gone or cannot be removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_partials(folder: Path) -> None:
    """Remove the temporary files under `folder` whose writing process has ended."""
    for path in _paths_in(folder):
        with suppress(OSError):
            if path.match(f".*{PARTIAL}") and not _is_being_written(path):
                remove(path)


def _paths_in(folder: Path) -> Iterator[Path]:
    """All files and folders under a folder; those that another process removes meanwhile may lack.

    Links are not followed.
    """
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def _is_being_written(partial: Path) -> bool:
    """Whether its writer runs on this machine, or wrote elsewhere within the last day."""
    *_, host, process = partial.name.removesuffix(PARTIAL).split(".")
    if host != _host() or not process.isdecimal():
        return time.time() - partial.stat().st_mtime < 24 * 3600
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):  # no process has so large a number
        return False
    except PermissionError:
        pass
    return True


def _host() -> str:
    """This machine's name, as a part of a file's name."""
    return socket.gethostname().replace(".", "-")


def _sync(path: Path) -> None:
    """Wait until a file's contents, or a folder's list of names, are on the disk."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK, HOLDER = ".lock", ".holder.json"


@contextmanager
def folder_locked(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """A context in which no other process can write into the folder of a run or a result.

    Readers need no lock. The operating system holds it (`.lock`), so it ends with its process.
    `.holder.json` says which process has it, and has no meaning once the lock is free.

    Args:
        folder: the folder of the run or the result.
        patience: seconds to wait for another process.

    Raises:
        RunError: another process, which the message names, has the lock; or writing fails.
    """
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=patience)
    except Timeout as error:
        raise RunError(
            f"expected {folder} for this process alone, found it open in {_holder(folder)}. Wait "
            "for that one or stop it (what it finished is kept), or give another root or "
            "configuration; reading the run is possible meanwhile."
        ) from error
    except OSError as error:
        raise RunError(
            f"expected to lock {folder / LOCK}, found: {error.strerror or error}. Free some space, "
            "remove what is in its place, or choose a root that can be written."
        ) from error
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        write(folder / HOLDER, json.dumps(holder).encode())
        yield
    finally:
        remove(folder / HOLDER)
        lock.release()


def _holder(folder: Path) -> str:
    """The process that has locked a folder, in words."""
    try:
        holder = parse_json((folder / HOLDER).read_bytes())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, which has not said its name"


def now() -> str:
    """The time in UTC, to the millisecond, so that it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digests(files: Iterable[Path]) -> list[str]:
    """The digest of each file's contents.

    Raises:
        RunError: a file cannot be read.
    """
    try:
        return [digest(path.read_bytes()) for path in files]
    except OSError as error:
        raise RunError(
            f"expected to read {error.filename}, found: {error.strerror or error}. Check the path."
        ) from error


def is_digest(value: object) -> bool:
    """Whether a value is a SHA-256 in hexadecimal, as `digest` returns it."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def listed(names: Iterable[str]) -> str:
    """Names for an error message; "none" where there are none."""
    return ", ".join(sorted(names)) or "none"


def is_name(name: str) -> bool:
    """Whether a name has letters, digits, `_` and `-` alone, and at least a letter or digit."""
    return name.replace("_", "").replace("-", "").isalnum()


def check_name(name: str, what: str = "a result's name") -> None:
    """Check that a name is a valid file name in its folder.

    Raises:
        ValueError: it has characters other than letters, digits, `_` and `-`.
    """
    if not is_name(name):
        raise ValueError(f"expected {what} of letters, digits, _ and -, found {name!r}")


def from_bytes(data: bytes) -> Arrays:
    """Read what `Arrays.to_bytes` returned, bit for bit.

    Raises:
        RunError: the contents are of another kind.
    """
    try:
        return Arrays.from_bytes(data)
    except ValueError as error:
        raise RunError(str(error)) from error
