"""Do other abilities hang on the tuned heads? Knockout of them before and after tuning.

Negative transfer: tuning could move other abilities into the tuned heads, or damage them. The model
before tuning and each precisely tuned model answer word problems and generic tasks, with and
without the heads that Table 1 tunes, and without as many random heads. A head is knocked out by one
vector, its mean over the model's own counterfactuals of the four operations, at every token but
BOS. Reads the newest finished run of experiments/does_tuning_help, and saves one under
results/do_tuned_heads_carry_more/, which `figures/carrying.py` prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, knockout_hooks, random_order
from arith_lens.runs import Run
from experiments.command import command
from experiments.does_tuning_help.training import AfterTuning, World
from experiments.results import CARRYING
from experiments.settings import Experiment, PooledSample, pooled, pooled_samples


@dataclass(frozen=True)
class Config(PooledSample):
    """Do other abilities hang on the tuned heads?"""

    questions: int = 500
    """Test questions of each family of word problems; 0 takes all."""
    controls: int = 3
    """Random sets of as many heads."""


def compute(run: Run, model: al.HookedModel, question: AfterTuning[Config]) -> None:
    """Every model's answers under every knockout."""
    config, tuned = question.settings, question.models
    questions = World(0, config.questions).test_questions()
    pairs = pooled(pooled_samples(model, n=config.n, seed=config.seed))
    sets = head_sets(tuned[0].heads, model, config)
    answer_without(model, "before", sets, pairs, questions, run)
    for tuned_model in tuned:
        answer_without(tuned_model.load(config), tuned_model.name, sets, pairs, questions, run)


def _plan(model: al.HookedModel, question: AfterTuning[Config]) -> str:
    config, n_models = question.settings, 1 + len(question.models)
    n_questions = len(World(0, config.questions).test_questions())
    times = n_models * (2 + config.controls)
    return f"{n_questions} questions, each answered {times} times, by {n_models} models"


def head_sets(
    heads: Sequence[al.Head], model: al.HookedModel, config: Config
) -> dict[str, tuple[al.Head, ...]]:
    """The heads to knock out, by name: none, the tuned heads, as many random heads."""
    sets = {"whole": (), "without": tuple(heads)}
    for seed in range(config.seed, config.seed + config.controls):
        order = random_order(model.n_layers, model.n_heads, seed)
        sets[f"random-{seed}"] = tuple(order[: len(heads)])
    return sets


def answer_without(
    model: al.HookedModel,
    name: str,
    sets: Mapping[str, Sequence[al.Head]],
    pairs: al.PromptPairs,
    questions: list[Question],
    run: Run,
) -> None:
    """A model's answers under every knockout.

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
        facts = {"heads": [str(head) for head in heads]}
        al.answer_questions(model, questions, facts=facts, progress=True, **settings)


def report(run: Run) -> None:
    """`figures/carrying.py` prints it."""


EXPERIMENT = Experiment(
    "do_tuned_heads_carry_more",
    Config,
    compute,
    _plan,
    report,
    figure="carrying",
    question=AfterTuning.find,
    identity=lambda question: question.identity,
)
main = EXPERIMENT.main()

if __name__ == "__main__":
    command(main, "do_tuned_heads_carry_more", __doc__, shares=False)
