"""Run a model's own Hugging Face modules, without the modules that a bridge puts around them.

A bridge computes attention and norms step by step, so that each step has a hook point. If no hook
is active, the model's own modules give the same numbers in less time. There are three ways to run
them:

- `without_bridge` swaps the modules in place, and restores the bridge's at the end. The model
  then runs whole forwards in its own way, with PyTorch's hooks on its modules. The recording for
  path patching uses it.
- `without_patterns` swaps them too, lets them call the hook points at their entries and exits, and
  lets PyTorch's fused kernel compute the attention, which keeps no pattern. Evaluations use it.
- `plain_layers` makes shallow copies of the layers, which share every weight and have no wrappers
  and no hooks. The caller runs them one by one and provides the attention, because the caller knows
  more than a batch shows, such as which rows share a prefix. Knockouts use them: they run the same
  layers hundreds of times on small batches.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from arith_lens.components import NamedHook
from arith_lens.model.families import family_of
from arith_lens.model.forwards import WAYS, forwards_replaced
from arith_lens.model.hooked import HookedLike, Tokens
from arith_lens.model.state import parts_of
from arith_lens.tensor_parallel import is_split

ATTENTION = "arith_lens"
"""The name under which Transformers finds `_attend`."""

Attend = Callable[..., Tensor]
"""A function (query, key, value, *, scaling, softcap), each [batch head row d_head], that returns z
[batch row head d_head] of the rows that continue."""
Edit = Callable[[Tensor], Tensor]


def own_module(module: Any) -> Any:
    """The Hugging Face module that a bridge's module wraps; any other module itself."""
    inner = getattr(module, "original_component", None)
    return inner if isinstance(inner, nn.Module) else module


def in_float32(norm: Any) -> Callable[[Tensor], Tensor]:
    """A norm without the bridge's hook points, computed in float32.

    The result is on the device of the norm's weights, for rows on any device.
    """
    plain = own_module(norm)

    def norm_in_float32(rows: Tensor) -> Tensor:
        weights = dict(plain.named_parameters())  # read at each call: they may be offloaded
        rows = rows.to(next((weight.device for weight in weights.values()), None))
        if all(weight.dtype == torch.float32 for weight in weights.values()):
            return plain(rows)
        weights = {name: weight.float() for name, weight in weights.items()}
        return torch.func.functional_call(plain, weights, (rows,))

    return norm_in_float32


@contextmanager
def without_bridge(model: Any) -> Iterator[None]:
    """A context in which the model computes with its own modules, without hook points.

    The bridge's modules are restored at the end, also after an error. Weights, configuration and
    PyTorch's own hooks are those that the model has at this moment.
    """
    with _swapped(model):
        yield


@contextmanager
def without_patterns(
    model: HookedLike, hooks: Iterable[NamedHook] = (), *, fused: bool = True, at_end: bool = False
) -> Iterator[None]:
    """A context for forwards and generations with hooks that neither read nor change a pattern.

    The modules are the model's own, which call the hook points of `hooks`. Nothing changes if other
    hooks are active, or a hook is neither at the entry nor at the exit of a module that the model
    calls.

    Args:
        hooks: all hooks of the runs in this context; their names alone are read.
        fused: the attention is the fused one, unless Transformers has none for the family (such as
            Gemma 2, which caps its scores).
        at_end: nothing but END is read of the last layer, so that it computes END alone there.
    """
    names = [name for name, _ in hooks]
    bridge: Any = getattr(model, "bridge", model)
    points = bridge.hook_dict
    if not all(isinstance(name, str) for name in names) or WAYS["without_patterns"].unmet(model):
        yield
        return
    last = model.blocks[-1]
    hooked = {id(point): point for point in (points[name] for name in names)}
    with ExitStack() as stack:
        located = dict(_located(stack.enter_context(_swapped(model)), hooked))
        if located.keys() == hooked.keys():
            for key, (module, register) in located.items():
                stack.callback(register(module, hooked[key]).remove)
            if fused:
                stack.enter_context(_fused_attention(bridge.original_model))
            if at_end and family_of(bridge.original_model.config).plain_layers:
                stack.enter_context(end_alone(last))
        else:
            stack.close()
        yield


def _located(
    swapped: Iterable[tuple[nn.Module, str, nn.Module]], hooked: Mapping[int, nn.Module]
) -> Iterator[tuple[int, tuple[nn.Module, Callable[..., Any]]]]:
    """Where the model's own modules have some hook points: the id of each point, the module, and
    the function that makes this module call it."""
    for _, _, wrapper in swapped:
        for name, register in (("hook_in", _call_at_entry), ("hook_out", _call_at_exit)):
            point = wrapper._modules.get(name)
            if id(point) in hooked:
                yield id(point), (own_module(wrapper), register)


def _call_at_entry(module: nn.Module, point: nn.Module) -> Any:
    """Let a module call a hook point with its first input. Returns the handle."""

    def call(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if args:
            return (point(args[0]), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": point(kwargs["hidden_states"])}

    return module.register_forward_pre_hook(call, with_kwargs=True)


def _call_at_exit(module: nn.Module, point: nn.Module) -> Any:
    """The same with its output, or the first one of several."""

    def call(_: Any, args: Any, out: Any) -> Any:
        return (point(out[0]), *out[1:]) if isinstance(out, tuple) else point(out)

    return module.register_forward_hook(call)


@contextmanager
def end_alone(block: Any, at_end: Edit = lambda value: value[:, -1]) -> Iterator[None]:
    """A context in which the output projection and the MLP of a block compute END alone.

    Their output is expanded to every position, without a copy, so that it fits the stream. It is
    for the last block, where nothing reads the other positions.

    Args:
        block: the bridge's block, whose own modules run.
        at_end: the function from [batch pos d] to [batch d] at END.
    """
    width: list[int] = []

    def narrow(module: Any, args: Any) -> Any:
        width[:] = [args[0].shape[1]]
        return (at_end(args[0])[:, None], *args[1:])

    def widen(module: Any, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (widen(module, args, output[0]), *output[1:])
        return output.expand(-1, *width, -1)

    with ExitStack() as stack:
        for module in (block.attn.o.original_component, block.mlp.original_component):
            stack.callback(module.register_forward_pre_hook(narrow).remove)
            stack.callback(module.register_forward_hook(widen, prepend=True).remove)
        yield


@contextmanager
def _fused_attention(hf_model: Any) -> Iterator[None]:
    config = hf_model.config
    if not (hf_model._supports_sdpa and hf_model._can_set_attn_implementation()):
        yield
        return
    before = config._attn_implementation, config.output_attentions
    config.output_attentions = False
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation, config.output_attentions = before


@contextmanager
def _swapped(model: Any) -> Iterator[list[tuple[nn.Module, str, nn.Module]]]:
    """Swap the bridge's modules for the model's own; yield the parent, the name and the bridge's
    module of each."""
    swapped: list[tuple[nn.Module, str, nn.Module]] = []

    def swap_modules(parent: nn.Module) -> None:
        for name, child in parent._modules.items():
            if child is None:
                continue
            own = own_module(child)
            if own is not child:
                swapped.append((parent, name, child))
                parent._modules[name] = own
            swap_modules(own)

    try:
        swap_modules(getattr(model, "bridge", model).original_model)
        yield swapped
    finally:
        for parent, name, wrapper in reversed(swapped):
            parent._modules[name] = wrapper


class _KeysComplete(Exception):
    """Ends a layer as soon as its keys and values are known."""


@dataclass(frozen=True, eq=False)
class PlainLayer:
    """One layer; `attention`, `w_o` and `mlp` are parts of `layer`."""

    layer: Any
    attention: Any
    w_o: Any
    """The module whose input is z."""
    mlp: Any
    """The module whose output is added to the residual stream."""
    w_out: Any = None
    """The module whose input is the neurons; None: the MLP has no such part."""

    def __call__(
        self,
        stream: Float[Tensor, "batch row d_model"],
        inputs: dict[str, Any],
        attend: Attend,
        *,
        z: Edit | None = None,
        mlp_out: Edit | None = None,
        neurons: Edit | None = None,
    ) -> Float[Tensor, "batch row d_model"]:
        """The residual stream at the layer's exit.

        Args:
            stream: the stream at its entry. The rows may be positions of different prompts.
            inputs: the layer's other arguments, see `LayerArguments`.
            attend: the function from queries, keys and values to z.
            z: an edit of z, [batch row n_heads*d_head].
            mlp_out: an edit of what the MLP adds.
            neurons: an edit of what its output matrix reads, [batch row d_mlp].
        """
        with ExitStack() as stack:
            self.attention.attend = attend
            stack.callback(delattr, self.attention, "attend")
            if z is not None:
                handle = self.w_o.register_forward_pre_hook(lambda _, args: (z(args[0]), *args[1:]))
                stack.callback(handle.remove)
            if neurons is not None:
                handle = self.w_out.register_forward_pre_hook(
                    lambda _, args: (neurons(args[0]), *args[1:])
                )
                stack.callback(handle.remove)
            if mlp_out is not None:
                handle = self.mlp.register_forward_hook(lambda _, args, out: mlp_out(out))
                stack.callback(handle.remove)
            return self.layer(stream, **inputs)

    def keys_and_values(
        self, stream: Float[Tensor, "batch row d_model"], inputs: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch kv row d_head"], Float[Tensor, "batch kv row d_head"]]:
        """The keys and values of the layer. Nothing else is computed."""
        _, key, value, _ = self.queries_keys_values(stream, inputs)
        return key, value

    def queries_keys_values(
        self, stream: Float[Tensor, "batch row d_model"], inputs: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        """Queries, keys and values, each [batch head row d_head], and the options of `Attend`."""
        parts: list[tuple[Tensor, Tensor, Tensor, dict[str, Any]]] = []

        def store(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
            parts.append((query, key, value, options))
            raise _KeysComplete

        with suppress(_KeysComplete):
            self(stream, inputs, store)
        return parts[0]


@dataclass(frozen=True, eq=False)
class LayerArguments:
    """The arguments that a model gives each layer with the stream, for one batch of prompts."""

    stream: Float[Tensor, "batch pos d_model"]
    """The residual stream at the entry of the first layer."""
    masks: tuple[Float[Tensor, "rows 1 pos pos"], ...]
    """Per layer, the mask that is added to the attention scores; `rows` is 1 if all prompts share
    it."""
    others: tuple[dict[str, Any], ...]
    """Per layer, its other arguments by name, such as the rotary angles of every position."""

    def at(
        self, layer: int, prompt: Int[Tensor, " row"], pos: Int[Tensor, " row"]
    ) -> dict[str, Any]:
        """The arguments for a batch whose rows are these positions of these prompts."""

        def chosen(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(chosen, value))
            if not isinstance(value, Tensor):
                return value
            rows = prompt.clamp(max=len(value) - 1).to(value.device)  # 1 if all prompts share it
            return value[rows, pos.to(value.device)][None]

        return {name: chosen(value) for name, value in self.others[layer].items()}


def plain_layers(model: HookedLike, *, any_family: bool = False) -> tuple[PlainLayer, ...] | None:
    """The plain layers of a model; None if they would not compute the same as the model.

    They do not if the model lacks a need of this way (see `WAYS`): hooks are active, the family was
    not tested or is changed by a subclass, the model is in training mode or on several devices.

    Args:
        any_family: whether to take architectures that were not tested too. The caller then compares
            what the layers compute with the model.
    """
    from transformers import AttentionInterface

    unmet = WAYS["plain_layers"].unmet(model)
    if [need for need in unmet if not (any_family and need == "a tested family")]:
        return None
    AttentionInterface.register(ATTENTION, _attend)
    bridge: Any = getattr(model, "bridge", model)
    config = copy.copy(bridge.original_model.config)
    config._attn_implementation = ATTENTION
    return tuple(_plain_layer(block, config) for block in model.blocks)


def layer_arguments(
    model: HookedLike, tokens: Tokens, attention_mask: Tensor | None
) -> LayerArguments | None:
    """The embeddings, masks and angles that the model makes of prompts. No layer runs.

    Returns:
        None if the model gives its layers an argument that cannot be split by position.
    """
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def store(*args: Any, **kwargs: Any) -> Tensor:
        calls.append((args, kwargs))
        return args[0] if args else kwargs["hidden_states"]

    blocks = list(model.blocks)
    with torch.no_grad(), forwards_replaced(blocks, [store] * len(blocks)):
        model(tokens, attention_mask=attention_mask, use_cache=False, logits_to_keep=1)
    arguments = [_by_name(block, *call) for block, call in zip(blocks, calls, strict=True)]
    streams = [named.pop("hidden_states") for named in arguments]
    masks = [named.pop("attention_mask", None) for named in arguments]
    shape = streams[0].shape[:2]
    if any(stream is not streams[0] for stream in streams):
        return None
    if not all(isinstance(mask, Tensor) and _fits_scores(mask, shape) for mask in masks):
        return None
    if not all(_has_positions(value, shape) for named in arguments for value in named.values()):
        return None
    others = [named | {"attention_mask": None} for named in arguments]
    return LayerArguments(streams[0], tuple(masks), tuple(others))


def mlp_exit(block: Any) -> Any:
    """The bridge's module whose output the MLP adds: the MLP, a part of it, or a norm after it."""
    point = getattr(block, "hook_mlp_out", None)
    if point is None or point is block.mlp._modules.get("hook_out"):
        return block.mlp
    exits = (part for part in parts_of(block)[1:] if part._modules.get("hook_out") is point)
    return next(exits, block.mlp)


def with_parts(module: Any, parts: Callable[[Any], Any]) -> Any:
    """A copy of a module without wrappers and hooks, which shares its weights.

    Args:
        parts: the function from each of its direct parts to the part of the copy.
    """
    inner = own_module(module)
    plain = object.__new__(type(inner))
    plain.__dict__.update(inner.__dict__)  # both share one dictionary of parameters
    if not is_split(inner):  # else its forward gathers what the processes compute
        for name in ("forward", "_hf_hook", "_old_forward"):  # from accelerate, for offloading
            plain.__dict__.pop(name, None)
    hooks = {name: type(hooks)() for name, hooks in vars(inner).items() if name.endswith("_hooks")}
    plain.__dict__.update(hooks)
    plain.__dict__["_modules"] = {
        name: None if part is None else parts(part) for name, part in inner._modules.items()
    }
    return plain


def _plain_layer(block: Any, config: Any) -> PlainLayer:
    copies: dict[int, Any] = {}
    layer = _plain_copy(block, config, copies)
    parts = (block.attn, block.attn.o, mlp_exit(block))
    w_out = own_module(getattr(block.mlp, "out", None))
    return PlainLayer(
        layer, *(copies[id(part.original_component)] for part in parts), w_out=copies.get(id(w_out))
    )


def _plain_copy(module: Any, config: Any, copies: dict[int, Any]) -> Any:
    """A copy with copies of all parts. `copies` has the copy of each part, by the part's id."""
    plain = with_parts(module, lambda part: _plain_copy(part, config, copies))
    if "config" in plain.__dict__:
        plain.__dict__["config"] = config
    copies[id(own_module(module))] = plain
    return plain


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function for Transformers. It calls the function of the layer's caller."""
    attend: Any = module.attend
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, scaling=scaling, softcap=softcap), None


def _by_name(block: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    signature = inspect.signature(block.original_component.forward)
    bound = signature.bind(*args, **kwargs).arguments
    variadic = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    named = {name: value for name, value in bound.items() if name not in variadic}
    return named | {name: value for kind in variadic for name, value in bound.get(kind, {}).items()}


def _fits_scores(mask: Tensor, shape: torch.Size) -> bool:
    n_prompts, n_pos = shape
    return (
        mask.is_floating_point()
        and mask.ndim == 4
        and mask.shape[0] in (1, n_prompts)
        and mask.shape[1:] == (1, n_pos, n_pos)
    )


def _has_positions(value: Any, shape: torch.Size) -> bool:
    """Whether tensors in `value` are [1 or prompts, positions, ...]."""
    if isinstance(value, tuple):
        return all(_has_positions(part, shape) for part in value)
    if not isinstance(value, Tensor):
        return True
    return value.ndim >= 2 and value.shape[0] in (1, shape[0]) and value.shape[1] == shape[1]
