"""Claims about how often the answer is right after the model was changed.

Key heads are knocked out (section 5.1, Appendices D and E), or the strongest heads alone are tuned
(section 5.3, Tables 1 and 5). Beside a knockout there are two kinds of control heads: heads drawn
from all heads of the model, and heads of the same layers as the heads that the claim is about,
drawn from all heads but these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, inf

import numpy as np
import torch

from arith_lens.answers import Answers, OverSeeds, change_over_seeds
from arith_lens.effects import Effects
from arith_lens.knockout import Outcomes, drop
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import TuningMethod, generic, generic_to_report, is_mathematics
from figures.claims.claim import Measure, Measurement
from figures.claims.estimates import estimate, per_operation
from figures.claims.evidence import Evidence, NotMeasured
from figures.claims.heads import NAN, NO_KEY, wording_title
from figures.tables import knockout
from figures.tables.answers import (
    CHANGE,
    RELATIVE_CHANGE,
    change_number,
    change_over_draws,
    change_rows,
)
from figures.tables.number import QUESTIONS, Number, Unit
from figures.tables.table import QuestionTable, n_problems
from figures.tables.tuning import TableRow, rows_at_chosen_rates
from figures.tuning import EXPERIMENT as TUNING_EXPERIMENT
from figures.verdicts import Finding, Within

KNOCKOUT_EXPERIMENT, TRANSFER_EXPERIMENT = "are_they_needed", "what_else_breaks"
POWERS_EXPERIMENT, WORD_PROBLEMS_EXPERIMENT = "do_powers_use_them", "do_word_problems_use_them"
OF_TABLE_4 = 10
"""How many heads the paper knocks out in Table 4; reported beside the key heads."""
OF_GREEDY = 4
"""How many heads a greedy order is compared at with the order by effect."""
HEAD_SET_NAMES = {"key-in-some": "key heads of any operation", "strongest": "strongest heads"}
"""Sets of heads; the first one decides."""
CONTROL_NAMES = {
    "random": "random of all heads",
    "matched": "random of the same layers",
    "same layers": "random of the same layers",
}


def answers_change(
    of: str, before: Answers, after: Answers, unit: Unit, rule: Within | None = None
) -> Finding:
    """The change of accuracy; resamples draw the same questions.

    Args:
        of: what the change is of.
        before, after: answers to the same questions.
        unit: "points", or "relative" for a share of the accuracy before.
        rule: of the change.

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
    return replace(number, number=replace(number.number, spread=QUESTIONS))


def relative_loss(of: str, before: Outcomes, after: Outcomes, rule: Within) -> Finding:
    """A change of accuracy as a share of the accuracy before."""
    n = n_problems(before.effects())
    rows = change_rows(drop(before, after).accuracy, n)
    return Finding(of, next(r.number for r in rows if r.measure == RELATIVE_CHANGE), rule)


def control_numbers(
    of: str, controls: Mapping[str, tuple[Number, int]], random: Within | None = None
) -> list[Finding]:
    """The change of accuracy in points for each kind of control, with how many draws it has.

    Args:
        of: what the number is of, before the kind of control.
        controls: the change, and the number of draws, by the order of control heads.
        random: the rule of heads drawn from all heads, if they decide something.
    """
    return [
        Finding(
            f"{of}, {CONTROL_NAMES[order]}, {draws} draws",
            number,
            random if order == "random" else None,
        )
        for order, (number, draws) in controls.items()
    ]


def _over_draws(change: OverSeeds, units: str = "questions") -> Number:
    """The change without control heads, mean over their draws."""
    return change_number(change, drawn="draws", units=units)


def _controls(of: str, before: Outcomes, draws: Mapping[str, list[Outcomes]]) -> list[Finding]:
    """`control_numbers` of outcomes by the kind of control; intervals over draws and problems."""
    changes = {
        kind: (_over_draws(change_over_draws(before, after), "problems"), len(after))
        for kind, after in draws.items()
    }
    return control_numbers(of, changes)


def key_heads_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads; beside it, without as many as in Table 4."""
    losses: dict[str, Finding | None] = {}
    others: list[Finding] = []
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        table = evidence.table(knockout, run)
        by_k = {
            int(row.keys["k"]): row.number
            for row in table.select(RELATIVE_CHANGE, operation=name, order="effect")
        }
        k = int(table.number(knockout.KEY_HEADS, operation=name).value)
        losses[name] = Finding(f"{name} ({_heads(k, 'key')})", by_k[k], rule) if k else None
        if OF_TABLE_4 in by_k:
            text = _heads(OF_TABLE_4, "strongest")
            others.append(Finding(f"{name} ({text})", by_k[OF_TABLE_4]))
        others += _greedy(table, name)
    return per_operation(losses, others, missing=NO_KEY)


def _greedy(table: QuestionTable, name: str) -> list[Finding]:
    """The accuracy without few heads: those that cost most when they are chosen one by one, and
    the strongest ones."""
    right = {
        order: row.number
        for order in ("iterative", "effect")
        for row in table.select("accuracy", operation=name, order=order, k=OF_GREEDY)
        if row.keys["components"] == "heads"
    }
    if len(right) < 2:
        return []
    titles = {"iterative": "chosen greedily", "effect": "strongest"}
    return [
        Finding(f"{name}, right without {OF_GREEDY} heads {titles[order]}", number)
        for order, number in right.items()
    ]


def _heads(k: int, kind: str = "") -> str:
    """`3 key heads`."""
    return f"{k} {kind} head{'s' * (k > 1)}".replace("  ", " ")


def random_heads_not_needed(evidence: Evidence, rule: Within) -> Measurement:
    """The change without as many random heads; beside it, without other sets of this size.

    The number of heads drawn from all heads decides. If as many heads as there are key heads were
    not tried, the next larger number is taken.
    """
    others: list[Finding] = []
    findings: dict[str, Finding | None] = {}
    for name, run in evidence.runs(KNOCKOUT_EXPERIMENT).items():
        table = evidence.table(knockout, run)
        n_key = table.number(knockout.KEY_HEADS, operation=name).value
        findings[name] = None
        if not n_key:
            continue
        changes = [*table.select(CHANGE, operation=name)]
        tried = {row.keys["k"] for row in changes if row.keys["order"] == "random"}
        k = min((k for k in tried if k >= n_key), default=None)
        if k is None:
            raise NotMeasured(f"{name}: no random order goes as far as {n_key:.0f} heads")
        at_k = {row.keys["order"]: row for row in changes if row.keys["k"] == k}
        strongest = at_k.pop("effect", None)
        controls = {order: (row.number, row.keys["draws"]) for order, row in at_k.items()}
        findings[name], *beside = control_numbers(f"{name} ({_heads(k)})", controls, rule)
        if strongest:
            title = f"{name} ({_heads(k, 'strongest')})"
            beside.append(Finding(title, strongest.number))
        others += [*beside, *_many_random(table, name)]
    return per_operation(findings, others, missing=NO_KEY)


def _many_random(table: QuestionTable, name: str) -> list[Finding]:
    """The change without as many random heads as in Table 4: mean over the draws, worst draw."""
    keys = {"operation": name, "components": "heads", "order": "random", "k": OF_TABLE_4}
    changes, right = ([*table.select(measure, **keys)] for measure in (CHANGE, "accuracy"))
    whole = [*table.select("accuracy", **{**keys, "order": "effect", "k": 0})]
    if not (changes and right and whole) or right[0].number.low is None:
        return []
    title = f"{name} ({_heads(OF_TABLE_4)})"
    draws = changes[0].keys["draws"]
    worst = Number(right[0].number.low - whole[0].number.value, unit="points")
    mean = control_numbers(title, {"random": (changes[0].number, draws)})
    return [*mean, Finding(f"{title}, the worst of {draws} draws", worst)]


def transfer_to_word_problems(evidence: Evidence, rule: Within) -> Measurement:
    """The relative change on word problems, without each set of heads."""
    findings = _elsewhere(evidence, is_mathematics, "relative", rule)
    before = results.ANSWERS.load(evidence.run(TRANSFER_EXPERIMENT), "none")
    right = before.select(is_mathematics(before)).accuracy
    return Measurement(findings, f"Before: {right:.1%} right.")


def generic_unchanged(evidence: Evidence, rule: Within) -> Measurement:
    """The change in points on generic tasks, without each set of heads."""
    return Measurement(_elsewhere(evidence, generic, "points", rule))


def _elsewhere(
    evidence: Evidence, questions: Callable[[Answers], list[bool]], unit: Unit, rule: Within
) -> tuple[Finding, ...]:
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
        kind: (_over_draws(change_over_seeds(plain, draws, questions(plain))), len(draws))
        for kind, (plain, draws) in results.control_answers(run).items()
    }
    return (*numbers, *control_numbers(f"{len(heads)} control heads", changes))


def powers_need_heads(evidence: Evidence, rule: Within) -> Measurement:
    """The relative loss without the key heads of powers."""
    run = evidence.run(POWERS_EXPERIMENT)
    losses: dict[str, Finding | None] = {}
    other_numbers: list[Finding] = []
    for name in results.KNOCKOUT_CURVES.labels(run):
        curves, title = results.KNOCKOUT_CURVES.load(run, name), wording_title(name)
        effect = curves["effect"]
        k = effect.ks[-1]
        losses[title] = None
        if k:
            losses[title] = relative_loss(f"{title} ({k} heads)", effect.at(0), effect.at(k), rule)
            draws = results.controls_at(curves, k)
            other_numbers += _controls(f"{title}, without {k} heads", effect.at(0), draws)
    return per_operation(losses, other_numbers, missing=NO_KEY)


def _on_prompts(
    evidence: Evidence, heads: str, kinds: Sequence[str], rule: Within
) -> tuple[Finding, ...]:
    """The relative loss on each kind of prompts without some heads, then without control heads."""
    run = evidence.run(WORD_PROBLEMS_EXPERIMENT)
    n, n_controls = len(results.OUTCOMES.facts(run, heads, kinds[0])["heads"]), run.config["heads"]
    losses, controls = [], []
    for kind in kinds:
        before, after = (results.OUTCOMES.load(run, label, kind) for label in ("none", heads))
        title, draws = f"{kind.replace('_', ' ')}, without", results.control_outcomes(run, kind)
        losses.append(relative_loss(f"{title} {n} heads", before, after, rule))
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
        return Measurement((Finding(title, change_number(change), rule),), _seeds(change))

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
            Finding("precise less full, word problems", change_number(less), rule),
            Finding("precise", change_number(gain(before, precise, is_mathematics))),
            Finding("full", change_number(gain(before, full, is_mathematics))),
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
        (Finding(title, Number(value, low, high, unit="ratio", freedom=freedom), rule),),
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
    findings = []
    for n in more:
        beside, title = _row(run, 5, "precise", n).answers, f"{n} MLPs less {few}"
        for tasks, chosen, bounds in (
            ("word problems", is_mathematics, rule),
            ("generic tasks", generic_to_report, Within(below=0)),
        ):
            change = gain(without, beside, chosen)
            findings.append(Finding(f"{title}, {tasks}", change_number(change), bounds))
    return Measurement(tuple(findings))
