"""One training and the questions after it: what a worker process does."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import arith_lens as al
from arith_lens.answers import Answers
from experiments.does_tuning_help.settings import Training
from experiments.does_tuning_help.tasks import Benchmarks, World


@dataclass(frozen=True)
class Recipe:
    """What all trainings share; the rest is as `fine_tune` has it, which is the paper's."""

    epochs: int
    batch: int


@dataclass(frozen=True)
class Job:
    """Everything that a worker needs."""

    training: Training
    source: str
    heads: tuple[al.Head, ...]  # the strongest; the methods lora and random are set against them
    mlps: tuple[al.Mlp, ...]
    recipe: Recipe
    study: World | Benchmarks
    output: Path
    device: str | None = None


def train_and_ask(job: Job) -> tuple[Answers, dict[str, Any]]:
    """The tuned model's answers, and what is worth keeping of the training.

    A training that was broken off in `job.output` goes on; a finished one is not repeated.
    """
    tuned = job.training.tuned
    full = tuned.method == "full"
    result = al.fine_tune(
        job.source,
        job.study.tuning_set(job.training.seed),
        method=tuned.method,
        heads=() if full else job.heads,
        mlps=() if full else job.mlps,
        output=job.output,
        device=job.device,
        progress=False,
        learning_rate=job.training.rate,
        epochs=job.recipe.epochs,
        batch_size=job.recipe.batch,
        seed=job.training.seed,
        end_with_eos=job.study.end_with_eos,
    )
    answers = job.study.ask(al.load_model(result.model()))
    return answers, described(job) | {
        "which_heads": list(result.heads),
        "which_mlps": list(result.mlps),
        "parameters": result.n_tuned,
        "of": result.n_parameters,
        "lora_rank": result.lora_rank,
        "seconds": result.seconds,
        "samples_per_second": result.samples_per_second,
        "losses": [list(point) for point in result.losses],
        "untouched": str(result.untouched),
    }


def described(job: Job) -> dict[str, Any]:
    """Which training a result is of, for its facts."""
    return {
        **asdict(job.training.tuned),
        "rate": job.training.rate,
        "seed": job.training.seed,
    }
