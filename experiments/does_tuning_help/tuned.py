"""The models that Table 1's precise trainings leave, for experiments about them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

import arith_lens as al
from arith_lens.fine_tuning import TuningResult
from arith_lens.fine_tuning.results import DELTA
from arith_lens.runs import Run, RunError, find_runs
from experiments.results import TABLE, TRAINING, trainings, tuned_by
from experiments.settings import ModelSettings

EXPERIMENT = "does_tuning_help"
TABLE_1 = "1"
Settings = TypeVar("Settings", bound=ModelSettings)


@dataclass(frozen=True)
class TunedModel:
    """One precise training at the chosen rate."""

    name: str
    """Such as seed-0."""
    result: TuningResult

    @property
    def heads(self) -> tuple[al.Head, ...]:
        return tuple(map(al.Head.parse, self.result.heads))

    @property
    def sha256(self) -> str:
        """Of the trained slices' file."""
        return hashlib.sha256((Path(self.result.output) / DELTA).read_bytes()).hexdigest()

    def load(self, settings: ModelSettings) -> al.HookedModel:
        """The model, ready for every analysis, in the dtype and on the device of the settings."""
        dtype = None if settings.dtype is None else getattr(torch, settings.dtype)
        return al.load_model(self.result.model(), dtype=dtype, device=settings.device)


@dataclass(frozen=True)
class AfterTuning(Generic[Settings]):
    """A question about tuned models: its settings, and the models that a run of Table 1 left."""

    settings: Settings
    models: tuple[TunedModel, ...]

    @classmethod
    def find(cls, settings: Settings, root: Path) -> "AfterTuning[Settings]":
        """With the models of the newest finished run of the tuning experiment.

        Raises:
            RunError: there is none, or the folder of a model is gone.
        """
        return cls(settings, tuple(precise_models(tuning_run(settings.model, root))))

    @property
    def identity(self) -> dict[str, Any]:
        """What names a run of this question: the settings, and the weights that were trained."""
        return {**vars(self.settings), "tuned": [model.sha256 for model in self.models]}


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
