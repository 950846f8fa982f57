"""A head's output at END if its queries, its keys or its values read another residual stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.model import (
    HookedLike,
    LayerArguments,
    PlainLayer,
    family_of,
    layer_arguments,
    plain_layers,
)
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import rows_at_once

Parts = tuple[
    Float[Tensor, "state head token d_head"],
    Float[Tensor, "state kv token d_head"],
    Float[Tensor, "state kv token d_head"],
]
"""Queries, keys and values of some tokens."""


MOST_SENDERS = 64
"""Senders whose queries, keys and values are in memory together, at most."""


def senders_at_once(streams: Float[Tensor, "sender token d_model"]) -> int:
    """The number of senders whose streams are projected at once; on a CPU they fit in the cache."""
    _, n_tokens, width = streams.shape
    rows = rows_at_once(streams.device, width)
    return min(MOST_SENDERS, max(1, rows // max(1, n_tokens)))


INSTEAD = "give MLPs alone as receivers, or use path_patch, which works on whole heads"
"""What the errors tell to do."""


class UnsupportedReceiver(ValueError):
    """The model's attention cannot be computed with one of its inputs exchanged."""


@dataclass(frozen=True)
class AttentionCode:
    """The model's own code from the residual stream at a layer's entry to queries, keys, values."""

    layers: Sequence[PlainLayer]
    inputs: LayerArguments

    @classmethod
    def of(cls, model: HookedLike, pairs: PromptPairs) -> "AttentionCode":
        """The code for the reference prompts.

        Raises:
            UnsupportedReceiver: the layers cannot be run one by one; the message names the reason.
        """
        layers = plain_layers(model, any_family=True)
        name = getattr(model.cfg, "architecture", None) or "this model"
        if layers is None:
            raise UnsupportedReceiver(
                f"expected a model whose layers can be run one by one, found {name} with active "
                "hooks, in training mode, or on several devices; take hooks off, and use one device"
            )
        bridge: Any = getattr(model, "bridge", model)
        reason = family_of(bridge.original_model.config).refusals.get("edges")
        try:
            inputs = layer_arguments(model, pairs.reference, pairs.attention_mask)
        except (IndexError, TypeError, RuntimeError, AttributeError) as error:
            raise UnsupportedReceiver(
                f"expected a model whose layers and attention can be run one by one, found {name} "
                f"({reason or f'{type(error).__name__}: {error}'}); {INSTEAD}"
            ) from error
        if any(hasattr(layer.attention, "sinks") for layer in layers):
            raise UnsupportedReceiver(
                f"expected attention whose softmax is over tokens alone, found {name} ({reason}); "
                f"{INSTEAD}"
            )
        if inputs is None:
            raise UnsupportedReceiver(
                f"expected layers whose arguments split by position, found others in {name}; "
                f"{INSTEAD}"
            )
        return cls(layers, inputs)


@dataclass(frozen=True)
class Receiver:
    """The attention of one layer at END of each pair, in the reference run."""

    code: AttentionCode
    layer: int
    query: Float[Tensor, "head pair d_head"]
    """The queries at END."""
    key: Float[Tensor, "kv pair pos d_head"]
    value: Float[Tensor, "kv pair pos d_head"]
    options: Mapping[str, Any]
    """The scaling of the scores, and their soft cap."""

    @classmethod
    def of(
        cls, code: AttentionCode, layer: int, stream: Float[Tensor, "pair pos d_model"]
    ) -> "Receiver":
        """The attention of a layer for the stream at its entry.

        Raises:
            UnsupportedReceiver: the family computes its attention in code of its own.
        """
        n_pairs, width = stream.shape[:2]
        prompt = torch.arange(n_pairs, device=stream.device).repeat_interleave(width)
        column = torch.arange(width, device=stream.device).repeat(n_pairs)
        rows = rearrange(stream, "pair pos d -> 1 (pair pos) d")
        *parts, options = project(code, layer, rows, prompt, column)
        query, key, value = (
            rearrange(part[0], "head (pair pos) d -> head pair pos d", pair=n_pairs)
            for part in parts
        )
        return cls(code, layer, query[:, :, -1], key, value, options)

    @property
    def group(self) -> int:
        """The number of query heads that share one head of keys and values."""
        return len(self.query) // len(self.key)

    def sharing(self, head: int) -> range:
        """The query heads that share a head's keys and values, itself among them."""
        first = head // self.group * self.group
        return range(first, first + self.group)

    def z(
        self,
        head: int,
        query: Float[Tensor, "#state pair d_head"] | None = None,
        key: Float[Tensor, "#state pair pos d_head"] | None = None,
        value: Float[Tensor, "#state pair pos d_head"] | None = None,
    ) -> Float[Tensor, "state pair d_head"]:
        """A head's output at END; an input that is None is that of the reference run."""
        kv = head // self.group
        query = self.query[head][None] if query is None else query
        key = self.key[kv][None] if key is None else key
        value = self.value[kv][None] if value is None else value
        scores = (query[:, :, None] @ key.mT) * self.options["scaling"]
        if (softcap := self.options.get("softcap")) is not None:
            scores = (scores / softcap).tanh() * softcap
        mask = self.code.inputs.masks[self.layer][:, 0, -1:].to(scores.device)
        weights = (scores + mask).float().softmax(-1)
        return (weights @ value.float())[:, :, 0]

    def inputs_of(
        self,
        head: int,
        parts: tuple[Tensor, ...],
        prompt: Int[Tensor, " token"],
        column: Int[Tensor, " token"],
    ) -> dict[str, Tensor]:
        """A head's queries at END, and its keys and values, from `Parts` of some tokens.

        Elsewhere they are those of the reference run.
        """
        query, key, value = parts
        kv, tokens = head // self.group, (prompt, column)
        return {
            "query": self.at_end(query[:, head], head, *tokens),
            "key": self.everywhere(key[:, kv], self.key[kv], *tokens),
            "value": self.everywhere(value[:, kv], self.value[kv], *tokens),
        }

    def at_end(
        self,
        query: Float[Tensor, "state token d_head"],
        head: int,
        prompt: Int[Tensor, " token"],
        column: Int[Tensor, " token"],
    ) -> Float[Tensor, "state pair d_head"]:
        """A head's queries at END, those of the reference run where no token is END."""
        is_end = column == self.key.shape[2] - 1
        queries = repeat(self.query[head], "pair d -> state pair d", state=len(query)).clone()
        queries[:, prompt[is_end]] = query[:, is_end]
        return queries

    def everywhere(
        self,
        part: Float[Tensor, "state token d_head"],
        reference: Float[Tensor, "pair pos d_head"],
        prompt: Int[Tensor, " token"],
        column: Int[Tensor, " token"],
    ) -> Float[Tensor, "state pair pos d_head"]:
        """Keys or values at every position, those of the reference run where no token is given."""
        parts = repeat(reference, "pair pos d -> state pair pos d", state=len(part)).clone()
        parts[:, prompt, column] = part
        return parts


def project(
    code: AttentionCode,
    layer: int,
    streams: Float[Tensor, "state token d_model"],
    prompt: Int[Tensor, " token"],
    column: Int[Tensor, " token"],
) -> tuple[Any, ...]:
    """Queries, keys and values of some tokens, and the options of the scores.

    Args:
        code: the model's own code.
        streams: the residual stream at the layer's entry.
        prompt: the pair of each token.
        column: the column of each token.

    Returns:
        The three `Parts`, and a dictionary.
    """
    n_states = len(streams)
    inputs = code.inputs.at(layer, prompt.cpu(), column.cpu())
    rows = streams.to(code.inputs.stream)
    try:
        *parts, options = code.layers[layer].queries_keys_values(rows, inputs)
    except (IndexError, TypeError, RuntimeError, AttributeError) as error:
        raise UnsupportedReceiver(
            "expected a layer that passes queries, keys and values to Transformers' attention "
            f"interface, found that {type(code.layers[layer].attention).__name__} does not "
            f"({type(error).__name__}: {error}); {INSTEAD}"
        ) from error
    assert all(len(part) == n_states for part in parts)
    return (*(part.float() for part in parts), options)
