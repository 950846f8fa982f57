"""Claims about where key heads look, and what MLPs read and write (section 5.2).

Where heads look: Figures 5, 7 and 16. What MLPs read and write, layer by layer: Figures 6, 13 and
14.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from arith_lens.attention import Patterns, kinds_of
from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.pairs import Role
from arith_lens.probes import DIGIT_CLASSES, curve_of, turning_points
from arith_lens.runs import Run
from experiments import results
from experiments.selection import LARGEST_OPERAND
from figures.claims.claim import Measure, Measurement
from figures.claims.estimates import estimate, measured, of_each, per_operation
from figures.claims.evidence import PROBES_EXPERIMENT, Evidence, NotMeasured
from figures.claims.heads import NAN, NO_KEY
from figures.tables.number import Number, Unit
from figures.verdicts import Finding, Within

ATTENTION_EXPERIMENT = "where_do_they_look"
Weights = Mapping[str, np.ndarray]
"""The weight on each role, [head]."""


def _key_looks(evidence: Evidence) -> dict[str, Effects | None]:
    """The attention of each operation's key heads, [head role pair]; None without key heads."""
    key_looks: dict[str, Effects | None] = {}
    for name, run in evidence.runs(ATTENTION_EXPERIMENT).items():
        looks = results.ROLE_ATTENTION.load(run, name)
        key = results.ROLE_ATTENTION.facts(run, name)["key"]
        labels: Any = looks.labels
        rows = [labels["head"].index(head) for head in key]
        key_looks[name] = None
        if key:
            own = {**labels, "head": tuple(key)}
            key_looks[name] = replace(looks, per_pair=looks.per_pair[rows], labels=own)
    return key_looks


def _of_looks(statistic: Callable[[Weights], float]) -> Measure:
    """Measures a statistic of the mean weights of each operation's key heads."""

    def of_operation(name: str, looks: Effects, rule: Within) -> Finding | None:
        labels = looks.labels or {}

        def by_role(means: np.ndarray) -> float:
            return statistic(dict(zip(labels["role"], means.T, strict=True)))

        return estimate(f"{name} ({', '.join(labels['head'])})", by_role, looks, rule=rule)

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        findings = {
            name: looks and of_operation(name, looks, rule)
            for name, looks in _key_looks(evidence).items()
        }
        return per_operation(findings, missing=NO_KEY)

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
        Finding(f"{kind} heads", Number(len(heads), unit="count"), rule)
        for kind, heads in kinds.items()
        if kind != "other"
    ]
    named = "; ".join(f"{kind}: {_where(heads) or 'none'}" for kind, heads in kinds.items())
    return Measurement(
        (*counted, Finding("neither", Number(len(kinds["other"]), unit="count"))), f"{named}."
    )


def _where(heads: Mapping[str, Sequence[str]]) -> str:
    """`5.5 (addition, division), 6.0 (multiplication)`."""
    return ", ".join(f"{head} ({', '.join(names)})" for head, names in heads.items())


def _patterns(evidence: Evidence, result: str, kind: str) -> Patterns:
    """Whole patterns of the strongest heads of one kind on a few prompts."""
    run = evidence.run(ATTENTION_EXPERIMENT)
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
    findings = []
    patterns = _patterns(evidence, "formats", "operand")
    for prompt, tokens, weights in zip(
        patterns.prompts, patterns.tokens, patterns.weights, strict=True
    ):
        digits = [any(sign.isdigit() for sign in token) for token in tokens]
        value = on_tokens(weights.double().numpy(), tokens, digits)
        findings.append(Finding(f"“{prompt.strip()}”", Number(value), rule))
    return Measurement(
        tuple(findings), f"Heads {', '.join(patterns.heads)}; single prompts, no intervals."
    )


def operator_words(evidence: Evidence, rule: Within) -> Measurement:
    """The weight on the word of the operation in each sentence."""
    patterns = _patterns(evidence, "words", "operator")
    findings = []
    for prompt, tokens, weights, word in zip(
        patterns.prompts, patterns.tokens, patterns.weights, differing(patterns.tokens), strict=True
    ):
        chosen = [i in range(word.start, word.stop) for i in range(len(tokens))]
        value = on_tokens(weights[:1].double().numpy(), tokens, chosen)
        findings.append(Finding(f"“{prompt.strip()}”", Number(value), rule))
    return Measurement(tuple(findings), f"Head {patterns.heads[0]}; single prompts, no intervals.")


C, A, B, C_NEIGHBOUR = (DIGIT_CLASSES.index(name) for name in ("C", "A", "B", "C±1"))


OTHER_DIGITS = {"mlp_in": "others without A, B, C", "write": "others without C"}
"""The digits whose curve is subtracted, because the curves of all digits rise together."""


def _probe(run: Run, operation: str, site: str) -> Effects:
    """The cosines; in multiplications and divisions those of problems whose C is neither A nor B.

    Raises:
        NotMeasured: there is no such problem.
    """
    probe = results.PROBE.load(run, operation, site)
    if operation not in LARGEST_OPERAND:
        return probe
    computed = results.PROBE.computed(run, operation, site)
    if computed is None or not computed.any():
        raise NotMeasured(f"{operation}: no problem is known to have a C that is neither A nor B")
    return probe.select(computed)


def _operands(run: Run, operation: str, *, less: bool = False) -> Effects:
    probe = _probe(run, operation, "mlp_in")
    return curve_of(probe, "A", "B", less=OTHER_DIGITS["mlp_in"] if less else None)


def _written(run: Run, operation: str, token: str = "C", *, less: bool = False) -> Effects:
    probe = _probe(run, operation, "write")
    return curve_of(probe, token, less=OTHER_DIGITS["write"] if less else None)


def smaller_turn(curve: np.ndarray) -> float:
    """The rise to the highest layer or the fall after it, whichever is smaller.

    It is a share of the curve's range.
    """
    top, spread = int(curve.argmax()), np.ptp(curve)
    turns = curve[top] - curve[: top + 1].min(), curve[top] - curve[top:].min()
    return float(min(turns) / spread) if spread else 0.0


def share_early(curve: np.ndarray, until: float = 12 / 32) -> float:
    """The mean absolute value in the first layers, as a share of the highest value."""
    early = np.arange(len(curve)) < until * len(curve)
    return float(np.abs(curve[early]).mean() / curve.max()) if curve.max() > 0 else NAN


def change_late(curve: np.ndarray, since: float = 17 / 32) -> float:
    """The change from a share of the depth to the last layer."""
    return float(curve[-1] - curve[int(since * len(curve))])


def inflections_apart(operands: np.ndarray, answer: np.ndarray) -> float:
    """Layers between the top of the operands' curve and half of the answer's rise."""
    first = turning_points(operands, "rise_and_fall")[1]
    second = turning_points(answer, "rise")[1]
    return NAN if first is None or second is None else float(abs(first - second))


def _each(
    curve: Callable[[Run, str], Effects],
    statistic: Callable[[np.ndarray], float],
    unit: Unit = "share",
) -> Measure:
    """Measures a statistic of each operation's curve."""

    def curves(evidence: Evidence) -> dict[str, tuple[Effects]]:
        run = evidence.run(PROBES_EXPERIMENT)
        return {name: (curve(run, name),) for name in FOUR}

    return of_each(curves, statistic, "a curve that rises", unit)


operands_absent_early = _each(_operands, share_early, "relative")
answer_rises = _each(_written, change_late, "ratio")
others_fall = _each(partial(_written, token="others without C"), change_late, "ratio")


def operands_rise_and_fall(evidence: Evidence, rule: Within) -> Measurement:
    """The smaller turn of the operands' curve; beside it, that of the curve less other digits."""
    run = evidence.run(PROBES_EXPERIMENT)
    numbers = {n: estimate(n, smaller_turn, _operands(run, n), rule=rule) for n in FOUR}
    less = (
        estimate(f"{name} less other digits", smaller_turn, _operands(run, name, less=True))
        for name in FOUR
    )
    return per_operation(numbers, [number for number in less if number], missing="a curve")


def turning_layers_agree(evidence: Evidence, rule: Within) -> Measurement:
    """How far apart the two curves turn; the note has the layers."""
    run = evidence.run(PROBES_EXPERIMENT)
    distances, layer_texts = {}, {False: [], True: []}
    for name in FOUR:
        for less, texts in layer_texts.items():
            curves = _operands(run, name, less=less), _written(run, name, less=less)
            means = [curve.mean().double().numpy() for curve in curves]
            operand_layer = turning_points(means[0], "rise_and_fall")[1]
            answer_layer = turning_points(means[1], "rise")[1]
            texts.append(f"{name} {operand_layer} and {answer_layer}")
            if not less:
                distances[name] = estimate(
                    name, inflections_apart, *curves, unit="layers", rule=rule, together=True
                )
    measurement = per_operation(distances, missing="an inflection of both curves")
    plain, less = (", ".join(texts) for texts in layer_texts.values())
    note = f"They turn at layers: {plain}; less other digits: {less}. {measurement.note}"
    return Measurement(measurement.findings, note.strip())


def for_good(shares: np.ndarray) -> int:
    """The first layer from which on C is written most in more than half of the pairs.

    This holds in all later layers too. If there is no such layer, it is the number of layers.
    """
    wins = shares[:, C] > 0.5
    return int(len(wins) - np.cumprod(wins[::-1]).sum())


def operands_before(shares: np.ndarray) -> float:
    """The largest share of A or B in a layer before C wins for good."""
    before = (shares[:, A] + shares[:, B])[: for_good(shares)]
    return float(before.max()) if len(before) else 0.0


def share_between(shares: np.ndarray, by_chance: float) -> float:
    """The mean share of C±1, less chance, in the layers between the operands' and C's."""
    end = for_good(shares)
    start = 1 + int((shares[:, A] + shares[:, B])[:end].argmax()) if end else 0
    between = shares[start:end, C_NEIGHBOUR]
    return float(between.mean()) - by_chance if len(between) else NAN


def answer_after(shares: np.ndarray) -> float:
    """Layers from the best one of operands and neighbours to the layer where C wins for good.

    Of the operands' and the neighbours' best layers, the later one counts. The number is negative
    if C never wins for good.
    """
    end = for_good(shares)
    best = max(int((shares[:, A] + shares[:, B]).argmax()), int(shares[:, C_NEIGHBOUR].argmax()))
    return float(end - best) if end < len(shares) else -float(len(shares))


def _winners(evidence: Evidence) -> tuple[Effects, Effects, str]:
    """Which digit wins in sums whose A, B, C and C±1 all differ, and how often by chance."""
    run = evidence.run(PROBES_EXPERIMENT)
    apart = torch.tensor(results.WINNERS.facts(run, "addition")["distinct_classes"])
    if not bool(apart.any()):
        raise NotMeasured("no sum has different A, B, C and C±1, so none tells them apart")
    won, chance = (
        stored.load(run, "addition").select(apart) for stored in (results.WINNERS, results.CHANCE)
    )
    layer = for_good(won.mean().double().numpy())
    start = f"from layer {layer} on" if layer < len(won.per_pair) else "never"
    note = f"Of {int(apart.sum())} sums whose A, B, C and C±1 differ. C wins for good {start}."
    return won, chance, note


def operands_first(evidence: Evidence, rule: Within) -> Measurement:
    """The largest share of A or B before C wins."""
    won, chance, note = _winners(evidence)
    number = estimate("A or B written most", operands_before, won, rule=rule)
    by_chance = float(chance.mean()[[A, B]].sum())
    return measured(number, missing="no layer", note=f"By chance {by_chance:.0%}. {note}")


def neighbours_between(evidence: Evidence, rule: Within) -> Measurement:
    """The share of C±1 between the operands' layers and C's."""
    won, chance, note = _winners(evidence)
    if operands_before(won.mean().double().numpy()) <= 0.5:
        raise NotMeasured(
            "A or B are written most in no more than half of the sums in any layer before C: "
            "nothing stands between"
        )
    statistic = partial(share_between, by_chance=float(chance.mean()[C_NEIGHBOUR]))
    title = "C±1 written most, less chance"
    number = estimate(title, statistic, won, rule=rule, unit="points")
    missing = "no layer is between the operands' and C's"
    return measured(number, missing=missing, note=note)


def answer_last(evidence: Evidence, rule: Within) -> Measurement:
    """How many layers C comes after the others."""
    won, _, note = _winners(evidence)
    title = "layers from the others' best one to C's"
    number = estimate(title, answer_after, won, rule=rule, unit="layers")
    return measured(number, missing="no layer", note=note)
