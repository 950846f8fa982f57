"""Prompts of your own: rows of text to aligned tokens, or an error that says why not."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.rows import left_pad
from arith_lens.pairs.tokens import (
    Prompt,
    Span,
    answer_token,
    continued,
    disjoint,
    encode,
    pieces,
    token_spans,
    tokenizer_name,
    tokenizer_of,
)
from arith_lens.pairs.wordings import role_spans
from arith_lens.problems import Problem
from arith_lens.templates import TEMPLATES, Template

_BY_NAME = {template.name: template for group in TEMPLATES.values() for template in group}


def from_texts(rows: Sequence[Mapping[str, Any]], model: Any) -> PromptPairs:
    """Pairs from rows with reference, counterfactual and answer; see PromptPairs.from_jsonl."""
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
        if len(prompt.ids) != len(other.ids):
            texts = (references[i], counterfactuals[i])
            raise ValueError(not_aligned(tokenizer, i, texts, (prompt, other)))
    ids, mask = left_pad([prompt.ids for prompt in prompts])
    return PromptPairs(
        reference=ids,
        counterfactual=left_pad([other.ids for other in others])[0],
        answer=torch.tensor(tokens),
        attention_mask=mask,
        reference_text=tuple(references),
        counterfactual_text=tuple(counterfactuals),
        answer_text=tuple(answers),
        pieces=pieces(tokenizer, [p.ids for p in (*prompts, *others)] + [tokens]),
        **_known(tokenizer, rows, prompts, ids.shape[1]),
    )


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
            "Give an answer of one token, and end the prompt in a space where the tokenizer "
            "makes that a token of its own (LLaMA-2's `▁`)."
        )
    return token


def _known(
    tokenizer: Any, rows: Sequence[Mapping[str, Any]], prompts: Sequence[Prompt], width: int
) -> dict[str, Any]:
    """What rows of a known template bring back: roles, operands and the rest; else nothing."""
    matched = [_matched(row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    found = [match for match in matched if match is not None]
    if len(found) < len(rows):
        return {}
    problems = [problem for _, problem, _ in found]
    spans = [spans for _, _, spans in found]
    return {
        "spans": role_spans(tokenizer, list(zip(prompts, spans, strict=True)), width),
        "template": tuple(template.name for template, _, _ in found),
        "operation": tuple(problem.operation for problem in problems),
        "operands": torch.tensor([(problem.a, problem.b) for problem in problems]),
        "computed": torch.tensor([problem.computed for problem in problems]),
    }


def _matched(
    row: Mapping[str, Any], prompt: Prompt
) -> tuple[Template, Problem, dict[str, Span]] | None:
    template = _BY_NAME.get(row.get("template") or "")
    if template is None or not {"a", "b"} <= row.keys():
        return None
    problem = Problem(template.operation, int(row["a"]), int(row["b"]))
    text, chars = template.render(problem.a, problem.b)
    spans = token_spans(prompt, chars)
    same = text.rstrip(" ") == str(row["reference"]).rstrip(" ")
    return (template, problem, spans) if same and disjoint(spans) else None
