"""Files that appear whole or not at all, and values as JSON keeps them."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch


class RunError(ValueError):
    """A run folder is missing, damaged, foreign, of another version, or cannot be written."""


PARTIAL = ".partial"
"""How the name of a file ends that is being written."""


def write(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, then put it in place. Raises RunError when the disk refuses."""
    replace(path, lambda partial: partial.write_bytes(data))


def replace(path: Path, make: Callable[[Path], Any]) -> None:
    """Let `make` write a temporary file, then put it in the place of `path`.

    Raises:
        RunError: the disk refuses; no temporary file is left, and the old file stays.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        make(partial)
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}. Free some space, or choose another "
            "root; what was saved before is unharmed."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until the disk has it; of a folder, the names of its files."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digests(files: Iterable[Path]) -> list[str]:
    """Of each file's contents. Raises RunError for one that cannot be read."""
    try:
        return [digest(path.read_bytes()) for path in files]
    except OSError as error:
        raise RunError(
            f"cannot read {error.filename}: {error.strerror or error}. Check the path."
        ) from error


def plain(value: Any) -> Any:
    """`value` in JSON's types: a dataclass as an object, tuples and sets as lists, paths as text.

    Raises:
        TypeError: it holds something else, such as a tensor.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, tuple | list | range):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, np.generic | torch.Tensor) and value.ndim == 0:
        return plain(value.item())
    raise TypeError(
        f"expected a value that JSON can keep, found {type(value).__name__}: {value!r}; "
        "put numbers, text, lists and mappings into a configuration"
    )


def listed(names: Iterable[str]) -> str:
    """Names for an error message; "none" where there are none."""
    return ", ".join(sorted(names)) or "none"
