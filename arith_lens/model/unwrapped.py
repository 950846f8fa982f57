"""Run the Hugging Face model itself, without the modules that a bridge puts around its parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def without_bridge(model: Any) -> Iterator[None]:
    """Inside, the model computes with its own modules, and no hook point of the bridge fires.

    A bridge computes attention and norms step by step, so that each step has a hook point. Where no
    hook is in place, the model's own code gives the same numbers in less time. The modules are
    exchanged in place and put back at the end, whatever is raised inside: weights, configuration
    and PyTorch's own hooks are those of the model at this moment.

    Args:
        model: HookedModel or TransformerBridge
    """
    whole = getattr(model, "bridge", model)
    exchanged: list[tuple[nn.Module, str, nn.Module]] = []
    try:
        _unwrap(whole.original_model, exchanged)
        yield
    finally:
        for parent, name, wrapper in reversed(exchanged):
            parent._modules[name] = wrapper


def _unwrap(parent: nn.Module, exchanged: list[tuple[nn.Module, str, nn.Module]]) -> None:
    """Put the own module in the place of each bridge below `parent`, and note the exchange."""
    for name, child in parent._modules.items():
        own = getattr(child, "original_component", None)
        if isinstance(child, nn.Module) and isinstance(own, nn.Module):
            exchanged.append((parent, name, child))
            parent._modules[name] = own
            child = own
        if child is not None:
            _unwrap(child, exchanged)
