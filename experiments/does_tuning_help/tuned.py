"""The models that Table 1's precise trainings left, for questions about them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.fine_tuning import TuningResult
from arith_lens.fine_tuning.results import DELTA
from arith_lens.runs import Run, RunError, find_runs
from experiments.results import TABLE, TRAINING, trainings, tuned_by

EXPERIMENT = "does_tuning_help"
TABLE_1 = "1"


@dataclass(frozen=True)
class TunedModel:
    """One precise training at the chosen rate."""

    name: str  # such as seed-0
    result: TuningResult

    @property
    def heads(self) -> tuple[al.Head, ...]:
        return tuple(map(al.Head.parse, self.result.heads))

    @property
    def sha256(self) -> str:
        """Of the trained slices' file."""
        return hashlib.sha256((Path(self.result.output) / DELTA).read_bytes()).hexdigest()

    def load(self) -> Any:
        """The model, ready for every analysis."""
        return al.load_model(self.result.model())


def tuning_run(model: str, root: Path) -> Run:
    """The newest finished run of the tuning experiment that has Table 1.

    Raises:
        RunError: there is none; the message has the command that makes one.
    """
    runs = find_runs(EXPERIMENT, model=model, root=root)
    complete = [run for run in runs if TABLE.is_in(run, TABLE_1)]
    if not complete:
        raise RunError(
            f"expected a finished run of {model} with Table 1 under {root / EXPERIMENT}, found "
            f"none. Make one: python -m experiments {EXPERIMENT} --table 1 --model {model}"
        )
    return complete[0]


def precise_models(run: Run) -> list[TunedModel]:
    """The precisely tuned models of Table 1, a seed each.

    Raises:
        RunError: the folder of one is gone.
    """
    rates = TABLE.load(run, TABLE_1).rates
    (row,) = (row for row in rates if row.method == "precise")
    models = []
    for name in trainings(run):
        facts = TRAINING.facts(run, name)
        if tuned_by(facts) == row and facts["rate"] == rates[row]:
            folder = run.path / "trainings" / name
            try:
                models.append(TunedModel(f"seed-{facts['seed']}", TuningResult.load(folder)))
            except FileNotFoundError as error:
                raise RunError(
                    f"{error}. Train it again: python -m experiments {EXPERIMENT} --model "
                    f"{run.config['model']} --again"
                ) from error
    return sorted(models, key=lambda one: one.name)
