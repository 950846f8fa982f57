"""Files that appear whole or not at all, values as JSON, and arrays as safetensors files."""

import dataclasses
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from arith_lens.arrays import Arrays


class RunError(ValueError):
    """A run folder is missing, damaged, foreign, of another version, or cannot be written."""


PARTIAL = ".partial"
"""How the name of a file ends that is being written; before it come host and process."""


def write(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, then put it in place. Raises RunError when the disk refuses."""
    replace(path, lambda partial: partial.write_bytes(data))


def replace(path: Path, make: Callable[[Path], Any]) -> None:
    """Let `make` write a temporary file, then put it in the place of `path`.

    Raises:
        RunError: the disk refuses; no temporary file is left, and the old file stays.
    """
    partial = path.with_name(f".{path.name}.{_host()}.{os.getpid()}{PARTIAL}")
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


def make_folder(folder: Path) -> None:
    """With its parents, unless it exists. Raises RunError when the disk refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make {folder}: {error.strerror or error}. Remove what stands there, free some "
            "space, or choose another root; what was saved is unharmed."
        ) from error


def remove(path: Path) -> None:
    """Unless it is gone, or cannot be removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_partials(folder: Path) -> None:
    """Remove the files under `folder` whose writer has ended before they were whole."""
    for path in folder.rglob(f".*{PARTIAL}"):
        with suppress(OSError):
            if not _is_being_written(path):
                remove(path)


def _is_being_written(partial: Path) -> bool:
    """By a process of this machine that runs, or elsewhere within the last day."""
    *_, host, process = partial.name.removesuffix(PARTIAL).split(".")
    if host != _host() or not process.isdigit():
        return time.time() - partial.stat().st_mtime < 24 * 3600
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _host() -> str:
    """This machine's name, as a part of a file's name."""
    return socket.gethostname().replace(".", "-")


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


def check_name(name: str, what: str = "a result's name") -> None:
    """Raise ValueError for a name that could leave the folder or meet another's files."""
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"expected {what} of letters, digits, _ and -, found {name!r}")


_KEY = "arith_lens"  # a single entry: the order of several would differ from run to run


def to_bytes(arrays: Arrays) -> bytes:
    """The file's contents. Raises TypeError for a header that JSON cannot keep."""
    # safetensors refuses tensors that share memory, as parts of one result may
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in arrays.tensors.items()
    }
    return save_tensors(tensors, metadata={_KEY: json.dumps(plain(arrays.header))})


def from_bytes(data: bytes) -> Arrays:
    """Read `to_bytes` back, bit for bit. Raises RunError for other contents."""
    try:
        return Arrays(load_tensors(data), _header(data))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"expected a safetensors file that arith_lens wrote, found other contents ({error!r})"
        ) from error


def with_digest(arrays: Arrays) -> bytes:
    """The file's contents with their own digest in the header, for a file that stands alone."""
    header = {**arrays.header, "sha256": digest(to_bytes(arrays))}
    return to_bytes(Arrays(arrays.tensors, header))


def check_digest(data: bytes) -> Arrays:
    """Read `with_digest` back. Raises RunError where anything has changed since."""
    arrays = from_bytes(data)
    header = dict(arrays.header)
    written = header.pop("sha256", None)
    arrays = Arrays(arrays.tensors, header)
    if digest(to_bytes(arrays)) != written:
        raise RunError("its contents are not those that were written")
    return arrays


def _header(data: bytes) -> dict[str, Any]:
    """The metadata; it stands before the arrays, behind its own length in eight bytes."""
    text = data[8 : 8 + int.from_bytes(data[:8], "little")]
    return json.loads(json.loads(text)["__metadata__"][_KEY])
