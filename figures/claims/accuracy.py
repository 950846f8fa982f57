"""Claims about how often the answer is right after the model was changed.

Key heads are knocked out (section 5.1, Appendices D and E), or the strongest heads alone are tuned
(section 5.3, Tables 1 and 5). Beside a knockout there are two kinds of control heads: heads drawn
from all heads of the model, and heads of the same layers as the heads that the claim is about,
drawn from all heads but these.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf

import numpy as np
import torch

from arith_lens.answers import Answers, OverSeeds, change_over_seeds
from arith_lens.effects import Effects, key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves, OutcomeChange, Outcomes
from arith_lens.knockout.outcomes import drop
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import TuningMethod, generic, generic_to_report, is_mathematics
from figures.claims.claim import Measure, Measurement, Number, Unit, Within
from figures.claims.evidence import Evidence, NotMeasured, estimate, per_operation
from figures.claims.heads import NAN, NO_KEY, wording_title
from figures.tuning import EXPERIMENT as TUNING_EXPERIMENT
from figures.tuning import TableRow, rows_at_chosen_rates

KNOCKOUT_EXPERIMENT, TRANSFER_EXPERIMENT = "are_they_needed", "what_else_breaks"
POWERS_EXPERIMENT, WORD_PROBLEMS_EXPERIMENT = "do_powers_use_them", "do_word_problems_use_them"
OF_TABLE_4 = 10
"""How many heads the paper knocks out in Table 4; reported beside the key heads."""
HEAD_SET_NAMES = {"key-in-some": "key heads of any operation", "strongest": "strongest heads"}
"""Sets of heads; the first one decides."""
CONTROL_NAMES = {"random": "random of all heads", "matched": "random of the same layers"}


def answers_change(
    of: str, before: Answers, after: Answers, unit: Unit, rule: Within | None = None
) -> Number:
    """The change of accuracy; resamples draw the same questions.

    Args:
        of: the number's name.
        before, after: answers to the same questions.
        unit: "points", or "%" for a share of the accuracy before.
        rule: of the number.

    Raises:
        NotMeasured: there is no question, or no answer was right before and the share needs one.
    """

    def change(right: np.ndarray) -> float:
        if unit == "points":
            return right[1] - right[0]
        return right[1] / right[0] - 1 if right[0] else NAN

    number = None
    if len(before):
        before.change_to(after)  # refuses other questions
        both = Effects(torch.stack([before.correct, after.correct]).float(), ("run",), "correct")
        number = estimate(of, change, both, rule=rule, unit=unit)
    if number is None:
        raise NotMeasured(f"{of}: none of {len(before)} questions was answered right before")
    return number


def relative_loss(of: str, change: OutcomeChange, rule: Within | None = None) -> Number:
    """A change of accuracy as a share of the accuracy before."""
    return Number(of, change.relative, *change.relative_ci, "%", rule)


def over_draws(of: str, change: OverSeeds, rule: Within | None = None) -> Number:
    """A change of accuracy in points, mean over draws or seeds."""
    return Number(of, change.mean, *change.ci(), "points", rule, freedom=change.freedom)


def change_over_draws(before: Outcomes, after: Sequence[Outcomes]) -> OverSeeds:
    """The change of accuracy, mean over the draws; its errors are of draws and of problems."""
    changes = torch.stack([answers.correct.float() - before.correct.float() for answers in after])
    of_draws = Effects(changes, ("draw",), "change", **before.units)
    of_problems = Effects(changes.mean(0, keepdim=True), ("draw",), "change", **before.units)
    error = float(of_problems.stderr()[0])
    return OverSeeds(tuple(of_draws.mean().tolist()), error, before.n_pairs)


def control_numbers(
    of: str, changes: Mapping[str, OverSeeds], random: Within | None = None
) -> list[Number]:
    """The change of accuracy in points for each kind of control.

    Args:
        of: what the number is of, before the kind of control.
        changes: the change over draws, by the kind of control.
        random: the rule of heads drawn from all heads, if they decide something.
    """
    return [
        over_draws(
            f"{of}, {CONTROL_NAMES[kind]}, {len(change.per_seed)} draws",
            change,
            random if kind == "random" else None,
        )
        for kind, change in changes.items()
    ]


def _controls(
    of: str,
    before: Outcomes,
    draws: Mapping[str, Sequence[Outcomes]],
    random: Within | None = None,
) -> list[Number]:
    """`control_numbers` of outcomes by the kind of control; intervals over draws and problems."""
    changes = {kind: change_over_draws(before, after) for kind, after in draws.items()}
    return control_numbers(of, changes, random)


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
        n_key, curves = _curves(run, name)
        changes[name] = None
        if n_key:
            changes[name], *beside = _of_control_heads(name, n_key, curves, rule)
            other_numbers += beside
    return per_operation(changes, other_numbers, missing=NO_KEY)


def _of_control_heads(
    operation: str, n_key: int, curves: KnockoutCurves, rule: Within
) -> list[Number]:
    """The change of accuracy without control heads, as many as there are key heads.

    The first number is of heads drawn from all heads, and decides. The others are reported beside
    it: heads of the same layers, and the key heads themselves. If this number of heads was not
    tried, the next larger one is taken.
    """
    tried = {k for order in curves.starting("random ") for k in order.ks if k >= n_key}
    if not tried:
        raise NotMeasured(f"{operation}: no random order goes as far as {n_key} heads")
    k, effect = min(tried), curves["effect"]
    heads, draws = f"head{'s' * (k > 1)}", results.controls_at(curves, k)
    numbers = _controls(f"{operation} ({k} {heads})", effect.at(0), draws, rule)
    if k in effect.ks:
        lost, title = effect.drop(k).accuracy, f"{operation} ({k} strongest {heads})"
        numbers.append(Number(title, lost.absolute, *lost.absolute_ci, "points"))
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
    changes = {
        kind: change_over_seeds(plain, draws, questions(plain))
        for kind, (plain, draws) in results.control_answers(run).items()
    }
    return (*numbers, *control_numbers(f"{len(heads)} control heads", changes))


def powers_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads of powers."""
    run = evidence.run(POWERS_EXPERIMENT)
    losses: dict[str, Number | None] = {}
    other_numbers: list[Number] = []
    for name in results.KNOCKOUT_CURVES.labels(run):
        curves, title = results.KNOCKOUT_CURVES.load(run, name), wording_title(name)
        effect = curves["effect"]
        k = effect.ks[-1]
        losses[title] = None
        if k:
            losses[title] = relative_loss(f"{title} ({k} heads)", effect.drop(k).accuracy, rule)
            draws = results.controls_at(curves, k)
            other_numbers += _controls(f"{title}, without {k} heads", effect.at(0), draws)
    return per_operation(losses, other_numbers, missing=NO_KEY)


def _on_prompts(
    evidence: Evidence, heads: str, kinds: Sequence[str], rule: Within
) -> tuple[Number, ...]:
    """The relative loss on each kind of prompts without some heads, then without control heads."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    n, n_controls = len(results.OUTCOMES.facts(run, heads, kinds[0])["heads"]), run.config["heads"]
    losses, controls = [], []
    for kind in kinds:
        before, after = (results.OUTCOMES.load(run, label, kind) for label in ("none", heads))
        title, draws = f"{kind.replace('_', ' ')}, without", results.control_outcomes(run, kind)
        losses.append(relative_loss(f"{title} {n} heads", drop(before, after).accuracy, rule))
        controls += _controls(f"{title} {n_controls} heads", before, draws)
    return (*losses, *controls)


def word_problems_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the strongest heads of word problems."""
    return Measurement(_on_prompts(evidence, "word_problems", ("word_problems",), rule))


def common_heads_matter_in_both(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss on both kinds without the heads in common."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    if not results.OUTCOMES.facts(run, "overlap", "generated")["heads"]:
        raise NotMeasured("the two kinds of prompt have no strongest head in common")
    return Measurement(_on_prompts(evidence, "overlap", ("generated", "word_problems"), rule))


def _row(run: Run, table: int, method: TuningMethod, mlps: int | None = None) -> TableRow:
    """A row of a run's table, at its chosen rate; its answers are by seed."""
    for row in rows_at_chosen_rates(run, table):
        if row.key[0] == method and mlps in (None, row.key[2]):
            return row
    wanted = {"method": method} | ({} if mlps is None else {"mlps": mlps})
    raise NotMeasured(f"table {table} of {run.path} has no row of {wanted}")


def gain(
    before: Answers | Sequence[Answers],
    after: Sequence[Answers],
    chosen: Callable[[Answers], list[bool]],
) -> OverSeeds:
    """The change of accuracy on the chosen questions, over seeds.

    Args:
        before: one model that all are compared with, or one model per seed; then only the seeds
            that both sides have are used
        after: one model per seed
        chosen: which questions count

    Raises:
        NotMeasured: there are fewer than two such questions.
    """
    first = before if isinstance(before, Answers) else before[0]
    inside = chosen(first)
    if sum(inside) < 2:
        raise NotMeasured("fewer than two questions of this kind were asked")
    if not isinstance(before, Answers):
        n = min(len(before), len(after))
        before, after = before[:n], after[:n]
    return change_over_seeds(before, after, inside)


def _table_1(evidence: Evidence) -> tuple[Run, Answers]:
    """The run of Table 1, and the answers before tuning."""
    run = evidence.run(TUNING_EXPERIMENT, table=1)
    return run, results.UNTUNED_ANSWERS.load(run)


def _seeds(change: OverSeeds) -> str:
    return f"{len(change.per_seed)} seeds; interval over questions and seeds."


def _gain_of(method: TuningMethod, title: str, tasks: Callable[[Answers], list[bool]]) -> Measure:
    """Measures what a method of Table 1 gains on some tasks."""

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        run, before = _table_1(evidence)
        change = gain(before, _row(run, 1, method).answers, tasks)
        return Measurement((over_draws(title, change, rule),), _seeds(change))

    return measure


tuning_few_heads_gains = _gain_of("precise", "word problems", is_mathematics)
no_generic_loss = _gain_of("precise", "generic tasks", generic_to_report)
full_tuning_loses = _gain_of("full", "generic tasks", generic_to_report)


def as_much_as_full(evidence: Evidence, rule: Within) -> Measurement:
    """The gain less that of full tuning; beside it, both gains."""
    run, before = _table_1(evidence)
    precise, full = (_row(run, 1, method).answers for method in ("precise", "full"))
    less = gain(full, precise, is_mathematics)
    return Measurement(
        (
            over_draws("precise less full, word problems", less, rule),
            over_draws("precise", gain(before, precise, is_mathematics)),
            over_draws("full", gain(before, full, is_mathematics)),
        ),
        _seeds(less),
    )


def tuning_is_faster(evidence: Evidence, rule: Within) -> Measurement:
    """The ratio of the training examples per second."""
    run, _ = _table_1(evidence)
    precise, full = (
        [facts["samples_per_second"] for facts in _row(run, 1, method).facts]
        for method in ("precise", "full")
    )
    value, low, high, freedom = ratio(precise, full)
    title = "examples a second, precise / full"
    return Measurement(
        (Number(title, value, low, high, "ratio", rule, freedom=freedom),),
        "Trainings ran side by side; make bench-finetune times them alone.",
    )


def ratio(
    over: Sequence[float], under: Sequence[float]
) -> tuple[float, float | None, float | None, float]:
    """The ratio of geometric means, Welch's interval of its logarithm, and its degrees of freedom.

    There is no interval if either side has a single number.
    """
    from scipy.stats import t

    logs = [np.log(np.array(values)) for values in (over, under)]
    middle = float(logs[0].mean() - logs[1].mean())
    if min(map(len, logs)) < 2:
        return exp(middle), None, None, inf
    errors = [float(values.var(ddof=1)) / len(values) for values in logs]
    error = sum(errors)
    if not error:
        return exp(middle), exp(middle), exp(middle), inf
    squares = (
        variance**2 / (len(values) - 1) for variance, values in zip(errors, logs, strict=True)
    )
    freedom = error**2 / sum(squares)
    half = float(t.ppf(0.975, freedom)) * error**0.5
    return exp(middle), exp(middle - half), exp(middle + half), freedom


def more_mlps_trade(evidence: Evidence, rule: Within) -> Measurement:
    """What MLPs add to the gain in word problems, and take from generic tasks."""
    run = evidence.run(TUNING_EXPERIMENT, table=5)
    few, *more = sorted({row.mlps for row in results.CHOSEN_RATES.load(run, "5").rates})
    if not more:
        raise NotMeasured(f"table 5 of {run.path} has one number of MLPs, {few}")
    without = _row(run, 5, "precise", few).answers
    numbers = []
    for n in more:
        beside, title = _row(run, 5, "precise", n).answers, f"{n} MLPs less {few}"
        for tasks, chosen, bounds in (
            ("word problems", is_mathematics, rule),
            ("generic tasks", generic_to_report, Within(below=0)),
        ):
            change = gain(without, beside, chosen)
            numbers.append(over_draws(f"{title}, {tasks}", change, bounds))
    return Measurement(tuple(numbers))
