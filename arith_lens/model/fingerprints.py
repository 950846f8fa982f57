"""Fingerprints of a model: its weights, its buffers, and the settings that it computes with."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import torch

from arith_lens.model.hook_listing import modules_of
from arith_lens.model.placement import in_place

_WITHOUT_EFFECT = frozenset(
    [
        *("architectures", "context_level", "device", "dtype", "id2label", "label2id"),
        *("max_seq_len_cached", "model_name", "n_devices", "name", "name_or_path"),
        *("output_attentions", "output_hidden_states", "return_dict", "tokenizer_name"),
        *("torch_dtype", "transformers_version", "trust_remote_code", "use_cache"),
    ]
)
"""Settings that say where a model comes from or what it returns beside the logits. (dtype and
device are recorded beside the fingerprints.)"""


def weights_hash(model: Any) -> str:
    """SHA-256 over the parameters' names, dtypes, shapes and bytes, in the order of names.

    The same for a Hugging Face model, its bridge and its HookedModel, on every device, offloaded
    or not. Reads each weight once (about a second a gigabyte). Raises ValueError for a model
    without weights (an `empty_model`, or one on the meta device).
    """
    return _tensors_hash(model, "named_parameters")


def buffers_hash(model: Any) -> str:
    """SHA-256 over the buffers, such as rotary frequencies, in the manner of `weights_hash`."""
    return _tensors_hash(model, "named_buffers")


def configuration_hash(model: Any) -> str:
    """SHA-256 of the settings that a HookedModel (or its bridge) computes with, as they are now.

    It covers the Hugging Face configuration, that of TransformerLens, and of every module its
    class and its plain attributes, such as the epsilon of a norm. Names, paths and versions have
    no part in it: the same model loaded from elsewhere has the same configuration.
    """
    bridge = getattr(model, "bridge", model)
    settings = {
        "config": _plain(bridge.original_model.config.to_dict()),
        "bridge": _plain(vars(bridge.cfg)),
        "modules": sorted(_modules(model), key=itemgetter(0, 1)),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _modules(model: Any) -> Iterator[tuple[str, str, Any]]:
    """Path, class and plain attributes of every module that computes."""
    for path, module in modules_of(model):
        kind = type(module)
        if kind.__name__ != "HookPoint":
            attributes = {name: value for name, value in vars(module).items() if _is_setting(value)}
            yield path, f"{kind.__module__}.{kind.__qualname__}", _plain(attributes)


def _is_setting(value: Any) -> bool:
    """Whether an attribute of a module is a setting, and no state, sub-module or tensor."""
    return isinstance(value, bool | int | float | str | tuple | None) or callable(value)


def _plain(value: Any) -> Any:
    """Settings as JSON, without those that have no effect on the numbers."""
    if isinstance(value, Mapping):
        return {
            str(name): _plain(entry)
            for name, entry in value.items()
            if not str(name).startswith("_") and name not in _WITHOUT_EFFECT
        }
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _tensors_hash(model: Any, listing: str) -> str:
    """SHA-256 over what `listing`, a method of modules, gives."""
    from torch._subclasses.fake_tensor import FakeTensor

    digest = hashlib.sha256()
    for name, owner, attribute in sorted(_owned(model, listing), key=itemgetter(0)):
        with in_place(owner):
            tensor = getattr(owner, attribute)
            if tensor.is_meta or isinstance(tensor, FakeTensor):
                raise ValueError(
                    f"expected weights, found {name} without values (an empty model, or one on "
                    "the meta device); load them"
                )
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            flat = tensor.detach().reshape(-1).cpu().contiguous()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _owned(model: Any, listing: str) -> Iterator[tuple[str, Any, str]]:
    """Tensors under the checkpoint's names, which wrapping has lengthened: the module that has
    each, and its name there."""
    whole = getattr(model, "bridge", model)
    for name, _ in getattr(whole, listing)():
        path, _, attribute = name.rpartition(".")
        yield name.replace("._original_component", ""), whole.get_submodule(path), attribute
