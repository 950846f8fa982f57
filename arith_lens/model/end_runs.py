"""Run a model at END alone, where everything before END is as in a run that is known.

An intervention at END leaves all earlier tokens as they are. So their keys and values of the
unchanged run stay right, and the layers from the intervention on compute one token per prompt. That
is exact, has every path open, and gradients pass through it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import resid_post_name, resid_pre_name
from arith_lens.model.forwards import WAYS, record
from arith_lens.model.hooked import HookedLike, Tokens
from arith_lens.model.own_modules import LayerArguments, PlainLayer, layer_arguments, plain_layers
from arith_lens.model.state import layers_with_weights
from arith_lens.model.unembedding import end_logits


class UnsupportedEndRuns(ValueError):
    """The model cannot be run at END alone."""


def capped(scores: Tensor, scaling: float, softcap: float | None) -> Tensor:
    """Attention scores with their scale and, if the family has one, its soft cap. In place."""
    scores *= scaling
    return scores if softcap is None else (scores / softcap).tanh() * softcap


def attention_weights(scores: Tensor) -> Tensor:
    """The softmax over keys, computed in float32."""
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)


@dataclass(frozen=True, eq=False)
class EndAttention:
    """Attention of END alone, with known keys and values of the tokens before it."""

    mask: Float[Tensor, "rows 1 pos pos"]
    """The mask that is added to the scores; `rows` is 1 if all prompts share it."""
    keys: Float[Tensor, "known n_kv pair before d_head"]
    """`known` is 1 if all states share the keys, else there is one per state."""
    values: Float[Tensor, "known n_kv pair before d_head"]

    def __call__(
        self,
        query: Float[Tensor, "state n_heads pair d_head"],
        key: Float[Tensor, "state n_kv pair d_head"],
        value: Float[Tensor, "state n_kv pair d_head"],
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> Float[Tensor, "state pair n_heads d_head"]:
        n_known, n_kv, n_pairs = len(self.keys), key.shape[1], key.shape[2]
        n_group = query.shape[1] // n_kv
        rows = rearrange(  # all queries of the same keys are one matrix
            query,
            "(known state) (kv group) pair d_head -> known kv pair (state group) d_head",
            known=n_known,
            kv=n_kv,
        )
        own, own_value = (
            repeat(
                x,
                "(known state) kv pair d_head -> known kv pair (state group) d_head",
                known=n_known,
                group=n_group,
            )
            for x in (key, value)
        )
        scores = torch.cat([rows @ self.keys.mT, (rows * own).sum(-1, keepdim=True)], dim=-1)
        mask = self.mask[:, :, -1:].expand(n_pairs, -1, -1, -1)[:, 0]
        weights = attention_weights(capped(scores, scaling, softcap) + mask)
        z = weights[..., :-1] @ self.values + weights[..., -1:] * own_value
        return rearrange(
            z,
            "known kv pair (state group) d_head -> (known state) pair (kv group) d_head",
            group=n_group,
        )


Edit = Callable[[Tensor], Tensor]
"""A change of an activation at END, [state pair ...]."""


@dataclass(frozen=True, eq=False)
class EndRuns:
    """Prompts whose unchanged run is known, so that END can be run alone."""

    model: HookedLike
    layers: tuple[PlainLayer, ...]
    inputs: LayerArguments
    tokens: Int[Tensor, " pair"]
    """Each prompt's token at END."""
    attentions: tuple[EndAttention, ...]
    """Per layer, the attention to the known keys and values."""
    streams: Float[Tensor, "point pair d_model"]
    """END's residual stream in the unchanged run: at the entry of each layer, and after the
    last."""

    @classmethod
    @torch.no_grad()
    def of(cls, model: HookedLike, tokens: Tokens, attention_mask: Tensor) -> "EndRuns":
        """Run prompts once, and keep the keys and values of all tokens.

        Args:
            tokens: the prompts, padded on the left.
            attention_mask: False at padding.

        Raises:
            UnsupportedEndRuns: the model lacks a need of this way; the message names it.
            FloatingPointError: an activation is not finite.
        """
        layers = plain_layers(model)
        inputs = None if layers is None else layer_arguments(model, tokens, attention_mask)
        if layers is None or inputs is None:
            unmet = WAYS["EndRuns"].unmet(model) or ["arguments of layers that split by position"]
            raise UnsupportedEndRuns(
                "expected a model that can be run at END alone, found one without "
                f"{', '.join(unmet)}; take a family whose row in arith_lens/model/families.py has "
                "plain_layers, on one device, without active hooks"
            )
        names = [resid_pre_name(layer) for layer in range(len(layers))]
        names.append(resid_post_name(len(layers) - 1))
        recorded = record(model, tokens, names, attention_mask=attention_mask)
        attentions = []
        for layer in layers_with_weights(list(model.blocks)):
            stream, others = recorded[names[layer]], inputs.others[layer]
            known = layers[layer].keys_and_values(stream, others)
            keys, values = (rearrange(x, "p kv t d -> 1 kv p t d")[..., :-1, :] for x in known)
            attentions.append(EndAttention(inputs.masks[layer], keys, values))
        streams = torch.stack([recorded[name][:, -1] for name in names])
        ends = torch.as_tensor(tokens)[:, -1]
        return cls(model, layers, inputs, ends, tuple(attentions), streams)

    def advance(
        self,
        streams: Float[Tensor, "state pair d_model"],
        start: int,
        *,
        stop: int | None = None,
        edits: Mapping[int, Mapping[str, Edit]] | None = None,
    ) -> Float[Tensor, "state pair d_model"]:
        """END's residual stream at the entry of layer `stop`, from that at the entry of `start`.

        Args:
            streams: END's streams, of several interventions at once.
            start: the first layer that is computed.
            stop: the first layer that is not computed; None: to the exit of the last.
            edits: by layer, the edits of z (`"z"`) [state pair n_heads*d_head] and of what the MLP
                adds (`"mlp_out"`) [state pair d_model].
        """
        n_pairs, width = self.inputs.stream.shape[:2]
        pair = torch.arange(n_pairs, device=streams.device)
        for layer in self._in_order(start, len(self.layers) if stop is None else stop):
            inputs = self.inputs.at(layer, pair, torch.full_like(pair, width - 1))
            own = (edits or {}).get(layer, {})
            streams = self.layers[layer](streams, inputs, self.attentions[layer], **own)
        return streams

    def logits(
        self, streams: Float[Tensor, "state pair d_model"]
    ) -> Float[Tensor, "state pair d_vocab"]:
        """The logits of END's streams after the last layer."""
        n_states, n_pairs = streams.shape[:2]
        logits = end_logits(self.model, self.tokens.repeat(n_states), streams.flatten(0, 1))
        return logits.unflatten(0, (n_states, n_pairs))

    def _in_order(self, start: int, stop: int) -> Iterator[int]:
        """The layers, each with its weights loaded."""
        blocks = list(self.model.blocks)[start:stop]
        return (start + index for index in layers_with_weights(blocks))
