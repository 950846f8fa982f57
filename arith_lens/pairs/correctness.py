"""Do pairs fit a model, and does the model answer them right?

`check_pairs` compares padding, vocabulary, tokenizer and context. `keep_correct` keeps the pairs
that the model answers right, and records in a `Selection` what that did.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.caller_warnings import warn_caller
from arith_lens.model import HookedLike, require_evaluation_mode, require_finite
from arith_lens.pairs.fields import Selection
from arith_lens.pairs.prompt_pairs import PromptPairs

MOST_SHOWN = 80
"""The characters of a prompt's end in a message."""
MOST_UNCHANGED = 1 / 3
"""The share of counterfactuals still answered with C above which `keep_correct` warns."""


def check_kinds(model: Any, pairs: Any) -> None:
    """Raise TypeError unless these are a model and pairs, in this order."""
    if hasattr(model, "cfg") and hasattr(pairs, "refuse_unmasked"):
        return
    cure = "give a model from load_model, then pairs from sample_pairs or PromptPairs.from_rows"
    if hasattr(model, "refuse_unmasked") and hasattr(pairs, "cfg"):
        cure = "exchange the two"
    raise TypeError(
        f"expected a model, then its pairs, found {type(model).__name__}, then "
        f"{type(pairs).__name__}; {cure}"
    )


def check_pairs(model: Any, pairs: Any, *, unequal: bool = False) -> None:
    """Check that pairs fit a model, and that the model gives one prompt the same numbers twice.

    Args:
        model: a model with TransformerLens' `cfg` and a tokenizer.
        unequal: whether the method knows pairs of prompts of unequal lengths.

    Raises:
        TypeError: something else than a model and pairs.
        ValueError: pairs are of unequal lengths, which the method does not know, are padded without
            a mask, have tokens beyond the vocabulary, were made with another tokenizer (which pairs
            from bare tokens do not show), or are longer than the context; or the model is in
            training mode.
    """
    check_kinds(model, pairs)
    if pairs.counterparts is not None and not unequal:
        raise ValueError(
            "expected prompts of one length in each pair, found pairs with counterfactual_spans, "
            "which path_patch, interchange and the knockout read; give counterfactuals of as "
            "many tokens"
        )
    require_evaluation_mode(model)
    pairs.refuse_unmasked(getattr(model.tokenizer, "pad_token_id", None))
    _check_vocabulary(pairs, int(model.cfg.d_vocab))
    _check_tokenizer(pairs, model.tokenizer)
    _check_context(pairs, getattr(model.cfg, "n_ctx", None))


def _check_vocabulary(pairs: PromptPairs, d_vocab: int) -> None:
    for name in ("reference", "counterfactual", "answer", "counterfactual_answer"):
        tokens = getattr(pairs, name)
        least = -1 if name == "counterfactual_answer" else 0  # -1: it has no answer
        strange = (tokens < least) | (tokens >= d_vocab)
        if bool(strange.any()):
            raise ValueError(
                f"expected tokens from 0 to {d_vocab - 1}, found {int(tokens[strange][0])} in "
                f"{name}: the pairs are of another tokenizer; make them with this model"
            )


def _check_tokenizer(pairs: PromptPairs, tokenizer: Any) -> None:
    """Compare how both tokenizers write each token. Only pairs from text have this."""
    if not pairs.pieces or not hasattr(tokenizer, "convert_ids_to_tokens"):
        return
    ids = torch.cat([pairs.reference[pairs.attention_mask], pairs.answer]).unique().tolist()
    ids = [token for token in ids if token in pairs.pieces]
    for token, piece in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True):
        if piece != pairs.pieces[token]:
            raise ValueError(
                f"expected pairs of the model's tokenizer, found others: token {token} is "
                f"{pairs.pieces[token]!r} in the pairs and {piece!r} to the model; make the pairs "
                "with this model"
            )


def _check_context(pairs: PromptPairs, context: int | None) -> None:
    longest = max(int(mask.sum(-1).max()) for _, mask in pairs.sides) if len(pairs) else 0
    if context and longest > context:
        raise ValueError(
            f"expected prompts of at most {context} tokens, the model's context, found one of "
            f"{longest}; shorten the prompts, or take a model with a longer context"
        )


def keep_correct(model: Any, pairs: PromptPairs, *, batch_size: int = 128) -> PromptPairs:
    """The pairs whose reference prompt the model continues with C (paper, section 3).

    Right means that C is the most likely token of the whole vocabulary. The result's `selection`
    has the kept share, also per template, and how often the kept counterfactuals are still answered
    with C. If these are more than a third, there is a warning.

    Args:
        model: called as `model(tokens, attention_mask=mask, logits_to_keep=1)`; returns logits
            [pair, 1, d_vocab].
        pairs: the pairs to filter.
        batch_size: the number of pairs that run together.

    Raises:
        ValueError: the model answers none of the pairs right; or logits are not finite, if `model`
            is neither a HookedModel nor its bridge.
        FloatingPointError: an activation is NaN or infinite; the message names the first layer.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> every = al.sample_pairs(model, n=6, templates="symbols", keep="all")
        >>> pairs = al.keep_correct(model, every)
        >>> len(pairs) <= len(every)
        True
    """
    right, probability = answer(model, pairs, "reference", batch_size)
    correct = pairs.filter(right)
    mean_probability = float(probability.mean())
    if not len(correct):
        raise ValueError(
            f"expected pairs that the model answers right (keep='correct'), found 0 of "
            f"{len(pairs)} (accuracy 0.0%, mean p(C) {mean_probability:.2%}), for instance "
            f"{mistakes(model, pairs[:1])[0]}.\nUse a model that knows these answers, or prompts "
            "that it answers right, or keep='all' to look at all pairs."
        )
    still, _ = answer(model, correct, "counterfactual", batch_size)
    drawn, left = Counter(pairs.template or ()), Counter(correct.template or ())
    selection = Selection(
        n_drawn=len(pairs),
        n_kept=len(correct),
        mean_probability=mean_probability,
        counterfactual_correct=float(still.double().mean()),
        by_template={name: (left[name], drawn[name]) for name in drawn},
    )
    if selection.counterfactual_correct > MOST_UNCHANGED:
        warn_caller(
            "expected counterfactuals that change the answer, found that "
            f"{selection.counterfactual_correct:.0%} of the {len(correct)} kept pairs are answered "
            "with C after the counterfactual, too; their effects understate what the model does. "
            "Choose counterfactual='operands', or prompts whose answer cannot be copied"
        )
    return replace(correct, selection=selection)


def answer(
    model: Any, pairs: PromptPairs, side: str, batch_size: int
) -> tuple[Bool[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Whether the most likely token at END is C, and p(C).

    Args:
        model: as in `keep_correct`.
        side: "reference" or "counterfactual".
        batch_size: the number of pairs that run together.
    """
    require_evaluation_mode(model)
    if hasattr(model, "cfg"):
        _check_vocabulary(pairs, int(model.cfg.d_vocab))
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
            tokens, mask = _side(pairs, side)
            require_finite(model, tokens[bad[:1]], attention_mask=mask[bad[:1]])
        raise ValueError(
            f"expected finite logits, found NaN or infinity at END of {len(bad)} of {len(pairs)} "
            f"{side} prompts; load the model with another dtype (float16 overflows where bfloat16 "
            "does not), or check its weights"
        )
    return torch.cat(rights), probability


@torch.no_grad()
def _logits_at_end(model: Any, pairs: PromptPairs, side: str) -> Float[Tensor, "pair d_vocab"]:
    device = getattr(model, "device", "cpu")
    tokens, mask = _side(pairs, side)
    logits = model(tokens.to(device), attention_mask=mask.to(device), logits_to_keep=1)
    return logits[:, -1].float()


def _side(pairs: PromptPairs, side: str) -> tuple[Tensor, Tensor]:
    return pairs.sides[side == "counterfactual"]


def mistakes(model: Any, pairs: PromptPairs) -> list[str]:
    """The end of each prompt with the right answer and the model's."""
    top = _logits_at_end(model, pairs, "reference").argmax(-1).tolist()
    decode = getattr(getattr(model, "tokenizer", None), "decode", None)
    says = [repr(decode([token])) if decode else f"token {token}" for token in top]
    if pairs.reference_text is None or pairs.answer_text is None:
        prompts = [f"tokens {row}" for row in pairs.reference.tolist()]
        rights = [f"token {answer}" for answer in pairs.answer.tolist()]
    else:
        texts, rights = pairs.reference_text, [*map(repr, pairs.answer_text)]
        prompts = [repr(text if len(text) <= MOST_SHOWN else f"…{text[-MOST_SHOWN:]}")
                   for text in texts]  # fmt: skip
    return [
        f"{prompt}, where {right} is right and the model says {own}"
        for prompt, right, own in zip(prompts, rights, says, strict=True)
    ]
