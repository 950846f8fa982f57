"""sample_pairs: distinct problems in every wording, with counterfactuals that align."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import torch

from arith_lens.pairs.correctness import keep_correct
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.rows import left_pad
from arith_lens.pairs.tokens import Prompt, aligned, encode, null_phrases, pieces, tokenizer_of
from arith_lens.pairs.wordings import Reference, Wording, role_spans, tokenize, usable_wordings
from arith_lens.problems import all_problems
from arith_lens.templates import NULL_SYMBOLS, NULL_WORDS, TEMPLATES, Template

T = TypeVar("T")


@dataclass(frozen=True)
class _Pair:
    reference: Reference
    counterfactual: Prompt
    counterfactual_text: str


def sample_pairs(
    model: Any,
    operation: str = "addition",
    n: int | None = None,
    *,
    seed: int = 0,
    templates: str | Sequence[str] = "operation",
    operands: Iterable[int] = range(1, 10),
    answer_token: str = "whole",
    counterfactual: str = "word",
    keep: str = "correct",
    draws: int = 1,
    null_words: Sequence[str] = NULL_WORDS,
    null_symbols: Sequence[str] = NULL_SYMBOLS,
    batch_size: int = 128,
) -> PromptPairs:
    """Reference prompts of an operation, and the same prompts without their calculation.

    The counterfactual has a null word where the operator stood (paper, section 3 and Appendix A),
    chosen among those that keep the number of tokens and the places of A, B, END and BOS under
    the model's tokenizer.

    Args:
        model: a model with a `.tokenizer`; with keep="all" anything that has one.
        n: how many distinct reference prompts, before the filter, spread evenly over templates;
            None takes all there are. Repeats are not evidence, so more than there are is refused.
        templates: "operation" (all of the operation's), or names such as ["addition/0"].
        operands: the numbers A and B are taken from.
        answer_token: "whole": only problems whose answer is one token.
        counterfactual: "word": null words and null symbols.
        keep: "correct": pairs whose reference the model answers right; "all": every pair.
        draws: counterfactuals drawn for each reference prompt, all different.

    Raises:
        ValueError: unknown choices, n above what exists, no problem with a one-token answer, a
            template that does not align, or nothing left after the filter.
    """
    _check_choices(answer_token=answer_token, counterfactual=counterfactual, keep=keep)
    _check_count("n", n)
    _check_count("draws", draws)
    if keep == "correct" and not hasattr(model, "tokenizer"):
        raise ValueError("keep='correct' asks the model: give a model, or keep='all'")
    tokenizer = tokenizer_of(model)
    rng = random.Random(seed)
    problems = all_problems(operation, operands)
    wordings: list[list[Wording]] = []
    for template in _choose_templates(operation, templates):
        wordings.append(usable_wordings(tokenizer, template, problems))
        # What is several tokens after one wording is so after the next: ask for it once only.
        problems = [problem for _, problem in wordings[-1]]
    references = tokenize(tokenizer, _take(wordings, n, rng))
    words = {"word": null_words, "symbol": null_symbols}
    pairs = _as_prompt_pairs(tokenizer, _draw(tokenizer, references, words, draws, rng))
    return keep_correct(model, pairs, batch_size=batch_size) if keep == "correct" else pairs


_CHOICES = {
    "answer_token": ("whole",),
    "counterfactual": ("word",),
    "keep": ("correct", "all"),
}


def _check_choices(**given: str) -> None:
    for name, value in given.items():
        if value not in _CHOICES[name]:
            accepted = ", ".join(map(repr, _CHOICES[name]))
            raise ValueError(f"{name}={value!r} is not one of the accepted values: {accepted}")


def _check_count(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise ValueError(f"{name} must be at least 1: found {count}")


def _choose_templates(operation: str, names: str | Sequence[str]) -> list[Template]:
    known = {template.name: template for template in TEMPLATES[operation]}
    if names == "operation":
        return list(known.values())
    listed = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in listed if name not in known]
    if unknown or not listed:
        raise ValueError(
            f"templates={names!r}: expected 'operation' or names of {operation}'s templates, "
            f"{', '.join(known)}"
        )
    return [known[name] for name in dict.fromkeys(listed)]


def _shuffled(items: Sequence[T], rng: random.Random) -> list[T]:
    """A random order that depends on `rng.random()` only, which every Python gives alike."""
    return sorted(items, key=lambda _: rng.random())


def _take(
    wordings: Sequence[Sequence[Wording]], n: int | None, rng: random.Random
) -> list[Wording]:
    """All wordings, or n of them spread evenly over the templates."""
    n_distinct = sum(map(len, wordings))
    if n is None:
        return [wording for of_template in wordings for wording in of_template]
    if n > n_distinct:
        raise ValueError(
            f"n={n}, but only {n_distinct} distinct reference prompts exist: "
            f"{len(wordings)} templates with the problems whose answer is one token. Repeats are "
            "not evidence: use n=None for all of them, draws=k for several counterfactuals of "
            "each, or widen the operands where that gives more answers of one token (subtraction "
            "and division, where numbers are split by digit)."
        )
    mixed = [_shuffled(of_template, rng) for of_template in wordings]
    turns = zip_longest(*_shuffled(mixed, rng))
    return [wording for turn in turns for wording in turn if wording is not None][:n]


def _draw(
    tokenizer: Any,
    references: Sequence[Reference],
    words: Mapping[str, Sequence[str]],
    draws: int,
    rng: random.Random,
) -> list[_Pair]:
    """`draws` different aligned counterfactuals of each reference, each checked by tokenizing."""
    candidates: dict[Template, list[str]] = {}
    for reference in references:
        template = reference.template
        if template not in candidates:
            listed = words[template.kind]
            candidates[template] = null_phrases(tokenizer, template, reference.problem, listed)
    queues = [_shuffled(candidates[reference.template], rng) for reference in references]
    drawn: list[list[_Pair]] = [[] for _ in references]
    while short := [i for i, pairs in enumerate(drawn) if len(pairs) < draws]:
        for i in short:
            if not queues[i]:
                raise ValueError(_too_few(references[i], len(drawn[i]), draws))
        texts = [references[i].with_word(queues[i].pop()) for i in short]
        for i, text, prompt in zip(short, texts, encode(tokenizer, texts), strict=True):
            if aligned(references[i].prompt, prompt, references[i].spans["op"]):
                drawn[i].append(_Pair(references[i], prompt, text))
    return [pair for of_reference in drawn for pair in of_reference]


def _as_prompt_pairs(tokenizer: Any, pairs: Sequence[_Pair]) -> PromptPairs:
    references = [pair.reference for pair in pairs]
    rows = [reference.prompt.ids for reference in references]
    others = [pair.counterfactual.ids for pair in pairs]
    tokens, mask = left_pad(rows)
    problems = [reference.problem for reference in references]
    return PromptPairs(
        reference=tokens,
        counterfactual=left_pad(others)[0],
        answer=torch.tensor([reference.answer for reference in references]),
        attention_mask=mask,
        spans=role_spans(tokenizer, [(r.prompt, r.spans) for r in references], tokens.shape[1]),
        template=tuple(reference.template.name for reference in references),
        operation=tuple(problem.operation for problem in problems),
        operands=torch.tensor([(problem.a, problem.b) for problem in problems]),
        computed=torch.tensor([problem.computed for problem in problems]),
        reference_text=tuple(reference.text for reference in references),
        counterfactual_text=tuple(pair.counterfactual_text for pair in pairs),
        answer_text=tuple(str(problem.answer) for problem in problems),
        pieces=pieces(tokenizer, [*rows, *others, [reference.answer for reference in references]]),
    )


def _too_few(reference: Reference, found: int, draws: int) -> str:
    return (
        f"draws={draws}, but template {reference.template.name} has only {found} aligned "
        f"counterfactuals of {reference.text!r} under this tokenizer: ask for fewer draws, or "
        "give more null_words or null_symbols"
    )
