"""A digest of what a function computes: its bytecode, its values and the functions that it calls.

Two functions of one name have two digests if their code differs, if one holds another value, or if
a function that they call was written anew. Where something cannot be described (an open file, an
object of an unknown class), `UnknownCode` names it.

Code of installed packages and of Python is described by its name and bytecode alone. Its version is
recorded elsewhere.
"""

import dis
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache, partial
from importlib import import_module
from logging import Logger
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor

_PACKAGE = __name__.split(".")[0]
_PLAIN = (str, bytes, int, float, complex, type(None), type(...), range, slice)
_OF_C = (BuiltinFunctionType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)
"""What a class has that was written in C, or has slots: its objects know more than they show."""
_PLAIN_OF_TORCH = (torch.dtype, torch.device, torch.Size)


class UnknownCode(ValueError):
    """A function depends on something that has no description."""


def digest_of_code(*values: Any) -> str:
    """SHA-256 of some functions, classes and values, in hexadecimal.

    Raises:
        UnknownCode: one depends on a value without a description; the message names it.
    """
    digest = hashlib.sha256()
    for part in _description(values, {}):
        digest.update(f"{len(part)}:{part}".encode(errors="surrogatepass"))
    return digest.hexdigest()


def is_of_library(value: Any) -> bool:
    """Whether a function or class is from this package, an installed package or Python itself.

    A function that a library wraps, such as one under `torch.no_grad`, counts as what it wraps.
    """
    while True:
        if isinstance(value, partial):
            value = value.func
        elif isinstance(value, MethodType):
            value = value.__func__
        elif isinstance(value, staticmethod | classmethod) or hasattr(value, "__wrapped__"):
            if not _is_written_in_library(value):
                return False
            value = value.__wrapped__
        else:
            return _is_written_in_library(value)


def _is_written_in_library(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return _is_library_module(value.__globals__.get("__name__"))
    return _is_library_module(getattr(value, "__module__", None) or type(value).__module__)


@lru_cache(maxsize=4096)
def _is_library_module(name: str | None) -> bool:
    root = str(name).split(".")[0]  # transformers_modules: code that comes with a checkpoint
    if root in (_PACKAGE, *sys.builtin_module_names, "transformers_modules"):
        return True
    if root in ("", "None", "__main__", "__mp_main__"):
        return False
    file = getattr(sys.modules.get(root), "__file__", None)
    if file is None:
        places = [*getattr(sys.modules.get(root), "__path__", [])][:1]
        file = places[0] if places else None
    return file is not None and any(Path(file).is_relative_to(place) for place in _library_places())


@cache
def _library_places() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@lru_cache(maxsize=65536)
def _bytecode(code: CodeType) -> str:
    """A digest of a code object, without files and line numbers."""
    inner = [
        _bytecode(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts
    ]
    parts = (code.co_code, code.co_names, code.co_freevars, code.co_flags, inner)
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


def _constant(value: Any) -> Any:
    """A constant, such that its text is the same in each process."""
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


@lru_cache(maxsize=4096)
def _globals_in(code: CodeType) -> frozenset[str]:
    """The global names that a code object reads, inner functions included."""
    own: set[str] = {
        one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"
    }
    return frozenset(own).union(
        *(_globals_in(one) for one in code.co_consts if isinstance(one, CodeType))
    )


@lru_cache(maxsize=4096)
def _imports_in(code: CodeType) -> frozenset[str]:
    """The modules that a code object imports while it runs, inner functions included."""
    own: set[str] = {
        one.argval for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME"
    }
    return frozenset(own).union(
        *(_imports_in(one) for one in code.co_consts if isinstance(one, CodeType))
    )


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnknownCode(
            f"expected imports that can be followed, found {name!r} ({error}); import it where the "
            "function is defined"
        ) from error


def _description(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    """The description of a value, part by part. `seen` has what was described before."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, ModuleType):
        yield from _description_of_module(value)
        return
    if isinstance(value, Logger):
        yield value.name
        return
    if kind.__module__.startswith("jaxtyping."):  # it checks shapes, and computes nothing
        return
    if isinstance(value, Enum) or kind in (*_PLAIN, *_PLAIN_OF_TORCH, bool):
        yield repr(value)
        return
    if id(value) in seen:
        yield f"number {seen[id(value)][0]}"
        return
    seen[id(value)] = len(seen), value  # kept, so that no other object gets its id
    for part in _parts(value):
        if isinstance(part, str):
            yield part
        else:
            yield from _description(part[0], seen)


def _description_of_module(module: ModuleType) -> Iterator[str]:
    """The name of a library's module; of a module of one's own also its source.

    The source is read as it is now, so a module that was edited and not loaded again is new, too.
    """
    yield module.__name__
    if _is_library_module(module.__name__):
        return
    file = getattr(module, "__file__", None)
    try:
        source = None if file is None else Path(file).read_bytes()
    except OSError:
        source = None
    if source is None:
        raise UnknownCode(
            f"expected a module whose source can be read, found {module.__name__} without; import "
            "the functions themselves"
        )
    yield hashlib.sha256(source).hexdigest()


def _parts(value: Any) -> Iterator[str | tuple[Any]]:
    """What describes a value: texts, and further values, each in a tuple."""
    if isinstance(value, Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()}"
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        data = value.tobytes()
        yield f"{value.dtype.str} {value.shape} {hashlib.sha256(data).hexdigest()}"
    elif isinstance(value, dict | MappingProxyType):
        yield from ((item,) for pair in value.items() for item in pair)
    elif isinstance(value, list | tuple):
        yield from ((item,) for item in value)
    elif isinstance(value, set | frozenset):
        yield from sorted(digest_of_code(item) for item in value)
    elif isinstance(value, PurePath):
        yield str(value)
    elif isinstance(value, partial):
        yield from ((value.func,), (value.args,), (value.keywords,))
    elif isinstance(value, staticmethod | classmethod | MethodType):
        yield (value.__func__,)
        if isinstance(value, MethodType):
            yield (value.__self__,)
    elif isinstance(value, property):
        yield from ((value.fget,), (value.fset,))
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, type):
        yield from _parts_of_class(value)
    elif is_dataclass(value):
        yield (type(value),)
        yield from ((getattr(value, field.name),) for field in fields(value))
    elif callable(value) and _is_written_in_library(value) and hasattr(value, "__qualname__"):
        yield f"{getattr(value, '__module__', type(value).__module__)}.{value.__qualname__}"
    elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
        yield (wrapped,)
    elif _is_written_in_python(type(value)):
        yield from ((type(value),), (vars(value),))
    else:
        raise UnknownCode(
            f"expected functions, modules, numbers, texts, paths and tensors, found {value!r:.80} "
            f"of {type(value).__module__}.{type(value).__qualname__}"
        )


def _is_written_in_python(kind: type) -> bool:
    """Whether all that an object of this class knows is in its attributes."""
    parts = [part for base in kind.__mro__[:-1] for part in vars(base).values()]
    return kind is not object and not any(isinstance(part, _OF_C) for part in parts)


def _parts_of_function(function: FunctionType) -> Iterator[str | tuple[Any]]:
    yield f"{function.__module__}.{function.__qualname__} {_bytecode(function.__code__)}"
    held = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            held[name] = None
    if _is_written_in_library(function):
        wrapped = getattr(function, "__wrapped__", None)
        yield from ((one,) for one in (wrapped, *held.values()) if _is_written_elsewhere(one))
        return
    used = sorted(_globals_in(function.__code__) & function.__globals__.keys())
    held |= {name: function.__globals__[name] for name in used}
    held |= {f"import {name}": _module(name) for name in sorted(_imports_in(function.__code__))}
    yield from ((held,), (function.__defaults__,), (function.__kwdefaults__,))


def _is_written_elsewhere(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType | partial) and not is_of_library(value)


def _parts_of_class(kind: type) -> Iterator[str | tuple[Any]]:
    yield f"{kind.__module__}.{kind.__qualname__}"
    if _is_written_in_library(kind):
        return
    yield (kind.__bases__,)
    for name, value in vars(kind).items():
        if not name.startswith("__") or isinstance(value, FunctionType):
            yield name
            yield (value,)
