"""Does tuning the heads that calculate help, and what does it cost elsewhere? Tables 1, 2 and 5.

Precise tuning of the strongest heads beside full tuning, LoRA with as many parameters and random
heads (Table 1); more and fewer heads (Table 2); MLPs beside them (Table 5). Every row is trained at
each of a few rates, the same for all; the rate of a row is chosen on validation problems alone, and
trained with further seeds. Word problems and generic tasks are asked before and after each
training. Saves a run under results/does_tuning_help/, which `figures/table1.py`, `table2.py`,
`table5.py` and `frontier.py` read. Killed, it goes on where it was; tables share their trainings.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

import arith_lens as al
from arith_lens.answers import Answers
from arith_lens.runs import Run
from experiments.does_tuning_help.settings import (
    Chosen,
    Sizes,
    Training,
    Tuned,
    grid,
    repeats,
    rows,
    validation_accuracy,
)
from experiments.does_tuning_help.tasks import Benchmarks, World
from experiments.does_tuning_help.training import Job, Recipe, train_and_ask
from experiments.does_tuning_help.workers import side_by_side
from experiments.strongest import all_operations, by_effect
from experiments.which_heads import Dtype, loaded_model, said_plainly, stopped_plainly

WORLD: Mapping[str, Any] = {
    "rates": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    **{"examples": 4000, "epochs": 1, "batch": 32, "questions": 500},
    **{"heads": 3, "several": (1, 2, 3, 5, 6, 12)},
}
"""For models of 96 heads: 3 of them are what 32 are of LLaMA2-7B's 1,024, and so on."""

PAPER: Mapping[str, Any] = {
    "rates": (2e-5,),
    **{"examples": 0, "epochs": 2, "batch": 128, "questions": 0},
    **{"heads": 32, "several": (8, 16, 32, 48, 64)},
}
"""Section 5.3 and Table 2."""


@dataclass(frozen=True)
class Config:
    """Does tuning the heads that calculate help?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    data_dir: Path | None = None
    """Holds the benchmarks' folders: the paper's data and, where no others are given, its settings.
    The closed world's sets and settings of its size if not given."""
    rates: tuple[float, ...] = ()
    """The grid of learning rates, one for all methods; on the benchmarks only one, the paper's."""
    examples: int | None = None
    """Word problems of a training, drawn with its seed from those there are; 0 takes all."""
    epochs: int | None = None
    """Times that each is seen."""
    batch: int | None = None
    """Examples a step."""
    questions: int | None = None
    """Test questions of each family of word problems or benchmark; 0 takes all."""
    heads: int | None = None
    """Heads of Table 1, about 3% of them."""
    several: tuple[int, ...] = ()
    """Heads of Table 2."""
    mlps: int = 3
    """MLPs beside the heads in Table 2."""
    more: tuple[int, ...] = (0, 1, 2, 3, 6, -1)
    """MLPs of Table 5; -1 is all there are."""
    n: int | None = None
    """Distinct reference prompts an operation that heads are found with; all if not given."""
    seed: int = 0
    """Of the sampling, and the first of the trainings."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


@dataclass(frozen=True)
class Plan:
    """A configuration with all that it leaves open filled in."""

    config: Config
    study: World | Benchmarks
    recipe: Recipe
    sizes: Sizes


def planned(config: Config, n_layers: int) -> Plan:
    """Fill in what is not given: the paper's settings on benchmarks, small ones on the world.

    Raises:
        ValueError: several rates on the benchmarks.
    """
    usual = WORLD if config.data_dir is None else PAPER
    given = {name: getattr(config, name) for name in usual}
    open_ = {name: usual[name] for name, value in given.items() if value in (None, ())}
    more = tuple(n_layers if n < 0 else n for n in config.more if n <= n_layers)
    whole: Any = replace(config, **open_, more=tuple(dict.fromkeys(more)))
    if whole.data_dir is not None and len(whole.rates) > 1:
        raise ValueError(
            f"expected one rate on the benchmarks (the paper's is {PAPER['rates'][0]:g}), found "
            f"{whole.rates}: no part of theirs is held out to choose a rate on"
        )
    study: World | Benchmarks = World(whole.examples, whole.questions)
    if whole.data_dir is not None:
        study = Benchmarks(whole.data_dir, whole.examples, whole.questions)
    sizes = Sizes(whole.heads, whole.several, whole.mlps, whole.more)
    return Plan(whole, study, Recipe(whole.epochs, whole.batch), sizes)


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    table: Literal[1, 2, 5] = 1,
    seeds: int = 3,
    processes: int | None = None,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Train, ask, save and say where.

    Args:
        config: what to compute.
        table: which rows; all tables of a configuration share a run.
        seeds: trainings at the chosen rate, the one of the grid among them; more may follow later.
        processes: trainings at a time, each with one thread; as many as there are cores, 4 at most,
            if not given, and 1 on a GPU.
        root: where runs are kept.
        dry_run: print what would be trained, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config)
    with said_plainly():
        plan = planned(config, model.n_layers)
    tuned = rows(table, plan.sizes)
    if dry_run:
        print(announced(tuned, plan, seeds))
        return
    with said_plainly():
        opened = al.open_run("does_tuning_help", plan.config, model=model, root=root, again=again)
    if processes is None:
        processes = 1 if torch.cuda.is_available() else min(os.cpu_count() or 1, 4)
    with stopped_plainly(), opened as run:
        if again or "before" not in run.names:
            pairs = all_operations(model, n=config.n, seed=config.seed)
            run.save("effects", al.path_patch(model, pairs), pairs=pairs)
            run.save("before", plan.study.ask(model))
        first = grid(tuned, plan.config.rates, config.seed)
        train(first, run, plan, processes, skip=() if again else run.names)
        chosen = choose(tuned, run, plan.config)
        further = range(config.seed + 1, config.seed + seeds)
        train(repeats(chosen.rates, further), run, plan, processes, skip=() if again else run.names)
        run.save(f"table-{table}", chosen)
    print(f"saved in {run.path}; python -m figures.table{table} --model {config.model} prints it")


def train(
    trainings: Sequence[Training],
    run: Run,
    plan: Plan,
    processes: int,
    *,
    skip: Collection[str],
) -> None:
    """Every training that is not to be skipped; each is saved when it is done."""
    effects = run.load("effects")
    todo = [
        job(training, effects, run, plan) for training in trainings if training.name not in skip
    ]
    started = time.monotonic()
    for count, (done, (answers, facts)) in enumerate(
        side_by_side(train_and_ask, todo, processes), 1
    ):
        run.save(done.training.name, answers, **facts)
        left = (time.monotonic() - started) / count * (len(todo) - count)
        print(
            f"{done.training.name}: {facts['seconds']:.0f} s, "
            f"{validation_accuracy(answers):.1%} of validation right; {len(todo) - count} to go, "
            f"about {left / 60:.0f} min",
            flush=True,
        )


def job(training: Training, effects: al.ComponentEffects, run: Run, plan: Plan) -> Job:
    """What a worker needs, the strongest heads and MLPs among it."""
    tuned = training.tuned
    heads = by_effect(effects, tuned.heads)
    mlps = tuple(mlp for mlp in effects.mlps.top(tuned.mlps) if isinstance(mlp, al.Mlp))
    return Job(
        training,
        plan.config.model,
        heads,
        mlps,
        plan.recipe,
        plan.study,
        run.path / "trainings" / training.name,
        plan.config.device,
    )


def choose(tuned: Sequence[Tuned], run: Run, config: Config) -> Chosen:
    """The validation accuracy of each row at each rate."""
    return Chosen(
        {
            row: {
                rate: validation_accuracy(
                    Answers.from_arrays(run.load_arrays(Training(row, rate, config.seed).name))
                )
                for rate in config.rates
            }
            for row in tuned
        }
    )


def announced(tuned: Sequence[Tuned], plan: Plan, seeds: int) -> str:
    """What would be trained, in words."""
    config = plan.config
    n = len(tuned) * (len(config.rates) + seeds - 1)
    names = ", ".join(row.name for row in tuned)
    return (
        f"{len(tuned)} rows ({names}), each at {len(config.rates)} rates and, at the best, with "
        f"{seeds - 1} further seeds: {n} trainings of {config.examples or 'all'} word problems, "
        f"{config.epochs} times each, {config.batch} a step; questions after each"
    )


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments.does_tuning_help", description=__doc__)
