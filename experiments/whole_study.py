"""What do minutes of computing show of a model? All experiments without a finished run.

These are the runs that `figures/report.py` shows, without fine-tuning, which takes an hour, and
benchmarks, which need data. If an experiment fails, the others are computed nevertheless.
"""

import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

import arith_lens as al
from arith_lens.runs import find_runs
from arith_lens.runs.files import plain_value
from experiments import (
    are_they_needed,
    do_copies_decide,
    do_powers_use_them,
    do_they_suffice,
    do_word_problems_use_them,
    like_a_computer,
    what_comes_instead,
    what_do_mlps_add,
    what_does_each_part_do,
    what_else_breaks,
    what_the_calculation_does,
    where_do_they_look,
    which_counterfactual,
    which_heads,
    which_mlps_carry_them,
    which_paths,
)
from experiments.command import exit_cleanly
from experiments.selection import LARGEST_OPERAND
from experiments.settings import Experiment, PooledSampleSettings, loaded_model

STUDY: tuple[Experiment[Any], ...] = (
    which_heads.main,
    which_paths.main,
    which_counterfactual.main,
    do_copies_decide.main,
    are_they_needed.main,
    do_they_suffice.main,
    what_comes_instead.main,
    what_else_breaks.main,
    do_powers_use_them.main,
    do_word_problems_use_them.main,
    where_do_they_look.main,
    what_do_mlps_add.main,
    which_mlps_carry_them.main,
    what_does_each_part_do.main,
    like_a_computer.main,
    what_the_calculation_does.main,
)
OF_COMPUTED_PROBLEMS: Mapping[Experiment[Any], Mapping[str, Any]] = {
    which_heads.main: {},
    which_paths.main: {},
    are_they_needed.main: {"candidates": 0, "second_ablation": None, "mlps": False},
    where_do_they_look.main: {},
}
"""Experiments that the study repeats on multiplications and divisions whose answer cannot be
copied, with the settings that differ. The claims about these operations rest on them."""


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """What do minutes of computing show of a model? Each experiment gets the settings it has."""

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; by default the closed world's sets."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compute what is missing; if something failed, exit with its names.

    Args:
        config: what to compute.
        root: where runs are saved.
        dry_run: print what would be computed, and stop.
    """
    parts = list(_parts(config))
    if dry_run:
        for experiment, settings in parts:
            runs = find_runs(experiment.name, model=config.model, root=root)
            is_saved = any(run.config == plain_value(settings) and run.complete for run in runs)
            print(f"{_title(experiment, settings)}: {'stored' if is_saved else 'to be computed'}")
        return
    model = loaded_model(config)
    failed = [
        _title(experiment, settings)
        for experiment, settings in parts
        if not _run(experiment, settings, model, root)
    ]
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


def _parts(config: Config) -> Iterator[tuple[Experiment[Any], Any]]:
    """The experiments of the study, each with its settings."""
    computed = {"problems": "computed", "operations": tuple(LARGEST_OPERAND)}
    for experiment in STUDY:
        yield experiment, _settings(experiment, config)
    for experiment, changes in OF_COMPUTED_PROBLEMS.items():
        yield experiment, replace(_settings(experiment, config), **computed, **changes)


def _settings(experiment: Experiment[Any], config: Config) -> Any:
    """The experiment's settings, from the study's."""
    known = {field.name for field in fields(experiment.config)}
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
