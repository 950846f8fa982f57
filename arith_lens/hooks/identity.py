"""Digests of hooks, by which a run recognises interventions."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import unwrap
from types import FunctionType
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from arith_lens.components import NamedHook


def hooks_digest(hooks: Iterable[NamedHook]) -> str | None:
    """A SHA-256 of the hooks and their contents; None for no hooks.

    The hooks of this package have the same digest in every process. Nobody can tell what another
    function computes, so its digest is always new: nothing computed with it is used again.
    """
    listed = list(hooks)
    if not listed:
        return None
    digest = hashlib.sha256()
    for name, function in listed:
        digest.update(repr(name).encode())
        _feed(digest, function)
    return digest.hexdigest()


def has_identity(hook: NamedHook) -> bool:
    """Whether the digest of the hook is the same whenever it is computed."""
    return hooks_digest([hook]) == hooks_digest([hook])


def describe_hooks(hooks: Iterable[NamedHook]) -> list[str]:
    """One line per hook, for people."""
    return [f"{name}: {function!r:.120}" for name, function in hooks]


def _feed(digest: Any, value: Any) -> None:
    digest.update(f"{type(value).__qualname__}(".encode())
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().double().numpy().tobytes())
    elif value is None or isinstance(value, str | int | float | bool | slice | torch.dtype):
        digest.update(repr(value).encode())
    elif isinstance(value, Mapping):
        _feed(digest, [(key, value[key]) for key in value])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif isinstance(value, partial):
        _feed(digest, [value.func, value.args, value.keywords])
    elif is_dataclass(value) and _is_known(type(value)):
        # fields that are not printed hold the state of one forward, not what the hook is
        _feed(digest, [getattr(value, field.name) for field in fields(value) if field.repr])
    elif isinstance(value, FunctionType) and _is_known(value):
        digest.update(f"{value.__module__}.{value.__qualname__}".encode())
        _feed(digest, [cell.cell_contents for cell in unwrap(value).__closure__ or ()])
    elif getattr(torch, name := getattr(value, "__name__", ""), None) is value:
        digest.update(name.encode())
    else:
        digest.update(uuid4().bytes)
    digest.update(b")")


def _is_known(value: Any) -> bool:
    return value.__module__.split(".")[0] == "arith_lens"
