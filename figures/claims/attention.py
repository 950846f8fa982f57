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
from figures.claims.claim import Claim, Measurement, Number, Within
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


def _of_looks(of: Callable[[Weights], float], rule: Within) -> Callable[[Evidence], Measurement]:
    def measure(evidence: Evidence) -> Measurement:
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


def _kinds(evidence: Evidence) -> Measurement:
    kinds: dict[str, dict[str, list[str]]] = {"operand": {}, "operator": {}, "other": {}}
    for name, looks in _key_looks(evidence).items():
        for head, kind in (kinds_of(looks) if looks else {}).items():
            kinds[kind].setdefault(head, []).append(name)
    if not any(kinds.values()):
        raise NotMeasured(f"no operation has {NO_KEY}")
    counted = [
        Number(f"{kind} heads", len(heads), unit="count", rule=Within(above=0))
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


def _formats(evidence: Evidence) -> Measurement:
    numbers = []
    patterns = _patterns(evidence, "formats", "operand")
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        digits = [any(sign.isdigit() for sign in token) for token in tokens]
        value = on_tokens(weights.double().numpy(), tokens, digits)
        numbers.append(Number(f"“{prompt.strip()}”", value, rule=Within(above=0.5)))
    return Measurement(
        tuple(numbers), f"Heads {', '.join(patterns.heads)}; single prompts, no intervals."
    )


def _words(evidence: Evidence) -> Measurement:
    patterns = _patterns(evidence, "words", "operator")
    numbers = []
    for prompt, tokens, weights, word in zip(
        patterns.prompts, patterns.tokens, patterns.weights, differing(patterns.tokens), strict=True
    ):
        chosen = [i in range(word.start, word.stop) for i in range(len(tokens))]
        value = on_tokens(weights[:1].double().numpy(), tokens, chosen)
        numbers.append(Number(f"“{prompt.strip()}”", value, rule=Within(above=0.5)))
    return Measurement(tuple(numbers), f"Head {patterns.heads[0]}; single prompts, no intervals.")


CLAIMS = (
    Claim(
        key="looks_at_calculation",
        group="attention",
        statement="Key heads look at the operands and the operator.",
        section="abstract, 5.2, Figure 5",
        paper="a strong focus on tokens of operands or operators; no value",
        rule="In each operation that has key heads, more than half of the weight that they give "
        "from the last token to anything but BOS is on A, B and the operator (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=_of_looks(on_calculation, Within(above=0.5)),
    ),
    Claim(
        key="little_elsewhere",
        group="attention",
        statement="Key heads look little at anything else.",
        section="5.2, Figure 5",
        paper="minimal attention to tokens outside of the operands and operators; no value",
        rule="In each operation that has key heads, they give less than 10% of their weight to "
        "other words and the last token, BOS not counted among them (the 10% is ours).",
        experiments=(EXPERIMENT,),
        measure=_of_looks(elsewhere, Within(below=0.1)),
    ),
    Claim(
        key="two_kinds_of_heads",
        group="attention",
        statement="Some key heads look at the operands, others at the operator.",
        section="5.2, Figures 5, 7 and 16",
        paper="13.11 and 12.22 at operands, 14.2 and 11.8 at operators",
        rule="Over the operations there are key heads that give at least half of their weight "
        "outside BOS to A and B, and key heads that give it to the operator (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=_kinds,
    ),
    Claim(
        key="numbers_in_other_formats",
        group="attention",
        statement="Operand heads look at the numbers of other kinds of prompt too.",
        section="5.2, Figure 7",
        paper="primarily at number operands, in four prompts of unseen formats",
        rule="In each of four prompts of other formats, the strongest operand heads give more than "
        "half of their weight outside BOS to digits (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=_formats,
    ),
    Claim(
        key="operator_words",
        group="attention",
        statement="An operator head looks at the word of every operation.",
        section="F, Figure 16",
        paper="head 14.2 at plus, minus, times and over",
        rule="In one sentence with each of the four words, the strongest operator head gives more "
        "than half of its weight outside BOS to the word (the half is ours).",
        experiments=(EXPERIMENT,),
        measure=_words,
    ),
)
