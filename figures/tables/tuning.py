"""The table `tuning`: what each tuning gains in mathematics and loses elsewhere, at every rate.

Keys: method ("full", "precise", "lora" or "random"); n_heads and n_mlps, how many are tuned; rate;
chosen_for ("mathematics" or "little_loss"), what a rate is chosen for; group ("word problems" or
"generic tasks") and task ("all" for the whole group); component, a tuned one. Rows that compare two
settings have more keys (`figures.tables.tuning_gains`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from arith_lens.answers import Answers, OverSeeds, changes_by_question, over_seeds
from arith_lens.paper import paper_model
from arith_lens.runs import Run, RunError
from experiments import results
from experiments.does_tuning_help import (
    Criterion,
    SelectedRates,
    TuningMethod,
    TuningRow,
    generic_to_report,
    is_mathematics,
)
from figures.common import PAPER_TASK_NAMES, command_for_run
from figures.tables.answers import AFTER, ALL, BEFORE, CHANGE, CHANGE_BY_SEED, PLACE, change_number
from figures.tables.number import Number, over_draws
from figures.tables.table import QuestionTable, Row, row
from figures.tables.tuning_gains import UNTUNED, gain_rows, speed_row

Key = tuple[TuningMethod, int, int]
"""Method, number of heads, number of MLPs."""
MIN_QUESTIONS = 2
"""Questions of a task or group; one question has no standard error."""
CHOSEN_RATE, TRAININGS = "chosen rate", "trainings"
VALIDATION = "validation accuracy"
CHOOSING_CHANGE = "change of accuracy on the generic questions that choose"
PARAMETERS, OF_PARAMETERS = "trained parameters", "parameters of the model"
SPEED, SECONDS = "examples per second", "seconds of a training"
RANK, EXAMPLES, CUT, DOUBTFUL = "LoRA rank", "examples", "prompts cut", "doubtful questions"
PAPERS_BEFORE, PAPERS_AFTER = "the paper's accuracy before", "the paper's accuracy after"
PAPERS_PARAMETERS, PAPERS_SPEED = "the paper's parameters", "the paper's examples per second"


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
    def parts(self) -> dict[tuple[str, str], list[bool]]:
        """The questions of each group and of each of its tasks, as `parts_of`."""
        return parts_of(self.answers)

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
    def facts(self) -> tuple[Mapping[str, Any], ...]:
        """What each training tuned, and its cost."""
        return tuple(results.TUNED_ANSWERS.facts(self.run, name) for name in self.trainings)

    @cached_property
    def answers(self) -> tuple[Answers, ...]:
        """The answers after each training."""
        return tuple(results.TUNED_ANSWERS.load(self.run, name) for name in self.trainings)

    @cached_property
    def changes(self) -> dict[str, OverSeeds]:
        """The change of accuracy of each group and task."""
        every = changes_by_question(self.before.answers, self.answers)
        return {
            name: over_seeds(every[:, torch.tensor(inside)])
            for name, inside in {**self.before.groups, **self.before.tasks}.items()
        }


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


def parts_of(answers: Answers) -> dict[tuple[str, str], list[bool]]:
    """The questions of each group and of each of its tasks, by group and task."""
    of_tasks, parts = tasks(answers), {}
    for group, inside in groups(answers).items():
        parts[group, ALL] = inside
        for name, mask in of_tasks.items():
            if inside[mask.index(True)]:
                parts[group, name] = mask
    return parts


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


def chosen_rates(run: Run, table: int) -> SelectedRates:
    """The rows of a table and their rates. Raises RunError if the run does not have the table."""
    if not results.CHOSEN_RATES.is_in(run, str(table)):
        tables = ", ".join(map(results.CHOSEN_RATES.name, results.CHOSEN_RATES.labels(run)))
        raise RunError(
            f"expected table {table} in {run.path}, found {tables or 'none'}. Make it: "
            f"{command_for_run(run)} --table {table}"
        )
    return results.CHOSEN_RATES.load(run, str(table))


def table(run: Run, /, number: int = 1) -> QuestionTable:
    """The rows of a numbered table: of groups at every rate, of tasks at the chosen rates.

    Raises:
        RunError: the run does not have this table, or it is damaged.
    """
    chosen, every = chosen_rates(run, number), rows_by_rate(run)
    rows = [*_setting_rows(run, chosen, every), *_paper_rows(run, number)]
    for tuned in chosen.validation:
        rates = {chosen.rates_for(criterion).get(tuned) for criterion in chosen.criteria}
        for rate, one in every[_key(tuned)].items():
            rows += [*_cost_rows(one), *_changes(one, tasks=rate in rates)]
    for criterion in chosen.criteria:
        at_rates = [every[_key(tuned)][rate] for tuned, rate in chosen.rates_for(criterion).items()]
        rows += _gains(at_rates, number, criterion)
    return QuestionTable.of("tuning", str(run.config["model"]), rows)


def _gains(settings: Sequence[TableRow], number: int, criterion: Criterion) -> Iterator[Row]:
    """What each setting of a table gains beside the untuned model, and beside the table's base."""
    base = _base(settings, number)
    for one in settings:
        keys = {**_keys(one.key), "rate": one.rate, "chosen_for": criterion}
        yield from gain_rows(one.before.answers, one.answers, **keys, compared_with=UNTUNED)
        if base is None or one.key[0] != "precise" or one.key == base.key:
            continue
        keys["compared_with"] = " ".join(map(str, base.key))
        yield from gain_rows(base.answers, one.answers, **keys)
        speeds = [[facts["samples_per_second"] for facts in part.facts] for part in (one, base)]
        yield speed_row(*speeds, **keys)


def _base(settings: Sequence[TableRow], number: int) -> TableRow | None:
    """What a table compares with: full tuning, the paper's share of heads, or fewest MLPs."""
    if number == 1:
        return next((one for one in settings if one.key[0] == "full"), None)
    precise = [one for one in settings if one.key[0] == "precise"]
    if number == 5:
        return min(precise, key=lambda one: one.key[2], default=None)
    usual = next((one.key[1] for one in precise if one.key[2]), 0)
    return next((one for one in precise if one.key[1:] == (usual, 0)), None)


def _setting_rows(
    run: Run, chosen: SelectedRates, every: Mapping[Key, Mapping[float, TableRow]]
) -> Iterator[Row]:
    """What was asked before tuning, what is tuned, and at which rates."""
    first = next(iter(every[_key(next(iter(chosen.validation)))].values()))
    yield from _question_rows(run, first)
    for tuned in chosen.validation:
        facts = next(iter(every[_key(tuned)].values())).facts[0]
        keys = _keys(_key(tuned))
        counts = {PARAMETERS: facts["parameters"], OF_PARAMETERS: facts["of"]}
        rank = facts.get("lora_rank")
        if tuned.method == "lora" and rank is not None:
            counts[RANK] = rank
        for name, count in counts.items():
            yield row(name, Number(count, unit="count"), **keys)
        named = [*facts["which_heads"], *facts["which_mlps"]] if tuned.method == "precise" else []
        for place, name in enumerate(named, 1):
            yield row(PLACE, Number(place, unit="count"), **keys, component=name)
    yield from _rate_rows(chosen)


def _question_rows(run: Run, first: TableRow) -> Iterator[Row]:
    facts = results.UNTUNED_ANSWERS.facts(run)
    for (group, task), inside in first.before.parts.items():
        accuracy = first.before.accuracy[group if task == ALL else task]
        yield row(BEFORE, Number(accuracy, n=sum(inside)), group=group, task=task)
    for task, count in facts.get("cut", {}).items():
        yield row(CUT, Number(count, unit="count"), task=task)
    counts = {DOUBTFUL: facts.get("doubtful"), EXAMPLES: first.facts[0].get("n_examples")}
    for name, count in counts.items():
        if count:
            yield row(name, Number(count, unit="count"))


def _rate_rows(chosen: SelectedRates) -> Iterator[Row]:
    """What every rate was chosen by, and the chosen ones."""
    for tuned, accuracies in chosen.validation.items():
        for rate, accuracy in accuracies.items():
            yield row(VALIDATION, Number(accuracy), **_keys(_key(tuned)), rate=rate)
    for tuned, changes in chosen.generic.items():
        for rate, change in changes.items():
            number = Number(change, unit="points")
            yield row(CHOOSING_CHANGE, number, **_keys(_key(tuned)), rate=rate)
    for criterion in chosen.criteria:
        for tuned, rate in chosen.rates_for(criterion).items():
            keys = {**_keys(_key(tuned)), "rate": rate, "chosen_for": criterion}
            yield row(CHOSEN_RATE, Number(rate, unit="rate"), **keys)


def _paper_rows(run: Run, number: int) -> Iterator[Row]:
    """The accuracies, parameters and speeds of the paper's table of this number, for its models."""
    paper = paper_model(run.config["model"])
    if paper is None:
        return
    names = {short: name for name, short in PAPER_TASK_NAMES.items()}
    for task, percent in paper.before.items():
        yield row(PAPERS_BEFORE, Number(percent / 100), task=names.get(task, task))
    for one in paper.tunings:
        if one.table == number:
            keys = {"method": one.method, "n_heads": one.heads, "n_mlps": one.mlps}
            for task, percent in one.accuracy.items():
                yield row(PAPERS_AFTER, Number(percent / 100), **keys, task=names.get(task, task))
            yield row(PAPERS_PARAMETERS, Number(one.parameters, unit="count"), **keys)
            yield row(PAPERS_SPEED, Number(one.samples_per_second, unit="per second"), **keys)


def _keys(key: Key) -> dict[str, str | int]:
    method, heads, mlps = key
    return {"method": method, "n_heads": heads, "n_mlps": mlps}


def _cost_rows(one: TableRow) -> Iterator[Row]:
    keys = {**_keys(one.key), "rate": one.rate}
    yield row(TRAININGS, Number(len(one.trainings), unit="count"), **keys)
    speeds = [facts["samples_per_second"] for facts in one.facts]
    yield row(SPEED, over_draws(speeds, unit="per second", what="trainings"), **keys)
    seconds = [facts["seconds"] for facts in one.facts]
    yield row(SECONDS, over_draws(seconds, unit="seconds", what="trainings"), **keys)


def _changes(one: TableRow, *, tasks: bool) -> Iterator[Row]:
    """The accuracies after tuning and their changes: of the groups, and of their tasks."""
    for group, task in one.before.parts:
        if task != ALL and not tasks:
            continue
        name = group if task == ALL else task
        keys = {**_keys(one.key), "rate": one.rate, "group": group, "task": task}
        before, change = one.before.accuracy[name], one.changes[name]
        yield row(AFTER, Number(before + change.mean, n=change.n_questions), **keys)
        yield row(CHANGE, change_number(change, before), **keys)
        if task == ALL and len(change.per_seed) > 1:
            by_seed = over_draws([*change.per_seed], unit="points", what="seeds")
            yield row(CHANGE_BY_SEED, by_seed, **keys)
