"""What every figure and table shares: which run it shows, and where its files go."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pandas import DataFrame

from arith_lens.runs import Run, RunError, load_run
from experiments.finding import (
    RESULTS,
    NotComputed,
    RunSettings,
    default_settings,
    experiment_command,
    find_run,
    settings_text,
    unusual_settings,
)
from figures.options import GALLERY, ModelOptions, TableOptions
from figures.tables.table import QuestionTable, from_csv, joined, read_back

FREE = RunSettings({})
"""Any settings, as far as one run has them: see `find_run`."""

TAKES_HOURS = "does_tuning_help"
"""The experiment whose tables of the reference models are shown where there is no run."""

PAPER_TASK_NAMES = {"commonsense_qa": "csqa"}
"""The paper's names of benchmarks, where they differ."""


def chosen_run(options: TableOptions, experiment: str) -> Run:
    """The run at `options.run`, or the one with the settings of the options.

    Raises:
        RunError: there is no such run, or it has no results or other settings.
    """
    if options.run is None:
        return run_with(options.settings or FREE, experiment, options.model, options.root)
    run = load_run(options.run)
    if run.experiment != experiment or not run.names:
        raise NotComputed(
            f"expected a run of {experiment} with results, found one of {run.experiment} with "
            f"{len(run.names)} ({run.manifest['status']}) in {run.path}",
            experiment_command(experiment, str(run.config.get("model", "")), {}),
        )
    if differences := (options.settings or FREE).differences(run):
        raise RunError(
            f"expected a run with the settings that are named beside --run, found {run.path} with "
            f"{settings_text(differences)}. Leave these settings out, or name another run."
        )
    return run


def chosen_runs(options: ModelOptions, experiment: str) -> list[Run]:
    """The runs to draw. Raises RunError if some are missing; it has the command for each."""
    runs: list[Run] = []
    missing: list[RunError] = []
    shared = TableOptions(root=options.root, settings=options.settings)
    wanted = [replace(shared, model=model) for model in options.models]
    for choice in [replace(shared, run=path) for path in options.runs] or wanted:
        try:
            runs.append(chosen_run(choice, experiment))
        except RunError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        raise RunError("\n".join(map(str, missing)))
    return runs


def runs_by_name(runs: Sequence[Run]) -> dict[str, Run]:
    """Runs by their model; runs of one model have their folder's name, too."""
    names = Counter(run.config["model"] for run in runs)
    return {
        run.config["model"] + f" ({run.path.name})" * (names[run.config["model"]] > 1): run
        for run in runs
    }


def run_with(settings: RunSettings, experiment: str, model: str, root: Path) -> Run:
    """The run of a model with these settings under a folder; of trainings, the shipped tables.

    A folder of tables, such as figures/gallery, has no runs: its tables stand for them.

    Raises:
        RunError: as `find_run`.
    """
    if holds_tables(root, experiment):
        return tables_of(experiment, model, settings, root)
    try:
        return find_run(experiment, model, settings, (root,))
    except NotComputed:
        if experiment == TAKES_HOURS and has_shipped_tables(model):
            with suppress(NotComputed):
                return tables_of(experiment, model, settings, GALLERY)
        raise


def has_shipped_tables(model: str) -> bool:
    """Whether the tables of a model ship with the project."""
    return model == FIRST_MODEL or (GALLERY / slug(model)).is_dir()


def holds_tables(root: Path, experiment: str) -> bool:
    """Whether a folder has tables, and no runs of an experiment."""
    return any(root.glob("*.csv")) and not (root / experiment).is_dir()


GALLERY_MODELS = ("reference", "reference-mistral")
FIRST_MODEL = "reference"
"""The model whose tables are in a folder of tables itself; others have a folder in it."""
TABLES_ALONE = "tables alone"
"""The status of a run that has no results, but the tables that were made from them."""


def tables_of(experiment: str, model: str, settings: RunSettings, folder: Path) -> Run:
    """The tables of a model in a folder as a run of the default settings, without results.

    Raises:
        NotComputed: the model has no tables, or other settings are demanded; the error has the
            command that computes them.
    """
    of_model = folder / slug(model)
    if not of_model.is_dir() and model != FIRST_MODEL:
        raise NotComputed(
            f"expected a folder of tables {of_model}, found none",
            experiment_command(experiment, model, settings.values),
        )
    manifest = {"experiment": experiment, "status": TABLES_ALONE, "results": {}, "provenance": {}}
    run = Run(of_model if of_model.is_dir() else folder, manifest | {"config": {"model": model}})
    run.manifest["config"] = default_settings(run) | {"model": model}
    if differences := settings.differences(run):
        raise NotComputed(
            f"expected the default settings, of which the tables in {folder} are, found others "
            f"than {settings_text(differences)}",
            experiment_command(experiment, model, settings.values),
        )
    return run


def has_tables_alone(run: Run) -> bool:
    """Whether a run stands for tables, and has no results."""
    return run.manifest["status"] == TABLES_ALONE


def stored_rows(runs: Sequence[Run], name: str) -> DataFrame:
    """The rows of the tables of this name, of all runs together.

    Raises:
        NotComputed: no run has this table; the error has the command that computes it.
    """
    files = [path for run in runs if (path := run.path / f"{name}.csv").exists()]
    if not files:
        raise NotComputed(
            f"expected {name}.csv in {runs[0].path}, found none", command_for_run(runs[0])
        )
    return joined(from_csv(path.read_text(encoding="utf-8")) for path in dict.fromkeys(files))


def rows_of(run: Run, name: str, make: Callable[[Run], QuestionTable]) -> DataFrame:
    """The rows of a run's table, as its CSV file has them; that file's if it has tables alone.

    Raises:
        NotComputed: it has tables alone, and no such file.
    """
    return stored_rows([run], name) if has_tables_alone(run) else read_back(make(run))


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
    """Whether a run stands for tables that came with the project."""
    return has_tables_alone(run) and run.path.resolve().is_relative_to(GALLERY)


def command_for_run(run: Run, **changes: Any) -> str:
    """The command that computes a run like this one, with changed settings."""
    root = RESULTS if has_tables_alone(run) else run.path.parents[1]
    settings = {**unusual_settings(run), **changes}
    return experiment_command(run.experiment, str(run.config["model"]), settings, root)


def files_folder(runs: Sequence[Run]) -> Path:
    """The folder for the files of the first run's model."""
    return Path("figures") / slug(runs[0].config["model"])


def slug(name: str) -> str:
    """A model's name as a folder's name."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("._") or "model"
