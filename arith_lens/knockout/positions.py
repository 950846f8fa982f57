"""Where a knockout acts: every token but BOS, or END; and which prompts are aligned."""

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.pairs import PromptPairs


def tokens_that_count(pairs: PromptPairs, tokenizer: Any) -> Bool[Tensor, "pair pos"]:
    """Every token but padding and BOS. BOS is the tokenizer's, where a prompt begins with it.

    At BOS heads put out something of their own, large and the same in every prompt, so that it
    belongs neither into a mean nor under a knockout.
    """
    mask = pairs.attention_mask
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return mask.clone()
    first = mask & (mask.cumsum(1) == 1)
    return mask & ~(first & (pairs.reference == bos))


def chosen_positions(
    pairs: PromptPairs, positions: str, tokenizer: Any
) -> Bool[Tensor, "pair pos"]:
    """Where components are knocked out. Raises ValueError for other words than `all` and `end`."""
    if positions == "all":
        return tokens_that_count(pairs, tokenizer)
    if positions != "end":
        raise ValueError(f"expected positions 'all' or 'end', found {positions!r}")
    end = torch.zeros_like(pairs.attention_mask)
    end[:, -1] = True
    return end


def aligned_groups(pairs: PromptPairs) -> Int[Tensor, "pair"]:
    """A number for each group of pairs whose tokens stand for the same thing, column by column.

    Aligned are prompts of one template and one length whose roles, where they are known, stand at
    the same columns: "3 plus 15" and "13 plus 5" are not.
    """
    layouts = pairs.lengths[:, None]
    if pairs.spans is not None:
        layouts = torch.cat([layouts, *pairs.spans.values()], dim=1)
    templates = pairs.template or ("",) * len(pairs)
    keys = list(zip(templates, map(tuple, layouts.tolist()), strict=True))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([numbers[key] for key in keys])
