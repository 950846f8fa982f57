"""Run some of a model's layers: from a recorded residual stream, and no further than needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import NamedHook, layer_of
from arith_lens.model.hooked import HookedLike, checked_hooks
from arith_lens.model.tokens import Tokens, check_tokens


@torch.no_grad()
def run_layers(
    model: HookedLike,
    tokens: Tokens,
    *,
    start: int = 0,
    stop: int | None = None,
    stream: Float[Tensor, "batch pos d_model"] | None = None,
    attention_mask: Tensor | None = None,
    fwd_hooks: Iterable[NamedHook] = (),
) -> Tensor:
    """The layers from `start` to before `stop`, exactly as a whole forward computes them.

    Args:
        model: HookedModel or TransformerBridge
        tokens: the prompts, from which masks and rotary angles are made
        start: the first layer to compute; those below are passed over, not computed
        stop: the first layer not to compute; None: go on to the logits
        stream: the residual stream at the entry of layer `start`, what `run_layers(stop=start)`
            gave; needed where `start` is not 0
        attention_mask: needed where prompts are padded
        fwd_hooks: of the layers that are computed

    Returns:
        the residual stream at the entry of layer `stop` [batch pos d_model], or END's logits
        [batch 1 d_vocab]: bit for bit those of a whole forward of the same batch with
        `logits_to_keep=1`

    Raises:
        ValueError: a stream is missing, or of another shape; a hook in a layer that is not
            computed; layers in the wrong order
        TypeError: the model's blocks hand on something else than one residual stream
    """
    n_layers = int(model.cfg.n_layers)
    end = n_layers if stop is None else stop
    device = torch.device(model.cfg.device)
    rows, mask = check_tokens(tokens, attention_mask, model.tokenizer, device)
    _check_range(start, end, n_layers)
    hooks = checked_hooks(fwd_hooks, n_layers)
    _check_hooks(hooks, start, end)
    options: dict[str, Any] = {"use_cache": False}
    options |= {"logits_to_keep": 1} if stop is None else {"stop_at_layer": stop}
    if mask is not None:
        options["attention_mask"] = mask
    if start == 0:
        with _watched(model.blocks[0]):
            return model.run_with_hooks(rows, fwd_hooks=hooks, **options)
    if stream is None or stream.shape[:2] != rows.shape:
        found = "none" if stream is None else list(stream.shape)
        raise ValueError(
            f"expected the residual stream at layer {start} of tokens {list(rows.shape)}, found "
            f"{found}; run_layers(model, tokens, stop={start}) gives it"
        )
    with starting_at(model, start, stream):
        return model.run_with_hooks(rows, fwd_hooks=hooks, **options)


@contextmanager
def starting_at(
    model: HookedLike, start: int, stream: Float[Tensor, "batch pos d_model"]
) -> Iterator[None]:
    """Every forward inside computes no layer below `start`, which is given `stream`.

    The model makes masks and rotary angles itself, from the tokens it is called with, so that they
    are right for any architecture. Nothing is left behind, whatever is raised inside.

    Raises TypeError in a forward where blocks hand on something else than one residual stream.
    """
    blocks = [model.blocks[layer] for layer in range(start + 1)]
    beside = _n_beside(model, blocks[0])
    forwards = [hand_on(stream if layer == start - 1 else None, beside) for layer in range(start)]
    handle = blocks[-1].register_forward_pre_hook(
        partial(_check_arrival, stream=stream), with_kwargs=True
    )
    try:
        with forwards_replaced(blocks[:-1], forwards):
            yield
    finally:
        handle.remove()


@contextmanager
def forwards_replaced(
    blocks: Sequence[Any], forwards: Sequence[Callable[..., Any]]
) -> Iterator[None]:
    """Each of the bridge's blocks computes the function beside it. Nothing is left behind."""
    with ExitStack() as stack:
        for block, forward in zip(blocks, forwards, strict=True):
            # past the bridge's own __setattr__, which would set the wrapped layer's
            object.__setattr__(block, "forward", forward)
            stack.callback(block.__dict__.pop, "forward")
        yield


def hand_on(stream: Tensor | None, beside: int | None = None) -> Callable[..., Any]:
    """A block that computes nothing: it gives `stream`, or what it is given where that is None.

    Args:
        stream: the residual stream at its exit
        beside: how many values such a block returns beside the stream, in a tuple; None: no tuple
    """
    return partial(_hand_on, stream=stream, beside=beside)


def _hand_on(
    hidden_states: Tensor,
    *args: Any,
    stream: Tensor | None = None,
    beside: int | None = None,
    **kwargs: Any,
) -> Any:
    """A block that computes nothing; the last one of them gives the recorded stream."""
    out = hidden_states if stream is None else stream
    return out if beside is None else (out, *[None] * beside)


_BESIDE: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


@contextmanager
def _watched(block: Any) -> Iterator[None]:
    """Note how many values `block` returns beside the stream, in a tuple; None: no tuple."""

    def note(module: Any, args: Any, out: Any) -> None:
        _BESIDE[block] = len(out) - 1 if isinstance(out, tuple) else None

    if block in _BESIDE:
        yield
        return
    handle = block.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def _n_beside(model: HookedLike, block: Any) -> int | None:
    """The same, from the forward that made the stream, or else from one of a single token."""
    if block not in _BESIDE:
        token = torch.zeros((1, 1), dtype=torch.long, device=torch.device(model.cfg.device))
        with _watched(block):
            model.run_with_hooks(token, fwd_hooks=[], use_cache=False, stop_at_layer=1)
    return _BESIDE[block]


def _check_arrival(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: Tensor
) -> None:
    """What the first computed block gets must be the stream itself, not a piece of it."""
    found = args[0] if args else kwargs.get("hidden_states")
    if found is not stream:
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(
            f"expected blocks that hand on one residual stream {list(stream.shape)}, found that "
            f"{module.name} is given {shape}; this architecture cannot be resumed at a layer"
        )


def _check_range(start: int, stop: int, n_layers: int) -> None:
    if not 0 <= start < n_layers or not start < stop <= n_layers:
        raise ValueError(
            f"expected layers start < stop of 0 to {n_layers}, found start {start} and stop {stop}"
        )


def _check_hooks(hooks: list[NamedHook], start: int, stop: int) -> None:
    for name, _ in hooks:
        layer = layer_of(name)
        if layer is None and start > 0 and "embed" in name and not name.startswith("unembed"):
            layer = -1
        if layer is not None and not start <= layer < stop:
            raise ValueError(
                f"expected hooks in the layers that are computed, {start} to {stop - 1}, found "
                f"{name}, which would never be called; start lower, or leave it out"
            )
