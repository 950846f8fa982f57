"""The devices of a model, and access to offloaded weights.

A model loaded with `device_map` has the weights of some modules on another device or on disk.
accelerate's hooks load them for the module's own forward. At other times they are empty (meta)
tensors.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


def default_device() -> str:
    """The device of this process: its GPU if there is one. All processes share a single GPU.

    Raises:
        ValueError: there are several GPUs, but fewer than processes on this machine.
    """
    if not torch.cuda.is_available():
        return "cpu"
    local_rank, n_gpus = os.environ.get("LOCAL_RANK"), torch.cuda.device_count()
    if local_rank is None or n_gpus == 1:
        return "cuda"
    if int(local_rank) >= n_gpus:
        raise ValueError(
            f"expected a GPU for each process on this machine, found {n_gpus} and LOCAL_RANK="
            f"{local_rank}; start {n_gpus} processes, or name devices"
        )
    return f"cuda:{local_rank}"


def check_device(device: str | torch.device) -> torch.device:
    """The device of a name. Raises ValueError if this machine does not have it."""
    try:
        checked = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"expected a device such as 'cpu', 'cuda' or 'cuda:1', found {str(device)!r}; correct "
            "device="
        ) from error
    if checked.type == "meta":
        raise ValueError("expected a device that computes, found 'meta'; see empty_model")
    if checked.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"expected a GPU for device={str(device)!r}, found none that this PyTorch can use; "
            "install its CUDA build, or take device='cpu'"
        )
    if checked.type == "cuda" and (checked.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"expected one of {torch.cuda.device_count()} GPUs (cuda:0 is the first), found "
            f"device={str(device)!r}; name one of these"
        )
    return checked


def compute_device(module: Any) -> torch.device:
    """The device on which a module computes. Offloaded weights are loaded to it."""
    weight = next(module.parameters())
    if not weight.is_meta:
        return weight.device
    offloaded = _offloaded(module)
    return torch.device(offloaded[0]._hf_hook.execution_device if offloaded else "meta")


def lacks_weights(module: Any) -> bool:
    """Whether some of a module's weights are empty and cannot be loaded."""
    known = {id(weight) for part in _offloaded(module) for weight in part.parameters(recurse=False)}
    return any(weight.is_meta and id(weight) not in known for weight in module.parameters())


def is_offloaded(module: Any) -> bool:
    """Whether accelerate has offloaded some of a module's weights."""
    return bool(_offloaded(module))


@contextmanager
def weights_loaded(*modules: Any) -> Iterator[None]:
    """A context in which the offloaded weights of some modules are loaded.

    They are loaded once, also if the modules are called several times.
    """
    with _with_weights(modules):
        yield


def layers_with_weights(modules: Sequence[Any]) -> Iterator[int]:
    """Iterate over 0, 1, 2, ... with the weights of that module loaded.

    The weights of the next module are loaded at the same time, so those of two modules are in
    memory. If nothing is offloaded, this is a range.
    """
    if not any(map(is_offloaded, modules)):
        yield from range(len(modules))
        return
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(_with_weights, modules[:1])
        try:
            for index in range(len(modules)):
                with coming.result():
                    coming = reader.submit(_with_weights, modules[index + 1 : index + 2])
                    yield index
        finally:
            coming.result().close()


def _with_weights(modules: Sequence[Any]) -> ExitStack:
    """Load the weights. Closing the returned stack offloads them again."""
    from accelerate.utils import align_module_device

    with ExitStack() as stack:
        for module in modules:
            for part in _offloaded(module):
                stack.enter_context(align_module_device(part))
                # else each call of the part would load its weights and offload them again
                part._hf_hook.offload = False
                stack.callback(setattr, part._hf_hook, "offload", True)
        return stack.pop_all()


def _offloaded(module: Any) -> list[Any]:
    """The modules inside `module` whose weights are offloaded, each once.

    A bridge's module has the hook of the module that it wraps.
    """
    from accelerate.utils import has_offloaded_params

    parts = [part for part in parts_of(module) if "_hf_hook" in vars(part)]
    return [part for part in parts if has_offloaded_params(part)]


def parts_of(*modules: Any) -> list[Any]:
    """All modules inside some modules, each once. Several times faster than `Module.modules`."""
    parts = {id(module): module for module in modules}
    pending = list(parts.values())
    while pending:
        for child in pending.pop()._modules.values():
            if child is not None and id(child) not in parts:
                parts[id(child)] = child
                pending.append(child)
    return list(parts.values())
