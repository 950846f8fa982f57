"""Tokens of prompts: the token spans of characters, rows of tokens, and null words that align.

Nothing here guesses how a tokenizer splits text. Whole prompts are always tokenized.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from arith_lens.model import left_pad, rows_with_offsets, token_rows
from arith_lens.pairs.alignment import unequal_fields
from arith_lens.problems import Problem
from arith_lens.templates import CharSpans, Template


class Role(StrEnum):
    """The role of a token in a prompt such as "The sum of 31 and 47 is "."""

    OPERAND_A = "operand a"
    OPERATOR = "operator"
    OPERAND_B = "operand b"
    END = "END"  # last prompt token: the logits here predict the answer
    BOS = "BOS"
    EXAMPLES = "example tokens"  # of solved problems before the prompt's own
    OTHER = "other"


class UnfitTemplate(ValueError):
    """A template gives no pairs under a tokenizer."""

    def __init__(self, template: str, message: str):
        super().__init__(message)
        self.template = template


NO_ANSWER = -1
"""In place of C' where a counterfactual has no answer."""
Span = tuple[int, int]
FIELDS = ("A", "op", "B")
MIN_CANDIDATES = 4  # with fewer candidates than this, phrases with one more word are tried too
MOST_WORDS = 4
TRIES = 200  # the number of phrases that are drawn for each number of words


@dataclass(frozen=True)
class Prompt:
    """One tokenized text."""

    ids: tuple[int, ...]
    offsets: tuple[Span, ...]  # characters of each token; empty for BOS and blank pieces

    def token_span(self, chars: Span) -> Span:
        """The half-open span of the tokens with these characters; (0, 0) if there is none."""
        start, stop = chars
        held = [i for i, (a, b) in enumerate(self.offsets) if a < min(b, stop) and b > start]
        return (held[0], held[-1] + 1) if held else (0, 0)


def tokenizer_of(model: Any) -> Any:
    """The tokenizer of a model, or the tokenizer itself. It must be fast: spans need offsets."""
    tokenizer = getattr(model, "tokenizer", model)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            "expected a model with a fast Hugging Face tokenizer, whose character offsets show "
            f"the roles of tokens, found {type(tokenizer).__name__}; load it with use_fast=True, "
            "or use PromptPairs.from_tokens for bare tokens"
        )
    return tokenizer


def tokenizer_name(tokenizer: Any) -> str:
    """The tokenizer's name in an error: its id, or the name of its folder."""
    name = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
    return Path(name).name if Path(name).is_absolute() else name


def encode(tokenizer: Any, texts: Sequence[str]) -> list[Prompt]:
    """Tokenize texts in one batch, as `model(text)` does. A repeated text is tokenized once."""
    unique = list(dict.fromkeys(texts))
    rows = rows_with_offsets(tokenizer, unique)
    blank = {
        token: not piece.strip("▁Ġ \t\n")
        for token, piece in pieces(tokenizer, [ids for ids, _ in rows]).items()
    }
    prompts = {
        text: Prompt(
            tuple(ids),
            tuple((0, 0) if blank[i] else span for i, span in zip(ids, spans, strict=True)),
        )
        for text, (ids, spans) in zip(unique, rows, strict=True)
    }
    return [prompts[text] for text in texts]


def pieces(tokenizer: Any, rows: Sequence[Sequence[int]]) -> dict[int, str]:
    """How the tokenizer writes each id that occurs.

    A model's vocabulary can be padded beyond its tokenizer's. Such an id is written `[id 50300]`.
    """
    ids = sorted({int(i) for row in rows for i in row})
    names = zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    return {token: f"[id {token}]" if name is None else name for token, name in names}


def continued(text: str, answer: str) -> str:
    """A template's prompt and its answer, with one space between them, which the prompt may end in.

    There is no space after a digit: "42 plus 34 is equal to 7" continues with "6". Prompts of one's
    own are not templates: their answer follows as it is written.
    """
    joins = text[-1:].isspace() or answer.startswith(" ") or text[-1:].isdigit()
    return text + answer if joins else f"{text} {answer}"


def joint(text: str, answer: str) -> str:
    """The answer with the blank that stands between it and the prompt, if one does."""
    return continued(text, answer)[len(text) :] if answer else ""


def encode_ids(tokenizer: Any, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Only the ids of texts that are tokenized in one batch, as `encode` does."""
    return list(map(tuple, token_rows(tokenizer, texts)))


def tokens_after(prompt: Sequence[int], answered: Sequence[int]) -> tuple[int, ...]:
    """The tokens after the prompt's; empty if the answer changes how the prompt is split."""
    n = len(prompt)
    return tuple(answered[n:]) if tuple(answered[:n]) == tuple(prompt) else ()


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> dict[int, str]:
    """The text of each token, without blanks around it."""
    return {token: tokenizer.decode([token]).strip() for token in set(tokens)}


def answer_token(tokenizer: Any, prompt: Prompt, answered: Prompt, answer: str) -> int | None:
    """The token after END, if prompt + answer is the prompt and one token with C's text.

    Returns:
        None if the answer has several tokens, changes how the prompt is split, or begins with
        another token (such as LLaMA-2's blank token after "3 + 5 =").
    """
    after = tokens_after(prompt.ids, answered.ids)
    return (
        after[0] if len(after) == 1 and token_texts(tokenizer, after)[after[0]] == answer else None
    )


ANSWER_TOKENS = ("whole", "first", "last")


def answer_number(answer_token: str | int, n_tokens: int) -> int | None:
    """The number of an answer's token, by name or counted from the end; None if it has none.

    Raises:
        ValueError: another name. `"whole"` is 0.
    """
    number = {"whole": 0, "first": 0, "last": -1}.get(str(answer_token), answer_token)
    if not isinstance(number, int) or isinstance(number, bool):
        known = ", ".join(map(repr, ANSWER_TOKENS))
        raise ValueError(
            f"expected answer_token among {known}, or a number from 0, found {answer_token!r}; "
            "choose one of them"
        )
    return number % n_tokens if -n_tokens <= number < n_tokens else None


def digit_spans(n_prompt: int, n_tokens: int) -> dict[str, Span]:
    """The answer's tokens that stand in a prompt before END: `answer 0`, `answer 1` …"""
    return {f"answer {i - n_prompt}": (i, i + 1) for i in range(n_prompt, n_tokens - 1)}


def candidate_tokens(
    model: Any, answers: Sequence[int], chosen: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The tokens that are compared with the answers: the chosen ones, else the ten digits.

    Raises:
        ValueError: a token that the model does not have, no token beside an answer, or answers that
            are no digits.
    """
    if chosen is None:
        return _digits_written_like(answers, model.tokenizer)
    tokens = tuple(dict.fromkeys(int(token) for token in chosen))
    if not all(0 <= token < int(model.cfg.d_vocab) for token in tokens):
        raise ValueError(
            f"expected candidates from 0 to {int(model.cfg.d_vocab) - 1}, found {tokens}; give "
            "token ids of this model"
        )
    alone = [answer for answer in answers if not {*tokens} - {answer}]
    if alone:
        raise ValueError(
            f"expected a candidate beside each answer, found {tokens} and the answer {alone[0]}; "
            "give two tokens or more"
        )
    return tokens


def _digits_written_like(answers: Sequence[int], tokenizer: Any) -> tuple[int, ...]:
    """The tokens of the ten digits, written as the answers are: `5` or `Ġ5`."""
    written = {re.sub(r"[0-9]", "{}", piece) for piece in pieces(tokenizer, [answers]).values()}
    form = written.pop()
    tokens = tokenizer.convert_tokens_to_ids([form.replace("{}", str(d), 1) for d in range(10)])
    whole = [isinstance(token, int) and token != tokenizer.unk_token_id for token in tokens]
    if written or form.count("{}") != 1 or not all(whole) or len({*tokens}) < 10:
        raise ValueError(
            "expected answers of one digit, each a token of the same form, found "
            f"{', '.join(sorted({form, *written}))} ({{}} is a digit); give candidates=, the "
            "tokens that are set against the answer"
        )
    return tuple(tokens)


def token_fields(
    tokenizer: Any,
    prompts: Sequence[Prompt],
    others: Sequence[Prompt],
    answers: Sequence[int],
    other_answers: Sequence[int] | None = None,
    counterparts: Sequence[Sequence[int]] | None = None,
) -> dict[str, Any]:
    """The fields of PromptPairs that hold tokens: both sides, C, C', the mask, and the pieces.

    `other_answers` are the answers of the counterfactuals, -1 for none; None: none has one.
    `counterparts` are those of prompts of unequal lengths (`arith_lens.pairs.alignment`).
    """
    own = [NO_ANSWER] * len(answers) if other_answers is None else list(other_answers)
    rows, other_rows = [prompt.ids for prompt in prompts], [prompt.ids for prompt in others]
    tokens, masks = left_pad([*rows, *other_rows])
    (reference, other), (mask, other_mask) = tokens.split(len(rows)), masks.split(len(rows))
    unequal = {} if counterparts is None else unequal_fields(counterparts, other_mask)
    return {
        "reference": reference,
        "counterfactual": other,
        "answer": torch.tensor(answers),
        "counterfactual_answer": torch.tensor(own),
        "attention_mask": mask,
        **unequal,
        "pieces": pieces(
            tokenizer, [*rows, *other_rows, answers, [token for token in own if token >= 0]]
        ),
    }


def aligned(reference: Prompt, counterfactual: Prompt, operator: Span) -> bool:
    """Whether two prompts differ in the operator's tokens only: same length, A, B, END, BOS."""
    start, stop = operator
    a, b = reference.ids, counterfactual.ids
    return len(a) == len(b) and a[:start] == b[:start] and a[stop:] == b[stop:] and a != b


def token_spans(prompt: Prompt, chars: CharSpans) -> dict[str, Span]:
    """The tokens of A, operator and B; (0, 0) for a field without tokens."""
    return {name: prompt.token_span(chars[name]) for name in FIELDS if name in chars}


def disjoint(spans: Mapping[str, Span]) -> bool:
    """Whether every field has tokens, and no two fields share a token."""
    ordered = sorted(spans.values())
    return all(start < stop for start, stop in ordered) and all(
        left[1] <= right[0] for left, right in pairwise(ordered)
    )


def null_phrases(
    tokenizer: Any, template: Template, problem: Problem, words: Sequence[str]
) -> list[str]:
    """The words, or phrases of up to MOST_WORDS words, that have the operator's number of tokens.

    Phrases are tried only if fewer than MIN_CANDIDATES single words have this number.

    Raises:
        ValueError: the template does not align under this tokenizer. The message has the counts.
    """
    a, b = problem.a, problem.b
    text, chars = template.render(a, b)
    singles = {w: template.render(a, b, w) for w in dict.fromkeys(words) if w != template.word}
    reference, *others = encode(tokenizer, [text, *(text for text, _ in singles.values())])
    operator = reference.token_span(chars["op"])
    counts, fitting = {}, []
    for word, other in zip(singles, others, strict=True):
        # with the blanks around it, which are tokens of their own before some words only
        counts[word] = _length(operator) + len(other.ids) - len(reference.ids)
        if aligned(reference, other, operator):
            fitting.append(word)
    for n_words in range(2, MOST_WORDS + 1):
        if len(fitting) >= MIN_CANDIDATES or template.kind == "symbol":
            break
        phrases = _phrases(counts, n_words, _length(operator))
        texts = [template.render(a, b, phrase)[0] for phrase in phrases]
        fitting += [
            phrase
            for phrase, other in zip(phrases, encode(tokenizer, texts), strict=True)
            if aligned(reference, other, operator)
        ]
    if not fitting:
        tried = dict(zip(singles, others, strict=True))
        raise UnfitTemplate(
            template.name, _no_candidate(tokenizer, template, reference, operator, tried)
        )
    return fitting


def _length(span: Span) -> int:
    return span[1] - span[0]


def _phrases(counts: Mapping[str, int], n_words: int, n_pieces: int) -> list[str]:
    """Phrases whose words have the right number of tokens in total; equal on every machine."""
    rng = random.Random(n_words)
    short = [word for word, count in counts.items() if count <= n_pieces - n_words + 1]
    phrases: dict[str, None] = {}
    for _ in range(TRIES if short else 0):
        words = [short[int(rng.random() * len(short))] for _ in range(n_words - 1)]
        rest = n_pieces - sum(counts[word] for word in words)
        last = [word for word in short if counts[word] == rest and word not in words]
        if last and len(set(words)) == len(words):
            phrases[" ".join([*words, last[int(rng.random() * len(last))]])] = None
    return list(phrases)


def _no_candidate(
    tokenizer: Any,
    template: Template,
    reference: Prompt,
    operator: Span,
    tried: Mapping[str, Prompt],
) -> str:
    """What prevents it, with the tokens of the reference and of the nearest trial."""
    n_tokens = len(reference.ids)
    length = _length(operator)
    tokens_text = f"{length} token{'s' * (length != 1)}"
    own = f"{template.word!r} is {tokens_text}"
    if not tried:
        trials = "no other word to try"
    else:
        changes = {word: len(prompt.ids) - n_tokens for word, prompt in tried.items()}
        listed = ", ".join(f"{word} {length + more}" for word, more in list(changes.items())[:12])
        nearest = min(tried, key=lambda word: abs(changes[word]))
        same = " (of the same number, but other tokens change, too)" * (changes[nearest] == 0)
        trials = (
            f"tokens in its place, with the blanks around it: {listed}. The nearest{same}:\n"
            f"{side_by_side(tokenizer, reference.ids, tried[nearest].ids)}"
        )
    return (
        f"expected a counterfactual of template {template.name} with as many tokens as its "
        f"reference under {tokenizer_name(tokenizer)}, where {own}, found {trials}\nPatching moves "
        "activations position by position, so A, B and END must stand at the same places. Give "
        f"null_{template.kind}s of {tokens_text}, or leave the template out: templates=[names]"
    )


BEFORE, AFTER = 8, 12
"""The numbers of tokens that are shown on both sides of the first difference."""


def side_by_side(tokenizer: Any, reference: Sequence[int], counterfactual: Sequence[int]) -> str:
    """Two lines with the number of tokens and the tokens, the first different one in brackets."""
    same = (a == b for a, b in zip(reference, counterfactual, strict=False))
    first = next((i for i, equal in enumerate(same) if not equal), None)
    first = min(len(reference), len(counterfactual)) if first is None else first
    start, stop = max(0, first - BEFORE), first + AFTER
    lines = []
    for name, ids in (("reference", reference), ("counterfactual", counterfactual)):
        texts = list(map(visible_piece, tokenizer.convert_ids_to_tokens(list(ids))))
        if first < len(texts):
            texts[first] = f"[{texts[first]}]"
        window = ["…"] * (start > 0) + texts[start:stop] + ["…"] * (stop < len(texts))
        lines.append(f"  {name:14} {len(ids):4} tokens  {' '.join(window)}")
    return "\n".join(lines)


def visible_piece(piece: str) -> str:
    """How the tokenizer writes a token, on one line."""
    return piece.replace("\n", "↵").replace("\t", "⇥") or "''"
