"""Statistics of where key heads look, from the last token (Figures 5, 7 and 16).

Keys: operation; heads, in words; kind ("operand", "operator" or "other"); prompt.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from arith_lens.attention import Patterns, kinds_of
from arith_lens.effects import Effects
from arith_lens.pairs import Role
from arith_lens.runs import Run
from experiments import results
from figures.tables.attention import KINDS
from figures.tables.number import Number
from figures.tables.resampled import statistic_rows
from figures.tables.table import Row, row

Weights: TypeAlias = Mapping[str, np.ndarray]
"""The weight on each role, [head]."""
ON_CALCULATION = "share of the weight outside BOS on A, B and the operator"
ELSEWHERE = "mean weight on other words, blank tokens and END"
KIND = "operations in which a key head is of this kind"
ON_DIGITS, ON_WORD = "share of the weight on digits", "share of the weight on the word"


def key_looks(runs: Mapping[str, Run]) -> dict[str, Effects]:
    """The attention of the key heads of each operation that has some, [head role pair].

    Args:
        runs: the run of `where_do_they_look` of each operation.
    """
    looks_of: dict[str, Effects] = {}
    for name, run in runs.items():
        looks = results.ROLE_ATTENTION.load(run, name)
        key = results.ROLE_ATTENTION.facts(run, name)["key"]
        labels: Any = looks.labels
        rows = [labels["head"].index(head) for head in key]
        if key:
            own = {**labels, "head": tuple(key)}
            looks_of[name] = replace(looks, per_pair=looks.per_pair[rows], labels=own)
    return looks_of


def on_calculation(weights: Weights) -> float:
    """The share of the weight outside BOS that is on A, B and the operator."""
    weight = sum(weights[role].sum() for role in (Role.OPERAND_A, Role.OPERAND_B, Role.OPERATOR))
    return float(weight / (sum(w.sum() for w in weights.values()) - weights[Role.BOS].sum()))


def elsewhere(weights: Weights) -> float:
    """The mean weight of a head on other words, the blank token before B and END."""
    inside = (Role.BOS, Role.OPERAND_A, Role.OPERAND_B, Role.OPERATOR)
    outside = [weight for role, weight in weights.items() if role not in inside]
    return float(np.sum(outside, axis=0).mean())


STATISTICS: Mapping[str, Callable[[Weights], float]] = {
    ON_CALCULATION: on_calculation,
    ELSEWHERE: elsewhere,
}


def look_rows(measure: str, runs: Mapping[str, Run]) -> Iterator[Row]:
    """One of `STATISTICS` of the mean weights of each operation's key heads."""
    for name, looks in key_looks(runs).items():
        labels = looks.labels or {}

        def by_role(means: np.ndarray, roles: Sequence[str] = labels["role"]) -> float:
            return STATISTICS[measure](dict(zip(roles, means.T, strict=True)))

        heads = {name: ", ".join(labels["head"])}
        yield from statistic_rows(measure, by_role, {name: (looks,)}, heads)


def kind_rows(runs: Mapping[str, Run]) -> Iterator[Row]:
    """Each key head of each kind, with the operations in which it is of this kind."""
    kinds: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for name, looks in key_looks(runs).items():
        for head, kind in kinds_of(looks).items():
            kinds[kind].setdefault(head, []).append(name)
    for kind, heads in kinds.items():
        for head, names in heads.items():
            number = Number(len(names), unit="count")
            yield row(KIND, number, operation=", ".join(names), heads=head, kind=kind)


def on_tokens(weights: np.ndarray, tokens: Sequence[str], chosen: Sequence[bool]) -> float:
    """The share of END's weight outside BOS that is on the chosen tokens.

    Args:
        weights: [head query key]
    """
    from_end = weights[:, -1].sum(0)
    special = tokens[0].startswith("<") and tokens[0].endswith(">")
    return float(from_end[np.array(chosen)].sum() / from_end[int(special) :].sum())


def differing(prompts: Sequence[Sequence[str]]) -> list[slice]:
    """The position of the one word in which prompts differ, in each prompt."""
    start = next(i for i, row in enumerate(zip(*prompts, strict=False)) if len({*row}) > 1)
    backwards = zip(*(prompt[::-1] for prompt in prompts), strict=False)
    end = next(i for i, row in enumerate(backwards) if len({*row}) > 1)
    return [slice(start, len(prompt) - end) for prompt in prompts]


def digit_rows(patterns: Patterns) -> Iterator[Row]:
    """The share of the heads' weight that is on digits, in each prompt."""
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        digits = [any(sign.isdigit() for sign in token) for token in tokens]
        share = on_tokens(weights.double().numpy(), tokens, digits)
        yield row(ON_DIGITS, Number(share), heads=", ".join(patterns.heads), prompt=prompt)


def word_rows(patterns: Patterns) -> Iterator[Row]:
    """The share of the first head's weight on the one word in which the prompts differ."""
    for prompt, tokens, weights, word in zip(
        patterns.prompts, patterns.tokens, patterns.weights, differing(patterns.tokens), strict=True
    ):
        chosen = [i in range(word.start, word.stop) for i in range(len(tokens))]
        share = on_tokens(weights[:1].double().numpy(), tokens, chosen)
        yield row(ON_WORD, Number(share), heads=patterns.heads[0], prompt=prompt)
