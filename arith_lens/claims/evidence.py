"""The runs that claims are measured from: the newest finished that ask the paper's question."""

import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arith_lens.problems import FOUR
from arith_lens.runs import Run, find_runs

ASKED: Mapping[str, Any] = {
    "paths": "via_mlps",
    "metric": "relative_logit",
    "keep": "correct",
    "pairs": None,
    "counterfactual": "word",
    "ablation": "mean",
    "final_norm": False,
}
"""The paper's question, of every experiment whose configuration has such a field."""


HEADS = "which_heads"


class NotMeasured(Exception):
    """There is nothing to measure a claim on: the message says what is missing."""

    def __init__(self, why: str, command: str = "") -> None:
        super().__init__(why)
        self.command = command


class Evidence:
    """The runs of one model under some roots; those that were used are noted."""

    def __init__(self, model: str, roots: Sequence[Path]) -> None:
        self.model = model
        self.roots = tuple(roots)
        self._found: dict[tuple[str, str], Run] = {}
        self._weights: str | None = None  # of the first run that was found
        self._used: dict[Path, None] = {}

    def run(self, experiment: str, *, result: str = "") -> Run:
        """The newest finished run that asks the paper's question, of the first root that has one.

        Args:
            result: a result that it must have, such as "table-1"; "" for any run.

        Raises:
            NotMeasured: there is none; with the command that would make one.
        """
        key = (experiment, result)
        if key not in self._found:
            self._found[key] = self._find(experiment, result)
        self._used[self._found[key].path] = None
        return self._found[key]

    def note(self, used: Iterable[Path]) -> None:
        """That these folders were used too."""
        self._used.update(dict.fromkeys(used))

    def _other_weights(self, run: Run) -> str:
        """That a run is of another checkpoint of this name than the first; "" where it is not."""
        other = {self._weights, _weights(run)} - {None}
        return "other weights than the runs before it" if len(other) > 1 else ""

    def take_used(self) -> tuple[Path, ...]:
        """The folders used since this was last called."""
        used = tuple(self._used)
        self._used.clear()
        return used

    def command(self, experiment: str, result: str = "") -> str:
        """What fills a run of this experiment, with this result."""
        table = f" --table {result.removeprefix('table-')}" if result.startswith("table-") else ""
        root = (
            "" if str(self.roots[0]) == "results" else f" --root {shlex.quote(str(self.roots[0]))}"
        )
        model = shlex.quote(self.model)
        return f"python -m experiments.{experiment}{table} --model {model}{root}"

    def another(self) -> "Evidence":
        """That of the model, other than this one, whose heads were looked at last.

        Raises:
            NotMeasured: there is no run of another model.
        """
        own = _weights(self.run(HEADS))
        for root in self.roots:
            for run in find_runs(HEADS, root=root):
                same = own is not None and _weights(run) == own  # another name of this checkpoint
                if run.config.get("model") not in (None, self.model) and not same:
                    return Evidence(run.config["model"], self.roots)
        raise NotMeasured(
            f"no finished run of {HEADS} of another model than {self.model} under "
            f"{', '.join(map(str, self.roots))}",
            f"python -m experiments.{HEADS} --model ANOTHER",
        )

    def _find(self, experiment: str, result: str) -> Run:
        refused: list[str] = []
        for root in self.roots:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                runs = find_runs(experiment, model=self.model, root=root)
            refused += [str(warning.message) for warning in caught]
            for run in runs:
                reason = _unlike(run) or self._other_weights(run)
                if not reason and result and result not in run.names:
                    reason = f"no {result}"
                if not reason:
                    self._weights = self._weights or _weights(run)
                    return run
                refused.append(f"{run.path} has {reason}")
        places = ", ".join(map(str, self.roots))
        why = f"no finished run of {experiment} of {self.model} under {places}"
        raise NotMeasured("; ".join([why, *refused]), self.command(experiment, result))


def _weights(run: Run) -> str | None:
    """The digest of the model's weights; None where the run does not know it."""
    return (run.record["provenance"].get("model") or {}).get("weights_sha256")


def _unlike(run: Run) -> str:
    """How a run's question differs from the paper's; "" where it does not."""
    config = run.config
    other = [
        f"{name} {config[name]}"
        for name, asked in ASKED.items()
        if config.get(name, asked) != asked
    ]
    missing = [name for name in FOUR if name not in config.get("operations", FOUR)]
    return ", ".join(other + [f"no {name}" for name in missing])
