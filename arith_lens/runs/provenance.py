"""Where a result comes from: software, machine, model, data."""

import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

_PACKAGES = ("arith-lens", "torch", "transformers", "transformer-lens", "numpy", "safetensors")

version = cache(installed_version)  # reading the packages' metadata takes milliseconds


@runtime_checkable
class SavedPairs(Protocol):
    """What a run asks of prompt pairs; `PromptPairs` has it."""

    @property
    def reference(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def counterfactual(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def answer(self) -> Int[Tensor, "pair"]: ...
    @property
    def attention_mask(self) -> Bool[Tensor, "pair pos"]: ...
    @property
    def computed(self) -> Bool[Tensor, "pair"] | None: ...
    @property
    def reference_text(self) -> tuple[str, ...] | None: ...
    @property
    def n_distinct(self) -> int: ...
    @property
    def selection(self) -> Any: ...  # None, or a dataclass of how the filter chose

    def to_jsonl(self, path: Path) -> None: ...


def now() -> str:
    """The time in UTC, to the millisecond, so that it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def software() -> dict[str, Any]:
    """Versions, machine and threads; nothing is imported to find them."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def describe_model(model: Any) -> dict[str, Any]:
    """Name, weights, configuration, shape, dtype, device and attention kernel of a loaded model;
    {} for None."""
    if model is None:
        return {}
    from arith_lens.model import configuration_hash

    return {
        "name": model.name,
        "weights_sha256": fingerprint("weights_hash", model),
        "configuration_sha256": configuration_hash(model),
        "n_layers": model.n_layers,
        "n_heads": model.n_heads,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "attn_implementation": model.attn_implementation,
    }


def fingerprint(function: str, model: Any) -> str | None:
    """A fingerprint of `arith_lens.model`; None for a model on the meta device."""
    import arith_lens.model

    try:
        return getattr(arith_lens.model, function)(model)
    except ValueError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
