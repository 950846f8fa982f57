"""The state of a model: its devices and offloaded weights, its active hooks, and its hashes.

A model loaded with `device_map` has the weights of some modules on another device or on disk.
accelerate's hooks load them for the module's own forward. At other times they are empty (meta)
tensors.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from arith_lens.components import NamedHook
from arith_lens.model.settings import numeric_settings
from arith_lens.model.texts import added_tokens
from arith_lens.tensor_parallel import full_weight


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
    empty = [part for part in parts_of(module) if any(one.is_meta for one in _weights(part))]
    return bool(empty) and not {*empty} <= {*_offloaded(module)}


def _weights(part: Any) -> list[Tensor]:
    """The parameters of one module, without those of its parts."""
    return [weight for weight in part._parameters.values() if weight is not None]


def lacks_values(tensor: Tensor) -> bool:
    """Whether a tensor has a shape alone: on the meta device, or in an empty model."""
    from torch._subclasses.fake_tensor import FakeTensor

    return tensor.is_meta or isinstance(tensor, FakeTensor)


def require_values(model: Any) -> None:
    """Raise ValueError if the weights of a model have no values, as those of an empty model."""
    embed = getattr(model, "bridge", model).embed
    if lacks_values(next(embed.parameters())) and not is_offloaded(embed):
        raise ValueError(
            "expected weights to compute with, found a model whose weights have no values; an "
            "empty model is for plan and sample_pairs(keep='all'): load_model loads the weights"
        )


def is_offloaded(module: Any) -> bool:
    """Whether accelerate has offloaded some of a module's weights."""
    return bool(_offloaded(module))


def weights_loaded(*modules: Any) -> ExitStack:
    """Load the offloaded weights of some modules, until the returned context is left.

    They are loaded once, also if the modules are called several times.
    """
    from accelerate.utils import align_module_device

    with ExitStack() as stack:
        for module in modules:
            for part in _offloaded(module):
                stack.enter_context(align_module_device(part))
                # else each call of the part would load its weights and offload them again
                part._hf_hook.offload = False
                stack.callback(setattr, part._hf_hook, "offload", True)
        return stack.pop_all()


def layers_with_weights(modules: Sequence[Any]) -> Iterator[int]:
    """Iterate over 0, 1, 2, ... with the weights of that module loaded.

    The weights of the next module are loaded at the same time, so those of two modules are in
    memory. If nothing is offloaded, this is a range.
    """
    if not any(map(is_offloaded, modules)):
        yield from range(len(modules))
        return
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(weights_loaded, *modules[:1])
        try:
            for index in range(len(modules)):
                with coming.result():
                    coming = reader.submit(weights_loaded, *modules[index + 1 : index + 2])
                    yield index
        finally:
            coming.result().close()


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
                if child._modules:
                    pending.append(child)
    return list(parts.values())


def require_evaluation_mode(model: Any) -> None:
    """Check that no part of a model is in training mode, where dropout changes every run.

    Every method that runs a model calls this. A plain forward, `model(tokens)`, does not.

    Raises:
        ValueError: a part is in training mode.
    """
    bridge = getattr(model, "bridge", model)
    roots = [bridge, getattr(bridge, "original_model", None)]
    parts = parts_of(*(root for root in roots if isinstance(root, nn.Module)))
    if any(part.training for part in parts):
        first = next(path for path, part in modules_of(model) if part.training)
        raise ValueError(
            f"expected a model in evaluation mode, found {first} in training mode, where dropout "
            "changes the numbers of every run; call eval() on the bridge (model.bridge.eval())"
        )


_FRAMEWORKS = frozenset({"accelerate", "torch", "transformer_lens", "transformers"})


def active_hooks(model: Any) -> list[NamedHook]:
    """The active forward hooks of a model, as (name, function).

    A freshly loaded model has none: hooks that the frameworks register for themselves are left out.

    Args:
        model: HookedModel, TransformerBridge or Hugging Face model.

    Returns:
        In the order of modules, and at one module in the order in which they run:

        * hooks at hook points, under the name TransformerLens gives the point
          (`blocks.3.attn.hook_z`), with the function as it was passed to `hooks`
        * PyTorch's forward hooks and forward pre-hooks, under the module's path
        * PyTorch's hooks of all modules, under `every module`
        * a `forward` that replaces a module's own, under the module's path and `.forward`
    """
    everywhere = [
        ("every module", function)
        for hooks in (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks)
        for function in hooks.values()
        if not is_framework(function)
    ]
    if not _is_touched(model):
        return everywhere
    modules = modules_of(model)
    located = [
        (path, module, function) for path, module in modules for function in _functions_at(module)
    ]
    names = _names_of_points(getattr(model, "bridge", model)) if located else {}
    hooks = [(names.get(id(module), path), function) for path, module, function in located]
    replaced = [
        (f"{path}.forward", function)
        for path, module in modules
        for name in _FORWARDS
        if (function := vars(module).get(name)) is not None and not is_framework(function)
    ]
    return everywhere + hooks + replaced


_FORWARDS = ("forward", "_old_forward")
"""Where a module has a function in place of its class's; accelerate keeps the former one."""


def _is_touched(model: Any) -> bool:
    """Whether any module has a hook or a `forward` that is not from a framework."""
    bridge = getattr(model, "bridge", model)
    parts = parts_of(bridge, *filter(None, [getattr(bridge, "original_model", None)]))
    hooked = [part for part in parts if part._forward_hooks or part._forward_pre_hooks]
    return any("forward" in part.__dict__ for part in parts) or any(
        True for part in hooked for _ in _functions_at(part)
    )


def modules_of(model: Any) -> list[tuple[str, nn.Module]]:
    """All modules of the bridge and of its Hugging Face model, each once, with a path.

    The path is that in the bridge, without the parts that wrapping adds. A module that the bridge
    does not list has its path in the Hugging Face model. The model itself has the name of its
    class.
    """
    bridge = getattr(model, "bridge", model)
    roots = [bridge, getattr(bridge, "original_model", None)]
    modules = {
        id(module): (path.replace("._original_component", "") or type(module).__name__, module)
        for root in reversed(roots)
        if root is not None
        for path, module in root.named_modules()
    }
    return list(modules.values())


def _functions_at(module: nn.Module) -> Iterator[Callable[..., Any]]:
    """The functions that users registered at one module."""
    handles = {handle.hook.id: handle for handle in getattr(module, "fwd_hooks", ())}
    for function in module._forward_pre_hooks.values():
        if not is_framework(function):
            yield function
    for key, function in module._forward_hooks.items():
        handle = handles.get(key)
        if handle is None or handle.user_hook is None:
            if not is_framework(function):
                yield function
        elif not (handle.is_permanent and is_framework(handle.user_hook)):
            yield handle.user_hook


def _names_of_points(bridge: Any) -> dict[int, str]:
    """The preferred name of each hook point, by its id."""

    def preference(name: str) -> tuple[bool, int, str]:
        return name.endswith(("hook_in", "hook_out")), len(name), name

    names: dict[int, str] = {}
    for name, point in getattr(bridge, "hook_dict", {}).items():
        best = names.setdefault(id(point), name)
        names[id(point)] = min(best, name, key=preference)
    return names


def is_framework(function: Any) -> bool:
    """Whether frameworks' code defines the function, and all functions that it wraps or holds.

    A user's function that has taken the name of a framework's function (`functools.wraps`) is none,
    nor is a framework's wrapper of a user's function.
    """
    pending, seen = [function], set[int]()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, partial):
            pending += [function.func, *filter(_is_code, function.args)]
            pending += filter(_is_code, function.keywords.values())
            continue
        if isinstance(function, MethodType):
            pending.append(function.__func__)
            continue
        modules = {getattr(function, "__module__", None) or type(function).__module__}
        if isinstance(function, FunctionType):
            modules.add(str(function.__globals__.get("__name__")))
            pending += filter(_is_code, _held_by(function))
        if not {name.split(".")[0] for name in modules} <= _FRAMEWORKS:
            return False
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            pending.append(wrapped)
    return True


def _held_by(function: FunctionType) -> Iterator[Any]:
    """What the closure of a function has."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            yield cell.cell_contents


def _is_code(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | nn.Module | BuiltinFunctionType)


_WITHOUT_EFFECT = frozenset(
    [
        *("architectures", "context_level", "device", "dtype", "id2label", "label2id"),
        *("max_seq_len_cached", "model_name", "n_devices", "name", "name_or_path"),
        *("output_attentions", "output_hidden_states", "return_dict", "save_pretrained"),
        *(
            "tokenizer_name",
            "torch_dtype",
            "transformers_version",
            "trust_remote_code",
            "use_cache",
        ),
    ]
)
"""Settings that say where a model comes from, or what it returns besides the logits. Dtype and
device are recorded separately."""


def weights_hash(model: Any) -> str:
    """SHA-256 over the parameters' names, dtypes, shapes and bytes, in the order of names.

    It is the same for a Hugging Face model, its bridge and its HookedModel, on every device,
    offloaded or not. Each weight is read once (about one second per gigabyte).

    Raises:
        ValueError: the model has no weights (an `empty_model`, or one on the meta device).
    """
    return _tensors_hash(model, "named_parameters")


def buffers_hash(model: Any) -> str:
    """SHA-256 over the buffers, such as rotary frequencies; see `weights_hash`."""
    return _tensors_hash(model, "named_buffers")


def configuration_hash(model: Any) -> str:
    """SHA-256 of the current settings of a HookedModel or its bridge.

    It covers the configurations of Hugging Face and TransformerLens, and the class and plain
    attributes of every module, such as the epsilon of a norm. It does not cover names, paths and
    versions: the same model loaded from another folder has the same hash.
    """
    bridge = getattr(model, "bridge", model)
    settings = {
        "config": _plain(bridge.original_model.config.to_dict()),
        "bridge": _plain(vars(bridge.cfg)),
        "modules": sorted(_modules(model), key=itemgetter(0, 1)),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _modules(model: Any) -> Iterator[tuple[str, str, Any]]:
    """Path, class and plain attributes of every module that computes.

    A state, a sub-module and a tensor are not plain attributes.
    """
    for path, module in modules_of(model):
        kind = type(module)
        if kind.__name__ != "HookPoint":
            attributes = {
                name: value
                for name, value in vars(module).items()
                if not name.startswith("_")
                and (isinstance(value, (*_PLAIN, tuple)) or callable(value))
            }
            yield path, f"{kind.__module__}.{kind.__qualname__}", _plain(attributes)


_PLAIN = (bool, int, float, str, type(None))


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
    if isinstance(value, _PLAIN):
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def tokenizer_hash(tokenizer: Any) -> str | None:
    """SHA-256 of a tokenizer: its vocabulary, its rules and its special tokens; None for None.

    How the last texts were padded or cut does not count.
    """
    if tokenizer is None:
        return None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        vocabulary = sorted(tokenizer.get_vocab().items())
        rules = json.dumps([type(tokenizer).__qualname__, vocabulary])
    else:  # before the added tokens: the padding and the cut of the last call
        rules = backend.to_str().partition('"added_tokens"')[2]
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    options = ("padding_side", "clean_up_tokenization_spaces")
    settings = [sorted(special.items()), *(getattr(tokenizer, name, None) for name in options)]
    settings.append(added_tokens(tokenizer))
    return hashlib.sha256(f"{json.dumps(settings)}{rules}".encode()).hexdigest()


def state_digest(model: Any) -> str:
    """A digest of weights, buffers, settings, precision and device, for use in one process.

    It is faster than the hashes above. Each weight is read twice, on its own device: the digest has
    the sums over its rows and over its columns, as integers of its bits.
    """
    bridge = getattr(model, "bridge", model)
    require_values(model)
    settings = [
        configuration_hash(model),
        bridge.original_model.config._attn_implementation,
        compute_device(bridge),
        torch.get_num_threads(),
        numeric_settings(),
    ]
    digest = hashlib.sha256(str(settings).encode())
    for part in parts_of(bridge, bridge.original_model):
        if part._parameters or part._buffers:
            with weights_loaded(part):
                for name, tensor in chain(part._parameters.items(), part._buffers.items()):
                    if tensor is not None:
                        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                        digest.update(_sums(full_weight(tensor.detach())).cpu().numpy().data)
    return digest.hexdigest()


def _sums(tensor: Tensor) -> Tensor:
    """The sums over rows and over columns of a tensor's bits, as one tensor of integers."""
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.ndim else 1).contiguous()
    whole = rows.shape[1] * rows.element_size() % 8 == 0
    bits = rows.view(torch.int64 if whole else torch.uint8)
    return torch.cat([bits.sum(0), bits.sum(1)])


def _tensors_hash(model: Any, listing: str) -> str:
    """SHA-256 over the tensors that `listing`, a method of modules, returns."""
    root = getattr(model, "bridge", model)
    # the checkpoint's names, which wrapping makes longer
    names = [(n.replace("._original_component", ""), n) for n, _ in getattr(root, listing)()]
    digest = hashlib.sha256()
    for name, long_name in sorted(names, key=itemgetter(0)):
        path, _, attribute = long_name.rpartition(".")
        owner = root.get_submodule(path)
        with weights_loaded(owner):
            tensor = getattr(owner, attribute)
            if lacks_values(tensor):
                raise ValueError(
                    f"expected weights, found {name} without values (an empty model, or one on "
                    "the meta device); load them"
                )
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            flat = full_weight(tensor.detach()).reshape(-1).cpu().contiguous()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
