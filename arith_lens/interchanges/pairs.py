"""Pairs of problems for interchanges: one is answered, the other gives one variable's value."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from arith_lens.interchanges.causal import ANSWER, PLACES, CausalModel, problem_values
from arith_lens.options import check_choice, refuse_unknown_options, value_object
from arith_lens.pairs import (
    PromptPairs,
    UnfitTemplate,
    WordedTemplate,
    answer,
    choose_templates,
    shuffled,
)
from arith_lens.problems import Problem, all_problems

if TYPE_CHECKING:
    from pandas import DataFrame

HOLD_OUTS = ("problems", "digits", "templates")
SOURCES = ("other", "matched")
BATCH = 128
"""The number of prompts that run together in the filter."""


class TooFewPairs(ValueError):
    """A half lacks pairs with two values: they do not exist, or the model answers them wrong."""


@dataclass(frozen=True)
class Draw:
    """Which pairs are drawn."""

    templates: str | Sequence[str] = "operation"
    """As in `sample_pairs`, without stories."""
    sources: str = "other"
    """`"other"`: the source's own answer is another than the expected one. `"matched"`: the source
    differs in the digits of the variable's place alone, and its own answer is the expected one."""
    answers: Iterable[int] | None = None
    """The answers that both problems may have, such as `range(100)`; None: any."""
    shots: int = 0
    """The number of solved examples before each prompt. Both prompts of a pair have the same ones,
    as in `sample_pairs`."""


class DrawOptions(TypedDict, total=False):
    """The fields of `Draw`, as keyword arguments."""

    templates: str | Sequence[str]
    sources: str
    answers: Iterable[int] | None
    shots: int


@dataclass(frozen=True, eq=False)
class InterchangePairs:
    """Prompt pairs with the answer that is expected if one variable has the source's value.

    The reference prompt of `pairs` asks the base problem; its counterfactual asks the source.
    """

    pairs: PromptPairs
    causal: CausalModel
    variable: str
    expected: Int[Tensor, " pair"]
    """The token that the causal model expects after the interchange."""
    values: Int[Tensor, "pair base_source=2"]
    """The variable's value in both problems."""
    fit: Bool[Tensor, " pair"]
    """Whether a pair is of the half on which subspaces are fitted."""
    hold_out: str = "problems"
    """What the two halves do not share."""
    sources: str = "other"

    def __post_init__(self) -> None:
        self.causal.check(self.variable)
        for name in ("expected", "values", "fit"):
            if len(getattr(self, name)) != len(self.pairs):
                raise ValueError(
                    f"expected {name} of {len(self.pairs)} pairs, found "
                    f"{len(getattr(self, name))}; give one per pair"
                )

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, rows: Any) -> "InterchangePairs":
        """Some of the pairs: a slice, numbers or booleans."""
        chosen = torch.arange(len(self))[rows]
        parts = {name: getattr(self, name)[chosen] for name in ("expected", "values", "fit")}
        return replace(self, pairs=self.pairs[chosen], **parts)

    @property
    def test(self) -> Bool[Tensor, " pair"]:
        """Whether a pair is of the half on which subspaces are tested."""
        return ~self.fit

    @property
    def n_classes(self) -> int:
        """The number of distinct combinations of the variable's value and the answer's token."""
        base = torch.stack([self.values[:, 0], self.pairs.answer], dim=1)
        source = torch.stack([self.values[:, 1], self.pairs.counterfactual_answer], dim=1)
        return len(torch.cat([base, source]).unique(dim=0))

    def fitted_on(self, other: "InterchangePairs") -> "InterchangePairs":
        """The tested half of these pairs, with the fitted half of others.

        Raises:
            ValueError: the pairs are of another variable.
        """
        if (self.causal.name, self.variable) != (other.causal.name, other.variable):
            raise ValueError(
                f"expected pairs of one variable, found {self.causal} {self.variable} and "
                f"{other.causal} {other.variable}; draw both for the same"
            )
        fitted, tested = other[other.fit], self[self.test]
        parts = {
            name: torch.cat([getattr(fitted, name), getattr(tested, name)])
            for name in ("expected", "values", "fit")
        }
        return replace(tested, pairs=fitted.pairs + tested.pairs, **parts)

    def base_rates(self) -> dict[str, float]:
        """What can be reached without an interchange, on the tested half, as shares of pairs.

        `likeliest`: the most frequent expected answer; `base`: the base's own answer is the
        expected one; `source`: the source's own is; `value`: the most frequent value of a base.
        """
        tested = self[self.test]
        n = max(1, len(tested))

        def most(values: Tensor) -> float:
            return float(values.unique(return_counts=True)[1].max()) / n if len(values) else 0.0

        return {
            "likeliest": most(tested.expected),
            "base": float((tested.expected == tested.pairs.answer).sum()) / n,
            "source": float((tested.expected == tested.pairs.counterfactual_answer).sum()) / n,
            "value": most(tested.values[:, 0]),
        }

    def to_dataframe(self) -> "DataFrame":
        """One row per pair: that of `PromptPairs`, the expected token, values and half."""
        table: Any = self.pairs.to_dataframe()
        table["expected"] = self.expected.tolist()
        table[["base value", "source value"]] = self.values.tolist()
        table["half"] = ["fit" if fit else "test" for fit in self.fit.tolist()]
        return table

    def __repr__(self) -> str:
        n_fit = int(self.fit.sum())
        return (
            f"InterchangePairs({self.causal}, {self.variable}: {n_fit} to fit, "
            f"{len(self) - n_fit} to test, other {self.hold_out})"
        )


def interchange_pairs(
    model: Any,
    causal: CausalModel,
    variable: str = "ones_carry",
    *,
    operands: Iterable[int] = range(10, 100),
    n: int = 400,
    hold_out: str = "problems",
    seed: int = 0,
    **options: Unpack[DrawOptions],
) -> InterchangePairs:
    """Base and source problems whose interchange of one variable shows in the answer.

    The expected answer differs from both own answers (with `sources="matched"`, from the base's).
    Both prompts contain the digits that the base's answer and the expected one have in common; the
    token that is read is the first one in which they differ. Values of the variable and expected
    tokens take turns, so that none is frequent. Only pairs are kept of which the model answers both
    problems right; with a tokenizer in place of a model, all.

    Args:
        model: a model with a `.tokenizer`, or a tokenizer.
        causal: a causal model, which says what is expected.
        variable: the variable that the source decides.
        operands: the values of A and B.
        n: the number of pairs before the filter, half of them to fit and half to test.
        hold_out: what the halves do not share: `"problems"`, the `"digits"` of the variable's
            place, or `"templates"`.
        seed: of all draws.
        templates: names of templates, or a collection, as in `sample_pairs`.
        sources: `"other"` or `"matched"`.
        answers: the answers that both problems may have; None: any.
        shots: the number of solved examples before each prompt, the same before both of a pair.

    Raises:
        TooFewPairs: a half has no pairs, or none that the model answers right.
        KeyError: the causal model does not have the variable.
        ValueError: an unknown choice; no problems, or too few with such an answer; values of the
            variable that no problem has; one template to hold out from.
        TypeError: an option that does not exist.
    """
    refuse_unknown_options(interchange_pairs, options, Draw)
    draw = value_object(Draw, options)
    causal.check(variable)
    _check_choices(hold_out, draw.sources, n)
    rng = random.Random(seed)
    problems = [p for p in all_problems(causal.operation, operands) if max(p.a, p.b) < 1000]
    if draw.answers is not None:
        allowed = {*draw.answers}
        problems = [problem for problem in problems if problem.answer in allowed]
    worded = _worded_templates(model, causal, draw, problems)
    halves = _halves(causal, variable, problems, [*worded], hold_out, rng)
    parts: list[InterchangePairs] = []
    for fit, (own, names) in zip((True, False), halves, strict=True):
        for name, count in _shares(names, n // 2 if fit else n - n // 2):
            candidates = Candidates.of(causal, variable, own, worded[name], draw.sources)
            chosen = candidates.sampled(count, rng)
            if chosen:
                parts.append(_pairs_of(causal, variable, worded[name], chosen, fit))
    if {bool(part.fit[0]) for part in parts} != {True, False}:
        raise TooFewPairs(
            f"expected pairs of {causal}, {variable}, in both halves, found none in one of them: "
            "no base problem has a source with another value whose answer fits; widen the "
            "operands or answers, or hold out problems"
        )
    joined = _joined(parts)
    joined = replace(joined, hold_out=hold_out, sources=draw.sources)
    return joined if not hasattr(model, "cfg") else _answered(model, joined)


def _check_choices(hold_out: str, sources: str, n: int) -> None:
    choices = {"hold_out": (hold_out, HOLD_OUTS), "sources": (sources, SOURCES)}
    for name, (value, accepted) in choices.items():
        check_choice(name, value, accepted)
    if not isinstance(n, int) or n < 2:
        raise ValueError(f"expected n of at least 2 pairs, one for each half, found {n!r}")


def _worded_templates(
    model: Any, causal: CausalModel, draw: Draw, problems: Sequence[Problem]
) -> dict[str, WordedTemplate]:
    """The templates that fit the tokenizer, by name."""
    if not problems:
        raise ValueError(
            f"expected problems of {causal.operation} with these operands and answers, found "
            "none; widen them"
        )
    largest = max(problem.answer for problem in problems)
    answers = range(largest + 10 ** (len(str(largest)) - 1) + 1)
    worded: dict[str, WordedTemplate] = {}
    refused: list[UnfitTemplate] = []
    for template in choose_templates(causal.operation, draw.templates):
        try:
            worded[template.name] = WordedTemplate.of(
                model, template.name, problems, answers, draw.shots
            )
        except UnfitTemplate as error:
            refused.append(error)
    if not worded:
        raise refused[0]
    return worded


Half = tuple[list[Problem], list[str]]
"""Problems and names of templates."""


def _halves(
    causal: CausalModel,
    variable: str,
    problems: list[Problem],
    templates: list[str],
    hold_out: str,
    rng: random.Random,
) -> tuple[Half, Half]:
    if hold_out == "templates":
        if len(templates) < 2:
            raise ValueError(
                f"expected two templates or more to hold some out, found {', '.join(templates)}; "
                "give templates=, or hold out problems"
            )
        names = shuffled(templates, rng)
        middle = len(names) // 2
        mixed = shuffled(problems, rng)
        half = len(mixed) // 2
        return (mixed[:half], names[:middle]), (mixed[half:], names[middle:])
    if hold_out == "digits":
        first, second = _digit_halves(causal, variable, problems, rng)
    else:
        mixed = shuffled(problems, rng)
        first, second = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
    return (first, templates), (second, templates)


LEAST_SHARE, TRIES = 0.25, 500
"""In each half of the digits, each value of the variable has this share of the problems at least;
the number of splits that are tried."""


def _digit_halves(
    causal: CausalModel, variable: str, problems: list[Problem], rng: random.Random
) -> tuple[list[Problem], list[Problem]]:
    """Problems with both digits of the variable's place among five, and those with the others."""
    size = 10 ** PLACES.index(causal.places[variable] or PLACES[0])
    values = {problem: problem_values(causal, problem)[variable] for problem in problems}
    for _ in range(TRIES):
        chosen = {*shuffled(range(10), rng)[:5]}
        inside = [
            [p.a // size % 10 in chosen, p.b // size % 10 in chosen].count(True) for p in problems
        ]
        halves = tuple(
            [p for p, count in zip(problems, inside, strict=True) if count == wanted]
            for wanted in (2, 0)
        )
        if causal.places[variable] is None or all(_is_mixed(half, values) for half in halves):
            return halves[0], halves[1]
    raise ValueError(
        f"expected five digits with which {variable} has each of its values, and five others, "
        "found no such split of these operands; widen the operands, or hold out problems"
    )


def _is_mixed(problems: Sequence[Problem], values: dict[Problem, int]) -> bool:
    counts = [0, 0]
    for problem in problems:
        counts[values[problem] > 0] += 1
    return min(counts) >= LEAST_SHARE * max(1, len(problems))


def _shares(names: Sequence[str], n: int) -> list[tuple[str, int]]:
    """The number of pairs of each template."""
    return [(name, n // len(names) + (i < n % len(names))) for i, name in enumerate(names)]


Base = tuple[Problem, int, int, int]
"""A base, the value that its source must have, the number of tokens of the answer in the prompt,
and the expected token."""
InterchangeProblems = tuple[Problem, Problem, int, int]
"""Base, source, the number of tokens of the answer in the prompt, and the expected token."""


@dataclass(frozen=True)
class Candidates:
    """The bases of one half, and where their sources are."""

    causal: CausalModel
    variable: str
    worded: WordedTemplate
    sources: str
    values: dict[Problem, int]
    pools: dict[tuple[Any, ...], list[Problem]]
    """The problems with each value; with matched sources, also with the same other digits."""

    @classmethod
    def of(
        cls,
        causal: CausalModel,
        variable: str,
        problems: Sequence[Problem],
        worded: WordedTemplate,
        sources: str,
    ) -> "Candidates":
        """The problems of one half, by their value."""
        readable = [problem for problem in problems if problem.answer in worded.answers]
        values = {problem: problem_values(causal, problem)[variable] for problem in readable}
        candidates = cls(causal, variable, worded, sources, values, defaultdict(list))
        for problem, value in values.items():
            candidates.pools[(value, *candidates._common(problem))].append(problem)
        return candidates

    def _common(self, problem: Problem) -> tuple[int, ...]:
        """What a source must have in common with the base."""
        lengths = len(str(problem.a)), len(str(problem.b))
        place = self.causal.places[self.variable]
        if self.sources == "other" or place is None:
            return lengths
        size = 10 ** PLACES.index(place)
        others = (n - n // size % 10 * size for n in (problem.a, problem.b))
        return (*lengths, *others)

    def sampled(self, n: int, rng: random.Random) -> list[InterchangeProblems]:
        """Pairs, at most `n`: values and expected tokens take turns, and no base is used twice."""
        distinct = sorted({*self.values.values()})
        groups: dict[int, dict[int, list[Base]]] = defaultdict(lambda: defaultdict(list))
        for base in shuffled([*self.values], rng):
            others = [value for value in distinct if value != self.values[base]]
            target = others[int(rng.random() * len(others))] if others else self.values[base]
            if (read := self._read(base, target)) is not None:
                place, token = read
                value = self.values[base] if len(distinct) == 2 else 0
                groups[value][token].append((base, target, place, token))
        turns = [
            cycle(shuffled([by_token[token] for token in sorted(by_token)], rng))
            for _, by_token in sorted(groups.items())
        ]
        n_queues = max((len(by_token) for by_token in groups.values()), default=0)
        chosen: list[InterchangeProblems] = []
        while turns and len(chosen) < n:
            pairs = [self._of_turn(turn, n_queues, rng) for turn in turns]
            if None in pairs:  # one value more than the other would not be balanced
                break
            chosen += [pair for pair in pairs if pair is not None][: n - len(chosen)]
        return chosen

    def _of_turn(
        self, turn: Iterator[list[Base]], n_queues: int, rng: random.Random
    ) -> InterchangeProblems | None:
        """The next pair with a value, whatever its expected token; None: there is none left."""
        queues = (next(turn) for _ in range(n_queues))
        pairs = (self._next(queue, rng) for queue in queues)
        return next((pair for pair in pairs if pair is not None), None)

    def _read(self, base: Problem, target: int) -> tuple[int, int] | None:
        """Where the expected answer leaves the base's own, and its token there."""
        expected = self.causal.run(base.a, base.b, set={self.variable: target})[ANSWER]
        answers = self.worded.answers
        if expected not in answers or expected == base.answer:
            return None
        own, other = answers[base.answer].tokens, answers[expected].tokens
        places = [i for i, (x, y) in enumerate(zip(own, other, strict=False)) if x != y]
        return (places[0], other[places[0]]) if places else None

    def _next(self, queue: list[Base], rng: random.Random) -> InterchangeProblems | None:
        """The next base of a group that has a source."""
        while queue:
            base, target, place, token = queue.pop()
            pool = self.pools.get((target, *self._common(base)), [])
            for source in (pool[int(rng.random() * len(pool))] for _ in range(40 if pool else 0)):
                if self._fits(base, source, place, token):
                    return base, source, place, token
        return None

    def _fits(self, base: Problem, source: Problem, place: int, token: int) -> bool:
        own, other = (self.worded.answers[p.answer].tokens for p in (base, source))
        if len(other) <= place or other[:place] != own[:place] or other[place] == own[place]:
            return False
        return (other[place] == token) == (self.sources == "matched")


def _pairs_of(
    causal: CausalModel,
    variable: str,
    worded: WordedTemplate,
    chosen: Sequence[InterchangeProblems],
    fit: bool,
) -> InterchangePairs:
    problems = [(base, source) for base, source, _, _ in chosen]
    values = [[problem_values(causal, one)[variable] for one in pair] for pair in problems]
    return InterchangePairs(
        pairs=worded.pairs(problems, [place for _, _, place, _ in chosen]),
        causal=causal,
        variable=variable,
        expected=torch.tensor([token for *_, token in chosen]),
        values=torch.tensor(values),
        fit=torch.full((len(chosen),), fit),
    )


def _joined(parts: Sequence[InterchangePairs]) -> InterchangePairs:
    pairs = parts[0].pairs
    for part in parts[1:]:
        pairs = pairs + part.pairs
    tensors = {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in ("expected", "values", "fit")
    }
    return replace(parts[0], pairs=pairs, **tensors)


def _answered(model: Any, sampled: InterchangePairs) -> InterchangePairs:
    """The pairs of which the model answers both problems right."""
    sources = replace(sampled.pairs, answer=sampled.pairs.counterfactual_answer)
    right = answer(model, sampled.pairs, "reference", BATCH)[0]
    right &= answer(model, sources, "counterfactual", BATCH)[0]
    answered = sampled[right]
    if not (bool(answered.fit.any()) and bool(answered.test.any())):
        raise TooFewPairs(
            f"expected pairs in both halves of which the model answers both problems right, found "
            f"{int(right.sum())} of {len(right)} in all; give other operands or templates, or the "
            "model's tokenizer in place of the model, which keeps all"
        )
    return answered
