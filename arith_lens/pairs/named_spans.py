"""Spans that rows name in their prompts, by text or by characters."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from arith_lens.model import Frame
from arith_lens.pairs.fields import COUNTERFACTUAL_SPANS
from arith_lens.pairs.references import FIELD_OF_ROLE
from arith_lens.pairs.text_files import SPANS
from arith_lens.pairs.tokens import Prompt, Role, Span, disjoint
from arith_lens.untrusted import parse_json

RESERVED = {role.lower() for role in (Role.END, Role.BOS, Role.OTHER, Role.EXAMPLES)} | {
    *("all", "each", "examples", "the rest")
}
"""Names that no span of one's own has."""
_FIELDS = {str(role): field for role, field in FIELD_OF_ROLE.items() if field}
TextPrompt: TypeAlias = tuple[str, Prompt]
"""A prompt's text with all that is around it, and its tokens."""


def both_spans(
    row: Mapping[str, Any], sides: tuple[TextPrompt, TextPrompt], frame: Frame
) -> tuple[dict[str, Span], dict[str, Span] | None]:
    """The spans of both prompts; of the counterfactual None where the row has no such key.

    Args:
        row: has the prompts as they were written, and the spans' texts or characters.
        sides: text and tokens of the reference, then of the counterfactual.
        frame: the text around each prompt.

    Raises:
        ValueError: a span that is not in the prompt, or not clear; a name that is taken, or that
            the reference's spans lack.
    """
    named, in_other = (_named(row, key) for key in (SPANS, COUNTERFACTUAL_SPANS))
    spans = _own_spans(named or {}, str(row["reference"]), sides[0], frame)
    if in_other is None:
        return spans, None
    others = _own_spans(in_other, str(row["counterfactual"]), sides[1], frame)
    if unknown := [*others.keys() - spans.keys()]:
        raise ValueError(
            f"expected in {COUNTERFACTUAL_SPANS} names among spans, found "
            f"{unknown[0]!r}; name it in both"
        )
    return spans, others


def _named(row: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """What a row has under a key of spans; None for nothing, or an empty cell."""
    named = row.get(key)
    named = (parse_json(named) if named else None) if isinstance(named, str) else named
    if named is not None and not isinstance(named, Mapping):
        raise ValueError(
            f"expected {key} as names with texts or characters, found {named!r}; "
            "write {'subject': 'France', 'relation': [0, 14]}"
        )
    return named


def _own_spans(
    named: Mapping[str, Any], own: str, side: TextPrompt, frame: Frame
) -> dict[str, Span]:
    """The tokens of the spans that a row names in the prompt `own`; see `both_spans`."""
    text, prompt = side
    spans: dict[str, Span] = {}
    intact = text.startswith(frame[0] + own)
    start = len(frame[0]) - (0 if intact else len(own) - len(own.lstrip()))
    for name, what in named.items():
        if str(name).lower() in RESERVED:
            raise ValueError(
                f"expected a name of its own for a span, found {name!r}, which is "
                "taken; choose another"
            )
        first, last = _characters(name, what, own)
        words = own[first:last].strip()  # a blank at its end may belong to the next token
        first += own[first:last].index(words)
        last = first + len(words)
        span = prompt.token_span((start + first, start + last))
        spans[_FIELDS.get(name, name)] = span
        if span[0] == span[1]:
            raise ValueError(
                f"expected tokens in the span {name!r}, found only blanks in "
                f"{own!r}; give its words"
            )
    if not disjoint(spans):
        raise ValueError(
            f"expected spans without common tokens, found {spans} in {text!r}; give other words"
        )
    return spans


def _characters(name: str, what: Any, text: str) -> Span:
    """The characters of a span in a text."""
    if isinstance(what, str) and text.count(what) == 1:
        return text.index(what), text.index(what) + len(what)
    if isinstance(what, str):
        raise ValueError(
            f"expected the span {name!r} once in {text!r}, found {what!r} "
            f"{text.count(what)} times; give its characters [first, last + 1]"
        )
    is_range = isinstance(what, Sequence) and len(what) == 2 and all(type(i) is int for i in what)
    if not is_range or not 0 <= what[0] < what[1] <= len(text):
        raise ValueError(
            f"expected the span {name!r} as a text or as characters from 0 to "
            f"{len(text)} of {text!r}, found {what!r}; give [first, last + 1]"
        )
    return what[0], what[1]
