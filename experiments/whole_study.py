"""What can be said of a model in minutes? Every experiment of which it has no finished run yet.

The runs that `figures/report.py` shows, but for those of fine-tuning, which take an hour, and of
benchmarks, which need data. An experiment that fails is named and costs no other.
"""

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro

from arith_lens.runs import find_runs
from arith_lens.runs.provenance import describe_model
from experiments import (
    are_they_needed,
    do_powers_use_them,
    do_word_problems_use_them,
    like_a_computer,
    what_comes_instead,
    what_do_mlps_add,
    what_else_breaks,
    what_the_calculation_does,
    where_do_they_look,
    which_heads,
    which_mlps_carry_them,
    which_paths,
)
from experiments.command import command, exit_cleanly
from experiments.selection import Settings, weights_of
from experiments.settings import Dtype, loaded_model

STUDY = (
    which_heads,
    which_paths,
    are_they_needed,
    what_comes_instead,
    what_else_breaks,
    do_powers_use_them,
    do_word_problems_use_them,
    where_do_they_look,
    what_do_mlps_add,
    which_mlps_carry_them,
    like_a_computer,
    what_the_calculation_does,
)


@dataclass(frozen=True)
class Config:
    """What can be said of a model in minutes? Given to every experiment that has such a setting."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; the closed world's sets if not given."""
    n: int | None = None
    """Distinct reference prompts an operation; all there are if not given."""
    seed: int = 0
    """Of the sampling."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
) -> None:
    """Compute what is missing; exit with what failed.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what would be computed, and stop.
    """
    failed = []
    weights = None if dry_run else cache(lambda: _weights(config))
    for experiment in STUDY:
        name = experiment.__name__.rpartition(".")[2]
        if _is_computed(name, config, root, weights):
            print(f"{name}: there")
        elif dry_run:
            print(f"{name}: to be computed")
        else:
            print(f"{name}: computing", flush=True)
            if not _computed(experiment, config, root):
                failed.append(name)
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


def _is_computed(
    name: str, config: Config, root: Path, weights: Callable[[], str | None] | None
) -> bool:
    """Whether there is a finished run with these settings, of these weights if they are given."""
    for run in find_runs(name, model=config.model, root=root):
        if not Settings(n=config.n).differences(run):
            own = weights_of(run)
            if weights is None or own is None or own == weights():
                return True
    return False


def _weights(config: Config) -> str | None:
    """The digest of the weights that the name of the model stands for today."""
    return describe_model(loaded_model(config))["weights_sha256"]


def _computed(experiment: ModuleType, config: Config, root: Path) -> bool:
    """Run one experiment; whether it came to its end. Its error is printed."""
    known = {field.name for field in fields(experiment.Config)}
    given = {f.name: getattr(config, f.name) for f in fields(config) if f.name in known}
    try:
        with exit_cleanly():
            experiment.main(experiment.Config(**given), root=root)
    except SystemExit as end:
        if end.code == 130:  # stopped from the keyboard: the whole study is
            raise
        print(end.code)
        return not end.code
    except Exception:  # of whatever kind: the other experiments may still do
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    command(main, "whole_study", __doc__, shares=False)
