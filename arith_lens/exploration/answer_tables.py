"""What parts write where answers are no digits: what they add to the logits of all answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from arith_lens.components import Component
from arith_lens.effects import Effects
from arith_lens.explorer_page import Tables
from arith_lens.logit_attribution import logit_attribution
from arith_lens.model import HookedLike
from arith_lens.pairs import PromptPairs, candidate_tokens, pieces, tokenizer_of

OTHER_ANSWERS = "other answers"
N_ANSWERS = 8
"""Answers that are shown of each part and prompt: C, then those whose logits it raises most."""


def without_digits(model: HookedLike, pairs: PromptPairs) -> bool:
    """Whether the answers are not each one digit."""
    try:
        candidate_tokens(model, pairs.answer.tolist())
    except ValueError:
        return True
    return False


def spaced(piece: str) -> str:
    """A token as text."""
    return piece.replace("▁", " ").replace("Ġ", " ")


def answer_tables(model: HookedLike, pairs: PromptPairs, parts: Sequence[Component]) -> Tables:
    """What parts add to the logit of C and, on average, to those of the other answers; and the
    answers that they raise most on each prompt."""
    from pandas import DataFrame

    tokens, nan = pairs.answer_tokens, float("nan")
    added = logit_attribution(model, pairs, tokens)
    rows, names = (added.labels or {})["component"], tuple(map(str, parts))
    logits = added.per_pair[[rows.index(name) for name in names]]
    is_c = torch.tensor(tokens)[:, None] == pairs.answer
    means = torch.stack([logits.masked_fill(~of, nan).nanmean(1) for of in (is_c, ~is_c)], dim=1)
    labels = {"component": names, "token": ("C", OTHER_ANSWERS)}
    roles = Effects(means, tuple(labels), "logit", **pairs.units, labels=labels)
    columns = ["component", "read", "token", "mean", "ci_low", "ci_high"]
    numbers: Any = roles.to_dataframe().assign(read="write").dropna(subset=["mean"])[columns]
    best = logits.masked_fill(is_c, float("inf")).topk(min(N_ANSWERS, len(tokens)), dim=1).indices
    texts = [spaced(text).strip() for text in pieces(tokenizer_of(model), [tokens]).values()]
    component, _, prompt = np.indices(best.shape).reshape(3, -1)
    answers = {
        "component": np.array(names, dtype=object)[component],
        "read": "write",
        "prompt": prompt,
        "digit": np.array(texts, dtype=object)[best.flatten().numpy()],
        "logit": np.round(logits.gather(1, best).flatten().numpy(), 2),
    }
    return {"numbers": numbers, "digits": DataFrame(answers)}
