"""Forwards of the same prompts with hooks, each from the first layer and token that they change."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from arith_lens.components import NamedHook, layer_of
from arith_lens.model.forwards import (
    accepted_options,
    continues_prompts,
    keys_and_values,
    run_layers,
    starting_at,
)
from arith_lens.model.hooked import HookedLike
from arith_lens.model.state import active_hooks


@dataclass
class ResumedRuns:
    """What hooks cannot change is not computed again: the layers below them, and earlier tokens.

    Calls in the order of their layers compute the layers below once in all. Earlier tokens keep
    their keys and values if no prompt is padded and the family's code continues prompts; else all
    tokens are computed, bit for bit as in whole forwards.
    """

    model: HookedLike
    tokens: Int[Tensor, "batch pos"]
    mask: Tensor
    layer: int = 0
    """The layer at whose entry the stream is known."""
    stream: Float[Tensor, "batch pos d_model"] | None = None
    computes_all: bool = False
    """Whether every forward is whole, since the model's blocks hand on more than one stream."""
    cache: Any = None
    """The keys and values of all tokens without hooks; False: they are not used."""

    @torch.no_grad()
    def logits(self, hooks: list[NamedHook]) -> Float[Tensor, "batch d_vocab"]:
        """The logits at END with hooks."""
        layers = [layer_of(name) for name, _ in hooks]
        start = min([0 if layer is None else layer for layer in layers], default=0)
        first = min((_first_column(hook, self.tokens.shape[1]) for _, hook in hooks), default=0)
        if (start or first) and not self.computes_all:
            try:
                return self._from(start, first, hooks)
            except TypeError:
                self.computes_all = True
        options = {"attention_mask": self.mask, "logits_to_keep": 1}
        return self.model.run_with_hooks(self.tokens, fwd_hooks=hooks, **options)[:, -1]

    def _from(
        self, start: int, first: int, hooks: list[NamedHook]
    ) -> Float[Tensor, "batch d_vocab"]:
        """The logits, from a layer and, if the model can, from a column on."""
        if self.layer > start:
            self.layer, self.stream = 0, None
        options: dict[str, Any] = {"attention_mask": self.mask}
        if self.layer < start:
            known = {"start": self.layer, "stop": start, "stream": self.stream}
            self.stream = run_layers(self.model, self.tokens, **known, **options)
            self.layer = start
        if first and self._continues():
            return self._continued(start, first, hooks)
        options |= {"start": start, "stream": self.stream, "fwd_hooks": hooks}
        return run_layers(self.model, self.tokens, **options)[:, -1]

    def _continues(self) -> bool:
        """Whether later tokens can be computed with the keys and values of earlier ones."""
        if self.cache is None:
            able = keeps_tokens(self.model, self.mask)
            self.cache = able and keys_and_values(self.model, self.tokens, self.mask)
        return self.cache is not False

    def _continued(
        self, start: int, first: int, hooks: list[NamedHook]
    ) -> Float[Tensor, "batch d_vocab"]:
        cache = copy.copy(self.cache)  # keys and values are replaced, not changed
        cache.layers = [*map(copy.copy, self.cache.layers)]
        cache.crop(first - self.tokens.shape[1])
        later = [(name, partial(_of_later, own=hook, first=first)) for name, hook in hooks]
        options = accepted_options(self.model, logits_to_keep=1)
        stream = None if self.stream is None else self.stream[:, first:]
        with nullcontext() if stream is None else starting_at(self.model, start, stream):
            return self.model.run_with_hooks(
                self.tokens[:, first:],
                fwd_hooks=later,
                past_key_values=cache,
                attention_mask=self.mask,
                **options,
            )[:, -1]


def keeps_tokens(model: HookedLike, mask: Tensor) -> bool:
    """Whether tokens before a change keep their keys and values: no prompt is padded, and the
    family's code continues prompts."""
    able = bool(mask.all()) and not active_hooks(model)
    return able and continues_prompts(model, mask.shape[1])


def _first_column(hook: Any, width: int) -> int:
    """The first column that a hook changes; 0 if it does not say."""
    positions = getattr(hook, "positions", None)
    if isinstance(positions, int):
        return positions % width
    if isinstance(positions, Tensor) and positions.dtype == torch.bool:
        return int(positions.any(0).int().argmax())
    return 0


def _of_later(activation: Tensor, hook: Any = None, *, own: Any, first: int) -> Tensor:
    """A hook that expects all columns, on those from `first` on."""
    rest = [0, 0] * (activation.ndim - 2)
    return own(pad(activation, [*rest, first, 0]), hook=hook)[:, first:]
