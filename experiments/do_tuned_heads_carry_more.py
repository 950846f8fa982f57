"""Do other abilities hang on the tuned heads? Knockout of them before and after tuning.

Negative transfer: tuning could move other abilities into the tuned heads, or damage them. The model
before tuning and each precisely tuned model answer word problems and generic tasks, with and
without the heads that Table 1 tunes. Some of the questions are also answered without control heads:
as many drawn from all heads, and as many of the same layers, drawn from all heads but the tuned
ones. A head is knocked out by one vector, its mean over the model's own counterfactuals of the
four operations, at every token but BOS. Reads the newest finished run of
experiments/does_tuning_help, and saves one under results/do_tuned_heads_carry_more/, which
`figures/carrying.py` prints.
"""

from dataclasses import dataclass
from functools import partial

import arith_lens as al
from arith_lens.runs import Run
from experiments.does_tuning_help.models import AfterTuning
from experiments.does_tuning_help.training import World
from experiments.results import KNOCKOUT_ANSWERS
from experiments.selection import some_questions
from experiments.settings import (
    Experiment,
    PooledSampleSettings,
    answer_without,
    control_sets,
    pooled,
    pooled_samples,
)


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """Do other abilities hang on the tuned heads?"""

    questions: int = 500
    """Test questions of each family of word problems; 0 takes all."""
    controls: int = 20
    """Control sets of each kind, of as many heads."""
    control_limit: int = 30
    """Questions of each task that are answered without control heads, drawn at random; 0: all."""


def compute(run: Run, model: al.HookedModel, question: AfterTuning[Config]) -> None:
    """Every model's answers under every knockout."""
    config, tuned = question.settings, question.models
    questions = World(0, config.questions).test_questions()
    pairs = pooled(pooled_samples(model, config))  # the same for all models
    heads = tuned[0].heads
    sets = {"whole": (), "without": heads} | control_sets(heads, model, config)
    name = partial(KNOCKOUT_ANSWERS.name, "before")
    answer_without(run, model, questions, sets, pairs, config, name)
    for tuned_model in tuned:
        loaded = tuned_model.load(config)
        run.admit(loaded)
        name = partial(KNOCKOUT_ANSWERS.name, tuned_model.name)
        answer_without(run, loaded, questions, sets, pairs, config, name)


def _plan(model: al.HookedModel, question: AfterTuning[Config]) -> str:
    config, n_models = question.settings, 1 + len(question.models)
    questions = World(0, config.questions).test_questions()
    n_controls = len(some_questions([q.task for q in questions], config.control_limit, config.seed))
    return (
        f"{len(questions)} questions, each answered twice by {n_models} models; {n_controls} of "
        f"them another {2 * config.controls} times"
    )


main = Experiment(
    "do_tuned_heads_carry_more",
    Config,
    compute,
    _plan,
    figure="carrying",
    question=AfterTuning.of_precise,
    identity=lambda question: question.identity,
)
