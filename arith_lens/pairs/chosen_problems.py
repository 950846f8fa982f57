"""Pairs of chosen problems: both prompts of a pair ask in the same words, for other numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from arith_lens.model import NO_FRAME
from arith_lens.pairs.counterfactuals import Pair
from arith_lens.pairs.examples import Examples, Exemplars
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.references import (
    Reference,
    Supply,
    Wording,
    tokenized_references,
    usable_wordings,
)
from arith_lens.pairs.sampling import as_prompt_pairs, choose_templates
from arith_lens.pairs.story_words import Choices
from arith_lens.pairs.tokens import (
    UnfitTemplate,
    continued,
    encode_ids,
    token_texts,
    tokenizer_name,
    tokenizer_of,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import Template


@dataclass(frozen=True)
class AnswerTokens:
    """How a tokenizer writes an answer after a template's prompts."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class WordedTemplate:
    """A template as a tokenizer needs it: with or without the blank at its end."""

    tokenizer: Any
    template: Template
    answers: dict[int, AnswerTokens]
    """For each answer, its tokens."""
    exemplars: Exemplars | None = None
    """The solved examples before each prompt."""

    @classmethod
    def of(
        cls,
        model: Any,
        name: str,
        problems: Sequence[Problem],
        answers: Iterable[int],
        shots: int = 0,
    ) -> "WordedTemplate":
        """How a tokenizer writes the prompts of a template and the numbers after them.

        Args:
            model: a model with a `.tokenizer`, or a tokenizer.
            name: the template's name, such as `addition/0`.
            problems: the problems; the prompt of the first one shows how answers are split.
            answers: the numbers that may follow.
            shots: the number of solved examples before each prompt, of these problems.

        Raises:
            ValueError: an unknown template, or a story, whose words are drawn.
            UnfitTemplate: no answer is readable after its prompts.
        """
        tokenizer = tokenizer_of(model)
        (template,) = choose_templates(problems[0].operation, [name])
        if not isinstance(template, Template):
            raise ValueError(
                f"expected a template whose words are fixed, found {name!r}; name one of "
                f"{problems[0].operation}'s own, such as {problems[0].operation}/0"
            )
        worded = _ended(tokenizer, template, problems)
        text, _ = Wording(worded, problems[0], "").reference()
        (prompt,) = encode_ids(tokenizer, [text])
        numbers = list(dict.fromkeys(answers))
        rows = encode_ids(tokenizer, [continued(text, str(number)) for number in numbers])
        after = [tokens_after(prompt, row) for row in rows]
        texts = token_texts(tokenizer, [token for tokens in after for token in tokens])
        supply = Supply(worded, [Wording(worded, one, "") for one in problems], Choices({}))
        return cls(
            tokenizer,
            worded,
            {
                number: AnswerTokens(tokens, tuple(texts[token] for token in tokens))
                for number, tokens in zip(numbers, after, strict=True)
                if "".join(texts[token] for token in tokens) == str(number)
            },
            Exemplars.of([supply], problems, Examples(shots)) if shots else None,
        )

    def pairs(
        self, problems: Sequence[tuple[Problem, Problem]], places: Sequence[int]
    ) -> PromptPairs:
        """Prompts of the first problems, with those of the second ones as counterfactuals.

        Args:
            problems: the two problems of each pair.
            places: for each pair, the number of tokens of the answer that are in both prompts. The
                next one is the answer of each prompt.

        Raises:
            ValueError: the prompts of a pair have other lengths, or their numbers other places.
        """
        wordings = [self._wordings(pair, at) for pair, at in zip(problems, places, strict=True)]
        sides = [
            tokenized_references(self.tokenizer, [pair[side] for pair in wordings])
            for side in (0, 1)
        ]
        if any(len(side) < len(problems) for side in sides):
            raise ValueError(
                f"expected {len(problems)} prompts that the answer's token follows in "
                f"{self.template.name}, found {min(map(len, sides))}; name another template"
            )
        sampled: list[Pair] = []
        for number, (base, source) in enumerate(zip(*sides, strict=True)):
            self._check(base, source, problems[number])
            sampled.append(
                Pair(base, source.prompt, source.text, source.answer, source.wording.answer)
            )
        return as_prompt_pairs(self.tokenizer, sampled, str(self.exemplars or ""))

    def _wordings(self, problems: tuple[Problem, Problem], place: int) -> list[Wording]:
        """Both problems of a pair, with the same examples."""
        texts = [self.answers[problem.answer].texts for problem in problems]
        both = [
            Wording(self.template, problem, own[place], "".join(own[:place]))
            for problem, own in zip(problems, texts, strict=True)
        ]
        return both if self.exemplars is None else self.exemplars.before(*both)

    def _check(self, base: Reference, source: Reference, pair: tuple[Problem, Problem]) -> None:
        same = (base.wording.problem, source.wording.problem) == pair
        if not same or len(base.prompt.ids) != len(source.prompt.ids) or base.spans != source.spans:
            raise ValueError(
                f"expected prompts of one length, with their numbers at the same tokens, found "
                f"{pair[0]} and {pair[1]} in {self.template.name} under "
                f"{tokenizer_name(self.tokenizer)}; give operands of one number of digits"
            )


def _ended(tokenizer: Any, template: Template, problems: Sequence[Problem]) -> Template:
    """The template with the end that this tokenizer needs."""
    refused: list[UnfitTemplate] = []
    for kind in ("first", "whole"):
        try:
            worded = usable_wordings(tokenizer, template, problems, kind, {}, NO_FRAME)[0].template
        except UnfitTemplate as error:
            refused.append(error)
            continue
        assert isinstance(worded, Template)
        return worded
    raise refused[0]
