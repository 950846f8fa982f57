"""Templates filled with problems and tokenized: where A, operator, B and END stand; what C is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.pairs.roles import Role
from arith_lens.pairs.tokens import (
    Prompt,
    Span,
    continued,
    disjoint,
    encode,
    encode_ids,
    said,
    token_spans,
    tokenizer_name,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import CharSpans, StoryTemplate, Template

AnyTemplate: TypeAlias = Template | StoryTemplate
ANSWER_TOKENS = ("whole", "first", "last")
FIELD_OF_ROLE = {Role.OPERAND_A: "A", Role.OPERATOR: "op", Role.OPERAND_B: "B"}
FIELDS = tuple(FIELD_OF_ROLE.values())
NOWHERE = (0, 0)  # the tokens of a role that a template does not have: a story's operator


@dataclass(frozen=True)
class Wording:
    """All that makes a reference prompt: a problem, a template, and a story's words."""

    template: AnyTemplate  # its text ends as this tokenizer needs it
    problem: Problem
    answer: str  # what the token after END says: C, or C's first or last token
    given: str = ""  # the digits of C before that token: they stand in the prompt
    words: Mapping[str, str] = field(default_factory=dict)  # of a story, by slot

    def reference(self) -> tuple[str, CharSpans]:
        """The prompt, and the character spans of its fields."""
        a, b = self.problem.a, self.problem.b
        if isinstance(self.template, Template):
            return self.ended(*self.template.render(a, b))
        return self.ended(*self.template.render(a, b, self.words))

    def ended(self, text: str, chars: CharSpans) -> tuple[str, CharSpans]:
        """A rendering of the template with the digits that stand in the prompt."""
        return (continued(text, self.given) if self.given else text), chars

    @property
    def rest(self) -> str:
        """What C has after the prompt: more than `answer` where its first token is asked for."""
        return str(self.problem.answer)[len(self.given) :]


@dataclass(frozen=True)
class Reference:
    """A wording, tokenized."""

    wording: Wording
    text: str
    prompt: Prompt
    answer: int  # the token after END
    spans: Mapping[str, Span]  # tokens of "A", "B" and, where there is one, "op"
    computed: bool


def usable_wordings(
    tokenizer: Any,
    template: AnyTemplate,
    problems: Sequence[Problem],
    answer_token: str,
    words: Mapping[str, str],
) -> list[Wording]:
    """The problems whose answer is as `answer_token` says after this template.

    A trailing space is kept where it makes a token of its own (`▁`) and cut where the tokenizer
    joins it to the number. One problem is asked for each answer; the rest answer alike.
    """
    trimmed = replace(template, text=template.text.rstrip(" "))
    if isinstance(trimmed, StoryTemplate):
        trimmed = replace(trimmed, counterfactual=trimmed.counterfactual.rstrip(" "))
    examples = {problem.answer: problem for problem in problems}
    for worded in (template, trimmed):
        asked = [Wording(worded, problem, "", words=words) for problem in examples.values()]
        parts = dict(zip(examples, _answer_parts(tokenizer, asked, answer_token), strict=True))
        usable = [
            Wording(worded, problem, *part, words=words)
            for problem in problems
            if (part := parts[problem.answer]) is not None
        ]
        if usable:
            return usable
    raise ValueError(_no_answer(tokenizer, template, problems, answer_token, words))


def _answer_parts(
    tokenizer: Any, wordings: Sequence[Wording], answer_token: str
) -> list[tuple[str, str] | None]:
    """What the token to be predicted says, and the digits before it; None where it cannot be."""
    texts = [wording.reference()[0] for wording in wordings]
    answers = [str(wording.problem.answer) for wording in wordings]
    prompts = encode_ids(tokenizer, texts)
    wholes = encode_ids(tokenizer, list(map(continued, texts, answers)))
    after = [tokens_after(p, whole) for p, whole in zip(prompts, wholes, strict=True)]
    place = -1 if answer_token == "last" else 0
    says = said(tokenizer, [tokens[place] for tokens in after if tokens])
    found: list[tuple[str, str] | None] = []
    for tokens, answer in zip(after, answers, strict=True):
        text = says[tokens[place]] if tokens else ""
        given = answer.removesuffix(text) if answer_token == "last" else ""
        fits = {
            "whole": len(tokens) == 1 and text == answer,
            "first": len(tokens) > 1 and text not in ("", answer) and answer.startswith(text),
            "last": len(tokens) > 1 and given not in ("", answer),
        }
        found.append((text, given) if fits[answer_token] else None)
    return found


def tokenize(tokenizer: Any, wordings: Sequence[Wording]) -> list[Reference]:
    """The wordings after whose prompt the answer's token comes next, tokenized."""
    rendered = [wording.reference() for wording in wordings]
    prompts = encode(tokenizer, [text for text, _ in rendered])
    wholes = encode_ids(
        tokenizer,
        [continued(text, w.rest) for (text, _), w in zip(rendered, wordings, strict=True)],
    )
    after = [tokens_after(p.ids, whole) for p, whole in zip(prompts, wholes, strict=True)]
    says = said(tokenizer, [tokens[0] for tokens in after if tokens])
    found = []
    for wording, (text, chars), prompt, tokens in zip(
        wordings, rendered, prompts, after, strict=True
    ):
        n_expected = 1 if wording.rest == wording.answer else 2
        if not tokens or says[tokens[0]] != wording.answer or min(len(tokens), 2) != n_expected:
            continue
        spans = token_spans(prompt, {name: chars[name] for name in FIELDS if name in chars})
        if not disjoint(spans):
            raise ValueError(_shared_token(tokenizer, wording.template, text, spans))
        computed = is_computed(tokenizer, wording, text, prompt, spans)
        found.append(Reference(wording, text, prompt, tokens[0], spans, computed))
    return found


def is_computed(
    tokenizer: Any, wording: Wording, text: str, prompt: Prompt, spans: Mapping[str, Span]
) -> bool:
    """Whether copying cannot give the answer's token.

    Of whole answers: C is neither A nor B. Of a part: no token of A, of B or of the digits of C
    that stand in the prompt says the same.
    """
    if wording.rest == wording.answer and not wording.given:
        return wording.problem.computed
    given = prompt.token_span((len(text) - len(wording.given), len(text)))
    columns = {i for span in (spans["A"], spans["B"], given) for i in range(*span)}
    return wording.answer not in said(tokenizer, [prompt.ids[i] for i in columns]).values()


def role_spans(
    tokenizer: Any, rows: Sequence[tuple[Prompt, Mapping[str, Span]]], width: int
) -> dict[Role, Int[Tensor, "pair start_stop=2"]]:
    """The columns of each role once the rows are left-padded to `width`; OTHER has no span."""
    starts = torch.tensor([[width - len(prompt.ids)] for prompt, _ in rows])
    has_bos = [prompt.ids[0] == tokenizer.bos_token_id for prompt, _ in rows]
    spans = {
        role: torch.tensor([fields.get(name, NOWHERE) for _, fields in rows]) + starts
        for role, name in FIELD_OF_ROLE.items()
    }
    spans[Role.BOS] = torch.tensor([(0, int(bos)) for bos in has_bos]) + starts
    spans[Role.END] = torch.tensor([(width - 1, width)] * len(rows))
    return spans


_WANTED = {
    "whole": "an answer of one token",
    "first": "an answer of several tokens",
    "last": "an answer of several tokens",
}
_CURE = {
    "whole": (
        "answer_token='whole' reads the whole answer from the token after END: give operands "
        "whose answers have one digit, such as range(1, 10), where numbers are split by digit, or "
        "take answer_token='first' or 'last'."
    ),
    "first": (
        "answer_token='first' reads the first token of a longer answer: give operands whose "
        "answers are longer, such as range(10, 100), or take answer_token='whole'."
    ),
    "last": (
        "answer_token='last' puts all but the last token of a longer answer in the prompt: give "
        "operands whose answers are longer, such as range(10, 100), or take answer_token='whole'."
    ),
}


def _no_answer(
    tokenizer: Any,
    template: AnyTemplate,
    problems: Sequence[Problem],
    answer_token: str,
    words: Mapping[str, str],
) -> str:
    if not problems:
        return (
            f"template {template.name}: no {template.operation} problem has an exact answer that "
            "it can take with these operands"
        )
    text, _ = Wording(template, problems[0], "", words=words).reference()
    whole = continued(text, str(problems[0].answer))
    split = tokenizer.convert_ids_to_tokens(list(encode_ids(tokenizer, [whole])[0]))
    return (
        f"template {template.name}: none of {len(problems)} problems has {_WANTED[answer_token]} "
        f"under {tokenizer_name(tokenizer)}; {whole!r} is {' '.join(split)}.\n"
        f"{_CURE[answer_token]} Or leave the template out: templates=[names]."
    )


def _shared_token(
    tokenizer: Any, template: AnyTemplate, text: str, spans: Mapping[str, Span]
) -> str:
    return (
        f"template {template.name} is not token-aligned under {tokenizer_name(tokenizer)}: in "
        f"{text!r} the tokens of A, operator and B are {dict(spans)}, and each needs tokens of "
        "its own. Leave the template out: templates=[names]."
    )
