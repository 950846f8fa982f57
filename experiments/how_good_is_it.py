"""How good is a model at benchmarks, as it is and without its key heads?

GSM8K, AddSub, SingleEq, SVAMP, MMLU and CommonsenseQA through the lm-evaluation-harness, from the
published files under `--data-dir` or from the hub. A shipped model without `--data-dir` gets its
closed world's tasks. The model answers as it is; without the heads of the most negative mean effect
over the four operations (each replaced by one vector, its mean over the counterfactuals, at every
token but BOS); and without control heads, as many drawn from all heads, and as many of the same
layers drawn from all heads but these. Saves a run under results/how_good_is_it/,
question by question, which `figures/benchmarks.py` prints. A killed run can be continued.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import arith_lens as al
from arith_lens.components import NamedHook
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.model.checkpoints import REFERENCE_MODELS
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import EVALUATION
from experiments.settings import (
    CONTROL_SETS,
    Experiment,
    PooledSampleSettings,
    control_sets,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

BENCHMARK_TASKS = ("gsm8k", "addsub", "singleeq", "svamp", "mmlu", "commonsense_qa")
PLAIN, PLAIN_FOR_CONTROLS = "plain", "plain-for-controls"
"""The model as it is, on all questions, and on those that are answered without control heads."""
WORLD_TASKS = ("world_word_problems", "world_two_digit", "world_generic")


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """How good is a model at benchmarks, as it is and without its key heads?"""

    tasks: tuple[str, ...] = ()
    """Names of `al.evaluate`; by default the six benchmarks, or the closed world's tasks."""
    data_dir: Path | None = None
    """Holds gsm8k/, svamp/, addsub/, singleeq/, mmlu/ and csqa/; by default the hub."""
    limit: int | None = None
    """The first so many questions of each task, and of each subject of MMLU."""
    benchmark_shots: dict[str, int] = field(default_factory=dict)
    """Worked examples by task, such as gsm8k 5; by default as published results have them."""
    max_new_tokens: int | None = None
    """Of a written answer; by default what the task says, mostly 256."""
    heads: int = 10
    """How many heads are knocked out; 0: only the model as it is."""
    controls: int = 20
    """Control sets of each kind, of as many heads."""
    control_limit: int | None = 30
    """The first so many questions of each task that are answered without control heads, if fewer
    than `limit`; None: as many as without the strongest heads."""
    batch_size: int | None = None
    """Prompts per batch, at most."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The benchmarks, as the model is and under each knockout."""
    with exit_on_user_error():
        for name, (heads, hooks) in interventions(model, config, run).items():
            started = time.monotonic()
            result = al.evaluate(
                model,
                tasks_of(config),
                hooks=hooks,
                limit=limit_of(name, config),
                data_dir=config.data_dir,
                shots=config.benchmark_shots or None,
                max_new_tokens=config.max_new_tokens,
                too_long="truncate",
                batch_size=config.batch_size,
                run=run,
                name=EVALUATION.name(name),
                facts={"heads": [str(head) for head in heads]},
            )
            out = f"without {', '.join(map(str, heads))}" if heads else "as it is"
            print(f"\n{config.model} {out} ({time.monotonic() - started:.0f} s)\n{result}")


def _plan(model: al.HookedModel, config: Config) -> str:
    limit = "all questions" if config.limit is None else f"the first {config.limit} questions"
    sets = ["as it is", f"without {config.heads} heads", f"{2 * config.controls} controls"]
    conditions = ", ".join(sets if config.heads else sets[:1])
    return f"{', '.join(tasks_of(config))}: {limit} of each, {conditions}"


def limit_of(name: str, config: Config) -> int | None:
    """How many questions of each task are answered under a knockout; None: all."""
    is_control = name == PLAIN_FOR_CONTROLS or name.startswith(CONTROL_SETS)
    limits = [config.limit, config.control_limit if is_control else None]
    return min((limit for limit in limits if limit is not None), default=None)


def tasks_of(config: Config) -> tuple[str, ...]:
    """The tasks of the settings; else the benchmarks, or the closed world's tasks."""
    if config.tasks:
        return config.tasks
    return (
        WORLD_TASKS
        if config.model in REFERENCE_MODELS and config.data_dir is None
        else BENCHMARK_TASKS
    )


def interventions(
    model: al.HookedModel, config: Config, run: Run
) -> dict[str, tuple[tuple[al.Head, ...], list[NamedHook]]]:
    """By name: the heads that are knocked out, and the hooks that do it."""
    chosen: dict[str, tuple[tuple[al.Head, ...], list[NamedHook]]] = {PLAIN: ((), [])}
    if not config.heads:
        return chosen
    if config.controls:
        chosen[PLAIN_FOR_CONTROLS] = (), []
    pairs = pooled_samples(model, config)
    effects = pooled_map(run, pairs, operation_maps(run, model, pairs))
    strongest = strongest_heads(effects, config.heads)
    sets = {"strongest": strongest} | control_sets(strongest, model, config)
    means = counterfactual_means(model, pooled(pairs))
    for name, heads in sets.items():
        chosen[name] = heads, knockout_hooks(model, heads, means)
    return chosen


main = Experiment("how_good_is_it", Config, compute, _plan, figure="benchmarks")
