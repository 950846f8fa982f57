"""Do other abilities hang on the tuned heads? Knockout of them before and after tuning.

Negative transfer: tuning might move other abilities into the tuned heads, or spoil what they did
for them. The heads that Table 1 tunes are replaced by one vector, their mean over the
counterfactuals of the four operations (of the model at hand), at every token but BOS, in the model
as it was and in each precisely tuned one; word problems and generic tasks are asked with the heads
and without. Beside them: as many random heads. Reads the newest finished run of
experiments/does_tuning_help, and saves one under results/do_tuned_heads_carry_more/, which
`figures/carrying.py` prints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, knockout_hooks, random_order
from arith_lens.runs import Run
from experiments.command import command, exit_on_user_error
from experiments.does_tuning_help.tasks import World
from experiments.does_tuning_help.tuned import precise_models, tuning_run
from experiments.results import CARRYING
from experiments.settings import pooled, pooled_samples


@dataclass(frozen=True)
class Config:
    """Do other abilities hang on the tuned heads?"""

    model: str = "reference"
    """The model that was tuned: a shipped one's name, a Hugging Face id, or a directory."""
    questions: int = 500
    """Test questions of each family of word problems; 0 takes all."""
    controls: int = 3
    """Random sets of as many heads."""
    n: int | None = None
    """Distinct reference prompts an operation that means are of; all if not given."""
    seed: int = 0
    """Of the sampling, and the first of the random sets."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Knock out, ask, save and say where.

    Args:
        config: what to compute.
        root: where runs are kept, that of the tuning among them.
        dry_run: print what would be asked, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    questions = World(0, config.questions).test_questions()
    with exit_on_user_error():
        tuned = precise_models(tuning_run(config.model, root))
    if dry_run:
        times = (1 + len(tuned)) * (2 + config.controls)
        print(
            f"{len(questions)} questions, each answered {times} times, by {1 + len(tuned)} models"
        )
        return
    with exit_on_user_error():
        model = al.load_model(config.model)
        settings = {**vars(config), "tuned": [one.sha256 for one in tuned]}
        opened = al.open_run(
            "do_tuned_heads_carry_more", settings, model=model, root=root, again=again
        )
    with opened as run:
        pairs = pooled(pooled_samples(model, n=config.n, seed=config.seed))
        sets = head_sets(tuned[0].heads, model, config)
        todo = {"before": lambda: model, **{one.name: one.load for one in tuned}}
        for name, load in todo.items():
            if again or not CARRYING.is_in(run, name, [*sets][-1]):  # the last to be saved
                answer_without(load(), name, sets, pairs, questions, run)
    print(f"saved in {run.path}; python -m figures carrying --model {config.model} prints it")


def head_sets(
    heads: Sequence[al.Head], model: Any, config: Config
) -> dict[str, tuple[al.Head, ...]]:
    """What is knocked out, by name: nothing, the tuned heads, as many at random."""
    sets = {"whole": (), "without": tuple(heads)}
    for seed in range(config.seed, config.seed + config.controls):
        order = random_order(model.n_layers, model.n_heads, seed)
        sets[f"random-{seed}"] = tuple(order[: len(heads)])
    return sets


def answer_without(
    model: Any,
    name: str,
    sets: Mapping[str, Sequence[al.Head]],
    pairs: al.PromptPairs,
    questions: list[Question],
    run: Run,
) -> None:
    """A model under every knockout. The prompts whose mean stands in are the same for all models,
    the means are each model's own."""
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


if __name__ == "__main__":
    command(main, "do_tuned_heads_carry_more", __doc__, shares=False)
