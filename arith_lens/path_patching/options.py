"""The options of `path_patch` beyond those that most callers need."""

from dataclasses import dataclass

from arith_lens.effects import ComponentEffects
from arith_lens.methods import MetricTokenOptions, MetricTokens, Storage, StorageOptions
from arith_lens.pairs import Role
from arith_lens.path_patching.positions import PatchPositions


@dataclass(frozen=True)
class Screen:
    """Which senders are computed, by approximate effects."""

    screen: ComponentEffects | None = None
    """Approximate effects of all senders; None: all senders are computed."""
    keep_strongest: int | None = None
    """The number of senders with the strongest approximate effects that are computed."""
    keep: int | None = None
    """Another name of `keep_strongest`."""

    def __post_init__(self) -> None:
        """Raise ValueError if both names are used."""
        if self.keep_strongest is not None and self.keep is not None:
            raise ValueError(
                f"expected keep_strongest= alone, found keep={self.keep} too, which is another "
                "name of it; leave keep= out"
            )

    @property
    def n_kept(self) -> int:
        """The number of senders with the strongest approximate effects that are computed."""
        number = self.keep if self.keep_strongest is None else self.keep_strongest
        return N_KEPT if number is None else number


N_KEPT = 64
"""The number of senders that screening keeps, if the caller does not say."""


@dataclass(frozen=True)
class Stopping:
    """When a sender has been computed on enough pairs."""

    until: str | float | None = None
    """What has to be clear; None: every sender is computed on all pairs."""
    bound: float | None = None
    """The largest size of an effect, if it is known."""

    def __post_init__(self) -> None:
        """Raise ValueError for a bound alone."""
        if self.bound is not None and self.until is None:
            raise ValueError(
                f"expected bound= together with until=, found bound={self.bound} alone; add until="
                "'threshold', or leave bound= out"
            )


@dataclass(frozen=True)
class Checks:
    """How the numbers are checked."""

    certify: bool = True
    """Whether the first shard proves that the sweep reproduces the model."""
    spot_checks: int = 0
    """The number of effects that are computed again by hooks."""

    def __post_init__(self) -> None:
        """Raise ValueError for a negative number."""
        if self.spot_checks < 0:
            raise ValueError(f"expected spot_checks of 0 or more, found {self.spot_checks}")


@dataclass(frozen=True)
class PatchSite:
    """Where in the prompt components are patched."""

    positions: PatchPositions = "end"


class PathPatchOptions(MetricTokenOptions, StorageOptions, total=False):
    """The options of `path_patch`."""

    screen: ComponentEffects | None
    keep_strongest: int | None
    keep: int | None
    until: str | float | None
    bound: float | None
    certify: bool
    spot_checks: int
    positions: str | int | Role


PATH_PATCH_KINDS = (MetricTokens, Storage, Screen, Stopping, Checks, PatchSite)
