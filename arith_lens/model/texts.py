"""Text becomes tokens here: pairs, `model(text)`, harness, answers and fine-tuning all call it.

A prompt has the tokens that the checkpoint's own tokenizer writes, with BOS in front where that
tokenizer adds it and nowhere else. Two things differ from calling the tokenizer. A text that itself
begins with BOS, as a chat template writes it, gets no second one, and one in the tokenizer's chat
template gets none. And what a tokenizer adds at the end, such as EOS, is left out, because a
prompt's last token is END.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PAD = 0
"""The token that this package uses as padding: an id that every vocabulary has."""
SENTENCE = "3 plus 47 is 50"
"""A text that a tokenizer must give back."""
N_WORDS = 16
"""The number of a vocabulary's words that a small tokenizer must give back instead."""
BLANKS = ("▁", "Ġ", " ")
"""How tokenizers write a blank before a word."""


def token_rows(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of each text, as the model reads it.

    Returns:
        One list of ids per text, without padding.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> rows = token_rows(model.tokenizer, ["3 + 5 = ", "<s>3 + 5 = "])
        >>> [row.count(model.tokenizer.bos_token_id) for row in rows]
        [1, 1]
    """
    return [ids for ids, _ in rows_with_offsets(tokenizer, texts, offsets=False)]


def rows_with_offsets(
    tokenizer: Any, texts: Sequence[str], *, offsets: bool = True
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """The tokens of each text, and each token's characters, which only fast tokenizers know.

    An added token has the characters (0, 0).
    """
    if not texts:
        return []
    batch = tokenizer([*texts], return_offsets_mapping=offsets, return_attention_mask=False)
    before, after = added_tokens(tokenizer)
    rows = []
    for i, ids in enumerate(batch["input_ids"]):
        doubled = before and ids[len(before) : 2 * len(before)] == before
        drops = doubled or (before and frame_around(tokenizer, texts[i]) != NO_FRAME)
        own = slice(len(before) if drops else 0, len(ids) - len(after))
        spans = [tuple(span) for span in batch["offset_mapping"][i][own]] if offsets else []
        rows.append((ids[own], spans))
    return rows


def text_alone(tokenizer: Any, texts: Sequence[str], prepend_bos: bool) -> list[list[int]]:
    """The tokens of parts of prompts, to which the tokenizer adds nothing; BOS if requested."""
    rows = tokenizer([*texts], add_special_tokens=False)["input_ids"] if texts else []
    bos = [tokenizer.bos_token_id] if prepend_bos else []
    return [ids if ids[:1] == bos else [*bos, *ids] for ids in rows]


def left_pad(
    rows: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "row pos"], Bool[Tensor, "row pos"]]:
    """Pad rows of unequal length on the left.

    Returns:
        One tensor, with the last tokens in column -1, and its mask.
    """
    width = max(len(row) for row in rows)
    tokens = torch.tensor([[PAD] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return tokens, mask


def added_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer adds to every text: the ids before it, such as BOS, and after it."""
    for text in ("3", "a", "."):
        alone = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = tokenizer(text)["input_ids"]
        for start in range(len(ids) - len(alone) + 1 if alone else 0):
            if ids[start : start + len(alone)] == alone:
                return ids[:start], ids[start + len(alone) :]
    return list(tokenizer("")["input_ids"]), []


def first_token(tokenizer: Any) -> str | None:
    """How the tokenizer writes what it puts in front of a text, such as `<s>`; None for nothing."""
    before = added_tokens(tokenizer)[0]
    return "".join(tokenizer.convert_ids_to_tokens(before)) or None


Frame: TypeAlias = tuple[str, str]
"""What stands before a user's message in a chat template, and after it, up to the answer."""
NO_FRAME: Frame = ("", "")


def chat_frame(tokenizer: Any) -> Frame:
    """The frame of a tokenizer's chat template.

    Raises:
        ValueError: the tokenizer has no template, or one that does not hold a message once.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError(
            f"expected a tokenizer with a chat template for chat=True, found "
            f"{type(tokenizer).__name__} without one; take an instruction-tuned checkpoint, set "
            "tokenizer.chat_template, or leave chat out"
        )
    parts = _rendered(tokenizer, SENTENCE).split(SENTENCE)
    if len(parts) != 2:
        raise ValueError(
            "expected a chat template that holds a user's message once, found it "
            f"{len(parts) - 1} times; write the prompts with the template yourself"
        )
    return parts[0], parts[1]


def in_chat(tokenizer: Any, text: str, frame: Frame) -> str:
    """A text as a user's message in the chat template, up to where the model answers.

    Raises:
        ValueError: the text holds the template already, or the template changes it.
    """
    head, tail = frame
    added = [token for token in tokenizer.get_added_vocab() if len(token.strip()) > 2]
    markers = [token for token in added if token in head + tail] + [head.strip(), tail.strip()]
    if marker := next((marker for marker in markers if marker and marker in text), None):
        raise ValueError(
            f"expected a prompt without the chat template for chat=True, found its {marker!r} in "
            f"{text!r}; leave chat out, because the template would be there twice"
        )
    rendered = _rendered(tokenizer, text)
    if rendered not in (head + text + tail, head + text.strip() + tail):
        raise ValueError(
            f"expected a chat template that keeps a user's message, found {rendered!r} for "
            f"{text!r}; write the prompts with the template yourself"
        )
    return rendered


def frame_around(tokenizer: Any, text: str) -> Frame:
    """The frame of the chat template in which a text stands; empty texts where there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return NO_FRAME
    try:
        head, tail = chat_frame(tokenizer)
    except Exception:  # of any kind, since a template may refuse a message: no text stands in it
        return NO_FRAME
    stands = head.strip() and text.startswith(head) and tail in text[len(head) :]
    return (head, tail) if stands else NO_FRAME


def _rendered(tokenizer: Any, text: str) -> str:
    message = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)


def set_bos(tokenizer: Any, bos: bool | None) -> None:
    """Let a tokenizer put BOS in front of texts, or not; None leaves it as it is.

    Raises:
        ValueError: the tokenizer has no BOS, or its class cannot be changed.
    """
    token = tokenizer.bos_token_id
    if bos and token is None:
        raise ValueError(
            f"expected a tokenizer with BOS for bos=True, found {type(tokenizer).__name__} without "
            "one; set its bos_token, or leave bos out"
        )
    if bos is None or bos == (added_tokens(tokenizer)[0] == [token]):
        return
    tokenizer.add_bos_token = bos
    if added_tokens(tokenizer)[0] != [token] * bos:
        raise ValueError(
            f"expected a tokenizer whose BOS can be set, found {type(tokenizer).__name__}, which "
            f"begins texts with {first_token(tokenizer)!r} under bos={bos}; use a fast tokenizer"
        )


def require_round_trip(tokenizer: Any, name: str) -> None:
    """Check that a text survives encoding and decoding.

    Transformers can put a tokenizer of the model's usual class in place of the one in the folder.
    Then pieces of text vanish or become other pieces. Case, and blanks at the ends, may change. A
    small vocabulary, without the words of `SENTENCE`, must give back words of its own, if any.

    Args:
        tokenizer: the tokenizer to check.
        name: the name of the checkpoint in the error.

    Raises:
        ValueError: the tokenizer gives another text back.
    """

    def decoded(text: str) -> str:
        try:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        except Exception as error:  # tokenizers raises no other class
            return f"{type(error).__name__}: {error}"
        return tokenizer.decode(ids, clean_up_tokenization_spaces=False)

    def survives(text: str) -> bool:
        return decoded(text).casefold().split() == text.casefold().split()

    if survives(SENTENCE) or all(map(survives, _own_texts(tokenizer))):
        return
    raise ValueError(
        f"expected a tokenizer that gives a text back, found that {type(tokenizer).__name__} of "
        f"{name} reads {SENTENCE!r} as {decoded(SENTENCE)!r}; the files may be a tokenizer of "
        "another kind, in whose place Transformers has put one of this class: correct "
        "tokenizer_class in tokenizer_config.json or model_type in config.json, or give load_model "
        "(hf_model, tokenizer)"
    )


def _own_texts(tokenizer: Any) -> list[str]:
    """Words of a vocabulary: one text of all where its pieces hold blanks, else each word."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = {*tokenizer.all_special_tokens}
    texts = [piece.lstrip("".join(BLANKS)) for piece, _ in vocabulary if piece not in special]
    words = [text for text in dict.fromkeys(texts) if text.isascii() and text.isalnum()]
    words = words[:: max(1, len(words) // N_WORDS)]
    has_blanks = any(piece.startswith(BLANKS) for piece, _ in vocabulary)
    return [" ".join(words)] if has_blanks and words else words
