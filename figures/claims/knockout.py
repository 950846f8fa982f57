"""Claims about what a knockout of the key heads changes (section 5.1, Appendix E)."""

import torch

from arith_lens.answers import Answers, over_seeds
from arith_lens.effects import key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from experiments import results
from figures.claims.answered import change, generic, relative_change, word_problems
from figures.claims.claim import Claim, Measurement, Number, Within
from figures.claims.estimate import per_operation
from figures.claims.evidence import Evidence, NotMeasured
from figures.claims.maps import NO_KEY

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
    run = evidence.run(CURVES)
    losses: dict[str, Number | None] = {}
    more_losses: list[Number] = []
    for name in FOUR:
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
    run = evidence.run(CURVES)
    changes = {name: _random(name, *_curves(run, name)) for name in FOUR}
    return per_operation(changes, missing=NO_KEY)


def _random(operation: str, n_key: int, curves: KnockoutCurves) -> Number | None:
    """The change of accuracy without random heads, as many as there are key heads.

    If this number was not tried, the next larger one is taken. The value is the mean over orders;
    the interval is over orders and prompts together.
    """
    orders = curves.starting("random ")
    if not n_key:
        return None
    ks = [k for k in orders[0].ks if k >= n_key] if orders else []
    if not ks:
        raise NotMeasured(f"{operation}: no random order goes as far as {n_key} heads")
    after = torch.stack([order.at(ks[0]).correct.float() for order in orders])
    lost = over_seeds(after - orders[0].at(0).correct.float())
    title = f"{operation} ({ks[0]} head{'s' * (ks[0] > 1)})"
    return Number(title, lost.mean, *lost.ci(), "points", MINOR)


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
    return Measurement(tuple(numbers))


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
        "number that was tried) changes accuracy by less than 2 points, mean over the orders.",
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
