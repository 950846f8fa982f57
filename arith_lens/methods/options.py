"""Options that several methods take, as value objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class MetricTokens:
    """What a metric reads beside the answer."""

    foil: Int[Tensor, " pair"] | None = None
    """For `logit_difference`: one token per pair, which is compared with the answer."""
    candidates: Sequence[int] | None = None
    """For `digit_contrast`: the tokens whose mean logit is compared with the answer's. None: the
    ten digits, written as the answers are."""


@dataclass(frozen=True)
class Storage:
    """How a computation is cut, and where its result is kept."""

    batch_size: int | None = None
    """The number of pairs in a shard; None: the method's own."""
    name: str | None = None
    """The name of the result in the run; None: the method's own."""


class MetricTokenOptions(TypedDict, total=False):
    """The fields of `MetricTokens`, as keyword arguments."""

    foil: Int[Tensor, " pair"] | None
    candidates: Sequence[int] | None


class StorageOptions(TypedDict, total=False):
    """The fields of `Storage`, as keyword arguments."""

    batch_size: int | None
    name: str | None
