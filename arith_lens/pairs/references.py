"""Reference prompts: templates filled with problems and a story's words, tokenized.

`supply` has every reference that a template can give under a tokenizer; each is made when it is
needed. A `Reference` has the positions of A, operator and B, and C.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from arith_lens.model import NO_FRAME, Frame
from arith_lens.pairs.story_words import (
    Choices,
    one_by_one,
    reference_choices,
    replaced_slots,
    shuffled,
)
from arith_lens.pairs.tokens import (
    Prompt,
    Role,
    Span,
    UnfitTemplate,
    answer_number,
    continued,
    disjoint,
    encode,
    encode_ids,
    token_spans,
    token_texts,
    tokenizer_name,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import LARGEST_ANSWERS, SLOTS, CharSpans, StoryTemplate, Template

AnyTemplate: TypeAlias = Template | StoryTemplate
EXAMPLES = "examples"
FIELD_OF_ROLE = {
    Role.OPERAND_A: "A",
    Role.OPERATOR: "op",
    Role.OPERAND_B: "B",
    Role.EXAMPLES: EXAMPLES,
}
NOWHERE = (0, 0)  # the span of a role that a template does not have, such as a story's operator


@dataclass(frozen=True)
class Wording:
    """A reference prompt as a problem, a template and a story's words."""

    template: AnyTemplate
    """The template. Its text ends as this tokenizer needs it."""
    problem: Problem
    answer: str
    """The text of the token after END: C, or C's first or last token."""
    prefix: str = ""
    """The digits of C before that token, which are in the prompt."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The words of a story, by slot."""
    examples: str = ""
    """The solved examples before the prompt, one per line."""
    solved: tuple[Problem, ...] = ()
    """Their problems."""
    frame: Frame = NO_FRAME
    """What stands before and after the examples and the template's text, as in a chat."""

    def reference(self) -> tuple[str, CharSpans]:
        """The prompt, and the character spans of its fields."""
        a, b = self.problem.a, self.problem.b
        if isinstance(self.template, Template):
            return self.ended(*self.template.render(a, b))
        return self.ended(*self.template.render(a, b, self.words))

    def ended(self, text: str, chars: CharSpans) -> tuple[str, CharSpans]:
        """A rendering of the template, with the examples before it, in its frame, and with the
        digits of C that are in the prompt. Its last space stands after a frame that has none."""
        head, tail = self.frame
        n = len(head + self.examples)
        moved = {name: (start + n, stop + n) for name, (start, stop) in chars.items()}
        if tail:
            ended = text.rstrip(" ")
            text = ended + tail + text[len(ended) :] * (not tail[-1].isspace())
        text = head + self.examples + text
        return continued(text, self.prefix) if self.prefix else text, moved

    def gives_away(self, other: Problem) -> bool:
        """Whether an example with this problem would show the operands or the answer's token."""
        answer = str(other.answer)
        in_prompt = answer.startswith(self.answer) or (self.prefix and answer.endswith(self.answer))
        return bool(in_prompt) or {other.a, other.b} == {self.problem.a, self.problem.b}

    @property
    def rest(self) -> str:
        """The part of C after the prompt: more than `answer` if C's first token is requested."""
        return str(self.problem.answer)[len(self.prefix) :]


@dataclass(frozen=True)
class Reference:
    """A wording, tokenized."""

    wording: Wording
    text: str
    prompt: Prompt
    answer: int
    """The token after END."""
    spans: Mapping[str, Span]
    """The tokens of "A", "B" and, if there is an operator, "op"."""
    computed: bool
    """Whether the answer's token needs a calculation; see `is_computed`."""


def usable_wordings(
    tokenizer: Any,
    template: AnyTemplate,
    problems: Sequence[Problem],
    answer_token: str | int,
    words: Mapping[str, str],
    frame: Frame,
) -> list[Wording]:
    """The problems that have an answer of the kind `answer_token` after this template.

    A trailing space stays if it is a token of its own (`▁`), and is removed if the tokenizer joins
    it to the number. Only one problem per answer is tokenized, because equal answers are split in
    the same way.
    """
    trimmed = replace(template, text=template.text.rstrip(" "))
    if isinstance(trimmed, StoryTemplate):
        trimmed = replace(trimmed, counterfactual=trimmed.counterfactual.rstrip(" "))
    examples = {problem.answer: problem for problem in problems}
    for worded in (template, trimmed):
        questions = [
            Wording(worded, problem, "", words=words, frame=frame) for problem in examples.values()
        ]
        parts = dict(zip(examples, _answer_parts(tokenizer, questions, answer_token), strict=True))
        usable = [
            Wording(worded, problem, *part, words=words, frame=frame)
            for problem in problems
            if (part := parts[problem.answer]) is not None
        ]
        if usable:
            return usable
    raise UnfitTemplate(
        template.name, _no_answer(tokenizer, template, problems, answer_token, words, frame)
    )


def _answer_parts(
    tokenizer: Any, wordings: Sequence[Wording], answer_token: str | int
) -> list[tuple[str, str] | None]:
    """The text of the token to predict, and the digits before it; None if there is none."""
    texts = [wording.reference()[0] for wording in wordings]
    answers = [str(wording.problem.answer) for wording in wordings]
    after = _tokens_of_answers(tokenizer, texts, encode_ids(tokenizer, texts), answers)
    says = token_texts(tokenizer, [token for tokens in after for token in tokens])
    return [
        _part_of_answer([says[token] for token in tokens], answer, answer_token)
        for tokens, answer in zip(after, answers, strict=True)
    ]


def _part_of_answer(
    texts: Sequence[str], answer: str, answer_token: str | int
) -> tuple[str, str] | None:
    """The text of the chosen token of an answer, and the digits before it."""
    number = answer_number(answer_token, len(texts))
    if number is None or (isinstance(answer_token, int) and not texts[0]):
        return None
    text = texts[number]
    prefix = answer.removesuffix(text) if answer_token == "last" else "".join(texts[:number])
    fits = {
        "whole": len(texts) == 1 and text == answer,
        "first": len(texts) > 1 and text not in ("", answer) and answer.startswith(text),
        "last": len(texts) > 1 and prefix not in ("", answer),
    }.get(str(answer_token), bool(text) and answer.startswith(prefix + text))
    return (text, prefix) if fits else None


def _tokens_of_answers(
    tokenizer: Any, texts: Sequence[str], prompts: Sequence[Sequence[int]], answers: Sequence[str]
) -> list[tuple[int, ...]]:
    answered = encode_ids(tokenizer, list(map(continued, texts, answers)))
    return list(map(tokens_after, prompts, answered))


def tokenized_references(tokenizer: Any, wordings: Sequence[Wording]) -> list[Reference]:
    """Tokenize the wordings whose prompt is directly followed by the answer's token."""
    rendered = [wording.reference() for wording in wordings]
    texts = [text for text, _ in rendered]
    prompts = encode(tokenizer, texts)
    after = _tokens_of_answers(
        tokenizer, texts, [prompt.ids for prompt in prompts], [w.rest for w in wordings]
    )
    says = token_texts(tokenizer, [tokens[0] for tokens in after if tokens])
    references = []
    for wording, (text, chars), prompt, tokens in zip(
        wordings, rendered, prompts, after, strict=True
    ):
        n_expected = 1 if wording.rest == wording.answer else 2
        if not tokens or says[tokens[0]] != wording.answer or min(len(tokens), 2) != n_expected:
            continue
        spans = token_spans(prompt, chars)
        before, bos = len(wording.frame[0]), tokenizer.bos_token_id
        spans |= examples_span(prompt, before, len(wording.examples), bos)
        if not disjoint(spans):
            name = wording.template.name
            raise UnfitTemplate(name, _shared_token(tokenizer, wording.template, text, spans))
        computed = is_computed(tokenizer, wording, text, prompt, spans)
        references.append(Reference(wording, text, prompt, tokens[0], spans, computed))
    return references


def examples_span(prompt: Prompt, start: int, n_chars: int, bos: int | None) -> dict[str, Span]:
    """The tokens of the examples, which are characters of a prompt from `start`; {} without any."""
    if not n_chars:
        return {}
    own, after = (
        next(i for i, (_, stop) in enumerate(prompt.offsets) if stop > char)
        for char in (start, start + n_chars)
    )
    return {EXAMPLES: (own if start else int(prompt.ids[0] == bos), after)}


def is_computed(
    tokenizer: Any, wording: Wording, text: str, prompt: Prompt, spans: Mapping[str, Span]
) -> bool:
    """Whether the answer's token needs a calculation: copying cannot give it, nor A = B alone.

    For whole answers: C is neither A nor B, and it does not follow from A = B, as 0 does in a
    difference and 1 in a quotient. For a part of an answer: no token of A, of B or of the digits of
    C in the prompt has the same text.
    """
    if wording.rest == wording.answer and not wording.prefix:
        return wording.problem.computed
    prefix = prompt.token_span((len(text) - len(wording.prefix), len(text)))
    columns = {i for span in (spans["A"], spans["B"], prefix) for i in range(*span)}
    return wording.answer not in token_texts(tokenizer, [prompt.ids[i] for i in columns]).values()


def role_spans(
    tokenizer: Any, rows: Sequence[tuple[Prompt, Mapping[str, Span]]], width: int = 0
) -> dict[str, Int[Tensor, "pair start_stop=2"]]:
    """The columns of each role, and of spans with names of their own, after left-padding.

    Rows are padded to the longest prompt, or to `width` if that is more.
    OTHER has no span, nor have EXAMPLES if no prompt has any; nor has END where a named span does.
    """
    width = max(width, *(len(prompt.ids) for prompt, _ in rows))
    starts = torch.tensor([[width - len(prompt.ids)] for prompt, _ in rows])
    has_bos = [prompt.ids[0] == tokenizer.bos_token_id for prompt, _ in rows]
    of_fields = {name: role for role, name in FIELD_OF_ROLE.items()}
    own = [name for _, fields in rows for name in fields if name not in of_fields]
    named = of_fields | {name: name for name in own}
    spans: dict[str, Int[Tensor, "pair start_stop=2"]] = {
        role: torch.tensor([fields.get(name, NOWHERE) for _, fields in rows]) + starts
        for name, role in named.items()
        if role is not Role.EXAMPLES or any(name in fields for _, fields in rows)
    }
    spans[Role.BOS] = torch.tensor([(0, int(bos)) for bos in has_bos]) + starts
    has_end = [all(f[name][1] < len(p.ids) for name in own if name in f) for p, f in rows]
    spans[Role.END] = torch.tensor([(width - free, width) for free in has_end])
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
    answer_token: str | int,
    words: Mapping[str, str],
    frame: Frame,
) -> str:
    if not problems:
        return (
            f"expected {template.operation} problems with an exact answer that template "
            f"{template.name} can take, found none with these operands; widen the operands"
        )
    wanted = f"an answer with a token {answer_token}"
    cure = "Widen the operands, or take another token."
    text, _ = Wording(template, problems[0], "", words=words, frame=frame).reference()
    answered = continued(text, str(problems[0].answer))
    split = tokenizer.convert_ids_to_tokens(list(encode_ids(tokenizer, [answered])[0]))
    return (
        f"expected {_WANTED.get(str(answer_token), wanted)} after template {template.name} under "
        f"{tokenizer_name(tokenizer)}, found none in {len(problems)} problems; {answered!r} is "
        f"{' '.join(split)}.\n{_CURE.get(str(answer_token), cure)} Or leave the template out: "
        "templates=[names]."
    )


def _shared_token(
    tokenizer: Any, template: AnyTemplate, text: str, spans: Mapping[str, Span]
) -> str:
    return (
        f"expected tokens of their own for A, operator and B in template {template.name} under "
        f"{tokenizer_name(tokenizer)}, found {dict(spans)} in {text!r}; leave the template out: "
        "templates=[names]"
    )


@dataclass(frozen=True)
class Supply(Sequence[Wording]):
    """The distinct references of one template: its problems, times the choices of words."""

    template: AnyTemplate
    wordings: Sequence[Wording]
    """One wording per problem."""
    choices: Choices
    """The choices of a story's words; other templates have one choice, of none."""

    def __len__(self) -> int:
        return len(self.wordings) * len(self.choices)

    def __getitem__(self, index: int) -> Wording:
        chosen, problem = divmod(index, len(self.wordings))
        return replace(self.wordings[problem], words=self.choices[chosen])

    def once(self, rng: random.Random) -> list[Wording]:
        """Every problem once. The words of a story are drawn."""
        if isinstance(self.template, Template):
            return list(self.wordings)
        n = len(self.choices)
        return [replace(w, words=self.choices[int(rng.random() * n)]) for w in self.wordings]

    def mixed(self, rng: random.Random) -> Iterator[Wording]:
        """Iterate over all references in random order."""
        if isinstance(self.template, Template):
            return iter(shuffled(self.wordings, rng))
        return one_by_one(self, rng)

    def narrowed(self, wordings: Sequence[Wording], kind: str) -> "Supply":
        """The problems that have such a counterfactual. Raises ValueError if there is none."""
        if not wordings:
            raise UnfitTemplate(
                self.template.name,
                f"expected problems of template {self.template.name} with "
                f"counterfactual={kind!r}, found none: of its {len(self.wordings)} problems, none "
                "has another one of its own lengths and with another answer. Widen the operands, "
                "or leave the template out: templates=[names]",
            )
        return replace(self, wordings=wordings)


def supply(
    tokenizer: Any,
    template: AnyTemplate,
    problems: Sequence[Problem],
    answer_token: str | int,
    counts: Mapping[str, int],
    frame: Frame = NO_FRAME,
) -> Supply:
    """The references that a template can give with some problems.

    `answer_token` is that of `sample_pairs`, `counts` are those of `piece_counts`, and `frame` is
    that of a chat.

    Raises:
        ValueError: the template gives no reference. The message names it.
    """
    choices = Choices({})
    if isinstance(template, StoryTemplate):
        choices = reference_choices(template, counts)
        if not choices:
            raise UnfitTemplate(template.name, _no_words(tokenizer, template, counts))
        largest = LARGEST_ANSWERS.get(template.name, inf)
        problems = [problem for problem in problems if problem.answer <= largest]
    usable = usable_wordings(tokenizer, template, problems, answer_token, choices[0], frame)
    return Supply(template, usable, choices)


def _no_words(tokenizer: Any, template: StoryTemplate, counts: Mapping[str, int]) -> str:
    listed = "\n".join(
        f"  for {old}: {_counted(old, counts)}\n  instead {new}: {_counted(new, counts)}"
        for new, old in replaced_slots(template).items()
    )
    return (
        f"template {template.name} is not token-aligned under {tokenizer_name(tokenizer)}: "
        "expected words with equal numbers of tokens, which can replace one another, found none:\n"
        f"{listed}\nLeave the template out: templates=[names]."
    )


def _counted(slot: str, counts: Mapping[str, int]) -> str:
    words = SLOTS.get(slot.rstrip("23"), (slot,))
    return ", ".join(f"{word} {counts[word]}" for word in words[:8])
