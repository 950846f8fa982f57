"""Trainings of experiments/does_tuning_help at every rate, and the frontier, which draws them.

`figures/tuning_tables.py` has Tables 1, 2 and 5.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from pandas import DataFrame

from arith_lens import plotting
from arith_lens.answers import Answers, OverSeeds, changes_by_question, over_seeds
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.does_tuning_help import (
    MOST_LOST,
    Chosen,
    Criterion,
    TuningMethod,
    TuningRow,
    generic_to_report,
    is_mathematics,
)
from figures.common import Options, chosen_run, command_for_run
from figures.exhibit import Chart

EXPERIMENT = "does_tuning_help"
METHOD_NAMES: dict[TuningMethod, str] = {
    "full": "full",
    "precise": "precise",
    "lora": "LoRA",
    "random": "random heads",
}
METHOD_COLOURS = {
    "full": plotting.DARK,
    "precise": plotting.RED,
    "lora": plotting.BLUE,
    "random": plotting.OCHRE,
}
MIN_QUESTIONS = 2
"""Questions of a task or group; one question has no standard error."""
MOST_LOST_TEXT = f"at most {100 * MOST_LOST:g} points"
Key = tuple[TuningMethod, int, int]
"""Method, number of heads, number of MLPs."""


@dataclass(frozen=True)
class UntunedAnswers:
    """The answers before tuning, and which questions tables and figures show."""

    answers: Answers = field(repr=False)

    @cached_property
    def groups(self) -> dict[str, list[bool]]:
        """The questions of mathematics and of other tasks, as `groups`."""
        return groups(self.answers)

    @cached_property
    def tasks(self) -> dict[str, list[bool]]:
        """The questions of each task, as `tasks`."""
        return tasks(self.answers)

    @cached_property
    def accuracy(self) -> dict[str, float]:
        """The share of right answers of each group and task."""
        parts = {**self.groups, **self.tasks}
        return {name: self.answers.select(inside).accuracy for name, inside in parts.items()}


@dataclass(frozen=True)
class TableRow:
    """One setting at one rate: its trainings, one per seed."""

    key: Key
    rate: float
    trainings: tuple[str, ...]
    """The names of their results in the run."""
    run: Run = field(repr=False)
    before: UntunedAnswers = field(repr=False)

    @cached_property
    def facts(self) -> tuple[results.TrainingFacts, ...]:
        """What each training tuned, and its cost."""
        return tuple(results.TUNED_ANSWERS.facts(self.run, name) for name in self.trainings)

    @cached_property
    def answers(self) -> tuple[Answers, ...]:
        """The answers after each training."""
        return tuple(results.TUNED_ANSWERS.load(self.run, name) for name in self.trainings)

    @property
    def speed(self) -> float:
        """Training examples per second, mean over the trainings."""
        return sum(facts["samples_per_second"] for facts in self.facts) / len(self.facts)

    @cached_property
    def changes(self) -> dict[str, OverSeeds]:
        """The change of accuracy of each group and task."""
        every = changes_by_question(self.before.answers, self.answers)
        return {
            name: over_seeds(every[:, torch.tensor(inside)])
            for name, inside in {**self.before.groups, **self.before.tasks}.items()
        }


def title_of(key: Key) -> str:
    """What a row tunes, in words."""
    method, heads, mlps = key
    mlps_text = f" + {mlps} MLP{'s' * (mlps > 1)}" if mlps else ""
    count = f"{heads} head{'s' * (heads > 1)}{mlps_text}"
    return {
        "full": "full: all weights",
        "precise": f"precise: {count}",
        "lora": "LoRA: about as many parameters",
        "random": f"random: {count}",
    }[method]


def possible_ends(change: OverSeeds, before: float) -> tuple[float, float]:
    """The interval of a change of accuracy, cut where none or all answers would be right."""
    low, high = (min(max(end, -before), 1 - before) for end in change.ci())
    return low, high


def groups(answers: Answers) -> dict[str, list[bool]]:
    """Which test questions are of mathematics and which of other tasks, if there are enough.

    Generic questions that choose a rate are in neither.
    """
    masks = {"word problems": is_mathematics(answers), "generic tasks": generic_to_report(answers)}
    return {name: mask for name, mask in masks.items() if sum(mask) >= MIN_QUESTIONS}


def tasks(answers: Answers) -> dict[str, list[bool]]:
    """The test questions of each task that has enough for an interval.

    MMLU's subjects are one task, and kinds within a task are one task.
    """
    names = [
        ("mmlu" if task.startswith("mmlu") else task.split("/")[0]) if math or other else ""
        for task, math, other in zip(
            answers.task, is_mathematics(answers), generic_to_report(answers), strict=True
        )
    ]
    return {
        name: [name_of_question == name for name_of_question in names]
        for name, count in Counter(names).items()
        if name and count >= MIN_QUESTIONS
    }


def rows_by_rate(run: Run) -> dict[Key, dict[float, TableRow]]:
    """Each setting of a run at each of its rates, the smallest first."""
    before = UntunedAnswers(results.UNTUNED_ANSWERS.load(run))
    facts = {name: results.TUNED_ANSWERS.facts(run, name) for name in results.trainings(run)}
    names: dict[Key, dict[float, list[str]]] = {}
    for name in sorted(facts, key=lambda name: (facts[name]["rate"], facts[name]["seed"])):
        of_key = names.setdefault(_key(results.tuned_by(facts[name])), {})
        of_key.setdefault(facts[name]["rate"], []).append(name)
    return {
        key: {rate: TableRow(key, rate, tuple(same), run, before) for rate, same in rates.items()}
        for key, rates in names.items()
    }


def _key(tuned: TuningRow) -> Key:
    return tuned.method, tuned.heads, tuned.mlps


def chosen_rates(run: Run, table: int) -> Chosen:
    """The rows of a table and their rates. Raises RunError if the run does not have the table."""
    if not results.CHOSEN_RATES.is_in(run, str(table)):
        tables = ", ".join(map(results.CHOSEN_RATES.name, results.CHOSEN_RATES.labels(run)))
        raise RunError(
            f"expected table {table} in {run.path}, found {tables or 'none'}. Make it: "
            f"{command_for_run(run)} --table {table}"
        )
    return results.CHOSEN_RATES.load(run, str(table))


def rows_at_chosen_rates(
    run: Run, table: int, criterion: Criterion = "mathematics"
) -> list[TableRow]:
    """A table's rows at the rates that were chosen for a purpose.

    Raises:
        RunError: the run does not have this table.
    """
    rates, rows = chosen_rates(run, table).rates_for(criterion), rows_by_rate(run)
    return [rows[_key(tuned)][rate] for tuned, rate in rates.items()]


def rows_by_criterion(run: Run, table: int) -> dict[Criterion, list[TableRow]]:
    """A table's rows for each purpose that its rates were chosen for.

    Raises:
        RunError: the run does not have this table.
    """
    criteria: list[Criterion] = ["mathematics", *chosen_rates(run, table).criteria]
    return {name: rows_at_chosen_rates(run, table, name) for name in dict.fromkeys(criteria)}


def without_rate(run: Run, table: int, criterion: Criterion) -> list[Key]:
    """The rows of a table for which no rate of the grid serves a purpose."""
    chosen = chosen_rates(run, table)
    rates = chosen.rates_for(criterion)
    return [_key(tuned) for tuned in chosen.validation if tuned not in rates]


def frontier(options: Options) -> list[Chart]:
    """What each method gains in mathematics and loses elsewhere, at every rate of the grid.

    Reads a run of `experiments/does_tuning_help` (Table 1) and draws it without loading a model:
    HTML that opens offline, PNG, SVG and PDF where Chrome or Chromium is found, and the numbers as
    CSV.

    Raises:
        RunError: there is no run, or it lacks the table.
    """
    run = chosen_run(options, EXPERIMENT)
    chosen, every = rows_by_criterion(run, 1), rows_by_rate(run)
    methods = [[*every[row.key].values()] for row in chosen["mathematics"]]
    purposes: dict[tuple[Key, float], list[Criterion]] = {}
    for criterion, rows in chosen.items():
        for row in rows:
            purposes.setdefault((row.key, row.rate), []).append(criterion)
    notes = _notes(run, chosen)
    return [
        Chart(
            name="frontier",
            title="What tuning gains in mathematics against what it loses elsewhere",
            look="Up is better, right is better. A method whose line lies above another's gains "
            "more for the same loss, at whichever rate each is trained.",
            notes=notes,
            runs=(run,),
            numbers=DataFrame(record for rows in methods for record in _records(rows, purposes)),
            figure=plotting.trail_chart(
                [_trail(rows, purposes) for rows in methods],
                x_title="Generic tasks, change in points (square-root scale)",
                y_title="Word problems, change in points",
                root=True,
                notes=notes,
            ),
        )
    ]


Purposes = Mapping[tuple[Key, float], Collection[Criterion]]
"""What each rate of a method was chosen for; rates that were not chosen are left out."""


def _records(rows: Sequence[TableRow], purposes: Purposes) -> Iterator[dict[str, Any]]:
    """One line per rate: the mean of both changes in points, their intervals, and each seed's."""
    for row in rows:
        line: dict[str, Any] = {"method": row.key[0], "heads": row.key[1], "rate": row.rate}
        line["chosen_for"] = " ".join(purposes.get((row.key, row.rate), ()))
        line["seeds"] = len(row.trainings)
        for group in row.before.groups:
            name, change = group.replace(" ", "_"), row.changes[group]
            low, high = possible_ends(change, row.before.accuracy[group])
            line |= {name: 100 * change.mean, f"{name}_low": 100 * low, f"{name}_high": 100 * high}
            line[f"{name}_per_seed"] = " ".join(f"{100 * v:+.2f}" for v in change.per_seed)
        yield line


def _trail(rows: Sequence[TableRow], purposes: Purposes) -> plotting.Trail:
    """A method's rates: the means, with intervals where a rate has several trainings."""
    (y, y_ends), (x, x_ends) = (_points(rows, group) for group in rows[0].before.groups)
    method = rows[0].key[0]
    return plotting.Trail(
        x,
        y,
        tuple(f"{row.rate:.0e}".replace("e-0", "e-") for row in rows),
        METHOD_NAMES[method],
        METHOD_COLOURS[method],
        tuple(_mark(row, purposes.get((row.key, row.rate), ())) for row in rows),
        x_ends,
        y_ends,
    )


def _points(
    rows: Sequence[TableRow], group: str
) -> tuple[Float[np.ndarray, " rate"], Float[np.ndarray, "rate end=2"]]:
    """The mean change at each rate in points, and its interval, cut where none or all are right.

    A rate with one training has no interval (NaN).
    """
    share = rows[0].before.accuracy[group]
    changes = [row.changes[group] for row in rows]
    ends = [
        possible_ends(change, share) if len(change.per_seed) > 1 else (np.nan, np.nan)
        for change in changes
    ]
    return 100 * np.array([change.mean for change in changes]), 100 * np.array(ends)


def _mark(row: TableRow, purposes: Collection[Criterion]) -> plotting.TrailMark:
    if "mathematics" in purposes:
        return "ring"
    if purposes:
        return "square"
    return "point" if len(row.trainings) > 1 else "pale"


def _notes(run: Run, chosen: Mapping[Criterion, Sequence[TableRow]]) -> list[str]:
    """How to read the figure, and what it was made from."""
    config, rows = run.config, chosen["mathematics"]
    before = rows[0].before
    shares = ", ".join(
        f"{name} {before.accuracy[name]:.1%} of {sum(inside)}"
        for name, inside in before.groups.items()
    )
    heads = ", ".join(next((r.facts[0]["which_heads"] for r in rows if r.key[0] == "precise"), ()))
    seeds = sorted({len(row.trainings) for some in chosen.values() for row in some})
    lines = [
        f"Model: {config['model']}, before tuning {shares}. Beside each point its rate; "
        f"{config['examples'] or 'all'} word problems, {config['epochs']} "
        f"epoch{'s' * (config['epochs'] > 1)}. Precise: heads {heads}; LoRA has as many "
        "parameters.",
        f"Large marks: means of {' or '.join(map(str, seeds))} seeds with 95% intervals over "
        "questions and seeds (broad lines). Ring: the best rate for mathematics. "
        + f"Square: the best that loses {MOST_LOST_TEXT} on other generic questions. "
        * ("little_loss" in chosen)
        + "Small points: one training.",
    ]
    unmet = [key for criterion in chosen for key in without_rate(run, 1, criterion)]
    if unmet:
        lines.append(f"No rate loses {MOST_LOST_TEXT}: {'; '.join(map(title_of, unmet))}.")
    return lines
