"""What Tables 1, 2 and 5 and the frontier share: reading a run of experiments/does_tuning_help.

The words of the tables are in `figures/tuning_words.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from arith_lens import plotting
from arith_lens.answers import Answers, OverSeeds, changes_by_question, over_seeds
from arith_lens.paper import PaperTuning, paper_model
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.does_tuning_help import (
    Criterion,
    TuningMethod,
    TuningRow,
    generic_to_report,
    is_mathematics,
)

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
Key = tuple[TuningMethod, int, int]
"""Method, number of heads, number of MLPs."""
Numbers = dict[str, Any]


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
    facts: tuple[results.TrainingFacts, ...]
    answers: tuple[Answers, ...] = field(repr=False)
    before: UntunedAnswers = field(repr=False)

    @property
    def title(self) -> str:
        """What was tuned, in words."""
        return title_of(self.key)

    @property
    def parameters(self) -> int:
        return self.facts[0]["parameters"]

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


def answers_before(run: Run) -> UntunedAnswers:
    """The answers before tuning. Raises RunError if the run has none."""
    return UntunedAnswers(results.UNTUNED_ANSWERS.load(run))


def groups(answers: Answers) -> dict[str, list[bool]]:
    """Which test questions are of mathematics and which of other tasks, if there are enough.

    Generic questions that choose a rate are in neither.
    """
    masks = {"word problems": is_mathematics(answers), "generic tasks": generic_to_report(answers)}
    return {name: mask for name, mask in masks.items() if sum(mask) >= MIN_QUESTIONS}


def tasks(answers: Answers) -> dict[str, list[bool]]:
    """The test questions of each task that has enough for an interval."""
    reports = [
        math or other
        for math, other in zip(is_mathematics(answers), generic_to_report(answers), strict=True)
    ]
    names = [
        _benchmark(task) if inside else ""
        for task, inside in zip(answers.task, reports, strict=True)
    ]
    return {
        name: [name_of_question == name for name_of_question in names]
        for name, count in Counter(names).items()
        if name and count >= MIN_QUESTIONS
    }


def _benchmark(task: str) -> str:
    """MMLU's subjects are one benchmark, and kinds within a task one task."""
    return "mmlu" if task.startswith("mmlu") else task.split("/")[0]


def by_rate(run: Run, keys: Collection[Key]) -> dict[Key, dict[float, TableRow]]:
    """Some settings of a run at each of their rates, the smallest first."""
    trained, before = _trainings(run), answers_before(run)
    return {
        key: {rate: _row(run, key, rate, trained[key][rate], before) for rate in sorted(rates)}
        for key, rates in trained.items()
        if key in keys
    }


def _trainings(run: Run) -> Mapping[Key, Mapping[float, Sequence[str]]]:
    """The names of the trainings of each setting at each rate."""
    names: dict[Key, dict[float, list[str]]] = {}
    for name in results.trainings(run):
        facts = results.TUNED_ANSWERS.facts(run, name)
        rates = names.setdefault(key_of(results.tuned_by(facts)), {})
        rates.setdefault(facts["rate"], []).append(name)
    return names


def key_of(tuned: TuningRow) -> Key:
    """What is tuned, as a key of rows."""
    return tuned.method, tuned.heads, tuned.mlps


def _row(run: Run, key: Key, rate: float, names: Sequence[str], before: UntunedAnswers) -> TableRow:
    ordered = tuple(sorted(names, key=lambda name: results.TUNED_ANSWERS.facts(run, name)["seed"]))
    return TableRow(
        key,
        rate,
        ordered,
        tuple(results.TUNED_ANSWERS.facts(run, name) for name in ordered),
        tuple(results.TUNED_ANSWERS.load(run, name) for name in ordered),
        before,
    )


def rows_at_chosen_rates(
    run: Run, table: int, criterion: Criterion = "mathematics"
) -> list[TableRow]:
    """A table's rows at the rates that were chosen for a purpose.

    Raises:
        RunError: the run does not have this table.
    """
    if not results.CHOSEN_RATES.is_in(run, str(table)):
        tables = ", ".join(map(results.CHOSEN_RATES.name, results.CHOSEN_RATES.labels(run)))
        raise RunError(
            f"expected table {table} in {run.path}, found {tables or 'none'}. Make it: python -m "
            f"experiments.{EXPERIMENT} --table {table} --model {run.config['model']}"
        )
    trained, before = _trainings(run), answers_before(run)
    chosen = results.CHOSEN_RATES.load(run, str(table)).rates_for(criterion)
    return [
        _row(run, key, rate, trained[key][rate], before)
        for key, rate in ((key_of(tuned), rate) for tuned, rate in chosen.items())
    ]


def rows_by_criterion(run: Run, table: int) -> dict[Criterion, list[TableRow]]:
    """A table's rows for each purpose that its rates were chosen for.

    Raises:
        RunError: the run does not have this table.
    """
    rows: dict[Criterion, list[TableRow]] = {"mathematics": rows_at_chosen_rates(run, table)}
    for criterion in results.CHOSEN_RATES.load(run, str(table)).criteria:
        if criterion not in rows:
            rows[criterion] = rows_at_chosen_rates(run, table, criterion)
    return rows


def without_rate(run: Run, table: int, criterion: Criterion) -> list[Key]:
    """The rows of a table for which no rate of the grid serves a purpose."""
    chosen = results.CHOSEN_RATES.load(run, str(table))
    rates = chosen.rates_for(criterion)
    return [key_of(tuned) for tuned in chosen.validation if tuned not in rates]


def rates_tried(run: Run, table: int) -> list[float]:
    """The rates that every row of a table was trained at."""
    return [*next(iter(results.CHOSEN_RATES.load(run, str(table)).validation.values()))]


def model_name(run: Run) -> str:
    """The model's name; for a directory, its last part."""
    name = run.config["model"]
    return Path(name).name if Path(name).is_absolute() else name


def row_numbers(row: TableRow, criterion: Criterion, paper: PaperTuning | None = None) -> Numbers:
    """A row of a table, for a program."""
    method, heads, mlps = row.key
    numbers: Numbers = {"chosen_for": criterion, "method": method, "heads": heads, "mlps": mlps}
    numbers |= {name: ", ".join(row.facts[0][name]) for name in ("which_heads", "which_mlps")}
    numbers |= {"parameters": row.parameters, "of": row.facts[0]["of"], "rate": row.rate}
    numbers |= {"samples_per_second": row.speed, "seeds": len(row.trainings)}
    numbers["seconds"] = sum(facts["seconds"] for facts in row.facts) / len(row.facts)
    for name, change in row.changes.items():
        numbers |= _numbered(name.replace(" ", "_"), row.before.accuracy[name], change)
    if paper is not None:
        numbers |= {f"paper_{name}": value for name, value in paper.accuracy.items()}
    return numbers


def task_numbers(row: TableRow, criterion: Criterion) -> list[Numbers]:
    """One line per task: its questions, accuracy before, change and interval."""
    method, heads, mlps = row.key
    lines: list[Numbers] = []
    for name in row.before.tasks:
        change = row.changes[name]
        line: Numbers = {"chosen_for": criterion, "method": method, "heads": heads, "mlps": mlps}
        line |= {"task": name}
        line |= {"questions": change.n_questions, "before": row.before.accuracy[name]}
        low, high = change.ci()
        lines.append(line | {"change": change.mean, "low": low, "high": high})
    return lines


def _numbered(name: str, before: float, change: OverSeeds) -> Numbers:
    low, high = change.ci()
    values: Numbers = {"before": before, "change": change.mean, "low": low, "high": high}
    values |= {"question_error": change.question_error, "seed_error": change.seed_error}
    values |= {"questions": change.n_questions}
    values["per_seed"] = " ".join(f"{value:+.4f}" for value in change.per_seed)
    return {f"{name}_{key}": value for key, value in values.items()}


def paper_rows(run: Run, table: int) -> dict[Key, PaperTuning]:
    """The paper's rows of this table by key; empty if the model is not the paper's."""
    paper = paper_model(run.config["model"])
    of_table = [] if paper is None else [row for row in paper.tunings if row.table == table]
    return {(cast(TuningMethod, row.method), row.heads, row.mlps): row for row in of_table}
