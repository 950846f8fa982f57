"""The runs that claims are measured from: the newest finished ones with the paper's settings."""

import shlex
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from arith_lens.operations import FOUR
from arith_lens.runs import Run, find_runs
from experiments.results import CHOSEN_RATES
from experiments.selection import (
    LARGEST_OPERAND,
    TRAININGS_FOLDER,
    SharedSettings,
    settings_text,
    weights_of,
)

HEADS_EXPERIMENT = "which_heads"


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
        self, model: str, roots: Sequence[Path], settings: SharedSettings | None = None
    ) -> None:
        self.model = model
        self.roots = tuple(roots)
        self.settings = settings or SharedSettings()
        self._found: dict[tuple[str, int | None, str], Run] = {}
        self._used: dict[Path, None] = {}

    def run(self, experiment: str, *, table: int | None = None, problems: str = "any") -> Run:
        """The newest finished run with these settings, from the first folder that has one.

        Args:
            experiment: the experiment's name
            table: a table of trainings that the run must have; None for any run
            problems: "any", or "computed" for the operations where most answers can be copied

        Raises:
            NotMeasured: there is no such run; the error has the command that makes one.
        """
        key = (experiment, table, problems)
        if key not in self._found:
            self._found[key] = self._find(experiment, table, problems)
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
        option = f" --table {table}" if table is not None else ""
        if problems == "computed":
            option += f" --problems computed --operations {' '.join(LARGEST_OPERAND)}"
        root = (
            "" if str(self.roots[0]) == "results" else f" --root {shlex.quote(str(self.roots[0]))}"
        )
        model = shlex.quote(self.model)
        return f"python -m experiments {experiment}{option} --model {model}{root}"

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
                same = own is not None and weights_of(run) == own  # another name of this checkpoint
                name = str(run.config.get("model") or self.model)
                other = (
                    name != self.model and not same and TRAININGS_FOLDER not in Path(name).parents
                )
                if other and not settings.differences(run):
                    return Evidence(name, self.roots, settings)
        raise NotMeasured(
            f"no finished run of {HEADS_EXPERIMENT} of another model than {self.model} under "
            f"{', '.join(map(str, self.roots))}",
            f"python -m experiments {HEADS_EXPERIMENT} --model ANOTHER",
        )

    def _find(self, experiment: str, table: int | None, problems: str) -> Run:
        refused: list[str] = []
        wanted = self.settings
        if problems == "computed":
            wanted = replace(wanted, problems=problems, operations=tuple(LARGEST_OPERAND))
        for root in self.roots:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                runs = find_runs(experiment, model=self.model, root=root)
            refused += [str(warning.message) for warning in caught]
            for run in runs:
                reason = settings_text(wanted.differences(run))
                if not reason and table is not None and not CHOSEN_RATES.is_in(run, str(table)):
                    reason = f"no {CHOSEN_RATES.name(str(table))}"
                if not reason:
                    weights = self.settings.weights or weights_of(run)
                    self.settings = replace(self.settings, weights=weights)
                    return run
                refused.append(f"{run.path} has {reason}")
        places = ", ".join(map(str, self.roots))
        why = f"no finished run of {experiment} of {self.model} under {places}"
        command = self.command(experiment, table, problems)
        raise NotMeasured("; ".join([why, *refused]), command)
