"""The tuned models that the trainings of Table 1 leave, for questions about them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

import arith_lens as al
from arith_lens.fine_tuning import RESULT_FILE, TuningResult
from arith_lens.runs import Run, RunError
from experiments.configs.shared import ModelSettings
from experiments.does_tuning_help import Criterion, Training
from experiments.finding import RunSettings, experiment_command, find_run, unusual_settings
from experiments.results import CHOSEN_RATES, TUNED_ANSWERS, trainings, tuned_by

EXPERIMENT, TABLE_1 = "does_tuning_help", "1"
ConfigClass = TypeVar("ConfigClass", bound=ModelSettings)


@dataclass(frozen=True)
class TunedModel:
    """The model that one training has left."""

    training: Training
    result: TuningResult
    chosen_for: tuple[Criterion, ...]
    """What its rate was chosen for."""

    @property
    def name(self) -> str:
        """Such as seed-0."""
        return f"seed-{self.training.seed}"

    @property
    def heads(self) -> tuple[al.Head, ...]:
        return tuple(map(al.Head.parse, self.result.heads))

    @property
    def sha256(self) -> str:
        """The digest of the trained weights' files."""
        digest = hashlib.sha256()
        for file in sorted(Path(self.result.output).rglob("*.safetensors")):
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def load(self, settings: ModelSettings) -> al.HookedModel:
        """The model, in the dtype and on the device of the settings."""
        dtype = None if settings.dtype is None else getattr(torch, settings.dtype)
        return al.load_model(self.result.model(), dtype=dtype, device=settings.device)


@dataclass(frozen=True)
class AfterTuning(Generic[ConfigClass]):
    """A question about tuned models: its settings, and the models of Table 1."""

    settings: ConfigClass
    models: tuple[TunedModel, ...]

    @classmethod
    def of_precise(cls, settings: ConfigClass, root: Path) -> "AfterTuning[ConfigClass]":
        """The question about the precise trainings at the rate for mathematics.

        The models are those of the newest finished run of the tuning experiment.

        Raises:
            RunError: there is no such run, or the weights of a model are missing.
        """
        return cls(settings, tuple(precise_models(tuning_run(settings.model, root))))

    @classmethod
    def of_every_method(cls, settings: ConfigClass, root: Path) -> "AfterTuning[ConfigClass]":
        """The question about all trainings at the chosen rates, as far as their weights are stored.

        Raises:
            RunError: there is no finished run, or it has no weights.
        """
        return cls(settings, tuple(stored_models(tuning_run(settings.model, root))))

    @property
    def identity(self) -> dict[str, Any]:
        """What identifies a run of this question: the settings, and the trained weights."""
        return {**vars(self.settings), "tuned": [model.sha256 for model in self.models]}


def tuning_run(model: str, root: Path) -> Run:
    """The finished run of the tuning experiment that has Table 1.

    Raises:
        RunError: there is no such run; the message has the command that makes one. Or there are
            several with different settings, and none has the defaults.
    """
    table = CHOSEN_RATES.name(TABLE_1)
    option = f"--table {TABLE_1}"
    free = RunSettings({})
    return find_run(EXPERIMENT, model, free, (root,), result=table, option=option)


def precise_models(run: Run) -> list[TunedModel]:
    """The precisely tuned models of Table 1 at the rate for mathematics, one per seed.

    Raises:
        RunError: the weights of a model are missing.
    """
    trained = at_chosen_rates(run, "mathematics")
    return [_model(run, training) for training in trained if training.tuned.method == "precise"]


def stored_models(run: Run) -> list[TunedModel]:
    """The models at the chosen rates of Table 1, of every method, whose weights are stored.

    Raises:
        RunError: there is none.
    """
    stored = [t for t in at_chosen_rates(run) if (weights_folder(run, t) / RESULT_FILE).is_file()]
    if not stored:
        folder = run.path / "trainings"
        raise RunError(f"expected weights of trainings in {folder}, found none. {_cure(run)}")
    return [_model(run, training) for training in stored]


def at_chosen_rates(run: Run, *criteria: Criterion) -> Iterator[Training]:
    """The trainings at the chosen rates of Table 1, row by row, one per seed.

    Args:
        run: a run of the tuning experiment.
        criteria: what the rates were chosen for; all if not given.
    """
    chosen = CHOSEN_RATES.load(run, TABLE_1)
    facts = [TUNED_ANSWERS.facts(run, name) for name in trainings(run)]
    settings = (chosen.rates_for(criterion).items() for criterion in criteria or chosen.criteria)
    for row, rate in dict.fromkeys(setting for some in settings for setting in some):
        of_row = (f for f in facts if (tuned_by(f), f["rate"]) == (row, rate))
        for seed in sorted(f["seed"] for f in of_row):
            yield Training(row, rate, seed)


def weights_folder(run: Run, training: Training) -> Path:
    """Where a training leaves its weights."""
    return run.path / "trainings" / training.name


def _model(run: Run, training: Training) -> TunedModel:
    chosen = CHOSEN_RATES.load(run, TABLE_1)
    chosen_for: tuple[Criterion, ...] = tuple(
        criterion
        for criterion in chosen.criteria
        if chosen.rates_for(criterion).get(training.tuned) == training.rate
    )
    try:
        return TunedModel(training, TuningResult.load(weights_folder(run, training)), chosen_for)
    except FileNotFoundError as error:
        raise RunError(f"{error}. {_cure(run)}") from error


def _cure(run: Run) -> str:
    root, model = run.path.parents[1], str(run.config["model"])
    command = experiment_command(EXPERIMENT, model, unusual_settings(run), root)
    return f"Train them again: {command} --weights"
