"""Claims about where key heads look (section 5.2, Figures 5, 7 and 16)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from arith_lens.attention import Patterns, kinds_of
from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.pairs import Role
from experiments import results
from figures.claims.claim import Measure, Measurement, Number, Within
from figures.claims.effect_maps import NO_KEY
from figures.claims.estimate import estimate, per_operation
from figures.claims.evidence import Evidence, NotMeasured

EXPERIMENT = "where_do_they_look"
Weights = Mapping[str, np.ndarray]
"""The weight on each role, [head]."""


def _key_looks(evidence: Evidence) -> dict[str, Effects | None]:
    """The attention of each operation's key heads, [head role pair]; None without key heads."""
    key_looks: dict[str, Effects | None] = {}
    for name, run in evidence.runs(EXPERIMENT).items():
        looks, key = (
            results.ROLE_ATTENTION.load(run, name),
            results.ROLE_ATTENTION.facts(run, name)["key"],
        )
        labels: Any = looks.labels
        rows = [labels["head"].index(head) for head in key]
        key_looks[name] = (
            Effects(
                looks.per_pair[torch.tensor(rows)],
                looks.axes,
                looks.metric,
                **looks.units,
                labels={**labels, "head": tuple(key)},
            )
            if key
            else None
        )
    return key_looks


def _by_role(looks: Effects, of: Callable[[Weights], float]) -> Callable[[np.ndarray], float]:
    """A statistic of weights by role, as a statistic of an array [head role]."""
    roles = (looks.labels or {})["role"]
    return lambda means: of({role: means[:, i] for i, role in enumerate(roles)})


def _of_looks(of: Callable[[Weights], float]) -> Measure:
    def measure(evidence: Evidence, rule: Within) -> Measurement:
        numbers = {
            name: looks
            and estimate(
                f"{name} ({', '.join((looks.labels or {})['head'])})",
                _by_role(looks, of),
                looks,
                rule=rule,
            )
            for name, looks in _key_looks(evidence).items()
        }
        return per_operation(numbers, missing=NO_KEY)

    return measure


def on_calculation(weights: Weights) -> float:
    """The share of the weight outside BOS that is on A, B and the operator."""
    weight = sum(weights[role].sum() for role in (Role.OPERAND_A, Role.OPERAND_B, Role.OPERATOR))
    return float(weight / (sum(w.sum() for w in weights.values()) - weights[Role.BOS].sum()))


def elsewhere(weights: Weights) -> float:
    """The mean weight of a head on other words, the blank token before B and END."""
    inside = (Role.BOS, Role.OPERAND_A, Role.OPERAND_B, Role.OPERATOR)
    outside = [weight for role, weight in weights.items() if role not in inside]
    return float(np.sum(outside, axis=0).mean())


looks_at_calculation = _of_looks(on_calculation)
little_elsewhere = _of_looks(elsewhere)


def two_kinds_of_heads(evidence: Evidence, rule: Within) -> Measurement:
    """How many heads look at the operands, at the operator, and at neither."""
    kinds: dict[str, dict[str, list[str]]] = {"operand": {}, "operator": {}, "other": {}}
    for name, looks in _key_looks(evidence).items():
        for head, kind in (kinds_of(looks) if looks else {}).items():
            kinds[kind].setdefault(head, []).append(name)
    if not any(kinds.values()):
        raise NotMeasured(f"no operation has {NO_KEY}")
    counted = [
        Number(f"{kind} heads", len(heads), unit="count", rule=rule)
        for kind, heads in kinds.items()
        if kind != "other"
    ]
    named = "; ".join(f"{kind}: {_where(heads) or 'none'}" for kind, heads in kinds.items())
    return Measurement(
        (*counted, Number("neither", len(kinds["other"]), unit="count")), f"{named}."
    )


def _where(heads: Mapping[str, Sequence[str]]) -> str:
    """`5.5 (addition, division), 6.0 (multiplication)`."""
    return ", ".join(f"{head} ({', '.join(names)})" for head, names in heads.items())


def _patterns(evidence: Evidence, result: str, kind: str) -> Patterns:
    """Whole patterns of the strongest heads of one kind on a few prompts."""
    run = evidence.run(EXPERIMENT)
    patterns = results.PATTERNS.load(run, result)
    of_kind = {
        head
        for name in FOUR
        for head, own in results.ROLE_ATTENTION.facts(run, name)["kinds"].items()
        if own == kind
    }
    if not of_kind.issuperset(patterns.heads):  # where there are none, the run has the strongest
        raise NotMeasured(f"no strong head of {evidence.model} is an {kind} head")
    return patterns


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


def numbers_in_other_formats(evidence: Evidence, rule: Within) -> Measurement:
    """The weight on digits in each prompt of another format."""
    numbers = []
    patterns = _patterns(evidence, "formats", "operand")
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        digits = [any(sign.isdigit() for sign in token) for token in tokens]
        value = on_tokens(weights.double().numpy(), tokens, digits)
        numbers.append(Number(f"“{prompt.strip()}”", value, rule=rule))
    return Measurement(
        tuple(numbers), f"Heads {', '.join(patterns.heads)}; single prompts, no intervals."
    )


def operator_words(evidence: Evidence, rule: Within) -> Measurement:
    """The weight on the word of the operation in each sentence."""
    patterns = _patterns(evidence, "words", "operator")
    numbers = []
    for prompt, tokens, weights, word in zip(
        patterns.prompts, patterns.tokens, patterns.weights, differing(patterns.tokens), strict=True
    ):
        chosen = [i in range(word.start, word.stop) for i in range(len(tokens))]
        value = on_tokens(weights[:1].double().numpy(), tokens, chosen)
        numbers.append(Number(f"“{prompt.strip()}”", value, rule=rule))
    return Measurement(tuple(numbers), f"Head {patterns.heads[0]}; single prompts, no intervals.")
