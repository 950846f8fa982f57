"""What is a model able to do without its key heads? Word problems, generic tasks, benchmarks."""

import time
from collections import Counter

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.components import NamedHook
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.named_models import REFERENCE_MODELS
from arith_lens.reference.sets import world_questions
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.configs.answers import BenchmarksConfig, TransferConfig
from experiments.results import ANSWERS, EVALUATION
from experiments.selection import some_questions
from experiments.settings import (
    CONTROL_SETS,
    Experiment,
    control_sets,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

MATH, GENERIC = ("gsm8k", "svamp"), "mmlu"


def _save_transfer(run: Run, model: al.HookedModel, config: TransferConfig) -> None:
    """Answer every question with each set of heads knocked out; some of them with control sets.

    A head gives one vector, its mean over the counterfactuals, at every token but BOS.
    """
    questions, pairs = transfer_questions(config), pooled_samples(model, config)
    sets = head_sets(run, model, pairs, config)
    means = counterfactual_means(model, pooled(pairs))
    few = some_questions([q.task for q in questions], config.control_limit, config.seed)
    for label, heads in sets.items():
        chosen = few if label.startswith(CONTROL_SETS) else [*range(len(questions))]
        al.answer_questions(
            model,
            [questions[i] for i in chosen],
            hooks=knockout_hooks(model, heads, means) if heads else [],
            whole_words=False,
            run=run,
            name=ANSWERS.name(label),
            facts={"heads": [str(head) for head in heads]},
            progress=True,
        )


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


BENCHMARK_TASKS = ("gsm8k", "addsub", "singleeq", "svamp", "mmlu", "commonsense_qa")
PLAIN, PLAIN_FOR_CONTROLS = "plain", "plain-for-controls"
"""The model as it is, on all questions, and on those that are answered without control heads."""
WORLD_TASKS = ("world_word_problems", "world_two_digit", "world_generic")


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
