"""Named arrays with a header: the form in which every result is written to a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

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
                "with the from_arrays of the class that wrote them"
            )

    def part(self, name: str) -> "Arrays":
        """One of the parts of `joined_arrays`."""
        prefix = f"{name}."
        tensors = {
            key.removeprefix(prefix): tensor
            for key, tensor in self.tensors.items()
            if key.startswith(prefix)
        }
        return Arrays(tensors, self.header[name])


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
