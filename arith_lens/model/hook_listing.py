"""Which hooks are in place on a model, whoever registered them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import nn

from arith_lens.components import NamedHook
from arith_lens.model.placement import parts_of

_FRAMEWORKS = frozenset({"accelerate", "torch", "transformer_lens", "transformers"})
_GENERIC_ENDS = ("hook_in", "hook_out")


def active_hooks(model: Any) -> list[NamedHook]:
    """The forward hooks in place on `model` now, as (name, function).

    A freshly loaded model has none: hooks that the frameworks register for themselves are left out.

    Args:
        model: HookedModel, TransformerBridge or Hugging Face model

    Returns:
        In the order of modules, and at one module in the order in which they run:

        * hooks at hook points, under the name TransformerLens gives the point
          (`blocks.3.attn.hook_z`), with the function as it was passed to `hooks`
        * PyTorch's forward hooks and forward pre-hooks, under the module's path
        * a `forward` that replaces a module's own, under the module's path and `.forward`
    """
    if not _is_touched(model):
        return []
    modules = modules_of(model)
    located = [
        (path, module, function) for path, module in modules for function in _functions_at(module)
    ]
    names = _names_of_points(getattr(model, "bridge", model)) if located else {}
    hooks = [(names.get(id(module), path), function) for path, module, function in located]
    return hooks + [
        (f"{path}.forward", function)
        for path, module in modules
        if (function := vars(module).get("forward")) is not None and not _is_framework(function)
    ]


def _is_touched(model: Any) -> bool:
    """Whether any module has a hook or a `forward` that no framework put there."""
    bridge = getattr(model, "bridge", model)
    return any(
        ((part._forward_hooks or part._forward_pre_hooks) and any(_functions_at(part)))
        or "forward" in vars(part)
        for part in parts_of(bridge, *filter(None, [getattr(bridge, "original_model", None)]))
    )


def modules_of(model: Any) -> list[tuple[str, nn.Module]]:
    """All modules of the bridge and of its Hugging Face model, each once, with a path.

    The path is the bridge's, without what wrapping adds to it; a module that the bridge does not
    list has its path in the Hugging Face model, and the model itself has the name of its class.
    """
    bridge = getattr(model, "bridge", model)
    wholes = [bridge, getattr(bridge, "original_model", None)]
    modules = {
        id(module): (path.replace("._original_component", "") or type(module).__name__, module)
        for whole in reversed(wholes)
        if whole is not None
        for path, module in whole.named_modules()
    }
    return list(modules.values())


def _functions_at(module: nn.Module) -> Iterator[Callable[..., Any]]:
    """What users registered at one module."""
    handles = {handle.hook.id: handle for handle in getattr(module, "fwd_hooks", ())}
    for function in module._forward_pre_hooks.values():
        if not _is_framework(function):
            yield function
    for key, function in module._forward_hooks.items():
        handle = handles.get(key)
        if handle is None or handle.user_hook is None:
            if not _is_framework(function):
                yield function
        elif not (handle.is_permanent and _is_framework(handle.user_hook)):
            yield handle.user_hook


def _names_of_points(whole: Any) -> dict[int, str]:
    """Of each hook point, by its id, the most telling of its names."""
    names: dict[int, str] = {}
    for name, point in getattr(whole, "hook_dict", {}).items():
        best = names.setdefault(id(point), name)
        names[id(point)] = min(best, name, key=_preference)
    return names


def _preference(name: str) -> tuple[bool, int, str]:
    return name.endswith(_GENERIC_ENDS), len(name), name


def _is_framework(function: Any) -> bool:
    """Whether a framework's code defines the function."""
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", None) or type(function).__module__
    return module.split(".")[0] in _FRAMEWORKS
