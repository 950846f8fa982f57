"""What else breaks without the key heads? Word problems and generic tasks, before and after.

The paper's transfer (section 5.1: SVAMP) and control (Appendix E: MMLU humanities). Without
`--data-dir`, the questions are the closed world's: unseen word problems and generic tasks. Heads
are chosen by their mean effect over the four operations and replaced by one vector, their mean over
the counterfactuals, at every token but BOS, generated ones too. Other sets are every head that is
key in some operation, and two kinds of control: heads drawn from all heads, and heads of the same
layers as the strongest ones, drawn from all heads but these. Saves a run under
results/what_else_breaks/, which `figures/transfer.py` prints.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.reference.sets import world_questions
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import ANSWERS
from experiments.selection import some_questions
from experiments.settings import (
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
class Config(PooledSampleSettings):
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


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Answer every question with each set of heads knocked out."""
    tasks, pairs = transfer_questions(config), pooled_samples(model, config)
    sets = head_sets(run, model, pairs, config)
    answer_without(run, model, tasks, sets, pooled(pairs), config, ANSWERS.name)


def _plan(model: al.HookedModel, config: Config) -> str:
    tasks = [question.task for question in transfer_questions(config)]
    counts = dict(Counter(tasks))
    n_controls = len(some_questions(tasks, config.control_limit, config.seed))
    return (
        f"{len(tasks)} questions ({counts}), each answered 4 times; {n_controls} of them another "
        f"{2 * config.controls} times"
    )


@exit_on_user_error()
def transfer_questions(config: Config) -> list[Question]:
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


main = Experiment("what_else_breaks", Config, compute, _plan, figure="transfer")
