"""Code that can change a model's numbers and is not part of the model.

It is what runs in a forward: the classes of the modules, the functions beside them, the attention
function, and PyTorch's functions. Each can be replaced while a program runs. Backward hooks and
modes of PyTorch are code of the user, too.
"""

import sys
from functools import partial
from importlib import import_module
from operator import itemgetter
from types import FunctionType
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules import module
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from arith_lens.code_digest import digest_of_code, imports_in, is_of_library
from arith_lens.model.state import is_framework, modules_of, parts_of

_CODE = (FunctionType, staticmethod, classmethod, property, partial)


def unknown_influences(model: Any) -> list[tuple[str, Any]]:
    """Backward hooks, and PyTorch's modes, that a user has put in place: (place, object).

    What they compute is not known. `active_hooks` has the hooks of forwards.
    """
    bridge = getattr(model, "bridge", model)
    parts = parts_of(bridge, bridge.original_model)
    touched = [part for part in parts if part._backward_hooks or part._backward_pre_hooks]
    paths = {id(module): path for path, module in modules_of(model)} if touched else {}
    located: list[tuple[str, Any]] = [
        (paths.get(id(part), type(part).__name__), function)
        for part in touched
        for function in (*part._backward_hooks.values(), *part._backward_pre_hooks.values())
    ]
    for name in ("_global_backward_hooks", "_global_backward_pre_hooks"):
        located += [("every module", function) for function in vars(module)[name].values()]
    modes = (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack())
    located += [("every operation of PyTorch", type(mode)) for mode in modes]
    return [(place, value) for place, value in located if not is_framework(value)]


def code_hash(model: Any) -> str:
    """SHA-256 of the code that a forward of the model runs.

    Code of installed packages counts by its bytecode. Code of the user, such as a class of their
    own or a function that replaces one of a package, counts with all that it refers to.

    Raises:
        UnknownCode: the user's code refers to something without a description.
    """
    kinds = {kind for _, part in modules_of(model) for kind in type(part).__mro__} - {object}
    files = {sys.modules[kind.__module__] for kind in kinds if is_of_library(kind)}
    files |= {import_module(name) for place in (*kinds, *files) for name in _imports_in(place)}
    config = getattr(model, "bridge", model).original_model.config
    code = {_name(place): _code_in(place) for place in (*kinds, *files, functional)}
    code |= {_name(place): _foreign_code_in(place) for place in (torch, torch.Tensor)}
    code["attention"] = _attention_function(config)
    return digest_of_code(sorted(code.items(), key=itemgetter(0)))


def _imports_in(place: Any) -> set[str]:
    """The files of other families that TransformerLens imports while its functions run."""
    if not str(getattr(place, "__module__", place.__name__)).startswith("transformer_lens."):
        return set()
    functions = [getattr(value, "fget", value) for value in vars(place).values()]
    functions = [getattr(function, "__func__", function) for function in functions]
    names = {
        name
        for function in functions
        if isinstance(function, FunctionType)
        for name in imports_in(function.__code__)
    }
    return {name for name in names if "modeling_" in name.rpartition(".")[2]}


def _name(place: Any) -> str:
    return f"{getattr(place, '__module__', '')} {getattr(place, '__qualname__', place.__name__)}"


def _code_in(place: Any) -> Any:
    """A user's class; of a package's class or module, the functions and plain values in it."""
    if isinstance(place, type) and not is_of_library(place):
        return place
    return [
        (name, value)
        for name, value in sorted(vars(place).items())
        if _is_code(value) or (isinstance(place, type) and _is_plain(name, value))
    ]


def _is_plain(name: str, value: Any) -> bool:
    return not name.startswith("_") and isinstance(value, bool | int | float | str)


def _is_code(value: Any) -> bool:
    return isinstance(value, _CODE) or (callable(value) and not is_of_library(value))


def _foreign_code_in(place: Any) -> list[tuple[str, Any]]:
    """The functions in a namespace that no package has written."""
    functions = [(name, value) for name, value in sorted(vars(place).items()) if _is_code(value)]
    return [
        pair for pair in functions if isinstance(pair[1], partial) or not is_of_library(pair[1])
    ]


def _attention_function(config: Any) -> Any:
    """The function that Transformers calls under the name of the attention kernel."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return dict(ALL_ATTENTION_FUNCTIONS.items()).get(config._attn_implementation)
