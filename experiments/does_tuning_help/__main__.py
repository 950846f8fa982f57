"""Does tuning the heads that calculate help, and what does it cost elsewhere? Tables 1, 2 and 5.

Table 1 compares precise tuning of the strongest heads with full tuning, LoRA with as many
parameters, and random heads. Table 2 has more and fewer heads, Table 5 MLPs beside them. Every row
is trained at the same few rates. Two rates are chosen for it and trained with more seeds: the best
for validation problems, and the best of those that lose at most 2 points on half of the generic
questions. Word problems and generic tasks are answered before and after each training. Saves a run
under results/does_tuning_help/, which `python -m figures table1`, `table2`, `table5` and `frontier`
read. A killed run can be continued. Tables share their trainings.
"""

import gc
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isnan
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any, Literal, TypeVar

import torch

import arith_lens as al
from arith_lens.answers import Answers
from arith_lens.fine_tuning import RESULT_FILE
from arith_lens.fine_tuning.results import CHECKPOINT_FOLDER
from arith_lens.model import default_device
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.configs.shared import PooledSampleSettings
from experiments.does_tuning_help import (
    Rates,
    SelectedRates,
    Training,
    TuningRow,
    generic_change,
    generic_to_choose,
    grid,
    repeats,
    validation_accuracy,
)
from experiments.does_tuning_help.plan import (
    TrainingBudget,
    TuningConfig,
    TuningPlan,
    check_named_components,
    empty_hf_model,
    on_gpu,
    planned,
    table_rows,
    trainings_text,
)
from experiments.finding import figure_command
from experiments.rehearsal import rehearse as run_in_small
from experiments.results import CHOSEN_RATES, POOLED_MAP, TUNED_ANSWERS, UNTUNED_ANSWERS
from experiments.settings import (
    loaded_model,
    operation_maps,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

Work = TypeVar("Work")
Result = TypeVar("Result")


def main(
    config: TuningConfig,
    *,
    table: Literal[1, 2, 5] = 1,
    seeds: int = 5,
    processes: int | None = None,
    room: TrainingBudget = TrainingBudget(),  # noqa: B008 -- frozen
    root: Path = Path("results"),
    dry_run: bool = False,
    rehearse: bool = False,
    again: bool = False,
) -> None:
    """Train, evaluate and save.

    Args:
        config: what to compute.
        table: which table; all tables of a configuration share a run.
        seeds: trainings at each chosen rate, with the one of the grid; more can be added later.
        processes: trainings at a time, each with one thread. If not given, 1 on a GPU and on the
            benchmarks, else one per core, at most 4.
        room: memory and disk.
        root: the folder of all runs.
        dry_run: print what would be trained, reading no weights, and stop.
        rehearse: then train in small on the shipped model, and store nothing.
        again: compute the results of an earlier run of this configuration again.
    """
    with exit_on_user_error():
        empty = empty_hf_model(config.model)
        plan = planned(config, empty.config.num_hidden_layers, room)
        tuned = table_rows(table, plan.config)
        check_named_components(plan.config, tuned)
        print(trainings_text(tuned, table, plan, seeds, empty), flush=True)
    if rehearse:
        in_small = partial(main, table=table, seeds=1, processes=1)
        run_in_small(in_small, plan.config, f"table{table}", empty)
    if dry_run or rehearse:
        return
    if processes is None:
        is_alone = plan.config.data_dir is not None or on_gpu(config.device)
        processes = 1 if is_alone else min(os.cpu_count() or 1, 4)
    run, plan = begun(plan, root, again=again)
    with run:
        first = grid(tuned, plan.config.rates, config.seed)
        train_all(first, run, plan, processes, skip=() if again else run.names)
        chosen = choose(tuned, run, plan.config)
        rates = map(chosen.rates_for, chosen.criteria)
        every = repeats(rates, range(config.seed, config.seed + seeds))
        done = {training.name for training in first} if again else {*run.names}
        if room.weights:
            done -= {t.name for t in every if not (weights_folder(run, t) / RESULT_FILE).is_file()}
        train_all(every, run, plan, processes, skip=done)
        CHOSEN_RATES.save(run, chosen, str(table))
    print(f"saved in {run.path}; {figure_command(f'table{table}', run)} prints it")


def begun(plan: TuningPlan, root: Path, *, again: bool) -> tuple[Run, TuningPlan]:
    """The run with the strongest heads and the answers before tuning.

    The model is not returned, so that its memory is free for training.
    """
    model = loaded_model(plan.config)
    plan = plan.with_dtype(model.dtype)
    with exit_on_user_error():
        run = al.open_run("does_tuning_help", plan.identity, model=model, root=root, again=again)
    with run, exit_on_user_error():
        if again:
            shutil.rmtree(run.path / "trainings", ignore_errors=True)
        is_named = bool(plan.config.which_heads)
        if not is_named and (again or not POOLED_MAP.is_in(run)):  # a shipped run has no map
            pairs = pooled_samples(
                model, PooledSampleSettings(n=plan.config.n, seed=plan.config.seed)
            )
            pooled_map(run, pairs, operation_maps(run, model, pairs))
        if again or not UNTUNED_ANSWERS.is_in(run):
            answers, facts = plan.study.ask(model, run.path / "trainings" / "before")
            UNTUNED_ANSWERS.save(run, answers, **facts)
    return run, plan


def weights_folder(run: Run, training: Training) -> Path:
    """Where a training leaves its weights."""
    return run.path / "trainings" / training.name


def train_all(
    trainings: Sequence[Training],
    run: Run,
    plan: TuningPlan,
    processes: int,
    *,
    skip: Collection[str],
) -> None:
    """Do every training that is not in `skip`; save each when it is done."""
    effects = None if plan.config.which_heads else POOLED_MAP.load(run)
    todo = [
        TrainingJob(
            training,
            plan,
            *row_components(training.tuned, effects, plan.config),
            weights_folder(run, training),
        )
        for training in trainings
        if training.name not in skip
    ]
    started = time.monotonic()
    for count, (done, (answers, facts)) in enumerate(
        side_by_side(train_and_ask, todo, processes), 1
    ):
        TUNED_ANSWERS.save(run, answers, done.training.name, **facts)
        if not plan.keep_checkpoints:
            shutil.rmtree(done.output / CHECKPOINT_FOLDER, ignore_errors=True)
        left = (time.monotonic() - started) / count * (len(todo) - count)
        print(
            f"{done.training.name}: {facts['seconds']:.0f} s, {right(answers)}; "
            f"{len(todo) - count} to go, about {left / 60:.0f} min",
            flush=True,
        )


def row_components(
    tuned: TuningRow, effects: al.ComponentEffects | None, config: TuningConfig
) -> tuple[tuple[al.Head, ...], tuple[al.Mlp, ...]]:
    """The heads and MLPs of a row: the strongest of a map, or without one those of the settings."""
    if effects is None:
        heads = tuple(map(al.Head.parse, config.which_heads))
        return heads[: tuned.heads], tuple(map(al.Mlp, config.which_mlps))[: tuned.mlps]
    mlps = (mlp for mlp in effects.mlps.top(tuned.mlps) if isinstance(mlp, al.Mlp))
    return strongest_heads(effects, tuned.heads), tuple(mlps)


def choose(tuned: Sequence[TuningRow], run: Run, config: TuningConfig) -> SelectedRates:
    """The validation accuracy and the loss elsewhere of each row at each rate."""
    before = UNTUNED_ANSWERS.load(run)
    answers = {
        row: {
            rate: TUNED_ANSWERS.load(run, Training(row, rate, config.seed).name)
            for rate in config.rates
        }
        for row in tuned
    }

    def numbers(number: Callable[[Answers], float]) -> dict[TuningRow, Rates]:
        return {
            row: {rate: number(after) for rate, after in by_rate.items()}
            for row, by_rate in answers.items()
        }

    if not any(generic_to_choose(before)):
        return SelectedRates(numbers(validation_accuracy))
    change = partial(generic_change, before)
    return SelectedRates(numbers(validation_accuracy), numbers(change))


def right(answers: Answers) -> str:
    """The accuracy of a training in words, on validation questions if there are any."""
    on_validation = validation_accuracy(answers)
    if isnan(on_validation):
        return f"{answers.accuracy:.1%} of all questions right"
    return f"{on_validation:.1%} of validation right"


@dataclass(frozen=True)
class TrainingJob:
    """Everything that a worker needs."""

    training: Training
    plan: TuningPlan
    heads: tuple[al.Head, ...]
    """The strongest heads; for lora and random, as many are tuned."""
    mlps: tuple[al.Mlp, ...]
    output: Path


def train_and_ask(job: TrainingJob) -> tuple[Answers, dict[str, Any]]:
    """The tuned model's answers, and the facts of the training.

    A training that was stopped in `job.output` is continued, and a finished one is read.
    """
    training, config, study = job.training, job.plan.config, job.plan.study
    full = training.tuned.method == "full"
    result = al.fine_tune(
        config.model,
        study.tuning_set(training.seed),
        method=training.tuned.method,
        heads=() if full else job.heads,
        mlps=() if full else job.mlps,
        output=job.output,
        device=config.device,
        progress=False,
        **asdict(replace(job.plan.recipe, learning_rate=training.rate, seed=training.seed)),
    )
    gc.collect()  # the Trainer holds itself, and with it the optimizer's state
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    model = al.load_model(
        result.model(),
        dtype=getattr(torch, job.plan.dtype),
        device=config.device or default_device(),
    )
    answers, facts = study.ask(model, job.output)
    return answers, training.facts | facts | {
        "which_heads": list(result.heads),
        "which_mlps": list(result.mlps),
        "parameters": result.n_tuned,
        "of": result.n_parameters,
        "lora_rank": result.lora_rank,
        "n_examples": result.n_examples,
        "seconds": result.seconds,
        "samples_per_second": result.samples_per_second,
        "losses": [list(point) for point in result.losses],
        "untouched": str(result.untouched),
    }


def side_by_side(
    work: Callable[[Work], Result], jobs: Sequence[Work], processes: int
) -> Iterator[tuple[Work, Result]]:
    """Run jobs in parallel, each in a process with one thread, and yield each when it is done.

    Two trainings of a small model with one core each are faster than one with two cores. With one
    process, the jobs run in this process. If a job raises an error, it is raised here, and no other
    job is started. `work` and the jobs must be picklable.
    """
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, work(job)
        return
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_start
    ) as pool:
        futures = {pool.submit(work, job): job for job in jobs}
        try:
            for done in as_completed(futures):
                yield futures[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start() -> None:
    """Use one thread, and end with the parent process.

    Otherwise a worker whose parent was killed would wait forever.
    """
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
