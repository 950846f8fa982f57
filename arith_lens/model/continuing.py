"""Compute tokens that several prompts begin with once, and continue each prompt from there.

The keys and values of the common beginning are Transformers' cache. Numbers differ from those of
whole prompts by rounding.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.model.forwards import accepted_options
from arith_lens.model.hooked import HookedLike

FAMILIES = frozenset({"gemma", "gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3"})
"""`model_type` of the architectures for which continued prompts are tested against whole ones."""


def continues_prompts(model: HookedLike, longest: int) -> bool:
    """Whether the model's own code continues a beginning in the same way as in a whole prompt.

    It does not if a sliding window is shorter than the prompt, because some keys are then dropped.

    Args:
        model: HookedModel or TransformerBridge.
        longest: the number of tokens of the longest prompt.
    """
    hf_model = getattr(getattr(model, "bridge", model), "original_model", None)
    config = getattr(hf_model, "config", None)
    if getattr(config, "model_type", None) not in FAMILIES:
        return False
    if not type(hf_model).__module__.startswith("transformers.models."):
        return False
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
    """The keys and values of tokens, as Transformers' cache. No logits are computed."""
    device = torch.device(model.cfg.device)
    columns = torch.empty(0, dtype=torch.long, device=device)
    _, cache = model(
        tokens.to(device),
        attention_mask=mask.to(device),
        use_cache=True,
        return_type="logits_and_cache",
        **accepted_options(model, logits_to_keep=columns),
    )
    return cache


@dataclass(frozen=True)
class Beginning:
    """The keys and values of tokens that prompts begin with."""

    cache: Any

    @classmethod
    @torch.no_grad()
    def of(cls, model: HookedLike, tokens: Sequence[int]) -> "Beginning":
        """Compute some tokens in one forward, with the hooks that are active."""
        rows = torch.tensor([tokens])
        return cls(keys_and_values(model, rows, torch.ones_like(rows)))

    def copies(self, n_prompts: int) -> Any:
        """A cache for a batch of prompts. Forwards add to it, and leave this beginning alone."""
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(n_prompts)
        return cache

    def following(
        self, model: HookedLike, tokens: Int[Tensor, "batch pos"], n_kept: int, cache: Any
    ) -> Tensor:
        """The logits at the last tokens of prompts [batch n_kept d_vocab].

        Args:
            model: the model that computed the beginning.
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
