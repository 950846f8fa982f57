"""Claims about tuning the strongest heads alone (section 5.3, Tables 1 and 5)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf
from typing import Any

import numpy as np

from arith_lens.answers import Answers, OverSeeds, change_over_seeds
from arith_lens.runs import Run
from experiments import results
from experiments.does_tuning_help import TuningMethod
from experiments.does_tuning_help.questions import generic_to_report, is_mathematics
from figures.claims.changes import over_draws
from figures.claims.claim import Measure, Measurement, Number, Within
from figures.claims.evidence import Evidence, NotMeasured

EXPERIMENT = "does_tuning_help"
Chosen = Callable[[Answers], list[bool]]


@dataclass(frozen=True)
class RowTrainings:
    """A row of a table: its trainings at the chosen rate, by seed."""

    names: tuple[str, ...]
    answers: tuple[Answers, ...]
    speeds: tuple[float, ...]
    """Training examples per second."""

    @classmethod
    def of(cls, run: Run, table: int, method: str, **more: int) -> "RowTrainings":
        """The row of a run's table. Raises NotMeasured if the table has no such row."""
        wanted: dict[str, Any] = {"method": method, **more}
        rates = results.CHOSEN_RATES.load(run, str(table)).rates
        rows = [row for row in rates if wanted.items() <= asdict(row).items()]
        if not rows:
            raise NotMeasured(f"table {table} of {run.path} has no row of {wanted}")
        facts = {name: results.TUNED_ANSWERS.facts(run, name) for name in results.trainings(run)}
        chosen = {
            name: of_training
            for name, of_training in facts.items()
            if (results.tuned_by(of_training), of_training["rate"]) == (rows[0], rates[rows[0]])
        }
        names = sorted(chosen, key=lambda name: chosen[name]["seed"])
        return cls(
            tuple(names),
            tuple(results.TUNED_ANSWERS.load(run, name) for name in names),
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


def _table(evidence: Evidence, table: int) -> tuple[Run, Answers]:
    run = evidence.run(EXPERIMENT, table=table)
    return run, results.UNTUNED_ANSWERS.load(run)


def _seeds(change: OverSeeds) -> str:
    return f"{len(change.per_seed)} seeds; interval over questions and seeds."


def _gain_of(method: TuningMethod, title: str, tasks: Chosen) -> Measure:
    """Measures what a method of Table 1 gains on some tasks."""

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        run, before = _table(evidence, 1)
        change = gain(before, RowTrainings.of(run, 1, method).answers, tasks)
        return Measurement((over_draws(title, change, rule),), _seeds(change))

    return measure


tuning_few_heads_gains = _gain_of("precise", "word problems", is_mathematics)
no_generic_loss = _gain_of("precise", "generic tasks", generic_to_report)
full_tuning_loses = _gain_of("full", "generic tasks", generic_to_report)


def as_much_as_full(evidence: Evidence, rule: Within) -> Measurement:
    """The gain less that of full tuning; beside it, both gains."""
    run, before = _table(evidence, 1)
    precise, full = (RowTrainings.of(run, 1, method).answers for method in ("precise", "full"))
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
    run, _ = _table(evidence, 1)
    precise, full = (RowTrainings.of(run, 1, method).speeds for method in ("precise", "full"))
    value, low, high, freedom = ratio(precise, full)
    number = Number(
        "examples a second, precise / full", value, low, high, "ratio", rule,
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


def more_mlps_trade(evidence: Evidence, rule: Within) -> Measurement:
    """What MLPs add to the gain in word problems, and take from generic tasks."""
    run, _ = _table(evidence, 5)
    few, *more = sorted({row.mlps for row in results.CHOSEN_RATES.load(run, "5").rates})
    if not more:
        raise NotMeasured(f"table 5 of {run.path} has one number of MLPs, {few}")
    without = RowTrainings.of(run, 5, "precise", mlps=few).answers
    numbers = []
    for n in more:
        beside, title = RowTrainings.of(run, 5, "precise", mlps=n).answers, f"{n} MLPs less {few}"
        groups = (is_mathematics, generic_to_report)
        gained, lost = (gain(without, beside, tasks) for tasks in groups)
        numbers.append(over_draws(f"{title}, word problems", gained, rule))
        numbers.append(over_draws(f"{title}, generic tasks", lost, Within(below=0)))
    return Measurement(tuple(numbers))
