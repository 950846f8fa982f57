"""Prompts of your own become pairs: their tokens, their answers and the roles of their tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, TypeAlias, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.caller_warnings import warn_caller
from arith_lens.model import NO_FRAME, Frame, chat_frame, frame_around, in_chat
from arith_lens.pairs.alignment import counterparts
from arith_lens.pairs.named_spans import both_spans
from arith_lens.pairs.references import (
    NOWHERE,
    AnyTemplate,
    Wording,
    examples_span,
    is_computed,
    role_spans,
)
from arith_lens.pairs.text_files import EXAMPLE_KEYS, OTHER_ANSWER, Columns, Located, each
from arith_lens.pairs.tokens import (
    NO_ANSWER,
    Prompt,
    Span,
    answer_number,
    answer_token,
    continued,
    digit_spans,
    disjoint,
    encode,
    side_by_side,
    token_fields,
    token_spans,
    token_texts,
    tokenizer_name,
    tokenizer_of,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import FIGURE_10, SLOTS, TEMPLATES, Template

Rows: TypeAlias = Sequence[Mapping[str, Any]]
_BY_NAME: dict[str, AnyTemplate] = {
    template.name: template for group in (*TEMPLATES.values(), FIGURE_10) for template in group
}


class PromptFormOptions(TypedDict, total=False):
    """The options of `PromptPairs.from_rows` and of its relatives."""

    columns: Columns
    chat: bool
    answer_token: str | int


@dataclass(frozen=True)
class PromptForm:
    """How rows become prompts."""

    columns: Columns = field(default_factory=dict)
    """By key of a row, the name of its column."""
    chat: bool = False
    """Whether both prompts stand in the tokenizer's chat template, as a user's message."""
    answer_token: str | int = "whole"
    """The token of the answer that follows END. `"whole"`: the only one; `"first"`, `"last"`, or
    its number from 0 (from the end: -1): those before it stand in both prompts."""


@dataclass(frozen=True)
class Side:
    """One prompt of each pair, and the prompt with its answer."""

    texts: Sequence[str]
    answers: Sequence[str]
    """Empty where a prompt has no answer."""
    written: Sequence[str]
    """The answers as rows have them; a chat may drop their blank."""
    joined: Sequence[str]
    """Each text with its answer."""
    prompts: Sequence[Prompt]
    answered: Sequence[Prompt]

    @classmethod
    def of(cls, tokenizer: Any, rows: Rows, keys: tuple[str, str], frame: Frame | None) -> "Side":
        """Tokenize the prompts and answers of two columns, in the chat template if there is one.

        An answer follows as it is written, with a blank or without. In rows of a template it
        follows as in the template, whose blank older files leave out. After a line end, where many
        chat templates let the model begin, it has no blank.
        """
        texts, written = (_cells(rows, key) for key in keys)
        answers = written
        if frame is not None:
            texts = [in_chat(tokenizer, text, frame) for text in texts]
            of_text = zip(texts, written, strict=True)
            answers = [a.lstrip() if text[-1:].isspace() else a for text, a in of_text]
        joined = [
            continued(text, answer) if row.get("template") and frame is None else text + answer
            for row, text, answer in zip(rows, texts, answers, strict=True)
        ]
        prompts, answered = encode(tokenizer, texts), encode(tokenizer, joined)
        return cls(texts, answers, written, joined, prompts, answered)

    def one(self, pair: int) -> tuple[str, Prompt]:
        """A prompt's text and its tokens."""
        return self.texts[pair], self.prompts[pair]

    def after(self, pair: int) -> tuple[int, ...]:
        """The tokens of one answer; none if it changes how the prompt is split."""
        return tokens_after(self.prompts[pair].ids, self.answered[pair].ids)

    def answer_texts(self, pair: int, k: int) -> tuple[str, str]:
        """The text of the first k tokens of an answer, and of the token after them."""
        n, first = len(self.prompts[pair].ids), len(self.texts[pair])
        ends = [stop for _, stop in self.answered[pair].offsets]
        start = max(ends[: n + k]) if k else first
        return self.joined[pair][first:start], self.joined[pair][start : max(ends[: n + k + 1])]


@dataclass(frozen=True)
class Answered:
    """One prompt and the token that follows it."""

    text: str
    prompt: Prompt
    answer: str
    """The token's text; empty where the prompt has no answer."""
    token: int


def pair_fields(located: Located, model: Any, form: PromptForm) -> dict[str, Any]:
    """The fields of PromptPairs from rows with reference, counterfactual and answer.

    Raises:
        ValueError: no row, prompts of unequal length, an answer that does not have the token, a
            span outside its prompt, no chat template, or one that is there twice.
    """
    if not located:
        raise ValueError(
            "expected at least one row of reference, counterfactual and answer, found none; give "
            "one per pair"
        )
    rows, numbers = [*located.values()], {where: i for i, where in enumerate(located)}
    tokenizer = tokenizer_of(model)
    frame = chat_frame(tokenizer) if form.chat else None
    sides = (
        Side.of(tokenizer, rows, ("reference", "answer"), frame),
        Side.of(tokenizer, rows, ("counterfactual", OTHER_ANSWER), frame),
    )

    def read(where: str) -> tuple[Any, ...]:
        """Both prompts of a row with what follows them, and the spans in both."""
        i = numbers[where]
        if form.answer_token == "whole":
            answered = [_whole(tokenizer, i, side, form.chat) for side in sides]
        else:
            answered = _part(tokenizer, i, *sides, form)
            _check_context(model, answered[0])
        own = both_spans(rows[i], (sides[0].one(i), sides[1].one(i)), frame or NO_FRAME)
        _check_aligned(tokenizer, i, *sides, unequal=own[1] is not None)
        return *answered, *own

    references, others, own_spans, in_others = zip(*each(located, read).values(), strict=True)
    spans = [
        named | digit_spans(len(sides[0].prompts[pair].ids), len(references[pair].prompt.ids))
        for pair, named in enumerate(own_spans)
    ]
    if frame is None:
        _warn_of_glued(located, sides[0])
    unequal = any(in_other is not None for in_other in in_others)
    in_others = [in_other or {} for in_other in in_others]
    tokens = token_fields(
        tokenizer,
        [one.prompt for one in references],
        [one.prompt for one in others],
        [one.token for one in references],
        [one.token for one in others],
        _counterparts(references, others, spans, in_others) if unequal else None,
    )
    return {
        **tokens,
        "reference_text": tuple(one.text for one in references),
        "counterfactual_text": tuple(one.text for one in others),
        "answer_text": tuple(one.answer for one in references),
        "counterfactual_answer_text": tuple(one.answer for one in others),
        "problem": _labels(rows),
        "span_characters": _span_characters(references, spans),
        "counterfactual_span_characters": _span_characters(others, in_others),
        **_known(tokenizer, rows, references, spans, tokens["reference"].shape[1]),
    }


def _warn_of_glued(located: Located, side: Side) -> None:
    """Warn once if an answer continues the last word of its prompt, in a script with blanks."""
    for (where, row), text, answer in zip(located.items(), side.texts, side.answers, strict=True):
        ends = text[-1:] + answer[:1]
        glued = max(ends) < "\u0e00" and re.fullmatch(r"[^\W\d_]\w|[\w.,:;!?][^\W\d_]", ends)
        if glued and not row.get("template"):
            return warn_caller(
                f"{where}: expected a blank between prompt and answer, found {text + answer!r}; "
                "begin such answers with a blank, or end their prompts with one"
            )


def _cells(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """A column as text; empty where a row lacks it."""
    cells = [row.get(name) for row in rows]
    return ["" if cell is None else str(cell) for cell in cells]


def _labels(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The column `problem`, the reference prompt where it is empty; () if no row has it."""
    labels, prompts = _cells(rows, "problem"), _cells(rows, "reference")
    pairs = zip(labels, prompts, strict=True)
    return tuple(label or prompt for label, prompt in pairs) if any(labels) else ()


def _check_aligned(
    tokenizer: Any, pair: int, reference: Side, other: Side, *, unequal: bool
) -> None:
    """Raise ValueError unless both prompts differ and, if need be, have as many tokens."""
    ids, other_ids = reference.prompts[pair].ids, other.prompts[pair].ids
    if ids == other_ids:
        raise ValueError(
            "expected a counterfactual that differs from its reference, found "
            f"{reference.texts[pair]!r} as both, so that patching can change nothing; give a "
            "counterfactual whose answer is another one"
        )
    if len(ids) != len(other_ids) and not unequal:
        raise ValueError(
            f"expected prompts of one length under {tokenizer_name(tokenizer)}, found {len(ids)} "
            f"and {len(other_ids)} tokens; the first different one is in brackets:\n"
            f"{side_by_side(tokenizer, ids, other_ids)}\n"
            "Patching moves activations position by position; give a counterfactual of the "
            "same number of tokens (BOS included in the counts), or add counterfactual_spans to "
            "the row ({} for END alone), which maps and knockouts read."
        )


def _whole(tokenizer: Any, pair: int, side: Side, chat: bool) -> Answered:
    """A prompt that is followed by its whole answer, if it has any."""
    text, answer = side.texts[pair], side.answers[pair]
    prompt, answered = side.prompts[pair], side.answered[pair]
    if not answer.strip():
        return Answered(text, prompt, answer, NO_ANSWER)
    token = answer_token(tokenizer, prompt, answered, answer.strip())
    if token is None:
        tokens_text = " ".join(tokenizer.convert_ids_to_tokens(list(answered.ids)))
        dropped = " (chat=True drops its blank)" * (side.written[pair] != answer)
        raise ValueError(
            f"expected an answer of the one token after {text!r} under "
            f"{tokenizer_name(tokenizer)}, found {side.written[pair]!r}{dropped}; prompt and "
            f"answer are {tokens_text}.\n{_advice(tokenizer, text, answer, chat)}"
        )
    return Answered(text, prompt, answer, token)


def _part(
    tokenizer: Any, pair: int, reference: Side, other: Side, form: PromptForm
) -> tuple[Answered, Answered]:
    """Both prompts with the answer's tokens before the chosen one, which follows the reference.

    It follows the counterfactual if the counterfactual's own answer begins with the same tokens.
    """
    after, own = reference.after(pair), other.after(pair)
    k = answer_number(form.answer_token, len(after))
    if k is None or not token_texts(tokenizer, after[:1])[after[0]]:
        raise ValueError(
            f"expected an answer with the token {form.answer_token!r} (answer_token"
            f"=) after {reference.texts[pair]!r}, found {reference.written[pair]!r}, whose tokens "
            f"are {tokenizer.convert_ids_to_tokens(list(after))}; leave the pair out, take another "
            "token, or move the blank between prompt and answer"
        )
    forced, text = reference.answer_texts(pair, k)
    answered, base = reference.answered[pair], other.prompts[pair]
    n = len(reference.prompts[pair].ids) + k
    prompt = Prompt(answered.ids[:n], answered.offsets[:n])
    other_prompt = Prompt((*base.ids, *after[:k]), (*base.offsets, *[(0, 0)] * k))
    follows = len(own) > k and own[:k] == after[:k]
    return Answered(reference.texts[pair] + forced, prompt, text, after[k]), Answered(
        other.texts[pair] + forced,
        other_prompt,
        other.answer_texts(pair, k)[1] if follows else "",
        own[k] if follows else NO_ANSWER,
    )


def _check_context(model: Any, reference: Answered) -> None:
    """Raise ValueError for a prompt that, with the answer's tokens, the model cannot read."""
    context = getattr(getattr(model, "cfg", None), "n_ctx", None)
    if context and len(reference.prompt.ids) > context:
        raise ValueError(
            "expected the prompt and the tokens of its answer before the chosen one to fit the "
            f"model's context of {context} tokens, found {len(reference.prompt.ids)}; take an "
            "earlier token, or shorten the prompt"
        )


def _counterparts(
    references: Sequence[Answered],
    others: Sequence[Answered],
    spans: Sequence[Mapping[str, Span]],
    in_others: Sequence[Mapping[str, Span]],
) -> list[list[int]]:
    """By pair and token of the reference, its counterpart."""
    return [
        counterparts(
            one.prompt.ids, other.prompt.ids, [(own[name], span) for name, span in both.items()]
        )
        for one, other, own, both in zip(references, others, spans, in_others, strict=True)
    ]


def _span_characters(
    references: Sequence[Answered], spans: Sequence[Mapping[str, Span]]
) -> dict[str, Int[Tensor, "pair start_stop=2"]] | None:
    """By name of a span, its characters in each reference's text; None without spans."""

    def of(one: Answered, span: Span) -> Span:
        start, stop = span
        offsets = one.prompt.offsets
        return (offsets[start][0], offsets[stop - 1][1]) if start < stop else NOWHERE

    names = dict.fromkeys(name for fields in spans for name in fields)
    return {
        name: torch.tensor(
            [
                of(one, fields.get(name, NOWHERE))
                for one, fields in zip(references, spans, strict=True)
            ]
        )
        for name in names
    } or None


def _advice(tokenizer: Any, text: str, answer: str, chat: bool) -> str:
    """What to do: another place for the blank, or the answer's first token, if that is accepted."""
    bare, word = text.rstrip(" "), answer.strip()
    forms = [(text, word), (bare, f" {word}"), (f"{bare} ", word), (bare, word)]
    forms = forms[: 2 - text[-1:].isspace() if chat else None]  # nobody edits the end of a chat
    forms = list(dict.fromkeys(form for form in forms if form != (text, answer)))
    fitting = [form for form in forms if _accepted(tokenizer, *form)]
    if fitting:
        ways = [
            f"the answer {other!r}" + f" after {start!r}" * (start != text)
            for start, other in fitting[:2]
        ]
        return (
            f"The answer follows the prompt as it is written, with its blank or without. Give "
            f"{', or '.join(ways)}; the counterfactual's end changes with its reference's."
        )
    for start, other in [(text, answer), *forms]:
        prompt, answered = encode(tokenizer, [start, start + other])
        after = tokens_after(prompt.ids, answered.ids)
        first = token_texts(tokenizer, after)[after[0]] if after else ""
        blank = other[: len(other) - len(other.lstrip())]
        if first and _accepted(tokenizer, start, blank + first):
            return (
                f"Give its first token, {blank + first!r}"
                + f" after {start!r}" * (start != text)
                + ", as the answer (then another answer that begins so counts as right, too), or "
                "an answer of one token."
            )
    return "Give an answer of one token that leaves the prompt's tokens as they are."


def _accepted(tokenizer: Any, text: str, answer: str) -> bool:
    """Whether an answer is the one token after a prompt."""
    prompt, answered = encode(tokenizer, [text, text + answer])
    return answer_token(tokenizer, prompt, answered, answer.strip()) is not None


def _known(
    tokenizer: Any,
    rows: Rows,
    references: Sequence[Answered],
    own_spans: Sequence[Mapping[str, Span]],
    width: int,
) -> dict[str, Any]:
    """Roles of tokens, if rows say any; operands and others, if all rows are of a template.

    `width` is that of all prompts with their padding.
    """
    matched = [_matched(tokenizer, row, one) for row, one in zip(rows, references, strict=True)]
    known = [match for match in matched if match is not None]
    prompts = [one.prompt for one in references]
    if len(known) < len(rows):
        if not any(own_spans):
            return {}
        return {"spans": role_spans(tokenizer, list(zip(prompts, own_spans, strict=True)), width)}
    wordings, spans = zip(*known, strict=True)
    computed = [
        is_computed(tokenizer, wording, one.text, one.prompt, fields)
        for (wording, fields), one in zip(known, references, strict=True)
    ]
    spans = [{**own, **fields} for own, fields in zip(own_spans, spans, strict=True)]
    return {
        "spans": role_spans(tokenizer, list(zip(prompts, spans, strict=True)), width),
        "template": tuple(wording.template.name for wording in wordings),
        "operation": tuple(wording.problem.operation for wording in wordings),
        "operands": torch.tensor([(w.problem.a, w.problem.b) for w in wordings]),
        "computed": torch.tensor(computed),
        **{name: column for name in EXAMPLE_KEYS if any(column := _column(rows, name))},
    }


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
    """Of the examples or of their set, which is `examples` if a row with examples names none."""
    default = "" if name == "examples" else "examples"
    return tuple(str(row.get(name) or (row.get("examples") and default) or "") for row in rows)


def _matched(
    tokenizer: Any, row: Mapping[str, Any], one: Answered
) -> tuple[Wording, Mapping[str, Span]] | None:
    """The row's wording and the tokens of its fields; None if its text is not its template's."""
    name = row.get("template")
    if name in (None, ""):
        return None
    if name not in _BY_NAME:
        raise ValueError(
            f"expected a template such as 'addition/0' or 'story/9', found {name!r} at "
            f"{row['reference']!r}; correct the name, or leave template, a and b out"
        )
    template = _BY_NAME[name]
    problem = Problem(template.operation, int(row["a"]), int(row["b"]))
    head, tail = frame_around(tokenizer, one.text)
    examples = str(row.get("examples") or "")
    ended = f" ?{re.escape(tail)}" * bool(tail) + r" ?(?P<given>\d*)"
    pattern = re.escape(head + examples) + _pattern(template, problem) + ended
    match = re.fullmatch(pattern, one.text)
    if match is None or not problem.is_exact:
        return None
    answer = one.answer.strip()
    if not str(problem.answer).startswith(match["given"] + answer):
        return None
    spans = token_spans(one.prompt, {name: match.span(name) for name in match.re.groupindex})
    spans |= examples_span(one.prompt, len(head), len(examples), tokenizer.bos_token_id)
    wording = Wording(template, problem, answer, match["given"], examples=examples)
    return (wording, spans) if disjoint(spans) else None


def _pattern(template: AnyTemplate, problem: Problem) -> str:
    """A regular expression of the template's prompts. Groups are the fields."""
    known = {"A": str(problem.a), "B": str(problem.b)}
    if isinstance(template, Template):
        known["op"] = template.word
    pattern = ""
    for literal, name, _, _ in Formatter().parse(template.text.rstrip(" ")):
        pattern += re.escape(literal)
        if name is not None and f"(?P<{name}>" in pattern:
            pattern += f"(?P={name})"
        elif name is not None:
            words = (known[name],) if name in known else SLOTS[name.rstrip("23")]
            pattern += f"(?P<{name}>{'|'.join(map(re.escape, words))})"
    return pattern
