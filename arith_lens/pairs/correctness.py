"""Are tokens prompt pairs, do pairs fit a model, and does the model answer them right?

`check_shapes`, `check_mask` and `refuse_padding` look at bare tokens. `check_pairs` compares
padding, vocabulary, tokenizer and context. `keep_correct` keeps the pairs that the model answers
right, and records in a `Selection` what that did.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from arith_lens.caller_warnings import warn_caller
from arith_lens.model import PAD, HookedLike, require_evaluation_mode, require_finite

if TYPE_CHECKING:
    from arith_lens.pairs.prompt_pairs import PromptPairs


MOST_UNCHANGED = 1 / 3
"""The share of counterfactuals still answered with C above which `keep_correct` warns."""


@dataclass(frozen=True)
class Selection:
    """What the filter kept, and how sure the model was before it (paper, section 3).

    All shares are of pairs, between 0 and 1.
    """

    n_drawn: int  # pairs before the filter
    n_kept: int  # pairs that the model answers right: top-1 = C over the whole vocabulary
    mean_probability: float  # mean p(C) before the filter (the paper: 82%)
    counterfactual_correct: float  # share of the kept pairs whose X_c is still answered C
    by_template: Mapping[str, tuple[int, int]]  # name: (kept, drawn)

    @property
    def kept_share(self) -> float:
        """The model's accuracy on what was drawn."""
        return self.n_kept / self.n_drawn

    def share_by_template(self) -> dict[str, float]:
        """The kept share of each template. Where they differ, hard wordings weigh less in a plain
        mean over pairs; the averages of this package weigh templates equally."""
        return {name: kept / drawn for name, (kept, drawn) in self.by_template.items()}

    def __add__(self, other: "Selection") -> "Selection":
        """The record of both sets of pairs together."""
        if not isinstance(other, Selection):
            return NotImplemented
        parts, by_template = (self, other), {**self.by_template}
        for name, (kept, drawn) in other.by_template.items():
            kept_before, drawn_before = by_template.get(name, (0, 0))
            by_template[name] = kept_before + kept, drawn_before + drawn
        return Selection(
            n_drawn=self.n_drawn + other.n_drawn,
            n_kept=self.n_kept + other.n_kept,
            mean_probability=_mean([(s.mean_probability, s.n_drawn) for s in parts]),
            counterfactual_correct=_mean([(s.counterfactual_correct, s.n_kept) for s in parts]),
            by_template=by_template,
        )

    def __str__(self) -> str:
        shares = self.share_by_template()
        lines = [
            f"kept {self.n_kept} of {self.n_drawn} pairs ({self.kept_share:.1%}) that the model "
            "answers right",
            f"mean p(C) before selection {self.mean_probability:.1%}; "
            f"X_c still answered C {self.counterfactual_correct:.1%}",
        ]
        if len(shares) > 1:
            least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
            low, high = f"{shares[least]:.1%}", f"{shares[most]:.1%}"
            ends = f"{low} ({least}) to {high} ({most})" if low != high else f"{low} of each"
            lines.append(f"share kept per template: {ends}")
        return "\n".join(lines)


def _mean(values: list[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else float("nan")


def check_shapes(
    reference: Tensor,
    counterfactual: Tensor,
    answer: Tensor,
    mask: Tensor | None,
    counterfactual_answer: Tensor | None = None,
) -> None:
    """Raise ValueError, with the shapes, if tensors cannot be aligned pairs."""
    if reference.ndim != 2 or reference.shape != counterfactual.shape:
        raise ValueError(
            "expected reference and counterfactual of one shape [pair, pos], found "
            f"{list(reference.shape)} and {list(counterfactual.shape)}; give both prompts of a "
            "pair the same number of tokens, because patching moves activations position by "
            "position"
        )
    if not reference.numel():
        raise ValueError(
            f"expected at least one pair, found none (reference has shape "
            f"{list(reference.shape)}); give prompts with tokens"
        )
    if answer.shape != reference.shape[:1]:
        raise ValueError(
            f"expected one answer token per pair, [{len(reference)}], found {list(answer.shape)}; "
            "give the token that follows each reference prompt"
        )
    if counterfactual_answer is not None and counterfactual_answer.shape != answer.shape:
        raise ValueError(
            f"expected one counterfactual_answer per pair [{len(answer)}], found "
            f"{list(counterfactual_answer.shape)}; give -1 where a counterfactual has no answer"
        )
    if mask is not None and mask.shape != reference.shape:
        raise ValueError(
            f"expected attention_mask of the prompts' shape {list(reference.shape)}, found "
            f"{list(mask.shape)}; give one entry per token, False at padding"
        )


def check_mask(mask: Bool[Tensor, "pair pos"]) -> None:
    """Raise ValueError for rows without a token, and for masks with holes."""
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(
            f"expected a token in each row, found attention_mask False everywhere in pair {row}; "
            "leave the pair out, or correct its mask"
        )
    starts = mask[:, 0].int() + (mask.int().diff(dim=1) == 1).sum(1)
    if (starts > 1).any():
        row = int((starts > 1).nonzero()[0])
        raise ValueError(
            f"pair {row}: expected attention_mask as one run of True, found a hole in it; put all "
            "padding on the left or on the right"
        )


def refuse_padding(reference: Tensor, counterfactual: Tensor, pad_token: int | None) -> None:
    """Raise ValueError for padded rows, which need a mask.

    These are rows that begin with two padding tokens or end in one, and rows that this package has
    padded on the left.
    """
    padded = (reference[:, 0] == PAD) & (counterfactual[:, 0] == PAD)
    if padded.any() and not padded.all():
        raise ValueError(
            f"expected attention_mask with padded prompts, found none: pair "
            f"{int(padded.nonzero()[0])} starts with token {PAD}, with which this package pads; "
            "give the mask, True where a token is to be read (all ones, if that token is meant)"
        )
    if pad_token is None:
        return
    for name, tokens in (("reference", reference), ("counterfactual", counterfactual)):
        is_pad = tokens == pad_token
        padded = is_pad[:, -1] | is_pad[:, :2].all(1)
        if padded.any():
            raise ValueError(
                f"expected attention_mask with padded prompts, found none: {name} of pair "
                f"{int(padded.nonzero()[0])} starts or ends with the padding token {pad_token}; "
                "give the mask, True where a token is to be read (all ones, if that token is meant)"
            )


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


def check_pairs(model: Any, pairs: "PromptPairs") -> None:
    """Check that pairs fit a model, and that the model gives one prompt the same numbers twice.

    Args:
        model: a model with TransformerLens' `cfg` and a tokenizer.
        pairs: the pairs.

    Raises:
        TypeError: something else than a model and pairs.
        ValueError: pairs are padded without a mask, have tokens beyond the vocabulary, were made
            with another tokenizer (which pairs from bare tokens do not show), or are longer than
            the context; or the model is in training mode.
    """
    check_kinds(model, pairs)
    require_evaluation_mode(model)
    pairs.refuse_unmasked(getattr(model.tokenizer, "pad_token_id", None))
    _check_vocabulary(pairs, int(model.cfg.d_vocab))
    _check_tokenizer(pairs, model.tokenizer)
    _check_context(pairs, getattr(model.cfg, "n_ctx", None))


def _check_vocabulary(pairs: "PromptPairs", d_vocab: int) -> None:
    for name in ("reference", "counterfactual", "answer", "counterfactual_answer"):
        tokens = getattr(pairs, name)
        least = -1 if name == "counterfactual_answer" else 0  # -1: it has no answer
        strange = (tokens < least) | (tokens >= d_vocab)
        if bool(strange.any()):
            raise ValueError(
                f"expected tokens from 0 to {d_vocab - 1}, found {int(tokens[strange][0])} in "
                f"{name}: the pairs are of another tokenizer; make them with this model"
            )


def _check_tokenizer(pairs: "PromptPairs", tokenizer: Any) -> None:
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


def _check_context(pairs: "PromptPairs", context: int | None) -> None:
    longest = int(pairs.lengths.max()) if len(pairs) else 0
    if context and longest > context:
        raise ValueError(
            f"expected prompts of at most {context} tokens, the model's context, found one of "
            f"{longest}; shorten the prompts, or take a model with a longer context"
        )


def keep_correct(model: Any, pairs: "PromptPairs", *, batch_size: int = 128) -> "PromptPairs":
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
    """
    right, probability = answer(model, pairs, "reference", batch_size)
    correct = pairs.filter(right)
    mean_probability = float(probability.mean())
    if not len(correct):
        raise ValueError(
            f"expected pairs that the model answers right (keep='correct'), found 0 of "
            f"{len(pairs)} (accuracy 0.0%, mean p(C) {mean_probability:.2%}), for instance "
            f"{_example(model, pairs[:1])}.\nUse a model that can calculate, an operation that it "
            "knows, or keep='all' to look at all pairs."
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
            "with C without the calculation, too; there, effects understate what the model "
            "calculates. Take counterfactual='operands', or prompts whose answer cannot be copied"
        )
    return replace(correct, selection=selection)


def answer(
    model: Any, pairs: "PromptPairs", side: str, batch_size: int
) -> tuple[Bool[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Whether the most likely token at END is C, and p(C).

    Args:
        model: as in `keep_correct`.
        pairs: the pairs.
        side: "reference" or "counterfactual".
        batch_size: the number of pairs that run together.
    """
    require_evaluation_mode(model)
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
            f"expected finite logits, found NaN or infinity at END of {len(bad)} of {len(pairs)} "
            f"{side} prompts; load the model with another dtype (float16 overflows where bfloat16 "
            "does not), or check its weights"
        )
    return torch.cat(rights), probability


@torch.no_grad()
def _logits_at_end(model: Any, pairs: "PromptPairs", side: str) -> Float[Tensor, "pair d_vocab"]:
    device = getattr(model, "device", "cpu")
    logits = model(
        getattr(pairs, side).to(device),
        attention_mask=pairs.attention_mask.to(device),
        logits_to_keep=1,
    )
    return logits[:, -1].float()


def _example(model: Any, pair: "PromptPairs") -> str:
    """One prompt with the right answer and the model's."""
    top = int(_logits_at_end(model, pair, "reference").argmax(-1))
    decode = getattr(getattr(model, "tokenizer", None), "decode", None)
    says = repr(decode([top])) if decode else f"token {top}"
    if pair.reference_text is None or pair.answer_text is None:
        prompt, right = f"tokens {pair.reference[0].tolist()}", f"token {int(pair.answer[0])}"
    else:
        prompt, right = repr(pair.reference_text[0]), repr(pair.answer_text[0])
    return f"{prompt}, where {right} is right and the model says {says}"
