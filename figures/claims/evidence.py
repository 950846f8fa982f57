"""The runs that claims are measured from, and numbers with intervals from what they hold.

The runs are finished ones with the paper's settings. A number is a statistic of mean
effects. For its interval, the statistic is computed again for every resample.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Protocol

import numpy as np

from arith_lens.effects import Effects
from arith_lens.operations import FOUR
from arith_lens.runs import Run, RunError, find_runs
from arith_lens.statistics import resampled_means
from experiments.finding import (
    NotComputed,
    RunSettings,
    experiment_command,
    find_run,
    weights_of,
)
from experiments.results import CHOSEN_RATES
from experiments.selection import LARGEST_OPERAND, TRAININGS_FOLDER
from figures.claims.claim import Measure, Measurement
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import QuestionTable, n_problems
from figures.verdicts import Finding, Within

HEADS_EXPERIMENT, PROBES_EXPERIMENT = "which_heads", "what_do_mlps_add"
N_RESAMPLES = 1000
"""A p-value is at least 1 / 1001, so that one of up to 50 numbers can refute a claim."""


class HasTable(Protocol):
    """A module that makes the table of a question."""

    __name__: str

    def table(self, run: Run, /) -> QuestionTable: ...


class NotMeasured(Exception):
    """A claim cannot be measured; the message says what is missing."""

    def __init__(self, why: str, command: str = "") -> None:
        super().__init__(why)
        self.command = command


class Evidence:
    """The runs of one model under some folders. It remembers which runs were used.

    If the settings name no weights, all runs must have the weights of the first run that is used.
    """

    def __init__(
        self, model: str, roots: Sequence[Path], settings: RunSettings | None = None
    ) -> None:
        self.model = model
        self.roots = tuple(roots)
        self.settings = settings or RunSettings.of_paper()
        self._found: dict[tuple[str, int | None, str], Run] = {}
        self._used: dict[Path, None] = {}
        self._tables: dict[tuple[str, Path], QuestionTable] = {}

    def run(self, experiment: str, *, table: int | None = None, problems: str = "any") -> Run:
        """The finished run with these settings, from the first folder that has one.

        Args:
            experiment: the experiment's name
            table: a table of trainings that the run must have; None for any run
            problems: "any", or "computed" for the operations where most answers can be copied

        Raises:
            NotMeasured: there is no such run; the error has the command that makes one.
        """
        key = (experiment, table, problems)
        if key not in self._found:
            self._found[key] = self._find(*key)
        self._used[self._found[key].path] = None
        return self._found[key]

    def runs(self, experiment: str) -> dict[str, Run]:
        """The run that a claim about each operation rests on.

        In most multiplications and divisions of single digits, the answer equals an operand. So
        these operations have a run of computed problems, whose answer cannot be copied.

        Raises:
            NotMeasured: one of the two runs is missing.
        """
        problems = {name: "computed" if name in LARGEST_OPERAND else "any" for name in FOUR}
        return {name: self.run(experiment, problems=kind) for name, kind in problems.items()}

    def table(self, question: HasTable, run: Run) -> QuestionTable:
        """The rows of a run, made once. `question` is a module of `figures.tables`."""
        key = (question.__name__, run.path)
        if key not in self._tables:
            self._tables[key] = question.table(run)
        return self._tables[key]

    def note(self, used: Iterable[Path]) -> None:
        """Remember that these folders were used too."""
        self._used.update(dict.fromkeys(used))

    def take_used(self) -> tuple[Path, ...]:
        """The folders that were used since the last call."""
        used = tuple(self._used)
        self._used.clear()
        return used

    def command(self, experiment: str, table: int | None = None, problems: str = "any") -> str:
        """The command that makes a run of this experiment, with this table or these problems."""
        settings = self._settings(problems).values
        command = experiment_command(experiment, self.model, settings, self.roots[0])
        return command if table is None else f"{command} --table {table}"

    def another(self) -> "Evidence":
        """The evidence of the other model whose heads were looked at last.

        Other trainings of a shipped model's recipe are no other model: `figures seeds` shows them.

        Raises:
            NotMeasured: there is no run of another model.
        """
        own = weights_of(self.run(HEADS_EXPERIMENT))
        settings = replace(self.settings, weights=None)
        for root in self.roots:
            for run in find_runs(HEADS_EXPERIMENT, root=root):
                name = str(run.config.get("model") or self.model)
                if (
                    name != self.model
                    and (own is None or weights_of(run) != own)  # not this checkpoint's other name
                    and TRAININGS_FOLDER not in Path(name).parents
                    and not settings.differences(run)
                ):
                    return Evidence(name, self.roots, settings)
        raise NotMeasured(
            f"no finished run of {HEADS_EXPERIMENT} of another model than {self.model} under "
            f"{', '.join(map(str, self.roots))}",
            f"python -m experiments {HEADS_EXPERIMENT} --model ANOTHER",
        )

    def _settings(self, problems: str) -> RunSettings:
        if problems != "computed":
            return self.settings
        return self.settings.changed(problems=problems, operations=tuple(LARGEST_OPERAND))

    def _find(self, experiment: str, table: int | None, problems: str) -> Run:
        result = CHOSEN_RATES.name(str(table)) if table is not None else ""
        wanted = self._settings(problems)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                run = find_run(experiment, self.model, wanted, self.roots, result=result)
            except RunError as error:
                reason = error.reason if isinstance(error, NotComputed) else str(error)
                why = "; ".join([reason, *(str(warning.message) for warning in caught)])
                command = self.command(experiment, table, problems)
                raise NotMeasured(why, command) from error
        self.settings = replace(self.settings, weights=self.settings.weights or weights_of(run))
        return run


def estimate(
    of: str,
    statistic: Callable[..., float],
    *effects: Effects,
    unit: Unit = "share",
    rule: Within | None = None,
    together: bool = False,
) -> Finding | None:
    """A statistic of mean effects with its 95% percentile interval; None if it is NaN.

    Problems are drawn, each in all its wordings, and wordings are drawn too; where the effects do
    not know their problems, reference prompts are drawn within wordings. What the statistic
    chooses, such as the key heads, it chooses again in every resample. Resamples in which it is
    NaN are left out.

    Args:
        of: the number's name
        statistic: a function of one array of means, [*component], per element of `effects`
        effects: what the statistic is of
        unit, rule: of the number
        together: whether the effects have the same pairs, which are then drawn together
    """
    value = float(statistic(*(effect.mean().double().numpy() for effect in effects)))
    if isnan(value):
        return None
    drawn = [draw for draw in resampled(statistic, *effects, together=together) if not isnan(draw)]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist() if drawn else (None, None)
    n = n_problems(effects[0])
    number = Number(value, low, high, PROBLEMS, n, unit, resamples=tuple(drawn))
    return Finding(of, number, rule)


def resampled(statistic: Callable[..., float], *effects: Effects, together: bool) -> list[float]:
    """The statistic of each resample of the effects; empty if a single problem has no resamples."""
    drawn = [
        resampled_means(effect.sample(), slice(None), N_RESAMPLES, 0 if together else seed)
        .numpy()
        .reshape(*effect.per_pair.shape[:-1], N_RESAMPLES)
        for seed, effect in enumerate(effects)
    ]
    if any(np.isnan(effect).all() for effect in drawn):
        return []
    return [float(statistic(*(effect[..., i] for effect in drawn))) for i in range(N_RESAMPLES)]


def of_each(
    effects: Callable[[Evidence], Mapping[str, Sequence[Effects]]],
    statistic: Callable[..., float],
    missing: str,
    unit: Unit = "share",
) -> Measure:
    """Measures a statistic of the effects of each operation.

    Args:
        effects: by the number's name; those of one name have the same pairs
        statistic: a function of one array of means, [*component], per element of `effects`
        missing: what an operation without a number lacks
        unit: of the numbers
    """

    def measure(evidence: Evidence, rule: Within) -> Measurement:
        findings = {
            name: estimate(name, statistic, *parts, rule=rule, unit=unit, together=True)
            for name, parts in effects(evidence).items()
        }
        return per_operation(findings, missing=missing)

    return measure


def per_operation(
    findings: Mapping[str, Finding | None], beside: Sequence[Finding] = (), *, missing: str
) -> Measurement:
    """The numbers of several operations; a note names the operations without a number.

    Args:
        findings: by operation; None if it cannot be measured
        beside: numbers that are reported after them
        missing: what an operation without a number lacks, such as "key heads"

    Raises:
        NotMeasured: no operation has a number.
    """
    measured = tuple(finding for finding in findings.values() if finding is not None)
    without = [name for name, finding in findings.items() if finding is None]
    if not measured:
        raise NotMeasured(
            f"none of {', '.join(findings)} has {missing}, so there is nothing to look at"
        )
    note = f"Without {missing}: {', '.join(without)}." * bool(without)
    return Measurement((*measured, *beside), note)


def measured(
    finding: Finding | None, *beside: Finding | None, missing: str, note: str = ""
) -> Measurement:
    """A number without which the claim cannot be measured, and others as far as they exist.

    Raises:
        NotMeasured: the first number is None; `missing` says why.
    """
    if finding is None:
        raise NotMeasured(f"there is nothing to look at: {missing}")
    return Measurement((finding, *(other for other in beside if other)), note)
