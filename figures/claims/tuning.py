"""Claims about tuning the strongest heads alone (section 5.3, Tables 1 and 5)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf
from typing import Any

import numpy as np

from arith_lens.answers import Answers, OverSeeds, change_over_seeds
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help.questions import generic_to_report, word_problems
from figures.claims.claim import Claim, Measurement, Number, Within
from figures.claims.evidence import Evidence, NotMeasured

EXPERIMENT = "does_tuning_help"
Chosen = Callable[[Answers], list[bool]]
UNCHANGED = Within(above=-0.02)


@dataclass(frozen=True)
class Tuned:
    """A row of a table: its trainings at the chosen rate, by seed."""

    names: tuple[str, ...]
    answers: tuple[Answers, ...]
    speeds: tuple[float, ...]
    """Training examples per second."""

    @classmethod
    def of(cls, run: Run, table: int, method: str, **more: int) -> "Tuned":
        """The row of a run's table. Raises NotMeasured if the table has no such row."""
        wanted: dict[str, Any] = {"method": method, **more}
        rates = results.TABLE.load(run, str(table)).rates
        rows = [row for row in rates if wanted.items() <= asdict(row).items()]
        if not rows:
            raise NotMeasured(f"table {table} of {run.path} has no row of {wanted}")
        facts = {name: results.TRAINING.facts(run, name) for name in results.trainings(run)}
        chosen = {
            name: of_training
            for name, of_training in facts.items()
            if (results.tuned_by(of_training), of_training["rate"]) == (rows[0], rates[rows[0]])
        }
        names = sorted(chosen, key=lambda name: chosen[name]["seed"])
        return cls(
            tuple(names),
            tuple(results.TRAINING.load(run, name) for name in names),
            tuple(float(chosen[name]["samples_per_second"]) for name in names),
        )


def gain(
    before: Answers | Sequence[Answers], after: Sequence[Answers], chosen: Chosen
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
    if isinstance(before, Answers):
        return change_over_seeds(before, after, inside)
    n = min(len(before), len(after))
    return change_over_seeds(before[:n], after[:n], inside)


def _number(of: str, change: OverSeeds, rule: Within | None = None) -> Number:
    return Number(of, change.mean, *change.ci(), "points", rule, freedom=change.freedom)


def _table(evidence: Evidence, table: int) -> tuple[Run, Answers]:
    run = evidence.run(EXPERIMENT, table=table)
    return run, results.BEFORE.load(run)


def _gains(evidence: Evidence) -> Measurement:
    run, before = _table(evidence, 1)
    precise = gain(before, Tuned.of(run, 1, "precise").answers, word_problems)
    return Measurement((_number("word problems", precise, Within(above=0)),), _seeds(precise))


def _seeds(change: OverSeeds) -> str:
    return f"{len(change.per_seed)} seeds; interval over questions and seeds."


def _as_much(evidence: Evidence) -> Measurement:
    run, before = _table(evidence, 1)
    precise, full = (Tuned.of(run, 1, method).answers for method in ("precise", "full"))
    less = gain(full, precise, word_problems)
    return Measurement(
        (
            _number("precise less full, word problems", less, Within(above=-0.031)),
            _number("precise", gain(before, precise, word_problems)),
            _number("full", gain(before, full, word_problems)),
        ),
        _seeds(less),
    )


def _no_loss(evidence: Evidence) -> Measurement:
    run, before = _table(evidence, 1)
    change = gain(before, Tuned.of(run, 1, "precise").answers, generic_to_report)
    return Measurement((_number("generic tasks", change, UNCHANGED),), _seeds(change))


def _full_loses(evidence: Evidence) -> Measurement:
    run, before = _table(evidence, 1)
    change = gain(before, Tuned.of(run, 1, "full").answers, generic_to_report)
    return Measurement((_number("generic tasks", change, Within(below=-0.02)),), _seeds(change))


def _faster(evidence: Evidence) -> Measurement:
    run, _ = _table(evidence, 1)
    precise, full = (Tuned.of(run, 1, method).speeds for method in ("precise", "full"))
    value, low, high, freedom = ratio(precise, full)
    number = Number(
        "examples a second, precise / full", value, low, high, "ratio", Within(above=3),
        freedom=freedom,
    )  # fmt: skip
    return Measurement(
        (number,), "Trainings ran side by side; make bench-finetune times them alone."
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


def _more_mlps(evidence: Evidence) -> Measurement:
    run, _ = _table(evidence, 5)
    few, *more = sorted({row.mlps for row in results.TABLE.load(run, "5").rates})
    if not more:
        raise NotMeasured(f"table 5 of {run.path} has one number of MLPs, {few}")
    without = Tuned.of(run, 5, "precise", mlps=few).answers
    numbers = []
    for n in more:
        beside, title = Tuned.of(run, 5, "precise", mlps=n).answers, f"{n} MLPs less {few}"
        groups = (word_problems, generic_to_report)
        gained, lost = (gain(without, beside, tasks) for tasks in groups)
        numbers.append(_number(f"{title}, word problems", gained, Within(above=0)))
        numbers.append(_number(f"{title}, generic tasks", lost, Within(below=0)))
    return Measurement(tuple(numbers))


CLAIMS = (
    Claim(
        key="tuning_few_heads_gains",
        group="tuning",
        statement="Tuning the strongest heads alone improves mathematics.",
        section="5.3, Table 1",
        paper="+15 points on average over four benchmarks",
        rule="Accuracy on word problems rises.",
        experiments=(EXPERIMENT,),
        measure=_gains,
    ),
    Claim(
        key="as_much_as_full",
        group="tuning",
        statement="Tuning the strongest heads alone gains as much as tuning everything.",
        section="abstract, 5.3, Table 1",
        paper="matches or surpasses: +2.8, -3.1, +1.5 and +5.5 points beside full tuning (7B)",
        rule="The gain on word problems is at most 3.1 points below that of full tuning, the "
        "largest shortfall that the paper calls a match.",
        experiments=(EXPERIMENT,),
        measure=_as_much,
    ),
    Claim(
        key="no_generic_loss",
        group="tuning",
        statement="Tuning the strongest heads alone loses nothing on generic tasks.",
        section="abstract, 5.3, Table 1",
        paper="+0.4 and -0.2 points on MMLU and CSQA (7B)",
        rule="Accuracy on generic tasks falls by less than 2 points (what section 5.1 calls a "
        "minor effect).",
        experiments=(EXPERIMENT,),
        measure=_no_loss,
    ),
    Claim(
        key="full_tuning_loses",
        group="tuning",
        statement="Tuning everything on mathematics loses on generic tasks.",
        section="5.3, Table 1",
        paper="about -5 points on MMLU and CSQA",
        rule="Accuracy on generic tasks falls by more than 2 points (beyond what section 5.1 calls "
        "a minor effect).",
        experiments=(EXPERIMENT,),
        measure=_full_loses,
    ),
    Claim(
        key="tuning_is_faster",
        group="tuning",
        statement="Tuning the strongest heads alone is faster than tuning everything.",
        section="5.3, Table 1",
        paper="at least three times: 50 against 15 samples a second (7B)",
        rule="It sees more than three times as many training examples a second.",
        experiments=(EXPERIMENT,),
        measure=_faster,
    ),
    Claim(
        key="more_mlps_trade",
        group="tuning",
        statement="Tuning MLPs beside the heads gains more in mathematics and loses elsewhere.",
        section="5.3, G, Table 5",
        paper="GSM8K 27.4 to 29.2, MMLU 46.4 to 43.9 from no to all MLPs",
        rule="In each row with more MLPs than the fewest, word problems are answered better than "
        "in the row with the fewest, and generic tasks worse.",
        experiments=(EXPERIMENT,),
        measure=_more_mlps,
    ),
)
