"""Run a model in other ways than whole: record activations, run some layers, continue a prefix.

`WAYS` says what other ways need, with those of `own_modules` and `end_runs`. `LogitScale` is what a
model does to its logits after the unembedding.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Literal, NoReturn, TypeAlias
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.activations import Positions, check_positions, keep_activation
from arith_lens.components import NamedHook, layer_of, mlp_out_name, z_name
from arith_lens.model.families import Family, family_of
from arith_lens.model.hooked import HookedLike, Tokens, check_tokens, checked_hooks
from arith_lens.model.state import active_hooks, compute_device, require_evaluation_mode

Need: TypeAlias = Literal[
    "a tested family", "evaluation mode", "no active hooks", "one device", "Transformers' code"
]


@dataclass(frozen=True)
class Way:
    """What a model must have to be run in some way. A call may need more, as its function says."""

    needs: tuple[Need, ...]
    tested: Callable[[Family], bool] = lambda family: True
    """Whether a test compares it with whole forwards for a family."""

    def unmet(self, model: HookedLike) -> list[Need]:
        """What the model lacks."""
        hf_model: Any = getattr(getattr(model, "bridge", model), "original_model", None)
        met: dict[Need, Callable[[], bool]] = {
            "a tested family": lambda: self.tested(family_of(getattr(hf_model, "config", None))),
            "evaluation mode": lambda: not hf_model.training,
            "no active hooks": lambda: not active_hooks(model),
            "one device": lambda: len({compute_device(block) for block in model.blocks}) == 1,
            "Transformers' code": lambda: type(hf_model).__module__.startswith(_TRANSFORMERS),
        }
        return [need for need in self.needs if not met[need]()]


_TRANSFORMERS = "transformers.models."

_PLAIN = Way(
    ("a tested family", "Transformers' code", "evaluation mode", "one device", "no active hooks"),
    lambda family: family.plain_layers,
)
WAYS: Mapping[str, Way] = {
    "PrefixCache": Way(("a tested family", "Transformers' code"), lambda family: family.kv_cache),
    "without_patterns": Way(("no active hooks",)),
    "plain_layers": _PLAIN,
    "EndRuns": _PLAIN,
}
"""The ways to run a model that need something of it, by the name of their function or class in
`arith_lens.model`. Their numbers differ from those of whole forwards by rounding; those of
`run_layers` do not differ."""


@torch.no_grad()
def record(
    model: HookedLike,
    tokens: Tokens,
    names: Iterable[str] | str,
    *,
    attention_mask: Tensor | None = None,
    positions: Positions = None,
) -> dict[str, Tensor]:
    """Record the activations at some hook points in one forward.

    No logits are computed, or those at END alone if `names` has a hook point of `unembed`.

    Args:
        model: HookedModel or TransformerBridge.
        tokens: prompts, padded on the left if their lengths differ.
        names: hook points, such as `blocks.3.attn.hook_z`, or one of them.
        attention_mask: required if prompts are padded.
        positions: None: all; -1: END only (the axis stays); a slice; or one position per row.

    Returns:
        Copies of the activations [batch pos ...], by hook name.

    Raises:
        ValueError: prompts have unequal lengths, are padded without a mask, or are padded on the
            right while END is requested; or the model is in training mode.
        FloatingPointError: an activation is NaN or infinite; the message names the first layer.
        IndexError, KeyError: the model does not have a layer or a hook point.
    """
    require_evaluation_mode(model)
    check_positions(positions)
    device = torch.device(model.cfg.device)
    tokens, mask = check_tokens(tokens, attention_mask, model.tokenizer, device)
    if mask is not None and isinstance(positions, int) and not bool(mask[:, positions].all()):
        raise ValueError(
            f"expected a token at position {positions} of every prompt, found padding; pad on the "
            "left, so that END is the last column"
        )
    names = [names] if isinstance(names, str) else list(names)
    recorded: dict[str, Tensor] = {}
    store = partial(keep_activation, into=recorded, positions=positions)
    hooks = [(name, partial(store, name=name)) for name in names]
    reads_logits = any(name.startswith("unembed.") for name in names)
    kept_logits = 1 if reads_logits else torch.empty(0, dtype=torch.long, device=device)
    options = accepted_options(model, logits_to_keep=kept_logits, use_cache=False)
    if mask is not None:
        options["attention_mask"] = mask
    model.run_with_hooks(tokens, fwd_hooks=checked_hooks(hooks, model), **options)
    if (broken := _not_finite(recorded)) is not None:
        watched, row = _watched_points(model), slice(broken[1], broken[1] + 1)
        if not {*watched} <= {*names}:  # the broken layer may come before those in `names`
            of_row = None if mask is None else mask[row]
            require_finite(model, tokens[row], attention_mask=of_row)
        _refuse(broken[0])
    return recorded


def require_finite(
    model: HookedLike, tokens: Tokens, *, attention_mask: Tensor | None = None
) -> None:
    """Raise FloatingPointError, with the layer, if a forward computes NaN or infinity."""
    record(model, tokens, _watched_points(model), attention_mask=attention_mask)


def _watched_points(model: HookedLike) -> list[str]:
    """Hook points that show whether each layer, and the modules after the last one, are finite."""
    layers = range(int(model.cfg.n_layers))
    return [n for k in layers for n in (z_name(k), mlp_out_name(k))] + ["unembed.hook_out"]


def accepted_options(model: Any, **wanted: Any) -> dict[str, Any]:
    """The options that the model's own forward accepts."""
    hf_model = getattr(getattr(model, "bridge", model), "original_model", None)
    taken = inspect.signature(hf_model.forward).parameters if hf_model is not None else {}
    return {name: value for name, value in wanted.items() if name in taken}


def _not_finite(recorded: dict[str, Tensor]) -> tuple[str, int] | None:
    """The first activation, in the order of the forward, with NaN or infinity; its first row."""
    for name, value in recorded.items():
        # masked attention scores must be -inf
        if not name.endswith("hook_attn_scores") and not bool(value.isfinite().all()):
            return name, int((~value.isfinite()).flatten(1).any(1).nonzero()[0])
    return None


def _refuse(name: str) -> NoReturn:
    layer = layer_of(name)
    where = name if layer is None else f"layer {layer} ({name})"
    raise FloatingPointError(
        f"expected finite activations, found NaN or infinity first in {where}; load the model in "
        "float32 or bfloat16 (float16 overflows), and check its weights"
    )


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
    """Compute the layers from `start` to before `stop`, exactly as a whole forward does.

    Args:
        tokens: the prompts, from which masks and rotary angles are made.
        start: the first layer to compute. Layers below it are not computed.
        stop: the first layer not to compute; None: continue to the logits.
        stream: the residual stream at the entry of layer `start`, from `run_layers(stop=start)`. It
            is required if `start` is not 0.
        attention_mask: required if prompts are padded.
        fwd_hooks: hooks on the layers that are computed.

    Returns:
        The residual stream at the entry of layer `stop` [batch pos d_model], or END's logits
        [batch 1 d_vocab]. Both are bit for bit those of a whole forward of the same batch with
        `logits_to_keep=1`.

    Raises:
        ValueError: the stream is missing or has another shape, a hook is in a layer that is not
            computed, or the layers are in the wrong order.
        TypeError: the model's blocks pass on something else than one residual stream.
    """
    n_layers = int(model.cfg.n_layers)
    end = n_layers if stop is None else stop
    device = torch.device(model.cfg.device)
    rows, mask = check_tokens(tokens, attention_mask, model.tokenizer, device)
    if not 0 <= start < end <= n_layers:
        raise ValueError(
            f"expected layers start < stop of 0 to {n_layers}, found start {start} and stop {end}"
        )
    hooks = checked_hooks(fwd_hooks, model)
    _check_hooks(hooks, start, end)
    options: dict[str, Any] = {"use_cache": False}
    options |= {"logits_to_keep": 1} if stop is None else {"stop_at_layer": stop}
    if mask is not None:
        options["attention_mask"] = mask
    if start == 0:
        with _counting_outputs(model.blocks[0]):
            return model.run_with_hooks(rows, fwd_hooks=hooks, **options)
    if stream is None or stream.shape[:2] != rows.shape:
        shape = "none" if stream is None else list(stream.shape)
        raise ValueError(
            f"expected the residual stream at layer {start} of tokens {list(rows.shape)}, found "
            f"{shape}; run_layers(model, tokens, stop={start}) gives it"
        )
    with starting_at(model, start, stream):
        return model.run_with_hooks(rows, fwd_hooks=hooks, **options)


@contextmanager
def starting_at(
    model: HookedLike, start: int, stream: Float[Tensor, "batch pos d_model"]
) -> Iterator[None]:
    """A context in which forwards begin at layer `start` with the given stream.

    The model makes masks and rotary angles from the tokens it is called with, so they are right for
    any architecture. The model is restored at the end, also after an error.

    Raises:
        TypeError: in a forward, if blocks pass on something else than one residual stream.
    """
    blocks = [model.blocks[layer] for layer in range(start + 1)]
    n_others = n_other_outputs(model, blocks[0])
    forwards = [
        identity_block(stream if layer == start - 1 else None, n_others) for layer in range(start)
    ]
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
    """A context in which each of the bridge's blocks computes one of the given functions."""
    with ExitStack() as stack:
        for block, forward in zip(blocks, forwards, strict=True):
            # without the bridge's own __setattr__, which would change the wrapped layer
            object.__setattr__(block, "forward", forward)
            stack.callback(block.__dict__.pop, "forward")
        yield


def identity_block(stream: Tensor | None, n_others: int | None = None) -> Callable[..., Any]:
    """A block that computes nothing. It returns `stream`, or its input if `stream` is None.

    Args:
        stream: the residual stream at its exit.
        n_others: the number of other values that such a block returns in a tuple; None: no tuple.
    """

    def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = hidden_states if stream is None else stream
        return out if n_others is None else (out, *[None] * n_others)

    return forward


_N_OTHER_OUTPUTS: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


@contextmanager
def _counting_outputs(block: Any) -> Iterator[None]:
    """Store the number of values that `block` returns with the stream; None: no tuple."""

    def note(module: Any, args: Any, out: Any) -> None:
        _N_OTHER_OUTPUTS[block] = len(out) - 1 if isinstance(out, tuple) else None

    if block in _N_OTHER_OUTPUTS:
        yield
        return
    handle = block.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def n_other_outputs(model: HookedLike, block: Any) -> int | None:
    """That number, from the forward that made the stream, or else from one of a single token."""
    if block not in _N_OTHER_OUTPUTS:
        token = torch.zeros((1, 1), dtype=torch.long, device=torch.device(model.cfg.device))
        with _counting_outputs(block):
            model.run_with_hooks(token, fwd_hooks=[], use_cache=False, stop_at_layer=1)
    return _N_OTHER_OUTPUTS[block]


def _check_arrival(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, stream: Tensor
) -> None:
    """Check that the first computed block gets the stream itself, not a part of it."""
    received = args[0] if args else kwargs.get("hidden_states")
    if received is not stream:
        shape = list(received.shape) if isinstance(received, Tensor) else type(received).__name__
        raise TypeError(
            f"expected blocks that hand on one residual stream {list(stream.shape)}, found that "
            f"{module.name} is given {shape}; this architecture cannot be resumed at a layer"
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


def continues_prompts(model: HookedLike, longest: int) -> bool:
    """Whether the model's own code continues a prefix in the same way as in a whole prompt.

    It does not if a sliding window is shorter than the prompt, because some keys are then dropped.

    Args:
        longest: the number of tokens of the longest prompt.
    """
    if WAYS["PrefixCache"].unmet(model):
        return False
    bridge: Any = getattr(model, "bridge", model)
    config = bridge.original_model.config
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    return window is None or longest <= window or kinds == {"full_attention"}


def n_common(prompts: Sequence[Sequence[int]], own: int = 1) -> int:
    """The number of tokens that all prompts begin with.

    Args:
        prompts: the prompts' tokens.
        own: the number of tokens at the end of each prompt that do not count.
    """
    columns = zip(*prompts, strict=False)
    alike = sum(1 for _ in takewhile(lambda column: len({*column}) == 1, columns))
    return max(0, min(alike, min(map(len, prompts)) - own))


def keys_and_values(model: HookedLike, tokens: Int[Tensor, "batch pos"], mask: Tensor) -> Any:
    """The keys and values of tokens, as Transformers' cache. No logits are computed.

    Raises:
        RuntimeError: the model put none into the cache, as where TransformerLens does not know the
            name by which this version of Transformers hands it on.
    """
    device = torch.device(model.cfg.device)
    columns = torch.empty(0, dtype=torch.long, device=device)
    _, cache = model(
        tokens.to(device),
        attention_mask=mask.to(device),
        use_cache=True,
        return_type="logits_and_cache",
        **accepted_options(model, logits_to_keep=columns),
    )
    if (n_cached := cache.get_seq_length()) != tokens.shape[1]:
        raise RuntimeError(
            f"expected the keys and values of {tokens.shape[1]} tokens, found {n_cached}: this "
            "version of Transformers is newer than TransformerLens knows; install "
            "'transformers<5.24'"
        )
    return cache


@dataclass(frozen=True)
class PrefixCache:
    """The keys and values of tokens that prompts begin with."""

    cache: Any

    @classmethod
    @torch.no_grad()
    def of(cls, model: HookedLike, tokens: Sequence[int]) -> "PrefixCache":
        """Compute some tokens in one forward, with the hooks that are active."""
        rows = torch.tensor([tokens])
        return cls(keys_and_values(model, rows, torch.ones_like(rows)))

    def copies(self, n_prompts: int) -> Any:
        """A cache for a batch of prompts. Forwards add to it, and leave this one alone."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(n_prompts)
        return cache

    def following(
        self, model: HookedLike, tokens: Int[Tensor, "batch pos"], n_kept: int, cache: Any
    ) -> Tensor:
        """The logits at the last tokens of prompts [batch n_kept d_vocab].

        Args:
            model: the model that computed the prefix.
            tokens: whole prompts of one length, without padding.
            n_kept: the number of tokens with logits.
            cache: of `copies`; the tokens that it has are not computed again.
        """
        device = torch.device(model.cfg.device)
        tokens = tokens.to(device)
        return model(
            tokens[:, cache.get_seq_length() :],
            past_key_values=cache,
            attention_mask=torch.ones_like(tokens),
            use_cache=True,
            **accepted_options(model, logits_to_keep=n_kept),
        )[:, -n_kept:]


@dataclass(frozen=True)
class LogitScale:
    """What a model does to its logits after the unembedding: a factor and a soft cap.

    `cap * tanh(factor * logits / cap)`; without a cap, `factor * logits`.
    """

    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, cfg: Any) -> "LogitScale":
        """What a configuration says.

        The factor is Cohere's `logit_scale`, Falcon-H1's `lm_head_multiplier`, or 1 divided by
        Granite's `logits_scaling`. The cap is that of Gemma 2.
        """
        scale, multiplier, divisor = (
            getattr(cfg, name, None)
            for name in ("logit_scale", "lm_head_multiplier", "logits_scaling")
        )
        cap = getattr(cfg, "output_logits_soft_cap", None)
        return cls(
            factor=float(scale or 1) * float(multiplier or 1) / float(divisor or 1),
            cap=cap if cap and cap > 0 else None,  # -1 is none
        )

    def __call__(self, logits: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The logits that the model returns, from those of the unembedding."""
        if self.factor != 1:
            logits = logits * self.factor
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)
