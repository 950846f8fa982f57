"""Counterfactuals of each kind, aligned: null words, other operands or digits of them, other
operators, stories.

Changes of chosen digits are those of MIB's arithmetic task (Mueller et al., 2025). `ones_a`,
`ones_b`, `tens_a` and `tens_b` change one digit, and no carry. `ones_carry` changes the ones of A,
of B or of both, such that they carry where they did not, or the other way round; `tens_carry` does
so with the tens. In subtraction a carry is what is borrowed.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from arith_lens.pairs.references import AnyTemplate, Reference, Wording
from arith_lens.pairs.story_words import counterfactual_choices, one_by_one, shuffled
from arith_lens.pairs.tokens import (
    FIELDS,
    NO_ANSWER,
    Prompt,
    UnfitTemplate,
    aligned,
    continued,
    encode,
    encode_ids,
    null_phrases,
    token_spans,
    token_texts,
    tokenizer_name,
    tokens_after,
)
from arith_lens.problems import Problem
from arith_lens.templates import CharSpans, Template, other_operators

CARRY_OPERATIONS = ("addition", "subtraction")
"""The operations that have carries."""
PLACE_VALUES = {"ones": 1, "tens": 10}


@dataclass(frozen=True)
class DigitChange:
    """A place of the operands that differs, and whether its carry does."""

    place: str
    """`ones` or `tens`."""
    operands: str
    """`a`, `b` or `ab`: those whose digit may differ."""
    carry: bool
    """Whether this place's carry differs. No other carry does."""

    def others(self, problem: Problem) -> Iterator[Problem]:
        """The problems with this change. Some have no exact answer."""
        size, before = PLACE_VALUES[self.place], carries(problem)
        carries_after = dict(before, **{self.place: before[self.place] != self.carry})
        for digits in product(range(10), repeat=len(self.operands)):
            changed = {"a": problem.a, "b": problem.b}
            for name, digit in zip(self.operands, digits, strict=True):
                changed[name] += (digit - changed[name] // size % 10) * size
            other = Problem(problem.operation, **changed)
            if other != problem and carries(other) == carries_after:
                yield other


def carries(problem: Problem) -> dict[str, bool]:
    """Whether the ones and the tens of a sum or of a difference carry."""
    sign = -1 if problem.operation == "subtraction" else 1
    carried, carry_by_place = False, {}
    for decimal_place, size in PLACE_VALUES.items():
        digit = problem.a // size % 10 + sign * (problem.b // size % 10 + carried)
        carried = not 0 <= digit <= 9
        carry_by_place[decimal_place] = carried
    return carry_by_place


DIGIT_CHANGES: Mapping[str, DigitChange] = {
    **{f"{place}_{one}": DigitChange(place, one, False) for place in PLACE_VALUES for one in "ab"},
    **{f"{place}_carry": DigitChange(place, "ab", True) for place in PLACE_VALUES},
}
"""By kind of counterfactual."""


def check_operation(kind: str, operation: str) -> None:
    """Raises ValueError if the operation has no such change."""
    if kind in DIGIT_CHANGES and operation not in CARRY_OPERATIONS:
        raise ValueError(
            f"expected one of {', '.join(CARRY_OPERATIONS)} with counterfactual={kind!r}, found "
            f"{operation}, which has no carries; take counterfactual='operands'"
        )


SWAPS: Mapping[str, DigitChange | None] = {"operands": None, **DIGIT_CHANGES}
"""The kinds with other operands, and which digits of them differ; None: any."""
COUNTERFACTUAL_KINDS = ("word", "operands", "operator", *DIGIT_CHANGES)


@dataclass(frozen=True)
class Candidate:
    """A counterfactual prompt, before it is tokenized."""

    text: str
    chars: CharSpans
    """The character spans of its fields."""
    answer: str = ""
    """What follows the prompt in the answer of its own problem; empty if it has no answer."""


@dataclass(frozen=True)
class Sources:
    """The words and problems from which counterfactuals are made."""

    words: Mapping[str, Sequence[str]]
    """The null words of each kind of template ("word", "symbol")."""
    counts: Mapping[str, int]
    """The number of tokens of each word of a story."""
    wordings: Mapping[str, Sequence[Wording]]
    """Every usable problem of each template, by the template's name."""


@dataclass(frozen=True)
class Pair:
    """A reference and one counterfactual of it."""

    reference: Reference
    counterfactual: Prompt
    counterfactual_text: str
    answer: int = NO_ANSWER
    """The token after END in the counterfactual; -1 if it has no answer."""
    answer_text: str = ""


def draw_pairs(
    tokenizer: Any,
    references: Sequence[Reference],
    kind: str,
    sources: Sources,
    draws: int,
    rng: random.Random,
) -> list[Pair]:
    """Draw `draws` different aligned counterfactuals of each reference; each is tokenized.

    Raises:
        ValueError: a template or a prompt has too few counterfactuals.
    """
    make = partial(_other_operands, SWAPS[kind]) if kind in SWAPS else _QUEUES[kind]
    queues = make(tokenizer, references, sources, rng)
    sampled: list[list[tuple[Prompt, Candidate]]] = [[] for _ in references]
    while short := [i for i, pairs in enumerate(sampled) if len(pairs) < draws]:
        candidates: list[Candidate] = []
        for i in short:
            candidate = next(queues[i], None)
            if candidate is None:
                raise ValueError(_too_few(references[i], len(sampled[i]), draws, kind))
            candidates.append(candidate)
        prompts = encode(tokenizer, [candidate.text for candidate in candidates])
        for i, candidate, prompt in zip(short, candidates, prompts, strict=True):
            if _agrees(references[i], prompt, candidate.chars, kind):
                sampled[i].append((prompt, candidate))
    chosen = [pair for of_reference in sampled for pair in of_reference]
    answers = _own_answers(tokenizer, chosen)
    of_pair = [reference for reference in references for _ in range(draws)]
    return [
        Pair(reference, prompt, candidate.text, *answer)
        for reference, (prompt, candidate), answer in zip(of_pair, chosen, answers, strict=True)
    ]


def _own_answers(
    tokenizer: Any, counterfactuals: Sequence[tuple[Prompt, Candidate]]
) -> list[tuple[int, str]]:
    """The token after END in each counterfactual, and its text; (-1, "") if it has no answer."""
    with_answer = [candidate for _, candidate in counterfactuals if candidate.answer]
    answered = iter(encode_ids(tokenizer, [continued(c.text, c.answer) for c in with_answer]))
    after = [
        tokens_after(prompt.ids, next(answered)) if candidate.answer else ()
        for prompt, candidate in counterfactuals
    ]
    texts = token_texts(tokenizer, [tokens[0] for tokens in after if tokens])
    return [
        (tokens[0], texts[tokens[0]])
        if tokens and texts[tokens[0]] and candidate.answer.startswith(texts[tokens[0]])
        else (NO_ANSWER, "")
        for tokens, (_, candidate) in zip(after, counterfactuals, strict=True)
    ]


def _agrees(reference: Reference, other: Prompt, chars: CharSpans, kind: str) -> bool:
    """Whether the counterfactual differs from the reference only in what its kind changes, with A,
    B, END and BOS at the same positions."""
    ids = reference.prompt.ids
    spans = {name: reference.spans[name] for name in FIELDS if name in reference.spans}
    if "op" in spans and kind not in SWAPS:
        return aligned(reference.prompt, other, spans["op"])
    if len(other.ids) != len(ids) or other.ids == ids or token_spans(other, chars) != spans:
        return False
    operands = {i for name in "AB" for i in range(*spans[name])}
    ends = {0, len(ids) - 1}
    unchanged = set(range(len(ids))) - operands if kind in SWAPS else operands | ends
    return all(ids[i] == other.ids[i] for i in unchanged)


def _null_words(
    tokenizer: Any, references: Sequence[Reference], sources: Sources, rng: random.Random
) -> list[Iterator[Candidate]]:
    """Null words in place of the operator; in stories, another verb, thing or name."""
    candidates: dict[AnyTemplate, list[str]] = {}
    queues: list[Iterator[Candidate]] = []
    for wording in (reference.wording for reference in references):
        template = wording.template
        if not isinstance(template, Template):
            queues.append(_retold(wording, sources.counts, rng))
            continue
        if template not in candidates:
            listed = sources.words[template.kind]
            candidates[template] = null_phrases(tokenizer, template, wording.problem, listed)
        # Taken from the end, which is how the first pairs of this project were drawn.
        words = shuffled(candidates[template], rng)[::-1]
        queues.append(_with_words(wording, dict.fromkeys(words)))
    return queues


def _with_words(wording: Wording, operations: Mapping[str, str | None]) -> Iterator[Candidate]:
    """Counterfactuals with other words, and the operation of each word; None: it has none."""
    template, problem = wording.template, wording.problem
    assert isinstance(template, Template)
    for word, operation in operations.items():
        rendered = wording.ended(*template.render(problem.a, problem.b, word))
        yield Candidate(*rendered, answer=_rest_of_answer(wording, operation))


def _rest_of_answer(wording: Wording, operation: str | None) -> str:
    """The answer of another operation after the digits of C in the prompt; empty if none follows,
    or if no non-negative integer is the answer."""
    other = operation and Problem(operation, wording.problem.a, wording.problem.b)
    if not other or not other.is_exact:
        return ""
    answer = str(other.answer)
    return answer.removeprefix(wording.prefix) if answer.startswith(wording.prefix) else ""


def _retold(wording: Wording, counts: Mapping[str, int], rng: random.Random) -> Iterator[Candidate]:
    template, problem = wording.template, wording.problem
    assert not isinstance(template, Template)
    for other in one_by_one(counterfactual_choices(template, wording.words, counts), rng):
        words = {**wording.words, **other}
        yield Candidate(
            *wording.ended(*template.render_counterfactual(problem.a, problem.b, words))
        )


def _other_operands(
    change: DigitChange | None,
    tokenizer: Any,
    references: Sequence[Reference],
    sources: Sources,
    rng: random.Random,
) -> list[Iterator[Candidate]]:
    """Other fitting A and B of the same lengths, with another answer token."""
    groups = {name: lengthwise(tokenizer, wordings) for name, wordings in sources.wordings.items()}
    wordings = [reference.wording for reference in references]
    return [_swapped(w, groups[w.template.name].like(w, change), rng) for w in wordings]


def _swapped(
    wording: Wording, others: Sequence[Wording], rng: random.Random
) -> Iterator[Candidate]:
    """Without the problems that the examples give away."""
    for other in one_by_one(others, rng):
        given_away = any(map(other.gives_away, wording.solved))
        if other.answer != wording.answer and not given_away:
            swapped = replace(other, words=wording.words, examples=wording.examples)
            yield Candidate(*swapped.reference(), answer=swapped.rest)


@dataclass(frozen=True)
class Lengthwise:
    """The usable problems of a template, grouped by the token counts of A and B and the digits of C
    in the prompt."""

    pieces: Mapping[str, Mapping[int, int]]
    """The number of tokens of each number, as "A" and as "B"."""
    groups: Mapping[tuple[int, int, str], Mapping[Problem, Wording]]
    """The problems of each group, with their wordings."""

    def like(self, wording: Wording, change: DigitChange | None) -> Sequence[Wording]:
        """The problems of this one's group that have a change; None: all, with itself."""
        group = self.groups[self.key(wording)]
        if change is None:
            return [*group.values()]
        return [group[other] for other in change.others(wording.problem) if other in group]

    def key(self, wording: Wording) -> tuple[int, int, str]:
        """The group of a problem."""
        a, b = wording.problem.a, wording.problem.b
        return self.pieces["A"][a], self.pieces["B"][b], wording.prefix


def lengthwise(tokenizer: Any, wordings: Sequence[Wording]) -> Lengthwise:
    """Group a template's problems by the token counts of their numbers."""
    operation = wordings[0].problem.operation
    numbers = sorted({n for w in wordings for n in (w.problem.a, w.problem.b)})
    examples = [replace(wordings[0], problem=Problem(operation, n, n), prefix="") for n in numbers]
    rendered = [wording.reference() for wording in examples]
    prompts = encode(tokenizer, [text for text, _ in rendered])
    pieces: dict[str, dict[int, int]] = {"A": {}, "B": {}}
    for number, prompt, (_, chars) in zip(numbers, prompts, rendered, strict=True):
        for name, lengths in pieces.items():
            start, stop = prompt.token_span(chars[name])
            lengths[number] = stop - start
    groups: dict[tuple[int, int, str], dict[Problem, Wording]] = defaultdict(dict)
    for w in wordings:
        key = (pieces["A"][w.problem.a], pieces["B"][w.problem.b], w.prefix)
        groups[key][w.problem] = w
    return Lengthwise(pieces, groups)


def swappable(
    change: DigitChange | None, tokenizer: Any, wordings: Sequence[Wording]
) -> list[Wording]:
    """The problems for which one of the same group has the change and another answer.

    May be empty.
    """
    by_length = lengthwise(tokenizer, wordings)
    if change is None:  # the answers of a group, once for all its problems
        answers = {key: {w.answer for w in of.values()} for key, of in by_length.groups.items()}
        return [w for w in wordings if len(answers[by_length.key(w)]) > 1]
    return [
        w for w in wordings if any(other.answer != w.answer for other in by_length.like(w, change))
    ]


def exchangeable(tokenizer: Any, wordings: Sequence[Wording]) -> list[Wording]:
    """The problems for which some other operator has another answer. May be empty.

    Raises:
        ValueError: no other operator has as many tokens as the template's own.
    """
    operations = set(_operators(tokenizer, wordings[0]).values())
    return [w for w in wordings if not all(_asks_for(w, name) for name in operations)]


NARROWED = {
    "operator": exchangeable,
    **{kind: partial(swappable, change) for kind, change in SWAPS.items()},
}
"""For each kind of counterfactual: the function that finds the problems which have one."""


def _other_operators(
    tokenizer: Any, references: Sequence[Reference], sources: Sources, rng: random.Random
) -> list[Iterator[Candidate]]:
    """Words and symbols of the operator's length for a calculation with another result."""
    candidates: dict[AnyTemplate, dict[str, str]] = {}
    queues: list[Iterator[Candidate]] = []
    for wording in (reference.wording for reference in references):
        if wording.template not in candidates:
            candidates[wording.template] = _operators(tokenizer, wording)
        asking = candidates[wording.template].items()
        words = [word for word, operation in asking if not _asks_for(wording, operation)]
        chosen = {word: candidates[wording.template][word] for word in shuffled(words, rng)}
        queues.append(_with_words(wording, chosen))
    return queues


def _asks_for(wording: Wording, operation: str) -> bool:
    """Whether another operation's result begins with the same token as the answer.

    For example, 4 * 3 = 12 and 5 / 4 = 1.25 both begin with 1.
    """
    wanted = wording.prefix + wording.answer
    result = Problem(operation, wording.problem.a, wording.problem.b).decimal(len(wanted))
    return result is not None and result.startswith(wanted)


def _operators(tokenizer: Any, wording: Wording) -> dict[str, str]:
    """Aligned operators, each with its operation. Raises ValueError if there is none."""
    template = wording.template
    words = other_operators(template) if isinstance(template, Template) else {}
    text, chars = wording.reference()
    rendered = _with_words(wording, words) if words else iter(())
    reference, *prompts = encode(tokenizer, [text, *(other.text for other in rendered)])
    operators = {
        word: words[word]
        for word, prompt in zip(words, prompts, strict=True)
        if aligned(reference, prompt, reference.token_span(chars["op"]))
    }
    if not operators:
        tried = f"tried {', '.join(words)}" if words else "no word of theirs can stand there"
        raise UnfitTemplate(
            template.name,
            f"expected another operation's word with as many tokens as the one of template "
            f"{template.name} under {tokenizer_name(tokenizer)} (counterfactual='operator'), found "
            f"none in {text!r} ({tried}); leave the template out: templates=[names]",
        )
    return operators


_QUEUES = {"word": _null_words, "operator": _other_operators}
_MORE = {
    "word": "give more null_words or null_symbols",
    "operator": "take another kind of counterfactual",
    **dict.fromkeys(SWAPS, "widen the operands"),
}


def _too_few(reference: Reference, n_aligned: int, draws: int, kind: str) -> str:
    return (
        f"expected draws={draws} aligned counterfactuals of {reference.text!r} (template "
        f"{reference.wording.template.name}), found {n_aligned} under this tokenizer; ask for "
        f"fewer draws, or {_MORE[kind]}"
    )
