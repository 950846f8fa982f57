"""What every figure and table shares: which run, and where to."""

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

import tyro

from arith_lens.operations import FOUR
from arith_lens.runs import Run, RunError, find_runs, load_run
from experiments.selection import Settings, described

Formats: TypeAlias = tuple[Literal["png", "svg", "pdf"], ...]

SHIPPED = Path(__file__).parent / "gallery" / "runs"
"""Small runs of the reference models that come with the project, where others have none."""


class NotComputed(RunError):
    """What a figure needs is not there; `command` makes it."""

    def __init__(self, lacks: str, command: str) -> None:
        super().__init__(f"{lacks}. Make one: {command}")
        self.command = command


@dataclass(frozen=True)
class Sample:
    """The settings of the run to show: those that were given to the experiment."""

    n: int | None = None
    """Its distinct reference prompts per operation; all there are if not given."""
    operations: tuple[str, ...] = FOUR
    """Its calculations."""
    pairs: Path | None = None
    """Its file of prompts, if it was not made from the templates."""
    keep: str = "correct"
    """Which prompts it looked at."""
    settings: tyro.conf.Suppress[Settings | None] = None
    """Show runs with these settings alone, as a report does."""

    def demands(self) -> Settings:
        """What a run must have."""
        return self.settings or Settings(self.n, self.operations, self.pairs, self.keep)


@dataclass(frozen=True)
class TableOptions(Sample):
    """Which run to show, and where to."""

    model: str = "reference"
    """Show the newest finished run of this model."""
    run: Path | None = None
    """Show this run folder instead."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = Path("results")
    """Where runs are kept."""


@dataclass(frozen=True)
class Options(TableOptions):
    """Which run to draw, and where to."""

    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


@dataclass(frozen=True)
class ModelOptions(Sample):
    """Which runs to draw, and where to."""

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Draw the newest finished run of each, in this order."""
    runs: tuple[Path, ...] = ()
    """Draw these run folders instead."""
    out: Path = Path("figures") / "models"
    """Where the files go."""
    root: Path = Path("results")
    """Where runs are kept."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


def chosen_run(options: TableOptions, experiment: str) -> Run:
    """The run at `options.run`, or the model's newest. Raises RunError where none can be drawn."""
    run = load_run(options.run) if options.run else newest_run(experiment, options)
    if run.experiment != experiment or not run.names:
        raise NotComputed(
            f"expected a run of {experiment} with results, found one of {run.experiment} with "
            f"{len(run.names)} ({run.record['status']}) in {run.path}",
            f"python -m experiments {experiment}",
        )
    return run


def chosen_runs(options: ModelOptions, experiment: str) -> list[Run]:
    """The runs to draw. Raises RunError that names each that is missing, with its command."""
    runs: list[Run] = []
    missing: list[RunError] = []
    sample = {field.name: getattr(options, field.name) for field in fields(Sample)}
    wanted = [TableOptions(model=model, root=options.root, **sample) for model in options.models]
    for choice in [TableOptions(run=path) for path in options.runs] or wanted:
        try:
            runs.append(chosen_run(choice, experiment))
        except RunError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise RunError("\n".join(map(str, missing)))
    return runs


def newest_run(experiment: str, options: TableOptions) -> Run:
    """The newest finished run of a model with the settings of `options`; a shipped one where there
    is none under the root. Where no settings are given, one with other settings if need be.

    Raises:
        NotComputed: none; with the command that makes one.
    """
    settings = options.demands()
    others: dict[Path, tuple[Run, str]] = {}
    for root in (options.root, SHIPPED):
        for run in find_runs(experiment, model=options.model, root=root):
            differences = settings.differences(run)
            if not differences:
                return run
            others[run.path] = run, described(differences)
    if others and settings == Settings() and options.settings is None:
        return next(iter(others.values()))[0]
    seen = "".join(f"; {path} has {text}" for path, (_, text) in others.items())
    raise NotComputed(
        f"expected a finished run of {options.model} under {options.root / experiment}"
        f"{' with these settings' * bool(others)}, found none{seen}",
        f"python -m experiments {experiment} --model {shlex.quote(options.model)}",
    )


def shipped(run: Run) -> bool:
    """Whether a run came with the project."""
    return run.path.resolve().is_relative_to(SHIPPED)


def folder_of(run: Run) -> Path:
    """Where the files of its model go."""
    return Path("figures") / slug(run.config["model"])


def slug(name: str) -> str:
    """A model's name as a folder's name."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("._") or "model"
