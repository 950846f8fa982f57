"""Do these pairs fit this model? Its padding, vocabulary, tokenizer and context."""

from typing import Any

import torch

from arith_lens.pairs.prompt_pairs import PromptPairs


def check_pairs(model: Any, pairs: PromptPairs) -> None:
    """Refuse pairs whose tokens mean something else to the model, or nothing.

    Args:
        model: what has TransformerLens' `cfg`, and a tokenizer

    Raises:
        ValueError: padding without a mask, tokens beyond the vocabulary, pairs of another tokenizer
            (which pairs from bare tokens do not tell), prompts longer than the context
    """
    pairs.refuse_unmasked(getattr(model.tokenizer, "pad_token_id", None))
    _check_vocabulary(pairs, int(model.cfg.d_vocab))
    _check_tokenizer(pairs, model.tokenizer)
    _check_context(pairs, getattr(model.cfg, "n_ctx", None))


def _check_vocabulary(pairs: PromptPairs, d_vocab: int) -> None:
    for name in ("reference", "counterfactual", "answer"):
        tokens = getattr(pairs, name)
        strange = (tokens < 0) | (tokens >= d_vocab)
        if bool(strange.any()):
            raise ValueError(
                f"expected tokens from 0 to {d_vocab - 1}, found {int(tokens[strange][0])} in "
                f"{name}: the pairs are of another tokenizer; make them with this model"
            )


def _check_tokenizer(pairs: PromptPairs, tokenizer: Any) -> None:
    """Compare how each token is written; pairs from text know it."""
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
    longest = int(pairs.lengths.max()) if len(pairs) else 0
    if context and longest > context:
        raise ValueError(
            f"expected prompts of at most {context} tokens, the model's context, found one of "
            f"{longest}; shorten the prompts, or take a model with a longer context"
        )
