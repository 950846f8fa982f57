"""Arrays with names, and a header that says what they are: how every result goes to a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Arrays:
    """What a result consists of. The header holds JSON values, among them `kind`: the result's."""

    tensors: Mapping[str, Tensor]
    header: Mapping[str, Any]


@runtime_checkable
class Storable(Protocol):
    """A result that a run can save; its class reads it back with `from_arrays(arrays)`."""

    def to_arrays(self) -> Arrays: ...
    def to_dataframe(self) -> "DataFrame": ...
