"""The runs that claims are measured from: finished ones with the paper's settings."""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from pandas import DataFrame

from arith_lens.operations import FOUR
from arith_lens.runs import Run, RunError, find_runs
from experiments.finding import (
    NotComputed,
    RunSettings,
    experiment_command,
    find_run,
    weights_of,
)
from experiments.results import CHOSEN_RATES
from experiments.selection import LARGEST_OPERAND, TRAININGS_FOLDER
from figures.common import stored_rows, tables_of
from figures.options import GALLERY
from figures.tables import tuning
from figures.tables.table import QuestionTable, read_back

HEADS_EXPERIMENT, PROBES_EXPERIMENT = "which_heads", "what_do_mlps_add"
TUNING_EXPERIMENT = "does_tuning_help"


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
        self,
        model: str,
        roots: Sequence[Path],
        settings: RunSettings | None = None,
        *,
        computed: bool = True,
    ) -> None:
        self.model = model
        self.roots = tuple(roots)
        self.settings = settings or RunSettings.of_paper()
        self.computed = computed
        self._runs: dict[tuple[str, int | None, str], Run] = {}
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
        if key not in self._runs:
            self._runs[key] = self._find(*key)
        self._used[self._runs[key].path] = None
        return self._runs[key]

    def runs(self, experiment: str) -> dict[str, Run]:
        """The run that a claim about each operation rests on.

        In most multiplications and divisions of single digits, the answer equals an operand. So
        these operations have a run of computed problems, whose answer cannot be copied, unless
        `computed` is False.

        Raises:
            NotMeasured: one of the two runs is missing.
        """
        computed = set(LARGEST_OPERAND) if self.computed else set()
        problems = {name: "computed" if name in computed else "any" for name in FOUR}
        return {name: self.run(experiment, problems=kind) for name, kind in problems.items()}

    def table(self, question: HasTable, run: Run) -> QuestionTable:
        """The rows of a run, made once. `question` is a module of `figures.tables`."""
        key = (question.__name__, run.path)
        if key not in self._tables:
            self._tables[key] = question.table(run)
        return self._tables[key]

    def tuning(self, number: int) -> DataFrame:
        """The rows of a table of trainings; without a run, those of the table that ships.

        Raises:
            NotMeasured: there is neither; the error has the command that makes one.
        """
        try:
            run = self.run(TUNING_EXPERIMENT, table=number)
        except NotMeasured:
            if GALLERY not in self.roots:
                raise
            with suppress(NotComputed):
                of_tables = tables_of(TUNING_EXPERIMENT, self.model, self.settings, GALLERY)
                return stored_rows([of_tables], f"table{number}")
            raise
        key = (f"table {number}", run.path)
        if key not in self._tables:
            self._tables[key] = tuning.table(run, number)
        return read_back(self._tables[key])

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

        Other trainings of a shipped model's recipe are no other model.

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
                    return Evidence(name, self.roots, settings, computed=self.computed)
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
