"""Prompts of your own: rows of text to aligned tokens, or an error that says why not."""

import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

import torch

from arith_lens.pairs.rows import left_pad
from arith_lens.pairs.tokens import (
    Prompt,
    Span,
    answer_token,
    continued,
    disjoint,
    encode,
    pieces,
    said,
    tokenizer_name,
    tokenizer_of,
    tokens_after,
)
from arith_lens.pairs.wordings import FIELDS, AnyTemplate, Wording, is_computed, role_spans
from arith_lens.problems import Problem
from arith_lens.templates import FIGURE_10, SLOTS, TEMPLATES, Template

_BY_NAME: dict[str, AnyTemplate] = {
    template.name: template for group in (*TEMPLATES.values(), FIGURE_10) for template in group
}


def tokenized(rows: Sequence[Mapping[str, Any]], model: Any) -> dict[str, Any]:
    """The fields of `PromptPairs` of rows with reference, counterfactual and answer.

    Raises:
        ValueError: no row, prompts of unequal length, equal prompts, or an answer that is not one
            token after its prompt.
    """
    if not rows:
        raise ValueError("no pairs: expected at least one row of reference, counterfactual, answer")
    tokenizer = tokenizer_of(model)
    references, counterfactuals, answers = (
        [str(row[column]) for row in rows] for column in ("reference", "counterfactual", "answer")
    )
    prompts, others = encode(tokenizer, references), encode(tokenizer, counterfactuals)
    wholes = encode(tokenizer, list(map(continued, references, answers)))
    tokens = [
        _answer(tokenizer, i, references[i], answers[i], prompts[i], wholes[i])
        for i in range(len(rows))
    ]
    for i, (prompt, other) in enumerate(zip(prompts, others, strict=True)):
        if prompt.ids == other.ids:
            raise ValueError(
                f"pair {i}: reference and counterfactual are the same prompt {references[i]!r}, so "
                "that patching can change nothing; give a counterfactual without the calculation"
            )
        if len(prompt.ids) != len(other.ids):
            texts = (references[i], counterfactuals[i])
            raise ValueError(not_aligned(tokenizer, i, texts, (prompt, other)))
    ids, mask = left_pad([prompt.ids for prompt in prompts])
    return {
        "reference": ids,
        "counterfactual": left_pad([other.ids for other in others])[0],
        "answer": torch.tensor(tokens),
        "attention_mask": mask,
        "reference_text": tuple(references),
        "counterfactual_text": tuple(counterfactuals),
        "answer_text": tuple(answers),
        "pieces": pieces(tokenizer, [p.ids for p in (*prompts, *others)] + [tokens]),
        **_known(tokenizer, rows, prompts, ids.shape[1]),
    }


def not_aligned(
    tokenizer: Any, pair: int, texts: tuple[str, str], prompts: tuple[Prompt, Prompt]
) -> str:
    """The alignment error: both texts and their token counts."""
    lengths = [len(prompt.ids) for prompt in prompts]
    return (
        f"pair {pair} is not token-aligned under {tokenizer_name(tokenizer)}:\n"
        f"  reference       {lengths[0]:4} tokens  {texts[0]!r}\n"
        f"  counterfactual  {lengths[1]:4} tokens  {texts[1]!r}\n"
        "Patching moves activations position by position, so both prompts need one length.\n"
        "Give counterfactuals of the same number of tokens (BOS included in the counts)."
    )


def _answer(
    tokenizer: Any, pair: int, text: str, answer: str, prompt: Prompt, whole: Prompt
) -> int:
    token = answer_token(tokenizer, prompt, whole, answer.strip())
    if token is None:
        shown = " ".join(tokenizer.convert_ids_to_tokens(list(whole.ids)))
        raise ValueError(
            f"pair {pair}: the answer {answer!r} is not the one token after {text!r} under "
            f"{tokenizer_name(tokenizer)}; prompt and answer are {shown}.\n"
            f"{_advice(tokenizer, text, prompt, whole)}"
        )
    return token


def _advice(tokenizer: Any, text: str, prompt: Prompt, whole: Prompt) -> str:
    """What to do: an answer's first token where that alone would be taken, else more generally."""
    after = tokens_after(prompt.ids, whole.ids)
    first = said(tokenizer, after)[after[0]] if after else ""
    if first:
        (alone,) = encode(tokenizer, [continued(text, first)])
        if answer_token(tokenizer, prompt, alone, first) is not None:
            return (
                f"Give its first token, {first!r}, as the answer (then another answer that begins "
                "so counts as right, too), or an answer of one token."
            )
    return (
        "Give an answer of one token, and end the prompt in a space where the tokenizer "
        "makes that a token of its own (LLaMA-2's `▁`)."
    )


def _known(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], prompts: Sequence[Prompt], width: int
) -> dict[str, Any]:
    """What rows of a known template bring back: roles, operands and the rest; else nothing."""
    matched = [_matched(row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    found = [match for match in matched if match is not None]
    if len(found) < len(rows):
        return {}
    wordings = [wording for wording, _ in found]
    spans = [spans for _, spans in found]
    computed = [
        is_computed(tokenizer, wording, str(row["reference"]), prompt, fields)
        for (wording, fields), row, prompt in zip(found, rows, prompts, strict=True)
    ]
    return {
        "spans": role_spans(tokenizer, list(zip(prompts, spans, strict=True)), width),
        "template": tuple(wording.template.name for wording in wordings),
        "operation": tuple(wording.problem.operation for wording in wordings),
        "operands": torch.tensor([(w.problem.a, w.problem.b) for w in wordings]),
        "computed": torch.tensor(computed),
    }


def _matched(row: Mapping[str, Any], prompt: Prompt) -> tuple[Wording, Mapping[str, Span]] | None:
    """The row's wording and where its fields' tokens are, if its text is its template's."""
    name = row.get("template")
    if name in (None, ""):
        return None
    if name not in _BY_NAME:
        raise ValueError(
            f"unknown template {name!r} of {row['reference']!r}: expected a name such as "
            "'addition/0' or 'story/9', or no template, a and b"
        )
    template = _BY_NAME[name]
    problem = Problem(template.operation, int(row["a"]), int(row["b"]))
    text, answer = str(row["reference"]), str(row["answer"]).strip()
    found = re.fullmatch(_pattern(template, problem), text)
    if found is None or not problem.is_exact:
        return None
    if not str(problem.answer).startswith(found["given"] + answer):
        return None
    spans = {
        name: prompt.token_span(found.span(name)) for name in FIELDS if name in found.re.groupindex
    }
    wording = Wording(template, problem, answer, found["given"])
    return (wording, spans) if disjoint(spans) else None


def _pattern(template: AnyTemplate, problem: Problem) -> str:
    """A regular expression of the template's prompts, its fields named groups, digits of C last."""
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
    return pattern + r" ?(?P<given>\d*)"
