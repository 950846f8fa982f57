"""One training and the questions after it: what a worker process does."""

import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import arith_lens as al
from arith_lens.answers import Answers
from experiments.does_tuning_help.settings import Training
from experiments.does_tuning_help.tasks import Benchmarks, World


@dataclass(frozen=True)
class Recipe:
    """What all trainings share; the rest is as `fine_tune` has it, which is the paper's."""

    epochs: int
    batch: int
    micro_batch: int | None = None
    bf16: bool = False
    recompute: bool = False  # gradient checkpointing
    save_every: int = 100  # steps that a training which is broken off may lose

    def settings(self, rate: float, *, seed: int, end_with_eos: bool) -> dict[str, Any]:
        """As arguments of `fine_tune`."""
        return {
            "learning_rate": rate,
            "epochs": self.epochs,
            "batch_size": self.batch,
            "micro_batch": self.micro_batch,
            "bf16": self.bf16,
            "gradient_checkpointing": self.recompute,
            "save_every": self.save_every,
            "seed": seed,
            "end_with_eos": end_with_eos,
        }


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
    dtype: str = "float32"  # in which the model is asked, before as after


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
        **job.recipe.settings(
            job.training.rate, seed=job.training.seed, end_with_eos=job.study.end_with_eos
        ),
    )
    gc.collect()  # the Trainer holds itself, and with it the optimizer's state
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    tuned_model = al.load_model(
        result.model(),
        dtype=getattr(torch, job.dtype),
        device=job.device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
    answers, told = job.study.ask(tuned_model, job.output)
    return answers, described(job) | told | {
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


def described(job: Job) -> dict[str, Any]:
    """Which training a result is of, for its facts."""
    return {
        **asdict(job.training.tuned),
        "rate": job.training.rate,
        "seed": job.training.seed,
    }
