"""Where a result comes from: software, machine, model and data, and the identity that they make."""

import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.runs.files import RunError, plain_value
from arith_lens.statistics import Units

_PACKAGES = ("arith-lens", "torch", "transformers", "transformer-lens", "numpy", "safetensors")


@runtime_checkable
class SavedPairs(Protocol):
    """The attributes of prompt pairs that a run needs; `PromptPairs` has them."""

    @property
    def reference(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def counterfactual(self) -> Int[Tensor, "pair pos"]: ...
    @property
    def answer(self) -> Int[Tensor, " pair"]: ...
    @property
    def attention_mask(self) -> Bool[Tensor, "pair pos"]: ...
    @property
    def computed(self) -> Bool[Tensor, " pair"] | None: ...
    @property
    def reference_text(self) -> tuple[str, ...] | None: ...
    @property
    def n_distinct(self) -> int: ...
    @property
    def units(self) -> Units: ...
    @property
    def selection(self) -> Any: ...  # None, or a dataclass of how the filter chose

    def to_jsonl(self, path: Path) -> None: ...


def now() -> str:
    """The time in UTC, to the millisecond, so that it sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def software() -> dict[str, Any]:
    """Versions, machine and threads. No package is imported to find them."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": {name: installed(name) for name in _PACKAGES},
    }


def describe_model(model: Any) -> dict[str, Any]:
    """Name, weights, configuration, shape, dtype, device and attention kernel of a model, and the
    file of quantised weights that it comes from; {} for None."""
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
        "quantised_from": model.quantised_from,
    }


def fingerprint(function: str, model: Any) -> str | None:
    """A hash of the model by a function of `arith_lens.model`; None on the meta device."""
    import arith_lens.model

    try:
        return getattr(arith_lens.model, function)(model)
    except ValueError:
        return None


@cache  # reading the packages' metadata takes milliseconds
def installed(package: str) -> str | None:
    """A package's version; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def describe_pairs(pairs: SavedPairs) -> Mapping[str, Any]:
    """The number of pairs, of distinct references, of problems (None if not known) and of tokens; a
    digest of all tokens; what the filter did."""
    digest = hashlib.sha256()
    for tensor in (pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask):
        digest.update(f"{tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().long().numpy().tobytes())
    for unit in (pairs.units["template"], pairs.units["problem"]):
        digest.update(json.dumps(unit).encode())
    return {
        "pairs": len(pairs.answer),
        "distinct": pairs.n_distinct,
        "problems": None if pairs.units["problem"] is None else len({*pairs.units["problem"]}),
        "tokens": list(pairs.reference.shape)[1],
        "data_sha256": digest.hexdigest(),
        "selection": pairs.selection,
    }


def identity_of(model: Any, pairs: SavedPairs | None, **question: Any) -> dict[str, Any]:
    """Everything that decides the numbers of a computation, as JSON. Equal identities give equal
    bits.

    Args:
        model: the model that computes.
        pairs: the data; None if `question` says what the data are.
        question: the method and its settings.

    Raises:
        RunError: the model has a hook that is not of this package.
    """
    from arith_lens.model import compute_device, configuration_hash

    bridge = getattr(model, "bridge", model)
    weight = next(bridge.parameters())
    data = {"data_sha256": None} if pairs is None else describe_pairs(pairs)
    return {
        "question": plain_value(question),
        "data_sha256": data["data_sha256"],
        "labels_sha256": _digest_of_labels(pairs),
        "model": {
            # weights that cannot be read are equal to no others
            "weights_sha256": fingerprint("weights_hash", model) or f"unknown {uuid4()}",
            "buffers_sha256": fingerprint("buffers_hash", model),
            "configuration_sha256": configuration_hash(model),
            "hooks_sha256": _digest_of_hooks(model),
            "dtype": str(weight.dtype),
            "device": _device(compute_device(bridge)),
            "attn_implementation": bridge.original_model.config._attn_implementation,
        },
        "threads": torch.get_num_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "versions": software()["versions"],
    }


def _device(device: torch.device) -> str:
    """The device, in as much detail as the bits of a result depend on it."""
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)}"
    return f"{device.type} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _digest_of_labels(pairs: SavedPairs | None) -> str | None:
    """A digest of what results store besides numbers: templates, roles, operands."""
    names = ("template", "operation", "operands", "computed", "spans", "problem")
    labels = {name: getattr(pairs, name, None) for name in names}
    known = {name: label for name, label in labels.items() if label is not None}
    text = json.dumps(known, sort_keys=True, default=Tensor.tolist)
    return hashlib.sha256(text.encode()).hexdigest() if known else None


def _digest_of_hooks(model: Any) -> str | None:
    """A digest of the active hooks; RunError for one that cannot be recognised again."""
    from arith_lens.hooks.identity import has_identity, hooks_digest
    from arith_lens.model import active_hooks

    hooks = active_hooks(model)
    for name, function in hooks:
        if not has_identity((name, function)):
            raise RunError(
                f"expected a model without hooks, or with hooks of arith_lens.hooks alone, found "
                f"{function!r:.80} at {name}: a run cannot tell what another function computes, "
                "nor whether it is the same one next time. Remove it (model.bridge.reset_hooks(), "
                "or remove() of its handle), or compute without run="
            )
    return hooks_digest(hooks)
