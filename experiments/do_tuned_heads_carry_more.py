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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.runs import Run
from experiments.does_tuning_help.models import AfterTuning
from experiments.does_tuning_help.training import World
from experiments.results import CARRYING
from experiments.settings import (
    CONTROL_SETS,
    Experiment,
    PooledSample,
    control_questions,
    control_sets,
    pooled,
    pooled_samples,
)


@dataclass(frozen=True)
class Config(PooledSample):
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
    pairs = pooled(pooled_samples(model, config))
    heads = tuned[0].heads
    sets = {"whole": (), "without": heads} | control_sets(heads, model, config)
    chosen = control_questions([q.task for q in questions], config.control_limit, config.seed)
    subsets = {
        name: [*chosen] if name.startswith(CONTROL_SETS) else [*range(len(questions))]
        for name in sets
    }
    answer_without(model, "before", sets, pairs, questions, subsets, run)
    for tuned_model in tuned:
        loaded = tuned_model.load(config)
        answer_without(loaded, tuned_model.name, sets, pairs, questions, subsets, run)


def _plan(model: al.HookedModel, question: AfterTuning[Config]) -> str:
    config, n_models = question.settings, 1 + len(question.models)
    n_questions = len(World(0, config.questions).test_questions())
    tasks = [question.task for question in World(0, config.questions).test_questions()]
    n_controls = len(control_questions(tasks, config.control_limit, config.seed))
    return (
        f"{n_questions} questions, each answered twice by {n_models} models; {n_controls} of them "
        f"another {2 * config.controls} times"
    )


def answer_without(
    model: al.HookedModel,
    name: str,
    sets: Mapping[str, Sequence[al.Head]],
    pairs: al.PromptPairs,
    questions: list[Question],
    subsets: Mapping[str, list[int]],
    run: Run,
) -> None:
    """A model's answers under every knockout, each to its subset of the questions, by index.

    The means are over the same prompts for all models, but each model has its own means.
    """
    run.admit(model)
    means = counterfactual_means(model, pairs)
    for label, heads in sets.items():
        hooks = knockout_hooks(model, heads, means) if heads else []
        settings = {
            "hooks": hooks,
            "whole_words": False,
            "run": run,
            "name": CARRYING.name(name, label),
        }
        facts = {"heads": [str(head) for head in heads], "questions": subsets[label]}
        some = [questions[i] for i in subsets[label]]
        al.answer_questions(model, some, facts=facts, progress=True, **settings)


EXPERIMENT = Experiment(
    "do_tuned_heads_carry_more",
    Config,
    compute,
    _plan,
    figure="carrying",
    question=AfterTuning.of_precise,
    identity=lambda question: question.identity,
)
main = EXPERIMENT.main()
