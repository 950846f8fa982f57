"""Backward rules as context managers, which compose by nesting.

Inside, every forward computes the same values as before; gradients alone change. The hooks are
removed at the end, also after an error.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from arith_lens.attribution.graph import Gate
from arith_lens.components import NamedHook, pattern_name
from arith_lens.metrics import logit_tolerance
from arith_lens.model import (
    ACTIVATION_NAMES,
    HookedLike,
    NormScale,
    in_float32,
    own_module,
    weights_loaded,
)


class UnsupportedRule(ValueError):
    """A backward rule does not fit this model. `atp`, `clean_corrupted`, `eap_ig` and
    `ig_activations` need no rules."""


@contextmanager
def hold_norm_scales(model: HookedLike) -> Iterator[None]:
    """A context in which no gradient passes through what a norm divides by."""
    final = getattr(model, "ln_final", None)
    parts = [part for block in model.blocks for part in block.modules()]
    parts += [final] if isinstance(final, nn.Module) else []
    norms = list(dict.fromkeys(part for part in parts if "hook_normalized" in part._modules))
    with ExitStack() as stack:
        for norm in norms:
            held = _Held(norm)
            stack.callback(norm.hook_in.register_forward_hook(held.keep).remove)
            # before the hooks at this point, which may cut the norm's output off from its input
            handle = norm.hook_out.register_forward_hook(held.hold, prepend=True)
            stack.callback(handle.remove)
        yield


class _Held:
    """One norm, whose scale no gradient passes through."""

    def __init__(self, norm: Any) -> None:
        self.norm, self.scale = norm, NormScale(own_module(norm), in_float32(norm))

    def keep(self, _: Any, args: Any, rows: Tensor) -> None:
        self.rows = rows

    def hold(self, _: Any, args: Any, out: Tensor) -> Tensor:
        with weights_loaded(self.norm):
            divisor, bias = self.scale(self.rows), self.scale.bias
            without = (out.detach() - bias).to(out)
        del self.rows
        change = (divisor / divisor.detach() - 1).to(out)  # 0, with the gradient of the scale
        return out + without * change


@contextmanager
def act_over_input(model: HookedLike) -> Iterator[None]:
    """A context in which the derivative of each activation function is act(x) / x.

    Raises:
        UnsupportedRule: an MLP has no activation function as a module of its own.
    """
    acts = []
    for layer, block in enumerate(model.blocks):
        _refuse_experts(model, layer)
        own = own_module(block.mlp)
        activations = [part for name, part in own.named_children() if name in ACTIVATION_NAMES]
        if not activations:
            _refuse(model, layer, "an MLP without a module for its activation function")
        acts.append(activations[0])

    def ratio(_: Any, args: Any, out: Tensor) -> Tensor:
        x = args[0]
        slope = torch.where(x == 0, 0.0, out / x).detach()
        return out.detach() + (x - x.detach()) * slope

    with _forward_hooks(acts, [ratio] * len(acts)):
        yield


@contextmanager
def halve_gated_products(model: HookedLike) -> Iterator[None]:
    """A context in which both factors of a gated MLP's product get half of the gradient.

    Both begin at the MLP's input, so that halving the gradient there is the same. MLPs without
    a product do not change.

    Raises:
        UnsupportedRule: the model routes tokens to experts.
    """
    hooks: list[NamedHook] = []
    for layer in range(len(model.blocks)):
        _refuse_experts(model, layer)
        if getattr(model.cfg, "gated_mlp", False):
            hooks.append((f"blocks.{layer}.mlp.hook_in", Gate(0.5)))
    with _bridge_hooks(model, hooks):
        yield


@contextmanager
def split_attention_products(model: HookedLike) -> Iterator[None]:
    """A context in which queries and keys get a quarter of their gradient, values half of it.

    This is the uniform rule: each of the two factors of a product gets half, and queries and keys
    are in two products.

    Raises:
        UnsupportedRule: the model's attention has no hook points at its queries, keys or values.
    """
    shares = {"q": 0.25, "k": 0.25, "v": 0.5}
    layers = range(len(model.blocks))
    hooks: list[NamedHook] = [
        (f"blocks.{layer}.attn.hook_{name}", Gate(share))
        for layer in layers
        for name, share in shares.items()
    ]
    with _bridge_hooks(model, hooks):
        yield


@contextmanager
def hold_attention_weights(model: HookedLike) -> Iterator[None]:
    """A context in which no gradient passes through the weights of attention.

    It is the optional rule of RelP (Jafari et al., 2025), for gradients through the whole model:
    `with hold_attention_weights(model): attribute(..., method="relp", paths="total")`. Where all
    other heads are frozen it changes nothing.

    Raises:
        UnsupportedRule: the model's attention has no hook point at its weights.
    """

    def hold(weights: Tensor, hook: Any = None) -> Tensor:
        return weights.detach()

    hooks: list[NamedHook] = [(pattern_name(layer), hold) for layer in range(len(model.blocks))]
    with _bridge_hooks(model, hooks):
        yield


@contextmanager
def soften_softmax(model: HookedLike, temperature: float) -> Iterator[None]:
    """A context in which the softmax of attention has the backward of softmax(scores / T).

    As in the published code, that backward is not divided by T.

    Raises:
        UnsupportedRule: the weights of attention are not a softmax of its scores.
    """
    hooks: list[NamedHook] = []
    for layer in range(len(model.blocks)):
        softened = _Softened(model, layer, temperature)
        hooks.append((f"blocks.{layer}.attn.hook_attn_scores", softened.keep))
        hooks.append((pattern_name(layer), softened.soften))
    with _bridge_hooks(model, hooks):
        yield


@dataclass
class _Softened:
    """The softmax of one layer's attention."""

    model: HookedLike
    layer: int
    temperature: float
    scores: Tensor | None = None

    def keep(self, scores: Tensor, hook: Any = None) -> None:
        self.scores = scores

    def soften(self, weights: Tensor, hook: Any = None) -> Tensor:
        scores, self.scores = self.scores, None
        if scores is None or not _is_softmax(weights, scores):
            _refuse(self.model, self.layer, "attention weights that are not a softmax of scores")
        soft = (scores.float() / self.temperature).softmax(-1)
        change = self.temperature * (soft - soft.detach())  # 0, with the gradient of the softmax
        return weights.detach() + change.to(weights)


def _is_softmax(weights: Tensor, scores: Tensor) -> bool:
    if weights.shape != scores.shape:
        return False
    recomputed = scores.detach().float().softmax(-1)[:, :, -1]  # END: no row of padding
    difference = (recomputed - weights.detach()[:, :, -1].float()).abs().max()
    return bool(difference <= logit_tolerance(weights.dtype))


@contextmanager
def _forward_hooks(modules: Sequence[Any], hooks: Sequence[Any]) -> Iterator[None]:
    """Torch's own hooks on modules, which are removed at the end."""
    with ExitStack() as stack:
        for module, hook in zip(modules, hooks, strict=True):
            stack.callback(module.register_forward_hook(hook).remove)
        yield


@contextmanager
def _bridge_hooks(model: HookedLike, hooks: Sequence[NamedHook]) -> Iterator[None]:
    """Hooks at the bridge's hook points. Each of them must have been called at the end."""
    called: set[str] = set()

    def record_hook(name: str, function: Any) -> NamedHook:
        def call(values: Tensor, hook: Any = None) -> Any:
            called.add(name)
            return function(values, hook)

        return name, call

    with model.hooks(fwd_hooks=[record_hook(*hook) for hook in hooks]):
        yield
    missed = [name for name, _ in hooks if name not in called]
    if missed:
        raise UnsupportedRule(
            f"expected a model that computes {missed[0]} itself, found that {_name_of(model)} "
            "does not; choose a method without rules, such as atp or eap_ig"
        )


def _refuse_experts(model: HookedLike, layer: int) -> None:
    if hasattr(own_module(model.blocks[layer].mlp), "experts"):
        _refuse(model, layer, "experts, for whose routing there is no rule,")


def _refuse(model: HookedLike, layer: int, reason: str) -> NoReturn:
    raise UnsupportedRule(
        f"expected layers that the rule fits, found {reason} in layer {layer} of "
        f"{_name_of(model)}; choose a method without rules, such as atp or eap_ig"
    )


def _name_of(model: HookedLike) -> str:
    return str(getattr(model.cfg, "architecture", None) or "this model")
