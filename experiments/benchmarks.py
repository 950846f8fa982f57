"""What is a model able to do without its key heads? Word problems, generic tasks, benchmarks."""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.components import NamedHook
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.model.checkpoints import REFERENCE_MODELS
from arith_lens.reference.sets import world_questions
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import ANSWERS, EVALUATION
from experiments.selection import some_questions
from experiments.settings import (
    CONTROL_SETS,
    Experiment,
    PooledSampleSettings,
    answer_without,
    control_sets,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

MATH, GENERIC = ("gsm8k", "svamp"), "mmlu"


@dataclass(frozen=True)
class TransferConfig(PooledSampleSettings):
    """What else breaks without the key heads? Word problems and generic tasks."""

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; by default the closed world's sets."""
    heads: int = 10
    """How many of the strongest heads are knocked out."""
    controls: int = 20
    """Control sets of each kind, of as many heads."""
    limit: int = 150
    """Questions of each task, drawn at random; 0 takes all."""
    control_limit: int = 30
    """As many of these questions of each task are answered without control heads; 0 takes all."""
    benchmark_shots: int = 5
    """Examples in front of a question of MMLU."""


def _save_transfer(run: Run, model: al.HookedModel, config: TransferConfig) -> None:
    """Answer every question with each set of heads knocked out."""
    tasks, pairs = transfer_questions(config), pooled_samples(model, config)
    sets = head_sets(run, model, pairs, config)
    answer_without(run, model, tasks, sets, pooled(pairs), config, ANSWERS.name)


def _plan_transfer(model: al.HookedModel, config: TransferConfig) -> str:
    tasks = [question.task for question in transfer_questions(config)]
    counts = dict(Counter(tasks))
    n_controls = len(some_questions(tasks, config.control_limit, config.seed))
    return (
        f"{len(tasks)} questions ({counts}), each answered 4 times; {n_controls} of them another "
        f"{2 * config.controls} times"
    )


@exit_on_user_error()
def transfer_questions(config: TransferConfig) -> list[Question]:
    """At most `limit` questions of every task."""
    if config.data_dir is None:
        every = world_questions("word_problems_test") + world_questions("generic_test")
    else:
        every = [question for name in MATH for question in al.load_questions(name, config.data_dir)]
        options = {"subjects": "humanities", "shots": config.benchmark_shots}
        every += al.load_questions(GENERIC, config.data_dir, **options)
    tasks = [question.task for question in every]
    return [every[i] for i in some_questions(tasks, config.limit, config.seed)]


def head_sets(
    run: Run, model: al.HookedModel, pairs: dict[str, al.PromptPairs], config: TransferConfig
) -> dict[str, tuple[al.Head, ...]]:
    """By name: none, key by mean effect, key in some operation, strongest, and the controls."""
    maps = operation_maps(run, model, pairs)
    effects = pooled_map(run, pairs, maps)
    in_some = [head for of_operation in maps.values() for head in al.key_heads(of_operation.heads)]
    sets = {
        "none": (),
        "key": tuple(al.key_heads(effects)),
        "key-in-some": tuple(dict.fromkeys(in_some)),
        "strongest": strongest_heads(effects, config.heads),
    }
    return sets | control_sets(sets["strongest"], model, config)


what_else_breaks = Experiment(
    "what_else_breaks", TransferConfig, _save_transfer, _plan_transfer, figure="transfer"
)
"""What else breaks without the key heads? Word problems and generic tasks, before and after.

The paper's transfer (section 5.1: SVAMP) and control (Appendix E: MMLU humanities). Without
`--data-dir`, the questions are the closed world's: unseen word problems and generic tasks. Heads
are chosen by their mean effect over the four operations and replaced by one vector, their mean over
the counterfactuals, at every token but BOS, generated ones too. Other sets are every head that is
key in some operation, and two kinds of control: heads drawn from all heads, and heads of the same
layers as the strongest ones, drawn from all heads but these. Saves a run under
results/what_else_breaks/, which `figures/tasks.py` prints.
"""


BENCHMARK_TASKS = ("gsm8k", "addsub", "singleeq", "svamp", "mmlu", "commonsense_qa")
PLAIN, PLAIN_FOR_CONTROLS = "plain", "plain-for-controls"
"""The model as it is, on all questions, and on those that are answered without control heads."""
WORLD_TASKS = ("world_word_problems", "world_two_digit", "world_generic")


@dataclass(frozen=True)
class BenchmarksConfig(PooledSampleSettings):
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


def _save_benchmarks(run: Run, model: al.HookedModel, config: BenchmarksConfig) -> None:
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


def _plan_benchmarks(model: al.HookedModel, config: BenchmarksConfig) -> str:
    limit = "all questions" if config.limit is None else f"the first {config.limit} questions"
    sets = ["as it is", f"without {config.heads} heads", f"{2 * config.controls} controls"]
    conditions = ", ".join(sets if config.heads else sets[:1])
    return f"{', '.join(tasks_of(config))}: {limit} of each, {conditions}"


def limit_of(name: str, config: BenchmarksConfig) -> int | None:
    """How many questions of each task are answered under a knockout; None: all."""
    is_control = name == PLAIN_FOR_CONTROLS or name.startswith(CONTROL_SETS)
    limits = [config.limit, config.control_limit if is_control else None]
    return min((limit for limit in limits if limit is not None), default=None)


def tasks_of(config: BenchmarksConfig) -> tuple[str, ...]:
    """The tasks of the settings; else the benchmarks, or the closed world's tasks."""
    of_world = config.model in REFERENCE_MODELS and config.data_dir is None
    return config.tasks or (WORLD_TASKS if of_world else BENCHMARK_TASKS)


def interventions(
    model: al.HookedModel, config: BenchmarksConfig, run: Run
) -> dict[str, tuple[tuple[al.Head, ...], list[NamedHook]]]:
    """By name: the heads that are knocked out, and the hooks that do it."""
    if not config.heads:
        return {PLAIN: ((), [])}
    pairs = pooled_samples(model, config)
    effects = pooled_map(run, pairs, operation_maps(run, model, pairs))
    strongest = strongest_heads(effects, config.heads)
    sets: dict[str, tuple[al.Head, ...]] = {PLAIN: ()}
    sets |= {PLAIN_FOR_CONTROLS: ()} if config.controls else {}
    sets |= {"strongest": strongest} | control_sets(strongest, model, config)
    means = counterfactual_means(model, pooled(pairs))
    return {
        name: (heads, knockout_hooks(model, heads, means) if heads else [])
        for name, heads in sets.items()
    }


how_good_is_it = Experiment(
    "how_good_is_it", BenchmarksConfig, _save_benchmarks, _plan_benchmarks, figure="benchmarks"
)
"""How good is a model at benchmarks, as it is and without its key heads?

GSM8K, AddSub, SingleEq, SVAMP, MMLU and CommonsenseQA through the lm-evaluation-harness, from the
published files under `--data-dir` or from the hub. A shipped model without `--data-dir` gets its
closed world's tasks. The model answers as it is; without the heads of the most negative mean effect
over the four operations (each replaced by one vector, its mean over the counterfactuals, at every
token but BOS); and without control heads, as many drawn from all heads, and as many of the same
layers drawn from all heads but these. Saves a run under results/how_good_is_it/,
question by question, which `figures/tasks.py` prints. A killed run can be continued.
"""
