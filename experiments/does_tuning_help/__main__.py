"""Does tuning the heads that calculate help, and what does it cost elsewhere? Tables 1, 2 and 5.

Table 1 compares precise tuning of the strongest heads with full tuning, LoRA with as many
parameters, and random heads. Table 2 has more and fewer heads, Table 5 MLPs beside them. Every row
is trained at the same few rates. Its rate is chosen on validation problems and trained with more
seeds. Word problems and generic tasks are answered before and after each training. Saves a run
under results/does_tuning_help/, which `python -m figures table1`, `table2`, `table5` and `frontier`
read. A killed run can be continued. Tables share their trainings.
"""

import os
import shutil
import time
from collections.abc import Collection, Sequence
from math import isnan
from pathlib import Path
from typing import Annotated, Literal

import tyro

import arith_lens as al
from arith_lens.answers import Answers
from arith_lens.fine_tuning.results import CHECKPOINT
from arith_lens.runs import Run
from experiments.command import command, exit_on_user_error
from experiments.does_tuning_help import (
    Chosen,
    Training,
    Tuned,
    grid,
    repeats,
    rows,
    validation_accuracy,
)
from experiments.does_tuning_help.plan import (
    Config,
    Plan,
    Room,
    announced,
    empty_model,
    on_gpu,
    planned,
)
from experiments.does_tuning_help.training import Job, side_by_side, train_and_ask
from experiments.results import BEFORE, POOLED_MAP, TABLE, TRAINING
from experiments.settings import (
    loaded_model,
    operation_maps,
    pooled_map,
    pooled_samples,
    strongest_heads,
)


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    table: Literal[1, 2, 5] = 1,
    seeds: int = 3,
    processes: int | None = None,
    room: Annotated[Room, tyro.conf.arg(name="")] = Room(),  # noqa: B008 -- frozen
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Train, evaluate and save.

    Args:
        config: what to compute.
        table: which table; all tables of a configuration share a run.
        seeds: trainings at the chosen rate, including the one of the grid; more can be added later.
        processes: trainings at a time, each with one thread. If not given, 1 on a GPU and on the
            benchmarks, else one per core, at most 4.
        room: memory and disk.
        root: the folder of all runs.
        dry_run: print what would be trained, reading no weights, and stop.
        again: compute the results of an earlier run of this configuration again.
    """
    with exit_on_user_error():
        empty = empty_model(config.model)
        plan = planned(config, empty.config.num_hidden_layers, room)
        tuned = rows(table, plan.sizes)
        print(announced(tuned, table, plan, seeds, empty), flush=True)
    if dry_run:
        return
    if processes is None:
        is_alone = plan.config.data_dir is not None or on_gpu(config.device)
        processes = 1 if is_alone else min(os.cpu_count() or 1, 4)
    run, plan = begun(plan, root, again=again)
    with run:
        first = grid(tuned, plan.config.rates, config.seed)
        train(first, run, plan, processes, skip=() if again else run.names)
        chosen = choose(tuned, run, plan.config)
        further = range(config.seed + 1, config.seed + seeds)
        train(repeats(chosen.rates, further), run, plan, processes, skip=() if again else run.names)
        TABLE.save(run, chosen, str(table))
    print(f"saved in {run.path}; python -m figures table{table} --model {config.model} prints it")


def begun(plan: Plan, root: Path, *, again: bool) -> tuple[Run, Plan]:
    """The run with the strongest heads and the answers before tuning.

    The model is not returned, so that its memory is free for training.
    """
    model = loaded_model(plan.config)
    plan = plan.with_dtype(model.dtype)
    with exit_on_user_error():
        run = al.open_run("does_tuning_help", plan.identity, model=model, root=root, again=again)
    if again or not BEFORE.is_in(run):
        with run, exit_on_user_error():
            if again:
                shutil.rmtree(run.path / "trainings", ignore_errors=True)
            pairs = pooled_samples(model, n=plan.config.n, seed=plan.config.seed)
            pooled_map(run, pairs, operation_maps(run, model, pairs))
            answers, facts = plan.study.ask(model, run.path / "trainings" / "before")
            BEFORE.save(run, answers, **facts)
    return run, plan


def train(
    trainings: Sequence[Training],
    run: Run,
    plan: Plan,
    processes: int,
    *,
    skip: Collection[str],
) -> None:
    """Do every training that is not in `skip`; save each when it is done."""
    effects = POOLED_MAP.load(run)
    todo = [
        job(training, effects, run, plan) for training in trainings if training.name not in skip
    ]
    started = time.monotonic()
    for count, (done, (answers, facts)) in enumerate(
        side_by_side(train_and_ask, todo, processes), 1
    ):
        TRAINING.save(run, answers, done.training.name, **facts)
        if not plan.keep_checkpoints:
            shutil.rmtree(done.output / CHECKPOINT, ignore_errors=True)
        left = (time.monotonic() - started) / count * (len(todo) - count)
        print(
            f"{done.training.name}: {facts['seconds']:.0f} s, {right(answers)}; "
            f"{len(todo) - count} to go, about {left / 60:.0f} min",
            flush=True,
        )


def job(training: Training, effects: al.ComponentEffects, run: Run, plan: Plan) -> Job:
    """The training with everything that a worker needs, such as the strongest heads and MLPs."""
    tuned = training.tuned
    heads = strongest_heads(effects, tuned.heads)
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
        plan.dtype,
    )


def choose(tuned: Sequence[Tuned], run: Run, config: Config) -> Chosen:
    """The validation accuracy of each row at each rate."""
    return Chosen(
        {
            row: {
                rate: validation_accuracy(TRAINING.load(run, Training(row, rate, config.seed).name))
                for rate in config.rates
            }
            for row in tuned
        }
    )


def right(answers: Answers) -> str:
    """The accuracy of a training in words, on validation questions if there are any."""
    on_validation = validation_accuracy(answers)
    if isnan(on_validation):
        return f"{answers.accuracy:.1%} of all questions right"
    return f"{on_validation:.1%} of validation right"


if __name__ == "__main__":
    command(main, "does_tuning_help", __doc__, shares=False)
