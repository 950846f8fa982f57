"""What else breaks without the key heads? Word problems and generic tasks, before and after.

The paper's transfer (section 5.1: SVAMP) and control (Appendix E: MMLU humanities). Without
`--data-dir`, the questions are the closed world's: unseen word problems and generic tasks. Heads
are chosen by their mean effect over the four operations and replaced by one vector, their mean over
the counterfactuals, at every token but BOS, generated ones too. Other sets are every head that is
key in some operation, and two kinds of control: heads drawn from all heads, and heads of the same
layers as the strongest ones, drawn from all heads but these. Saves a run under
results/what_else_breaks/, which `figures/transfer.py` prints.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.reference.sets import world_questions
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import ANSWERS
from experiments.settings import (
    CONTROL_SETS,
    Experiment,
    PooledSample,
    control_questions,
    control_sets,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    some_of,
    strongest_heads,
)

MATH, GENERIC = ("gsm8k", "svamp"), "mmlu"


@dataclass(frozen=True)
class Config(PooledSample):
    """What else breaks without the key heads? Word problems and generic tasks."""

    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; the closed world's sets if not given."""
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


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Answer every question with each set of heads knocked out."""
    with exit_on_user_error():
        tasks = questions(config)
        pairs = pooled_samples(model, config)
    sets = head_sets(run, model, pairs, config)
    means = counterfactual_means(model, pooled(pairs))
    subsets = range(len(tasks)), _control_questions(tasks, config)
    for name, heads in sets.items():
        chosen = subsets[name.startswith(CONTROL_SETS)]
        hooks = knockout_hooks(model, heads, means) if heads else []
        settings = {"hooks": hooks, "whole_words": False, "run": run, "name": ANSWERS.name(name)}
        facts = {"heads": [str(head) for head in heads], "questions": [*chosen]}
        some = [tasks[i] for i in chosen]
        al.answer_questions(model, some, facts=facts, progress=True, **settings)


def _plan(model: al.HookedModel, config: Config) -> str:
    with exit_on_user_error():
        tasks = questions(config)
    counts = {task: len(some) for task, some in _by_task(tasks).items()}
    n_controls = len(_control_questions(tasks, config))
    return (
        f"{len(tasks)} questions ({counts}), each answered 4 times; {n_controls} of them another "
        f"{2 * config.controls} times"
    )


def questions(config: Config) -> list[Question]:
    """At most `limit` questions of every task."""
    if config.data_dir is None:
        every_question = world_questions("word_problems_test") + world_questions("generic_test")
    else:
        every_question = [
            question for name in MATH for question in al.load_questions(name, config.data_dir)
        ] + al.load_questions(
            GENERIC, config.data_dir, subjects="humanities", shots=config.benchmark_shots
        )
    return [
        question
        for of_task in _by_task(every_question).values()
        for question in some_of(of_task, config.limit, config.seed)
    ]


def _control_questions(questions: list[Question], config: Config) -> list[int]:
    tasks = [question.task for question in questions]
    return control_questions(tasks, config.control_limit, config.seed)


def _by_task(questions: list[Question]) -> dict[str, list[Question]]:
    tasks: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        tasks[question.task].append(question)
    return tasks


def head_sets(
    run: Run, model: al.HookedModel, pairs: dict[str, al.PromptPairs], config: Config
) -> dict[str, tuple[al.Head, ...]]:
    """By name: none, key by mean effect, key in some operation, strongest, and the controls."""
    maps = operation_maps(run, model, pairs)
    effects = pooled_map(run, pairs, maps)
    in_some = dict.fromkeys(
        head
        for effects_of_operation in maps.values()
        for head in al.key_heads(effects_of_operation.heads)
    )
    sets = {
        "none": (),
        "key": tuple(al.key_heads(effects)),
        "key-in-some": tuple(in_some),
        "strongest": strongest_heads(effects, config.heads),
    }
    return sets | control_sets(sets["strongest"], model, config)


EXPERIMENT = Experiment("what_else_breaks", Config, compute, _plan, figure="transfer")
main = EXPERIMENT.main()
