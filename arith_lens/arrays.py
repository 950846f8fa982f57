"""Named arrays with a header: the form in which every result is written to a file.

The file is of safetensors, with the header as JSON in its metadata. Reading one runs no code.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from arith_lens.untrusted import parse_json

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Arrays:
    """The contents of a result. The header has JSON values; `kind` is the kind of result."""

    tensors: Mapping[str, Tensor]
    header: Mapping[str, Any]

    def require(self, kind: str) -> None:
        """Raise ValueError if this is another kind of result."""
        if self.header.get("kind") != kind:
            raise ValueError(
                f"expected arrays of kind {kind!r}, found {self.header.get('kind')!r}; read them "
                "with the class that wrote them"
            )

    def part(self, name: str) -> "Arrays":
        """One of the parts of `joined_arrays`."""
        return Arrays(self.within(name), self.header[name])

    def within(self, name: str) -> dict[str, Tensor]:
        """The tensors called `name.…`, by the rest of their names."""
        prefix = f"{name}."
        return {
            key.removeprefix(prefix): tensor
            for key, tensor in self.tensors.items()
            if key.startswith(prefix)
        }

    def to_bytes(self) -> bytes:
        """The contents of a safetensors file.

        Raises:
            TypeError: the header has a value that JSON cannot hold.
        """
        # safetensors refuses tensors that share memory, as parts of one result may
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        return save_tensors(tensors, metadata={_KEY: json.dumps(plain_value(self.header))})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Arrays":
        """Read what `to_bytes` returned, bit for bit.

        Raises:
            ValueError: the contents are of another kind.
        """
        try:
            # the metadata precede the arrays, and follow their own length in eight bytes
            text = data[8 : 8 + int.from_bytes(data[:8], "little")]
            header = parse_json(parse_json(text)["__metadata__"][_KEY])
            return cls(load_tensors(data), header)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"expected a safetensors file that arith_lens wrote, found other contents "
                f"({error!r}); give the path of a result that was saved"
            ) from error

    def save(self, path: str | Path) -> Path:
        """Write one file, which replaces an older one only when it is complete; its path."""
        path = in_new_folder(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(self.to_bytes())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Arrays":
        """Read what `save` wrote. Raises ValueError for other contents, with the path."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def in_new_folder(path: str | Path) -> Path:
    """The path of a file to write. Its folder is made if it is missing."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


_KEY = "arith_lens"  # a single entry: the order of several would differ from run to run


def plain_value(value: Any) -> Any:
    """Convert `value` to JSON's types: dataclasses to objects, tuples and sets to lists, paths to
    text.

    Raises:
        TypeError: it contains something that JSON cannot hold, such as a tensor.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain_value(item) for item in value)
    if isinstance(value, tuple | list | range):
        return [plain_value(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, np.generic | Tensor) and value.ndim == 0:
        return plain_value(value.item())
    raise TypeError(
        f"expected a value that JSON can keep, found {type(value).__name__}: {value!r}; "
        "put numbers, text, lists and mappings into a configuration"
    )


def joined_arrays(
    kind: str,
    parts: Mapping[str, Arrays],
    tensors: Mapping[str, Tensor] | None = None,
    header: Mapping[str, Any] | None = None,
) -> Arrays:
    """Join several results to one.

    Args:
        kind: the kind of the joined result.
        parts: the parts by name. Their tensors get the names `part.tensor`, and their headers the
            name of the part.
        tensors, header: further tensors and JSON values of the joined result.
    """
    within = {
        f"{name}.{key}": tensor
        for name, part in parts.items()
        for key, tensor in part.tensors.items()
    }
    headers = {name: dict(part.header) for name, part in parts.items()}
    return Arrays({**within, **(tensors or {})}, {"kind": kind, **headers, **(header or {})})


@runtime_checkable
class Storable(Protocol):
    """A result that a run can save; its class reads it back with `from_arrays(arrays)`."""

    def to_arrays(self) -> Arrays: ...
    def to_dataframe(self) -> "DataFrame": ...
