"""Claims about what a knockout of the key heads changes (section 5.1, Appendix E)."""

from collections.abc import Callable

from arith_lens.answers import Answers
from arith_lens.effects import key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help.questions import generic, word_problems
from figures.claims.answered import change, relative_change
from figures.claims.claim import Claim, Measurement, Number, Within
from figures.claims.controls import answers_over_draws, change_over_draws, control_numbers
from figures.claims.effect_maps import NO_KEY
from figures.claims.estimate import per_operation
from figures.claims.evidence import Evidence, NotMeasured

CURVES, ELSEWHERE = "are_they_needed", "what_else_breaks"
OF_TABLE_4 = 10
"""How many heads the paper knocks out in Table 4; reported beside the key heads."""
MINOR = Within(above=-0.02, below=0.02)
SETS = {"key-in-some": "key heads of any operation", "strongest": "strongest heads"}


def _curves(run: Run, operation: str) -> tuple[int, KnockoutCurves]:
    """How many key heads an operation has, and its curves."""
    n_key = len(key_heads(results.MAP.load(run, operation)))
    return n_key, results.CURVES.load(run, operation)


def _lost(evidence: Evidence) -> Measurement:
    losses: dict[str, Number | None] = {}
    more_losses: list[Number] = []
    for name, run in evidence.runs(CURVES).items():
        k, curves = _curves(run, name)
        losses[name] = _loss(name, curves["effect"], k, Within(below=-0.6)) if k else None
        if OF_TABLE_4 in curves["effect"].ks:
            more_losses.append(_loss(name, curves["effect"], OF_TABLE_4))
    measurement = per_operation(losses, missing=NO_KEY)
    return Measurement((*measurement.numbers, *more_losses), measurement.note)


def _loss(operation: str, curve: KnockoutCurve, k: int, rule: Within | None = None) -> Number:
    """The relative loss of accuracy without the strongest k heads."""
    lost = curve.drop(k).accuracy
    which = f"{k} {'key' if rule else 'strongest'} head{'s' * (k > 1)}"
    return Number(f"{operation} ({which})", lost.relative, *lost.relative_ci, "%", rule)


def _spared(evidence: Evidence) -> Measurement:
    beside: list[Number] = []
    changes: dict[str, Number | None] = {}
    for name, run in evidence.runs(CURVES).items():
        numbers = _controls(name, *_curves(run, name))
        changes[name] = numbers[0] if numbers else None
        beside += numbers[1:]
    measurement = per_operation(changes, missing=NO_KEY)
    return Measurement((*measurement.numbers, *beside), measurement.note)


def _controls(operation: str, n_key: int, curves: KnockoutCurves) -> list[Number]:
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
    numbers = control_numbers(f"{operation} ({k} {heads})", changes, {"random": MINOR})
    if k in effect.ks:
        lost = effect.drop(k).accuracy
        own = Number(f"{operation} ({k} strongest {heads})", lost.absolute, *lost.absolute_ci,
                     "points")  # fmt: skip
        numbers.append(own)
    return numbers


def _elsewhere(run: Run, name: str) -> tuple[Answers, Answers]:
    """The answers before and after the knockout of a set of heads."""
    return results.ANSWERS.load(run, "none"), results.ANSWERS.load(run, name)


def _titled(run: Run, name: str) -> str:
    heads = results.ANSWERS.facts(run, name)["heads"]
    if not heads:
        raise NotMeasured(f"no operation has {NO_KEY}, so nothing was knocked out")
    return f"{SETS[name]} ({len(heads)})"


def _word_problems(evidence: Evidence) -> Measurement:
    run, numbers = evidence.run(ELSEWHERE), []
    for name, rule in zip(SETS, (Within(below=-0.5), None), strict=True):
        before, after = _elsewhere(run, name)
        chosen = word_problems(before)
        both = before.select(chosen), after.select(chosen)
        numbers.append(relative_change(_titled(run, name), *both, rule))
    before = _elsewhere(run, "strongest")[0]
    numbers += _controls_elsewhere(run, word_problems)
    right = before.select(word_problems(before)).accuracy
    return Measurement(tuple(numbers), f"Before: {right:.1%} right.")


def _generic(evidence: Evidence) -> Measurement:
    run, numbers = evidence.run(ELSEWHERE), []
    for name, rule in zip(SETS, (MINOR, None), strict=True):
        before, after = _elsewhere(run, name)
        chosen = generic(before)
        numbers.append(
            change(_titled(run, name), before.select(chosen), after.select(chosen), rule)
        )
    return Measurement((*numbers, *_controls_elsewhere(run, generic)))


def _controls_elsewhere(run: Run, questions: Callable[[Answers], list[bool]]) -> list[Number]:
    """The change without control heads, as many as the strongest ones, in points."""
    changes = {}
    for kind, (before, after) in results.control_answers(run).items():
        chosen = questions(before)
        after_chosen = [answers.select(chosen) for answers in after]
        changes[kind] = answers_over_draws(before.select(chosen), after_chosen)
    n = len(results.ANSWERS.facts(run, "strongest")["heads"])
    return control_numbers(f"{n} control heads", changes)


CLAIMS = (
    Claim(
        key="key_heads_needed",
        group="knockout",
        statement="Without the key heads, calculations are answered wrong.",
        section="1, 5.1, Table 4",
        paper="a decrease of around 70% in accuracy (-69% in Table 4)",
        rule="In each operation that has key heads, knocking them out loses over 60% of the "
        "accuracy (what Appendix D calls a significant loss).",
        experiments=(CURVES,),
        measure=_lost,
    ),
    Claim(
        key="random_heads_not_needed",
        group="knockout",
        statement="Without as many random heads, hardly an answer changes.",
        section="5.1, Figure 3",
        paper="a relatively minor effect, within 2%",
        rule="In each operation that has key heads, knocking out as many random heads (or the next "
        "number that was tried), drawn from all heads, changes accuracy by less than 2 points, "
        "mean over the draws. Heads of the same layers, and the strongest heads, are given beside.",
        experiments=(CURVES,),
        measure=_spared,
    ),
    Claim(
        key="transfer_to_word_problems",
        group="knockout",
        statement="Word problems are answered wrong without the key heads of bare calculations.",
        section="5.1",
        paper="-66.0% of the accuracy on SVAMP, aligned with the generated prompts",
        rule="Knocking out the heads that are key in any operation loses more than half of the "
        "accuracy on word problems (the half is ours).",
        experiments=(ELSEWHERE,),
        measure=_word_problems,
    ),
    Claim(
        key="generic_unchanged",
        group="knockout",
        statement="Generic tasks are answered as before without the key heads.",
        section="E",
        paper="-0.3 points on MMLU humanities (42.9 to 42.6)",
        rule="Knocking out the heads that are key in any operation changes accuracy on generic "
        "tasks by less than 2 points (what section 5.1 calls a minor effect).",
        experiments=(ELSEWHERE,),
        measure=_generic,
    ),
)
