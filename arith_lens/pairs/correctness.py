"""The filter: keep the pairs that the model answers right, and say what that did."""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.model import HookedLike, require_finite
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.selection import Selection


def keep_correct(model: Any, pairs: PromptPairs, *, batch_size: int = 128) -> PromptPairs:
    """The pairs whose reference prompt the model continues with C (paper, section 3).

    Right means that C is the top token over the whole vocabulary. The result's `selection` says
    what was kept, a template too, and how often the kept counterfactuals are still answered C.

    Args:
        model: called as `model(tokens, attention_mask=mask, logits_to_keep=1)`; gives logits
            [pair, 1, d_vocab].

    Raises:
        ValueError: the model answers none of the pairs right.
        FloatingPointError: NaN or infinity, with the layer it is first in (of something else than a
            HookedModel or its bridge, a ValueError).
    """
    right, probability = answer(model, pairs, "reference", batch_size)
    kept = pairs.filter(right)
    mean_probability = float(probability.mean())
    if not len(kept):
        raise ValueError(
            f"no pair is left after keep='correct': the model answers 0 of {len(pairs)} right "
            f"(accuracy 0.0%, mean p(C) {mean_probability:.2%}), for instance "
            f"{_example(model, pairs[:1])}.\nUse a model that can calculate, an operation that it "
            "knows, or keep='all' to look at all pairs."
        )
    still, _ = answer(model, kept, "counterfactual", batch_size)
    drawn, left = Counter(pairs.template or ()), Counter(kept.template or ())
    selection = Selection(
        n_drawn=len(pairs),
        n_kept=len(kept),
        mean_probability=mean_probability,
        counterfactual_correct=float(still.float().mean()),
        by_template={name: (left[name], drawn[name]) for name in drawn},
    )
    return replace(kept, selection=selection)


def answer(
    model: Any, pairs: PromptPairs, side: str, batch_size: int
) -> tuple[Bool[Tensor, "pair"], Float[Tensor, "pair"]]:
    """Whether top-1 at END is C, and p(C), on the "reference" or the "counterfactual" side."""
    rights, probabilities = [], []
    for batch in pairs.batches(batch_size):
        logits = _logits_at_end(model, batch, side)
        target = batch.answer.to(logits.device)
        logprob = logits.log_softmax(-1).gather(-1, target[:, None])[:, 0]
        rights.append((logits.argmax(-1) == target).cpu())
        probabilities.append(logprob.exp().cpu())
    probability = torch.cat(probabilities)
    if not probability.isfinite().all():
        bad = (~probability.isfinite()).nonzero().flatten()
        if isinstance(model, HookedLike):
            tokens, mask = getattr(pairs, side)[bad[:1]], pairs.attention_mask[bad[:1]]
            require_finite(model, tokens, attention_mask=mask)
        raise ValueError(
            f"the model's logits are NaN or infinite at END of {len(bad)} of {len(pairs)} {side} "
            "prompts: load it with another dtype (float16 overflows where bfloat16 does not), "
            "or check its weights"
        )
    return torch.cat(rights), probability


@torch.no_grad()
def _logits_at_end(model: Any, pairs: PromptPairs, side: str) -> Float[Tensor, "pair d_vocab"]:
    device = getattr(model, "device", "cpu")
    logits = model(
        getattr(pairs, side).to(device),
        attention_mask=pairs.attention_mask.to(device),
        logits_to_keep=1,
    )
    return logits[:, -1].float()


def _example(model: Any, pair: PromptPairs) -> str:
    """One prompt with the right answer and the model's."""
    top = int(_logits_at_end(model, pair, "reference").argmax(-1))
    decode = getattr(getattr(model, "tokenizer", None), "decode", None)
    says = repr(decode([top])) if decode else f"token {top}"
    if pair.reference_text is None or pair.answer_text is None:
        prompt, right = f"tokens {pair.reference[0].tolist()}", f"token {int(pair.answer[0])}"
    else:
        prompt, right = repr(pair.reference_text[0]), repr(pair.answer_text[0])
    return f"{prompt}, where {right} is right and the model says {says}"
