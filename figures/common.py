"""What every figure and table shares: which run it shows, and where its files go."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tyro

from arith_lens.operations import FOUR
from arith_lens.runs import Run, RunError, find_runs, load_run
from experiments.selection import SharedSettings, settings_text

Formats: TypeAlias = tuple[Literal["png", "svg", "pdf"], ...]

SHIPPED = Path(__file__).parent / "gallery" / "runs"
"""Small runs of the reference models that come with the project."""


PAPER_TASK_NAMES = {"commonsense_qa": "csqa"}
"""The paper's names of benchmarks, where they differ."""


class NotComputed(RunError):
    """A figure's results are missing; `command` computes them."""

    def __init__(self, reason: str, command: str) -> None:
        super().__init__(f"{reason}. Make one: {command}")
        self.command = command


@dataclass(frozen=True)
class RunOptions:
    """The settings of the run to show, as the experiment had them."""

    n: int | None = None
    """Its distinct reference prompts per operation; all if not given."""
    operations: tuple[str, ...] = FOUR
    """Its operations."""
    pairs: Path | None = None
    """Its file of prompts, if it was not made from the templates."""
    keep: str = "correct"
    """Which prompts it used."""
    settings: tyro.conf.Suppress[SharedSettings | None] = None
    """Show only runs with these settings, as a report does."""

    def demands(self) -> SharedSettings:
        """The settings that a run must have."""
        return self.settings or SharedSettings(self.n, self.operations, self.pairs, self.keep)


@dataclass(frozen=True)
class TableOptions(RunOptions):
    """Which run to show, and where its files go."""

    model: str = "reference"
    """Show the newest finished run of this model."""
    run: Path | None = None
    """Show this run folder instead."""
    out: Path | None = None
    """Where the files go; figures/<model> if not given."""
    root: Path = Path("results")
    """The folder of all runs."""


@dataclass(frozen=True)
class Options(TableOptions):
    """Which run to draw, and where its files go."""

    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


@dataclass(frozen=True)
class DrawingOptions:
    """Where the files of a drawing go, which shows no run."""

    out: Path | None = None
    """Where the files go; figures/drawings if not given."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


@dataclass(frozen=True)
class ModelOptions(RunOptions):
    """Which runs to draw, and where their files go."""

    models: tuple[str, ...] = ("reference", "reference-mistral")
    """Draw the newest finished run of each, in this order."""
    runs: tuple[Path, ...] = ()
    """Draw these run folders instead."""
    out: Path = Path("figures") / "models"
    """Where the files go."""
    root: Path = Path("results")
    """The folder of all runs."""
    formats: Formats = ("png", "svg", "pdf")
    """Static pictures to draw as well."""


def chosen_run(options: TableOptions, experiment: str) -> Run:
    """The run at `options.run`, or the model's newest. Raises RunError if none can be drawn."""
    run = load_run(options.run) if options.run else newest_run(experiment, options)
    if run.experiment != experiment or not run.names:
        raise NotComputed(
            f"expected a run of {experiment} with results, found one of {run.experiment} with "
            f"{len(run.names)} ({run.manifest['status']}) in {run.path}",
            f"python -m experiments {experiment}",
        )
    return run


def chosen_runs(options: ModelOptions, experiment: str) -> list[Run]:
    """The runs to draw. Raises RunError if some are missing; it has the command for each."""
    runs: list[Run] = []
    missing: list[RunError] = []
    sample = {field.name: getattr(options, field.name) for field in fields(RunOptions)}
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
    """The newest finished run of a model with the settings of `options`.

    If there is none under the root, it is a shipped run. If the options have no settings, it can
    be a run with other settings.

    Raises:
        NotComputed: there is no such run; the error has the command that makes one.
    """
    settings = options.demands()
    others: dict[Path, tuple[Run, str]] = {}
    for root in (options.root, SHIPPED):
        for run in find_runs(experiment, model=options.model, root=root):
            differences = settings.differences(run)
            if not differences:
                return run
            others[run.path] = run, settings_text(differences)
    if others and settings == SharedSettings() and options.settings is None:
        return next(iter(others.values()))[0]
    seen = "".join(f"; {path} has {text}" for path, (_, text) in others.items())
    raise NotComputed(
        f"expected a finished run of {options.model} under {options.root / experiment}"
        f"{' with these settings' * bool(others)}, found none{seen}",
        f"python -m experiments {experiment} --model {shlex.quote(options.model)}",
    )


def sample_size(facts: Mapping[str, Any]) -> str:
    """`324 references of 36 problems`, as far as the facts beside a result know it."""
    references, problems = facts.get("distinct"), facts.get("problems")
    if references is None:
        return ""
    of_problems = f" of {problems} problem{'s' * (problems != 1)}" if problems else ""
    return f"{references} reference{'s' * (references != 1)}{of_problems}"


def counts_prompts(run: Run) -> bool:
    """Whether a result of the run does not know its problems, so that its errors count prompts."""
    sizes = [run.facts(name) for name in run.names]
    return any("distinct" in facts and facts.get("problems") is None for facts in sizes)


def shipped(run: Run) -> bool:
    """Whether a run came with the project."""
    return run.path.resolve().is_relative_to(SHIPPED)


def files_folder(runs: Sequence[Run]) -> Path:
    """The folder for the files of the first run's model, or of a drawing without a run."""
    return Path("figures") / (slug(runs[0].config["model"]) if runs else "drawings")


def slug(name: str) -> str:
    """A model's name as a folder's name."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("._") or "model"
