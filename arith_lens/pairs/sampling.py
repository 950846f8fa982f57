"""`sample_pairs`: distinct problems in every wording, with counterfactuals that align.

Solved examples may come before a problem: the same before both prompts of a pair. `template_facts`
describes each template under a tokenizer: an example, its tokens, and the number of prompts.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, TypedDict, Unpack

import torch

from arith_lens.caller_warnings import warn_caller
from arith_lens.model import NO_FRAME, chat_frame
from arith_lens.operations import operation_of
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs.correctness import keep_correct
from arith_lens.pairs.counterfactuals import (
    COUNTERFACTUAL_KINDS,
    NARROWED,
    Pair,
    Sources,
    check_operation,
    draw_pairs,
)
from arith_lens.pairs.examples import Examples, Exemplars
from arith_lens.pairs.prompt_pairs import PromptPairs
from arith_lens.pairs.references import (
    AnyTemplate,
    Reference,
    Supply,
    Wording,
    role_spans,
    supply,
    tokenized_references,
)
from arith_lens.pairs.story_words import counterfactual_choices, piece_counts, shuffled
from arith_lens.pairs.tokens import (
    ANSWER_TOKENS,
    Span,
    UnfitTemplate,
    digit_spans,
    joint,
    null_phrases,
    token_fields,
    tokenizer_of,
)
from arith_lens.problems import Problem, all_problems
from arith_lens.templates import FIGURE_10, NULL_SYMBOLS, NULL_WORDS, TEMPLATES, Template


@dataclass(frozen=True)
class NullWords:
    """What replaces an operator in counterfactuals."""

    null_words: Sequence[str] = NULL_WORDS
    null_symbols: Sequence[str] = NULL_SYMBOLS


@dataclass(frozen=True)
class Sampling:
    """What of each problem is sampled, and how it is filtered."""

    answer_token: str | int = "whole"
    """The token after END: `"whole"`, `"first"`, `"last"`, or its number in the answer."""
    chat: bool = False
    """Whether both prompts stand in the tokenizer's chat template."""
    draws: int = 1
    """The number of counterfactuals for each reference prompt."""
    batch_size: int = 128
    """The number of pairs that run together in the filter."""


class SamplingOptions(TypedDict, total=False):
    """The options of `sample_pairs`."""

    answer_token: str | int
    chat: bool
    draws: int
    batch_size: int
    shots: int
    exemplars: str
    exemplar_set: int
    null_words: Sequence[str]
    null_symbols: Sequence[str]


def sample_pairs(
    model: Any,
    operation: str = "addition",
    n: int | None = None,
    *,
    seed: int = 0,
    templates: str | Sequence[str] = "operation",
    operands: Iterable[int] = range(1, 10),
    counterfactual: str = "word",
    keep: str = "correct",
    **options: Unpack[SamplingOptions],
) -> PromptPairs:
    """Reference prompts of an operation, and the same prompts without their calculation.

    The counterfactual has a null word in place of the operator (paper, section 3 and Appendix A).
    Only null words are used that keep the number of tokens and the positions of A, B, END and BOS
    under the model's tokenizer. In stories, other words change (Figure 10).

    Args:
        model: a model with a `.tokenizer`. With keep="all", a tokenizer is enough.
        operation: the name of an operation in `OPERATIONS`.
        n: the number of distinct reference prompts before the filter, spread evenly over the
            templates. None: every problem once in each template. Repeats are not evidence, so a
            larger number than exists is an error.
        seed: the seed of all draws.
        templates: "operation" (the operation's own: Figure 8), "symbols" (those of them with a
            symbol: `3 + 5 = `), "all" (with the stories of Figure 10, which are of addition), or
            names such as ["addition/0", "story/3"].
        operands: the values of A and B: `range(1, 10)`, or a list such as `[1, 9]`. A tuple of two
            such as `(1, 9)` is an error, because it may mean either.
        answer_token: the token after END. "whole": C, for problems where C is one token. For longer
            answers, "first": C's first token; or "last": C's last token, with the earlier ones in
            the prompt ("42 plus 34 is equal to 7" -> "6"). A number, counted from 0 (from the end:
            -1): this token of the answer, with those before it in both prompts; of these, all but
            END have the roles `answer 0`, `answer 1` …
        chat: whether both prompts stand in the tokenizer's chat template, as a user's message
            without its last space, so that the answer is the model's turn.
        counterfactual: "word": null words and symbols; "operands": other A and B of the same
            lengths; "operator": another operation's word or symbol; "ones_a", "ones_b", "tens_a",
            "tens_b", "ones_carry" or "tens_carry": operands that differ in these digits or carries
            alone (`pairs.counterfactuals`). All but "word" have another answer than C.
        keep: the filter of the pairs. "correct": only pairs whose reference the model answers
            right; "all": every pair. (The `keep` of `path_patch` is a number of senders.)
        draws: the number of different counterfactuals for each reference prompt.
        shots: the number of solved examples before each prompt. Both prompts of a pair have the
            same. No example has the problem's operands or its answer.
        exemplars: "same": examples of the operation, in the template's words; "mixed": of the four
            operations in turn.
        exemplar_set: the number of the draw of examples. Pairs of several sets can be added; in all
            statistics a wording with another set counts as another wording.
        null_words, null_symbols: the words and symbols to draw from.
        batch_size: the number of pairs that run together in the filter.

    Raises:
        TypeError: several operations, or an option that does not exist.
        ValueError: a choice is unknown, n is larger than the number of prompts, no problem has such
            an answer, no template aligns, the tokenizer has no chat template, or the filter keeps
            no pair. A template that does not
            align is an error if it was named; of a collection, it is left out with a warning.

    Example:
        >>> import arith_lens as al
        >>> model = al.load_model("reference")
        >>> pairs = al.sample_pairs(model, "addition", n=6, templates="symbols")
        >>> len(pairs), pairs.reference.shape == pairs.counterfactual.shape
        (6, True)
    """
    refuse_unknown_options(sample_pairs, options, Sampling, Examples, NullWords)
    sampling, example_options = value_object(Sampling, options), value_object(Examples, options)
    nulls, answer_token = value_object(NullWords, options), sampling.answer_token
    draws, shots = sampling.draws, example_options.shots
    if not isinstance(answer_token, int):
        check_choice("answer_token", answer_token, ANSWER_TOKENS)
    for name, value, known in (
        ("counterfactual", counterfactual, COUNTERFACTUAL_KINDS),
        ("keep", keep, ("correct", "all")),
        ("exemplars", example_options.exemplars, ("same", "mixed")),
    ):
        check_choice(name, value, known)
    _check_one_operation(operation)
    check_operation(counterfactual, operation)
    _check_operands(operands)
    for name, count, least in (("n", n, 1), ("draws", draws, 1), ("shots", shots, 0)):
        if count is not None and (not isinstance(count, int) or count < least):
            raise ValueError(
                f"expected {name} as a whole number, {least} or more, found {count!r}; give {name}="
                f"{max(least, 1)}, for instance"
            )
    if keep == "correct" and not hasattr(model, "tokenizer"):
        raise ValueError(
            f"expected a model with keep='correct', which runs it, found {type(model).__name__}; "
            "give the model, or keep='all'"
        )
    tokenizer = tokenizer_of(model)
    frame = chat_frame(tokenizer) if sampling.chat else NO_FRAME
    problems = all_problems(operation, operands)

    def sampled_from(chosen: Sequence[AnyTemplate]) -> PromptPairs:
        rng = random.Random(seed)
        counts = piece_counts(tokenizer, chosen)
        supplies = [supply(tokenizer, t, problems, answer_token, counts, frame) for t in chosen]
        examples = Exemplars.of(supplies, problems, example_options) if shots else None
        if narrow := NARROWED.get(counterfactual):
            supplies = [
                part.narrowed(narrow(tokenizer, part.wordings), counterfactual) for part in supplies
            ]
        references = _take(tokenizer, supplies, n, rng, examples)
        sources = Sources(
            words={"word": nulls.null_words, "symbol": nulls.null_symbols},
            counts=counts,
            wordings={part.template.name: part.wordings for part in supplies},
        )
        sampled = draw_pairs(tokenizer, references, counterfactual, sources, draws, rng)
        in_parts, named = isinstance(answer_token, int), "" if examples is None else str(examples)
        return as_prompt_pairs(tokenizer, sampled, named, digit_roles=in_parts)

    pairs = _from_fitting(sampled_from, choose_templates(operation, templates), templates)
    if keep != "correct":
        return pairs
    return keep_correct(model, pairs, batch_size=sampling.batch_size)


def _from_fitting(
    draw: Callable[[Sequence[AnyTemplate]], PromptPairs],
    chosen: Sequence[AnyTemplate],
    named: str | Sequence[str],
) -> PromptPairs:
    """The pairs of the templates that fit the tokenizer; a warning names the others."""
    refused: list[UnfitTemplate] = []
    while True:
        try:
            pairs = draw(chosen)
        except UnfitTemplate as error:
            refused.append(error)
            chosen = [template for template in chosen if template.name != error.template]
            if not chosen or not _is_collection(named):
                raise refused[0] from None
            continue
        if refused:
            names = ", ".join(error.template for error in refused)
            warn_caller(
                f"expected templates that fit the tokenizer, found {len(refused)} that do not, and "
                f"left them out: {names}. To have no warning, name the others with templates=. "
                f"The first one: {refused[0]}"
            )
        return pairs


def _check_one_operation(operation: Any) -> None:
    if not isinstance(operation, str):
        raise TypeError(
            f"expected the name of one operation, found {operation!r}; add pairs of several: "
            "sample_pairs(model, 'addition') + sample_pairs(model, 'division')"
        )


def _check_operands(operands: Iterable[int]) -> None:
    if isinstance(operands, tuple) and len(operands) == 2:
        low, high = operands
        raise ValueError(
            f"expected operands as a range or a list, found the pair {operands}; write "
            f"range({low}, {high + 1}) for the numbers from {low} to {high}, or [{low}, {high}] "
            "for these two"
        )


COLLECTIONS = ("operation", "symbols", "all")


def _is_collection(names: str | Sequence[str]) -> bool:
    """Whether templates were chosen as a collection, and not by their own names."""
    return names in COLLECTIONS or [*names] in [[name] for name in COLLECTIONS]


def choose_templates(operation: str, names: str | Sequence[str]) -> list[AnyTemplate]:
    """The templates with these names, in the same order. Raises ValueError for unknown names."""
    if not isinstance(names, str) and _is_collection(names):
        names = names[0]
    own = list(TEMPLATES[operation_of(operation).name])
    stories = [story for story in FIGURE_10 if story.operation == operation]
    if names in ("operation", "all"):
        return [*own, *(stories if names == "all" else ())]
    if names == "symbols":
        return [template for template in own if template.kind == "symbol"]
    known = {template.name: template for template in (*own, *stories)}
    listed = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in listed if name not in known]
    if unknown or not listed:
        raise ValueError(
            f"expected templates='operation', 'symbols', 'all' or names of {operation}'s "
            f"templates, found {names!r}; choose among {', '.join(known)}"
        )
    return [known[name] for name in dict.fromkeys(listed)]


def _take(
    tokenizer: Any,
    supplies: Sequence[Supply],
    n: int | None,
    rng: random.Random,
    examples: Exemplars | None,
) -> list[Reference]:
    """Every problem once in each template, or n references spread evenly over the templates."""
    if n is None:
        once = [w for part in supplies for w in part.once(rng)]
        return tokenized_references(tokenizer, _with_examples(once, examples))
    n_distinct = sum(map(len, supplies))
    if n > n_distinct:
        raise ValueError(_too_many(n, n_distinct, len(supplies)))
    turns = zip_longest(*shuffled([part.mixed(rng) for part in supplies], rng))
    wordings = (wording for turn in turns for wording in turn if wording is not None)
    references: list[Reference] = []
    while batch := list(islice(wordings, n - len(references))):
        references += tokenized_references(tokenizer, _with_examples(batch, examples))
    if len(references) < n:
        raise ValueError(_too_many(n, len(references), len(supplies)))
    return references


def _with_examples(wordings: list[Wording], examples: Exemplars | None) -> list[Wording]:
    if examples is None:
        return wordings
    return [own for wording in wordings for own in examples.before(wording)]


def _too_many(n: int, n_distinct: int, n_templates: int) -> str:
    return (
        f"expected n of at most {n_distinct}, found n={n}: only {n_distinct} distinct reference "
        f"prompts exist, in {n_templates} templates with the problems whose answer is of this "
        "kind. Repeats are not evidence. Use n=None for every problem once, draws=k for several "
        "counterfactuals of each, templates='all' for the stories of addition, whose names and "
        "things vary, or widen the operands where that gives more such answers (subtraction and "
        "division, where numbers are split by digit; any operation with answer_token='first' or "
        "'last')."
    )


def as_prompt_pairs(
    tokenizer: Any, pairs: Sequence[Pair], exemplar_set: str, *, digit_roles: bool = False
) -> PromptPairs:
    """The pairs as `PromptPairs`. `exemplar_set` names the draw of examples; "" for none."""
    references = [pair.reference for pair in pairs]
    wordings = [reference.wording for reference in references]
    spans = [{**r.spans, **(_digits_before_end(r) if digit_roles else {})} for r in references]
    return PromptPairs(
        **token_fields(
            tokenizer,
            [reference.prompt for reference in references],
            [pair.counterfactual for pair in pairs],
            [reference.answer for reference in references],
            [pair.answer for pair in pairs],
        ),
        spans=role_spans(
            tokenizer, [(r.prompt, fields) for r, fields in zip(references, spans, strict=True)]
        ),
        template=tuple(wording.template.name for wording in wordings),
        examples=tuple(wording.examples for wording in wordings) if exemplar_set else None,
        exemplar_set=(exemplar_set,) * len(wordings) if exemplar_set else None,
        operation=tuple(wording.problem.operation for wording in wordings),
        operands=torch.tensor([(w.problem.a, w.problem.b) for w in wordings]),
        computed=torch.tensor([reference.computed for reference in references]),
        reference_text=tuple(reference.text for reference in references),
        counterfactual_text=tuple(pair.counterfactual_text for pair in pairs),
        answer_text=tuple(joint(r.text, r.wording.answer) for r in references),
        counterfactual_answer_text=tuple(
            joint(pair.counterfactual_text, pair.answer_text) for pair in pairs
        ),
    )


def _digits_before_end(reference: Reference) -> dict[str, Span]:
    n_chars, prefix = len(reference.text), reference.wording.prefix
    start, stop = reference.prompt.token_span((n_chars - len(prefix), n_chars))
    return digit_spans(start, stop)


NO_FACTS = {
    **{"reference": "", "counterfactual": "", "tokens": 0, "problems": 0, "references": 0},
    **{"candidates": 0, "answer_piece": ""},
}


def template_facts(
    model: Any,
    operation: str = "addition",
    *,
    templates: str | Sequence[str] = "operation",
    operands: Iterable[int] = range(1, 10),
    answer_token: str = "whole",
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Facts about each template under a tokenizer: rows of the paper's Figures 8 and 10.

    The arguments are those of `sample_pairs`; `model` may be a tokenizer. A row has an example of
    both prompts, its tokens with BOS, and how its C is written (`answer_piece`); how many
    `problems` and prompts (`references`) the template has, and how many counterfactuals the example
    (`candidates`). A template that gives no prompts has a row that says why (`refused`).

    Raises:
        ValueError: the operation or a template is unknown, or there are no operands.
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
) -> dict[str, Any]:
    counts = piece_counts(tokenizer, [template])
    try:
        part = supply(tokenizer, template, problems, answer_token, counts)
        (reference,) = tokenized_references(tokenizer, [next(part.mixed(rng))])
        null_choices = {"word": NULL_WORDS, "symbol": NULL_SYMBOLS}
        sources = Sources(null_choices, counts, {template.name: part.wordings})
        (pair,) = draw_pairs(tokenizer, [reference], "word", sources, 1, rng)
    except ValueError as error:
        return {"template": template.name, **NO_FACTS, "refused": str(error)}
    return {
        "template": template.name,
        "reference": reference.text,
        "counterfactual": pair.counterfactual_text,
        "tokens": len(reference.prompt.ids),
        "problems": len(part.wordings),
        "references": len(part),
        "candidates": _n_candidates(tokenizer, pair, sources),
        "answer_piece": tokenizer.convert_ids_to_tokens(reference.answer),
        "refused": "",
    }


def _n_candidates(tokenizer: Any, pair: Pair, sources: Sources) -> int:
    wording = pair.reference.wording
    if isinstance(wording.template, Template):
        words = sources.words[wording.template.kind]
        return len(null_phrases(tokenizer, wording.template, wording.problem, words))
    return len(counterfactual_choices(wording.template, wording.words, sources.counts))
