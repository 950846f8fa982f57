"""Claims about what a knockout of the key heads changes (section 5.1, Appendix E)."""

from collections.abc import Callable

from arith_lens.answers import Answers, change_over_seeds
from arith_lens.effects import key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help.questions import generic, is_mathematics
from figures.claims.changes import (
    answers_change,
    change_over_draws,
    control_numbers,
    relative_loss,
)
from figures.claims.claim import Measurement, Number, Unit, Within
from figures.claims.effect_maps import NO_KEY
from figures.claims.estimate import per_operation
from figures.claims.evidence import Evidence, NotMeasured

KNOCKOUT_EXPERIMENT, TRANSFER_EXPERIMENT = "are_they_needed", "what_else_breaks"
OF_TABLE_4 = 10
"""How many heads the paper knocks out in Table 4; reported beside the key heads."""
HEAD_SET_NAMES = {"key-in-some": "key heads of any operation", "strongest": "strongest heads"}
"""Sets of heads; the first one decides."""


def _curves(run: Run, operation: str) -> tuple[int, KnockoutCurves]:
    """How many key heads an operation has, and its curves."""
    n_key = len(key_heads(results.MAP.load(run, operation)))
    return n_key, results.KNOCKOUT_CURVES.load(run, operation)


def key_heads_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads; beside it, without as many as in Table 4."""
    losses: dict[str, Number | None] = {}
    other_numbers: list[Number] = []
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        k, curves = _curves(run, name)
        losses[name] = _loss(name, curves["effect"], k, rule) if k else None
        if OF_TABLE_4 in curves["effect"].ks:
            other_numbers.append(_loss(name, curves["effect"], OF_TABLE_4))
    return per_operation(losses, other_numbers, missing=NO_KEY)


def _loss(operation: str, curve: KnockoutCurve, k: int, rule: Within | None = None) -> Number:
    """The relative loss of accuracy without the strongest k heads."""
    heads_text = f"{k} {'key' if rule else 'strongest'} head{'s' * (k > 1)}"
    return relative_loss(f"{operation} ({heads_text})", curve.drop(k).accuracy, rule)


def random_heads_not_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The change without as many random heads; beside it, without other sets of this size."""
    other_numbers: list[Number] = []
    changes: dict[str, Number | None] = {}
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        numbers = _controls(name, *_curves(run, name), rule)
        changes[name] = numbers[0] if numbers else None
        other_numbers += numbers[1:]
    return per_operation(changes, other_numbers, missing=NO_KEY)


def _controls(operation: str, n_key: int, curves: KnockoutCurves, rule: Within) -> list[Number]:
    """The change of accuracy without control heads, as many as there are key heads.

    The first number is of heads drawn from all heads, and decides. The others are reported beside
    it: heads of the same layers, and the key heads themselves. If this number of heads was not
    tried, the next larger one is taken. A number is the mean over draws; its interval is over draws
    and problems together.
    """
    if not n_key:
        return []
    tried = sorted({k for order in curves.starting("random ") for k in order.ks if k >= n_key})
    if not tried:
        raise NotMeasured(f"{operation}: no random order goes as far as {n_key} heads")
    k, effect = tried[0], curves["effect"]
    draws = results.controls_at(curves, k)
    changes = {kind: change_over_draws(effect.at(0), after) for kind, after in draws.items()}
    heads = f"head{'s' * (k > 1)}"
    numbers = control_numbers(f"{operation} ({k} {heads})", changes, rule)
    if k in effect.ks:
        lost = effect.drop(k).accuracy
        own = Number(f"{operation} ({k} strongest {heads})", lost.absolute, *lost.absolute_ci,
                     "points")  # fmt: skip
        numbers.append(own)
    return numbers


def transfer_to_word_problems(evidence: Evidence, rule: Within) -> Measurement:
    """The relative change on word problems, without each set of heads."""
    numbers = _elsewhere(evidence, is_mathematics, "%", rule)
    before = results.ANSWERS.load(evidence.run(TRANSFER_EXPERIMENT), "none")
    right = before.select(is_mathematics(before)).accuracy
    return Measurement(numbers, f"Before: {right:.1%} right.")


def generic_unchanged(evidence: Evidence, rule: Within) -> Measurement:
    """The change in points on generic tasks, without each set of heads."""
    return Measurement(_elsewhere(evidence, generic, "points", rule))


def _elsewhere(
    evidence: Evidence, questions: Callable[[Answers], list[bool]], unit: Unit, rule: Within
) -> tuple[Number, ...]:
    """The change on some questions without each set of heads, and without control heads."""
    run = evidence.run(TRANSFER_EXPERIMENT)
    before = results.ANSWERS.load(run, "none")
    chosen = questions(before)
    numbers = []
    for name, of_set in zip(HEAD_SET_NAMES, (rule, None), strict=True):
        heads, after = results.ANSWERS.facts(run, name)["heads"], results.ANSWERS.load(run, name)
        if not heads:
            raise NotMeasured(f"no operation has {NO_KEY}, so nothing was knocked out")
        both = before.select(chosen), after.select(chosen)
        numbers.append(
            answers_change(f"{HEAD_SET_NAMES[name]} ({len(heads)})", *both, unit, of_set)
        )
    changes = {}
    for kind, (plain, draws) in results.control_answers(run).items():
        changes[kind] = change_over_seeds(plain, draws, questions(plain))
    return (*numbers, *control_numbers(f"{len(heads)} control heads", changes))
