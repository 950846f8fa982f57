"""What each template gives under a tokenizer: an example, its tokens, how much there is of it."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from arith_lens.pairs.counterfactuals import Pair, Sources, draw
from arith_lens.pairs.sampling import choose_templates
from arith_lens.pairs.stories import counterfactual_choices, piece_counts
from arith_lens.pairs.supply import supply
from arith_lens.pairs.tokens import null_phrases, tokenizer_of
from arith_lens.pairs.wordings import tokenize
from arith_lens.problems import Problem, all_problems
from arith_lens.templates import NULL_SYMBOLS, NULL_WORDS, Template

WORDS = {"word": NULL_WORDS, "symbol": NULL_SYMBOLS}


@dataclass(frozen=True)
class TemplateFacts:
    """One row of the paper's Figure 8 or 10 under one tokenizer; `refused` says why there is none.

    `tokens` counts the example's, BOS included. `candidates` are the counterfactuals that the
    example has: null words or phrases, or a story's choices of other words.
    """

    template: str
    reference: str = ""
    counterfactual: str = ""
    tokens: int = 0
    problems: int = 0
    references: int = 0  # distinct prompts: the problems, times a story's words
    candidates: int = 0
    answer_piece: str = ""  # how the tokenizer writes the example's C
    refused: str = ""


def template_facts(
    model: Any,
    operation: str = "addition",
    *,
    templates: str | Sequence[str] = "operation",
    operands: Iterable[int] = range(1, 10),
    answer_token: str = "whole",
    seed: int = 0,
) -> list[TemplateFacts]:
    """What each template gives under the tokenizer of `model` (or a tokenizer itself).

    Takes the arguments of `sample_pairs`. A template that gives nothing has a row that says why.

    Raises:
        ValueError: an unknown operation or template, or no operands.
    """
    tokenizer = tokenizer_of(model)
    problems = all_problems(operation, operands)
    return [
        _facts(tokenizer, template, problems, answer_token, random.Random(seed))
        for template in choose_templates(operation, templates)
    ]


def _facts(
    tokenizer: Any,
    template: Any,
    problems: Sequence[Problem],
    answer_token: str,
    rng: random.Random,
) -> TemplateFacts:
    counts = piece_counts(tokenizer, [template])
    try:
        part = supply(tokenizer, template, problems, answer_token, counts)
        (reference,) = tokenize(tokenizer, [next(part.mixed(rng))])
        sources = Sources(WORDS, counts, {template.name: part.wordings})
        (pair,) = draw(tokenizer, [reference], "word", sources, 1, rng)
    except ValueError as error:
        return TemplateFacts(template.name, refused=str(error))
    return TemplateFacts(
        template=template.name,
        reference=reference.text,
        counterfactual=pair.counterfactual_text,
        tokens=len(reference.prompt.ids),
        problems=len(part.wordings),
        references=len(part),
        candidates=_n_candidates(tokenizer, pair, sources),
        answer_piece=tokenizer.convert_ids_to_tokens(reference.answer),
    )


def _n_candidates(tokenizer: Any, pair: Pair, sources: Sources) -> int:
    wording = pair.reference.wording
    if isinstance(wording.template, Template):
        words = sources.words[wording.template.kind]
        return len(null_phrases(tokenizer, wording.template, wording.problem, words))
    return len(counterfactual_choices(wording.template, wording.words, sources.counts))
