"""Many runs: compute a study."""

import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.progress import counted, loading
from arith_lens.runs import find_runs, plain_value
from experiments.catalogue import experiments
from experiments.command import exit_cleanly
from experiments.configs.data import StudyConfig
from experiments.questions import study
from experiments.selection import LARGEST_OPERAND
from experiments.settings import Experiment, loaded_model

_COMMANDS = experiments()
STUDY: tuple[Experiment[Any], ...] = tuple(_COMMANDS[name].load() for name in study())
"""The experiments that `questions.toml` marks, in its order."""
OWN_PROMPTS = tuple(
    experiment
    for experiment in STUDY
    if "pairs" in {field.name for field in fields(experiment.config)}
)
"""Those of them that take a file of prompts. The others are about the paper's operations."""
OF_COMPUTED_PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "which_heads": {},
    "which_paths": {},
    "are_they_needed": {"candidates": 0, "second_ablation": None, "mlps": False},
    "where_do_they_look": {},
}
"""Experiments that the study repeats on multiplications and divisions whose answer cannot be
copied, with the settings that differ. The claims about these operations rest on them."""


def whole_study(
    config: StudyConfig,
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compute what a study lacks, as `StudyConfig` says."""
    parts = list(_parts(config))
    if dry_run:
        for experiment, settings in parts:
            runs = find_runs(experiment.name, model=config.model, root=root)
            is_saved = any(run.config == plain_value(settings) and run.complete for run in runs)
            print(f"{_title(experiment, settings)}: {'stored' if is_saved else 'to be computed'}")
        return
    with loading(f"{config.model}: loading"):
        model = loaded_model(config)
    titles = {_title(*part): part for part in parts}
    failed = [
        title
        for title in counted([*titles], "experiments")
        if not _run(*titles[title], model, root)
    ]
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


def _parts(config: StudyConfig) -> Iterator[tuple[Experiment[Any], Any]]:
    """The experiments of the study, each with its settings."""
    if config.pairs is not None:
        for experiment in OWN_PROMPTS:
            yield experiment, _settings(experiment, config)
        return
    computed = {"problems": "computed", "operations": tuple(LARGEST_OPERAND)}
    for experiment in STUDY:
        yield experiment, _settings(experiment, config)
    by_name = {experiment.name: experiment for experiment in STUDY}
    for name, changes in OF_COMPUTED_PROBLEMS.items():
        experiment = by_name[name]
        yield experiment, replace(_settings(experiment, config), **computed, **changes)


def _settings(experiment: Experiment[Any], config: StudyConfig) -> Any:
    """The experiment's settings, from the study's."""
    known = {field.name for field in fields(experiment.config)}
    known -= {"keep"} if config.pairs is None else set()
    return experiment.config(**{k: v for k, v in vars(config).items() if k in known})


def _title(experiment: Experiment[Any], settings: Any) -> str:
    """The experiment's name, and which problems it has."""
    computed = getattr(settings, "problems", "any") == "computed"
    return experiment.name + ", computed problems" * computed


def _run(experiment: Experiment[Any], settings: Any, model: al.HookedModel, root: Path) -> bool:
    """Run one experiment if it is not complete, and print errors. Returns whether it succeeded."""
    title = _title(experiment, settings)
    try:
        with exit_cleanly():
            run = experiment.open(settings, model, root)
            if run.complete:
                print(f"{title}: stored")
                return True
            print(f"{title}: computing", flush=True)
            experiment.fill(run, model, settings)
    except SystemExit as end:
        if end.code == 130:  # the user has stopped the whole study
            raise
        print(end.code)
        return not end.code
    except Exception:  # of any kind: the other experiments are still computed
        traceback.print_exc()
        return False
    return True
