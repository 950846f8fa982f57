"""Templates filled with problems and tokenized: where A, operator, B and END stand; what C is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.pairs.prompt_pairs import Role
from arith_lens.pairs.tokens import (
    Prompt,
    Span,
    answer_token,
    continued,
    disjoint,
    encode,
    token_spans,
    tokenizer_name,
)
from arith_lens.problems import Problem
from arith_lens.templates import Template

Wording = tuple[Template, Problem]
FIELD_OF_ROLE = {Role.OPERAND_A: "A", Role.OPERATOR: "op", Role.OPERAND_B: "B"}


@dataclass(frozen=True)
class Reference:
    """A wording of a problem, tokenized. `template.text` ends as this tokenizer needs it."""

    template: Template
    problem: Problem
    prompt: Prompt
    answer: int  # the token after END
    spans: Mapping[str, Span]  # tokens of "A", "op" and "B"

    @property
    def text(self) -> str:
        """The reference prompt."""
        return self.with_word(self.template.word)

    def with_word(self, word: str) -> str:
        """The prompt with `word` where the operator stands."""
        return self.template.render(self.problem.a, self.problem.b, word)[0]


def usable_wordings(
    tokenizer: Any, template: Template, problems: Sequence[Problem]
) -> list[Wording]:
    """The problems whose answer is one token after this template, worded as the tokenizer needs.

    A trailing space is kept where it makes a token of its own (`▁`) and cut where the tokenizer
    joins it to the number. One problem is asked for each answer; the rest answer alike.
    """
    trimmed = replace(template, text=template.text.rstrip(" "))
    examples = {problem.answer: problem for problem in problems}
    for worded in (template, trimmed):
        asked = tokenize(tokenizer, [(worded, problem) for problem in examples.values()])
        usable = {reference.problem.answer for reference in asked}
        if usable:
            return [(worded, problem) for problem in problems if problem.answer in usable]
    raise ValueError(_no_answer(tokenizer, template, problems))


def tokenize(tokenizer: Any, wordings: Sequence[Wording]) -> list[Reference]:
    """The wordings whose answer is one token, tokenized."""
    rendered = [template.render(problem.a, problem.b) for template, problem in wordings]
    answers = [str(problem.answer) for _, problem in wordings]
    prompts = encode(tokenizer, [text for text, _ in rendered])
    wholes = encode(
        tokenizer,
        [continued(text, answer) for (text, _), answer in zip(rendered, answers, strict=True)],
    )
    found = []
    for (template, problem), (text, chars), answer, prompt, whole in zip(
        wordings, rendered, answers, prompts, wholes, strict=True
    ):
        token = answer_token(tokenizer, prompt, whole, answer)
        if token is not None:
            spans = token_spans(prompt, chars)
            if not disjoint(spans):
                raise ValueError(_shared_token(tokenizer, template, text, spans))
            found.append(Reference(template, problem, prompt, token, spans))
    return found


def role_spans(
    tokenizer: Any, rows: Sequence[tuple[Prompt, Mapping[str, Span]]], width: int
) -> dict[Role, Int[Tensor, "pair start_stop=2"]]:
    """The columns of each role once the rows are left-padded to `width`; OTHER has no span."""
    starts = torch.tensor([[width - len(prompt.ids)] for prompt, _ in rows])
    has_bos = [prompt.ids[0] == tokenizer.bos_token_id for prompt, _ in rows]
    spans = {
        role: torch.tensor([fields[field] for _, fields in rows]) + starts
        for role, field in FIELD_OF_ROLE.items()
    }
    spans[Role.BOS] = torch.tensor([(0, int(bos)) for bos in has_bos]) + starts
    spans[Role.END] = torch.tensor([(width - 1, width)] * len(rows))
    return spans


def _no_answer(tokenizer: Any, template: Template, problems: Sequence[Problem]) -> str:
    if not problems:
        return f"no {template.operation} problem has an exact answer with these operands"
    text, _ = template.render(problems[0].a, problems[0].b)
    whole = continued(text, str(problems[0].answer))
    split = tokenizer.convert_ids_to_tokens(list(encode(tokenizer, [whole])[0].ids))
    return (
        f"template {template.name}: none of {len(problems)} problems has an answer of one token "
        f"under {tokenizer_name(tokenizer)}; {whole!r} is {' '.join(split)}.\n"
        "answer_token='whole' reads the whole answer from the token after END: give operands "
        "whose answers have one digit, such as range(1, 10), where numbers are split by digit."
    )


def _shared_token(tokenizer: Any, template: Template, text: str, spans: Mapping[str, Span]) -> str:
    return (
        f"template {template.name} is not token-aligned under {tokenizer_name(tokenizer)}: in "
        f"{text!r} the tokens of A, operator and B are {dict(spans)}, and each needs tokens of "
        "its own. Leave the template out: templates=[names]."
    )
