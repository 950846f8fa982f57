"""Candidates that keep the number of tokens, chosen by asking the tokenizer."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from arith_lens.pairs.tokens import Prompt, Span, encode
from arith_lens.word_problems.phrases import Edit

TRIES = 8  # texts made of one question before it is given up


@dataclass(frozen=True)
class Rewritten:
    """A text and what became of it, token by token: the same number, the same outside the edits."""

    text: str
    prompt: Prompt


def rewrite(
    tokenizer: Any, texts: Sequence[str], edits: Sequence[Sequence[Edit]], *, seed: int = 0
) -> list[Rewritten | None]:
    """Each text with its edits made; None where an edit that is needed has no aligned candidate.

    A candidate is as many pieces as what it replaces, between the same neighbours. That is a
    guess, made once a phrase; the whole text is then tokenized, and counts only if it has the
    reference's length and its tokens outside the edits. The draw depends on `seed` and the text.
    """
    pieces = _Pieces(tokenizer)
    places = [[_place(text, e) for e in of] for text, of in zip(texts, edits, strict=True)]
    pieces.ask(place for of in places for place in of)
    choices = [
        [(edit, pieces.alike(place)) for edit, place in zip(of, at, strict=True)]
        for of, at in zip(edits, places, strict=True)
    ]
    references = encode(tokenizer, texts)
    rngs = [random.Random(f"{seed} {text}") for text in texts]
    done: dict[int, Rewritten] = {}
    for _ in range(TRIES):
        drawn = {
            i: _made(texts[i], choices[i], rngs[i])
            for i in range(len(texts))
            if i not in done and _possible(choices[i])
        }
        prompts = encode(tokenizer, list(drawn.values()))
        for (i, text), prompt in zip(drawn.items(), prompts, strict=True):
            spans = [(edit.start, edit.stop) for edit, _ in choices[i]]
            if _same_outside(references[i], prompt, spans):
                done[i] = Rewritten(text, prompt)
    return [done.get(i) for i in range(len(texts))]


class _Pieces:
    """How many pieces phrases are between their neighbours; each is asked for once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[_Place, list[str]] = {}

    def ask(self, places: Iterable["_Place"]) -> None:
        """Find the candidates of equal length for every place that is new."""
        new = [place for place in dict.fromkeys(places) if place not in self._known]
        texts = [[place.around(said) for said in (place.said, *place.candidates)] for place in new]
        found = iter(encode(self._tokenizer, [text for of_place in texts for text in of_place]))
        for place in new:
            length = len(next(found).ids)
            counts = [(said, len(next(found).ids)) for said in place.candidates]
            self._known[place] = [s for s, n in counts if n == length and s != place.said]

    def alike(self, place: "_Place") -> list[str]:
        """The candidates that are as long as what they replace."""
        return self._known[place]


@dataclass(frozen=True)
class _Place:
    """Words, what may stand for them, and the characters beside them."""

    before: str
    said: str
    after: str
    candidates: tuple[str, ...]

    def around(self, said: str) -> str:
        return f"a{self.before}{said}{self.after}a"


def _place(text: str, edit: Edit) -> _Place:
    before, after = text[edit.start - 1 : edit.start] or " ", text[edit.stop : edit.stop + 1]
    return _Place(before, text[edit.start : edit.stop], after, edit.candidates)


def _possible(choices: Sequence[tuple[Edit, Sequence[str]]]) -> bool:
    return any(said for _, said in choices) and all(said for e, said in choices if e.needed)


def _made(text: str, choices: Sequence[tuple[Edit, Sequence[str]]], rng: random.Random) -> str:
    """The text with one candidate drawn for each edit, the last edit first."""
    for edit, candidates in reversed(choices):
        if candidates:
            said = candidates[int(rng.random() * len(candidates))]
            text = text[: edit.start] + said + text[edit.stop :]
    return text


def _same_outside(reference: Prompt, other: Prompt, chars: Sequence[Span]) -> bool:
    """Whether two prompts have one length and differ only where these characters are."""
    if len(reference.ids) != len(other.ids) or reference.ids == other.ids:
        return False
    free = {i for span in chars for i in _tokens(reference, span)}
    pairs = enumerate(zip(reference.ids, other.ids, strict=True))
    return all(a == b or i in free for i, (a, b) in pairs)


def _tokens(prompt: Prompt, chars: Span) -> range:
    """The tokens of some characters, with the blank piece that a word may start in (`▁ al l`)."""
    start, stop = prompt.token_span(chars)
    blank = start > 1 and prompt.offsets[start - 1] == (0, 0)
    return range(start - blank, stop)
