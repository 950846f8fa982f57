"""What the harness's requests come to: forwards of a batch of prompts, padded on the left."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.components import NamedHook
from arith_lens.pairs.rows import left_pad

NO_TOKEN = -1  # behind the last token of a row that stopped before the others


@torch.no_grad()
def score_continuations(
    model: Any,
    prompts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[Sequence[int]]],
    hooks: Sequence[NamedHook],
    *,
    width: int,
) -> Float[Tensor, "prompt continuation what=2"]:
    """Log-probability of each continuation, and 1 where greedy decoding would write it.

    Args:
        prompts: each followed by its continuations' tokens but the last; those of a prompt that has
            several end in the same tokens
        width: how many continuations a prompt has at most; NaN where it has fewer
    """
    tokens, mask = left_pad(prompts)
    longest = max(len(said) for of in continuations for said in of)
    logits = model.run_with_hooks(
        tokens, fwd_hooks=hooks, attention_mask=mask, logits_to_keep=longest
    )
    logprobs = logits.float().log_softmax(-1)
    scores = torch.full((len(prompts), width, 2), float("nan"), dtype=torch.float64)
    for row, of in enumerate(continuations):
        for place, said in enumerate(of):
            chosen = torch.tensor(said, device=logprobs.device)
            at = logprobs[row, -len(said) :]
            scores[row, place, 0] = at.gather(1, chosen[:, None]).sum()
            scores[row, place, 1] = (at.argmax(-1) == chosen).all()
    return scores


def write_on(
    model: Any,
    prompts: Sequence[Sequence[int]],
    hooks: Sequence[NamedHook],
    *,
    n_new: int,
    stops: list[str],
    hook_steps: Any,
    settings: Mapping[str, Any],
) -> Int[Tensor, "prompt pos"]:
    """The tokens written after each prompt, until each has met a stop or `n_new` are there."""
    from lm_eval.models.utils_hf import stop_sequences_criteria

    tokens, mask = left_pad(prompts)
    width = tokens.shape[1]
    whole = model.generate(
        tokens,
        fwd_hooks=hooks,
        hook_steps=hook_steps,
        attention_mask=mask,
        max_new_tokens=n_new,
        stopping_criteria=stop_sequences_criteria(model.tokenizer, stops, width, len(prompts)),
        **settings,
    )
    new = whole[:, width:]
    return torch.nn.functional.pad(new, (0, n_new - new.shape[1]), value=NO_TOKEN).cpu()


def bytes_of_row(model: Any, length: int) -> int:
    """About what a row of so many tokens takes: attention (three copies), logits, the rest."""
    cfg = model.cfg
    a_token = 2 * cfg.d_vocab + 4 * cfg.d_mlp + 8 * cfg.d_model
    a_token += 2 * cfg.n_layers * model.n_kv_heads * cfg.d_head
    return 4 * length * (3 * cfg.n_heads * length + a_token)
