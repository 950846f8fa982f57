"""A digest of what a function computes: its bytecode, its values and the functions that it calls.

Two functions of one name have two digests if their code differs, if one holds another value, or if
a function that they call was written anew. Where something cannot be described (an open file, an
object of an unknown class), `UnknownCode` names it.

Code of installed packages and of Python is described by its name and bytecode alone. Its version is
recorded elsewhere.
"""

import dis
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, lru_cache, partial
from importlib import import_module
from importlib.util import resolve_name
from itertools import pairwise
from logging import Logger
from operator import itemgetter
from pathlib import Path, PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    UnionType,
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
_PYBIND = "pybind11_builtins"
"""Where classes and functions are that PyTorch has written in C++."""
_PLAIN_OF_TORCH = (torch.dtype, torch.device, torch.Size)


_OF_PYTHON = frozenset(
    [
        *("__annotations__", "__classcell__", "__dataclass_fields__", "__dataclass_params__"),
        *("__match_args__", "__orig_bases__", "__parameters__", "__slots__"),
        *("__static_attributes__", "__abstractmethods__", "_abc_impl", "__annotate_func__"),
        *("__type_params__", "__annotations_cache__", "__jaxtyped__"),
    ]
)
"""What Python writes into a class beside what its body says."""


class UnknownCode(ValueError):
    """A function depends on something that has no description."""


def digest_of_code(*values: Any) -> str:
    """SHA-256 of some functions, classes and values, in hexadecimal.

    Raises:
        UnknownCode: one depends on a value without a description; the message names it.
    """
    digest = hashlib.sha256()
    try:
        for part in _description(values, {}):
            digest.update(f"{len(part)}:{part}".encode(errors="surrogatepass"))
    except RecursionError:
        raise UnknownCode("expected values in a few levels, found too many") from None
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
    kind = type(value).__module__  # an object may have taken the name of what it wraps
    return all(map(_is_library_module, {kind, getattr(value, "__module__", None) or kind}))


@lru_cache(maxsize=4096)
def _is_library_module(name: str | None) -> bool:
    root = str(name).split(".")[0]  # transformers_modules: code that comes with a checkpoint
    if root in (_PACKAGE, *sys.builtin_module_names, "transformers_modules", _PYBIND):
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
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    parts = (code.co_code, code.co_exceptiontable, names, counts, inner)
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


def _constant(value: Any) -> Any:
    """A constant, such that its text is the same in each process."""
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_READING = re.compile("LOAD_(GLOBAL|NAME|DEREF|CLASSDEREF|FROM_DICT_OR_GLOBALS|FROM_DICT_OR_DEREF)")


@lru_cache(maxsize=4096)
def _names_in(code: CodeType) -> Mapping[str, frozenset[str] | None]:
    """The global and outer names that a code object reads, inner functions included.

    For each name the attributes that are read of it; None if it is also used as a whole.
    """
    names: dict[str, frozenset[str] | None] = {}
    instructions = [*dis.get_instructions(code)]
    for this, following in pairwise([*instructions, instructions[-1]]):
        if _READING.fullmatch(this.opname) and this.argval not in code.co_cellvars:
            is_attribute = following.opname in _ATTRIBUTE
            _join(names, this.argval, frozenset([following.argval]) if is_attribute else None)
    for inner in code.co_consts:
        for name, attributes in _names_in(inner).items() if isinstance(inner, CodeType) else ():
            if not (name in inner.co_freevars and name in code.co_cellvars):  # a variable of `code`
                _join(names, name, attributes)
    return names


def _join(
    names: dict[str, frozenset[str] | None], name: str, attributes: frozenset[str] | None
) -> None:
    before = names.get(name, frozenset())
    names[name] = None if before is None or attributes is None else before | attributes


@lru_cache(maxsize=4096)
def imports_in(code: CodeType) -> frozenset[str]:
    """The modules that a code object imports while it runs, inner functions included.

    A relative one begins with its dots. What is imported from a module may be a module, too.
    """
    names: set[str] = set()
    instructions = [*dis.get_instructions(code)]
    for level, members, this in zip(instructions, instructions[1:], instructions[2:], strict=False):
        if this.opname == "IMPORT_NAME":
            name = "." * level.argval + this.argval
            prefix = name if name.endswith(".") else f"{name}."
            names |= {name, name.partition(".")[0] or name}
            names |= {f"{prefix}{member}" for member in members.argval or ()}
    return frozenset(names).union(
        *(imports_in(one) for one in code.co_consts if isinstance(one, CodeType))
    )


def _modules(code: CodeType, package: str | None) -> Iterator[ModuleType]:
    """The modules that a code object imports while it runs."""
    for relative in sorted(imports_in(code)):
        try:
            yield import_module(resolve_name(relative, package))
        except ImportError as error:
            parent, _, member = relative.rpartition(".")
            with suppress(ImportError, AttributeError):  # a function or value of a module
                getattr(import_module(resolve_name(parent or ".", package)), member)
                continue
            raise UnknownCode(
                f"expected imports that can be followed, found {relative!r} ({error}); import it "
                "where the function is defined"
            ) from error


def _description(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    """The description of a value, part by part. `seen` has what was described before."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Logger):
        yield value.name
        return
    if kind.__module__.startswith("jaxtyping."):  # it checks shapes, and computes nothing
        return
    if kind in (*_PLAIN, *_PLAIN_OF_TORCH, bool) or _is_annotation(value):
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


def _parts_of_module(
    module: ModuleType, attributes: frozenset[str] | None = None
) -> Iterator[str | tuple[Any]]:
    """The name of a library's module; of a module of one's own also its source and its values.

    The source is read as it is now, so a module that was edited and not loaded again is new, too.

    Args:
        attributes: the values that are read; None: any may be.
    """
    yield module.__name__
    if _is_library_module(module.__name__):
        return
    if type(module) is not ModuleType or "__getattr__" in vars(module):
        raise UnknownCode(f"expected a plain module, found {module.__name__}, which runs code")
    with suppress(OSError, TypeError):
        yield hashlib.sha256(Path(getattr(module, "__file__", "")).read_bytes()).hexdigest()
    for name, value in sorted(vars(module).items(), key=itemgetter(0)):
        if name in attributes if attributes is not None else not name.startswith("__"):
            yield name
            yield (value,)


def _parts(value: Any) -> Iterator[str | tuple[Any]]:
    """What describes a value: texts, and further values, each in a tuple."""
    kind = type(value)
    if isinstance(value, ModuleType):
        yield from _parts_of_module(value)
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, type):
        yield from _parts_of_class(value)
    elif isinstance(value, _CONTENTS):
        yield from _contents(value)
        if kind.__module__ != "builtins":
            yield from ((kind,), (_attributes(value),))
    elif kind.__name__ == "_tuplegetter":  # a named tuple's attribute
        yield repr(value.__reduce__()[1])
    elif isinstance(value, Enum):
        yield value.name
        yield from ((value.value,), (kind,))
    elif is_dataclass(value):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        yield from ((kind,), ({**_attributes(value), **own},))
    elif _is_known_by_name(value):
        yield f"{getattr(value, '__module__', kind.__module__)}.{value.__qualname__}"
        owner = getattr(value, "__self__", None)
        is_own = not isinstance(owner, ModuleType | type) and type(owner).__module__ != _PYBIND
        if owner is not None and is_own:
            yield (owner,)
    elif _is_written_in_python(kind):
        yield from ((kind,), (_attributes(value),))
    elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
        yield from ((wrapped,), ({**_attributes(value), "__wrapped__": None},))
    else:
        raise UnknownCode(
            f"expected functions, modules, numbers, texts, paths and tensors, found {value!r:.80} "
            f"of {kind.__module__}.{kind.__qualname__}"
        )


_CONTENTS = (
    *(Tensor, np.ndarray, np.generic, dict, MappingProxyType, list, tuple, set, frozenset),
    *(PurePath, partial, staticmethod, classmethod, MethodType, property, cached_property),
)


def _contents(value: Any) -> Iterator[str | tuple[Any]]:
    """What a container, a path or a wrapped function holds."""
    if isinstance(value, Tensor):
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(data).hexdigest()}"
    elif isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise UnknownCode(f"expected an array of numbers, found {value!r:.80}")
        data = value.tobytes()
        yield f"{value.dtype.str} {value.shape} {hashlib.sha256(data).hexdigest()}"
    elif isinstance(value, dict | MappingProxyType):
        yield from ((item,) for pair in value.items() for item in pair)
        yield (getattr(value, "default_factory", None),)
    elif isinstance(value, list | tuple):
        yield from ((item,) for item in value)
    elif isinstance(value, set | frozenset):
        yield from sorted(digest_of_code(item) for item in value)
    elif isinstance(value, PurePath):
        yield str(value)
    elif isinstance(value, partial):
        yield from ((value.func,), (value.args,), (value.keywords,))
    elif isinstance(value, property):
        yield from ((value.fget,), (value.fset,))
    elif isinstance(value, cached_property):
        yield (value.func,)
    else:
        yield (value.__func__,)
        if isinstance(value, MethodType):
            yield (value.__self__,)


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of a value, but those that a `cached_property` has stored.

    A path and a property keep what they know elsewhere; so does a method, whose attributes are its
    function's.
    """
    if isinstance(value, PurePath | property | cached_property | MethodType):
        return {}
    return {
        name: attribute
        for name, attribute in getattr(value, "__dict__", {}).items()
        if not isinstance(getattr(type(value), name, None), cached_property)
    }


def _is_known_by_name(value: Any) -> bool:
    """Whether a library has written a callable, and an object of its class is its name alone."""
    return (
        callable(value)
        and hasattr(value, "__qualname__")
        and _is_written_in_library(value)
        and not (isinstance(value, np.ufunc) and getattr(np, value.__name__, None) is not value)
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
        values = [*_attributes(function).values(), *held.values()]
        if any(map(_is_written_elsewhere, values)):  # it wraps a function of the user
            values = [one for one in values if _is_written_elsewhere(one) or _is_data(one)]
            yield from ((one,) for one in values)
        return
    yield (_attributes(function),)
    names = _names_in(function.__code__)
    space = function.__globals__
    held = {name: space[name] for name in names if name in space} | held
    modules = _modules(function.__code__, space.get("__package__"))
    held |= {f"import {module.__name__}": module for module in modules}
    for name, value in sorted(held.items(), key=itemgetter(0)):
        yield name
        attributes = names.get(name)
        if isinstance(value, ModuleType) and attributes is not None:
            yield from _parts_of_module(value, attributes)
        else:
            yield (value,)
    yield from ((function.__defaults__,), (function.__kwdefaults__,))


def _is_written_elsewhere(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType | partial) and not is_of_library(value)


def _is_annotation(value: Any) -> bool:
    return isinstance(value, GenericAlias | UnionType) or type(value).__module__ == "typing"


def _is_data(value: Any) -> bool:
    kinds = (dict, MappingProxyType, list, tuple, set, frozenset, Tensor, np.ndarray)
    return isinstance(value, (*_PLAIN, bool, *kinds))


def _parts_of_class(kind: type) -> Iterator[str | tuple[Any]]:
    yield f"{kind.__module__}.{kind.__qualname__}"
    if _is_written_in_library(kind):
        return
    yield (kind.__bases__,)
    for name, value in vars(kind).items():
        is_own = not name.startswith("__") or callable(value) or isinstance(value, _CONTENTS)
        if is_own and name not in _OF_PYTHON:
            yield name
            yield (value,)
