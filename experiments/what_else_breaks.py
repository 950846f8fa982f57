"""What else breaks without the key heads? Word problems and generic tasks, before and after.

The paper's transfer (section 5.1: SVAMP) and control (Appendix E: MMLU humanities). Without
`--data-dir` the closed world's own sets stand in: its unseen word problems and its generic tasks.
Heads are chosen by their mean effect over the four operations and replaced by one vector, their
mean over the counterfactuals, at every token but BOS, generated ones too. Beside them: every head
that is key in some operation, and random sets. Saves a run under results/what_else_breaks/, which
`figures/transfer.py` prints.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, knockout_hooks, random_order
from arith_lens.problems import FOUR
from arith_lens.reference.questions import world_questions
from arith_lens.runs import Run
from experiments.command import command
from experiments.strongest import all_operations, by_effect
from experiments.which_heads import Dtype, fitting_engine, said_plainly

MATH, GENERIC = ("gsm8k", "svamp"), "mmlu"


@dataclass(frozen=True)
class Config:
    """What else breaks without the key heads? Word problems and generic tasks."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    data_dir: Path | None = None
    """Holds gsm8k/, svamp/ and mmlu/; the closed world's sets if not given."""
    heads: int = 10
    """How many heads the strongest are."""
    controls: int = 3
    """Random sets of as many heads."""
    limit: int = 150
    """Questions of each task, drawn at random; 0 takes all."""
    shots: int = 5
    """Examples in front of a question of MMLU."""
    n: int | None = None
    """Distinct reference prompts an operation that heads are found with; all if not given."""
    seed: int = 0
    """Of the sampling, and the first of the random sets."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Compute, save and say where.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what would be asked, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    dtype = None if config.dtype is None else getattr(torch, config.dtype)
    with said_plainly():
        asked = questions(config)
    if dry_run:
        counts = {task: len(listed) for task, listed in _by_task(asked).items()}
        print(f"{len(asked)} questions ({counts}), each answered {4 + config.controls} times")
        return
    with said_plainly():
        model = al.load_model(config.model, dtype=dtype, device=config.device)
        opened = al.open_run("what_else_breaks", config, model=model, root=root, again=again)
    with opened as run:
        sets = head_sets(model, config, run)
        means = counterfactual_means(model, all_operations(model, n=config.n, seed=config.seed))
        for name, heads in sets.items():
            if again or name not in run.names:
                hooks = knockout_hooks(model, heads, means) if heads else []
                answers = al.answer_questions(model, asked, hooks=hooks, whole_words=False)
                run.save(name, answers, heads=[str(head) for head in heads])
    print(f"saved in {run.path}; python -m figures.transfer --model {config.model} prints it")


def questions(config: Config) -> list[Question]:
    """Of every task, at most `limit`."""
    if config.data_dir is None:
        found = world_questions("word_problems_test") + world_questions("generic_test")
    else:
        found = [
            question for name in MATH for question in al.load_questions(name, config.data_dir)
        ] + al.load_questions(GENERIC, config.data_dir, subjects="humanities", shots=config.shots)
    return [
        question
        for listed in _by_task(found).values()
        for question in _some(listed, config.limit, config.seed)
    ]


def _by_task(found: list[Question]) -> dict[str, list[Question]]:
    tasks: dict[str, list[Question]] = defaultdict(list)
    for question in found:
        tasks[question.task].append(question)
    return tasks


def _some(listed: list[Question], limit: int, seed: int) -> list[Question]:
    """`limit` of them at random, in their order; all where there are no more, or it is 0."""
    if not limit or len(listed) <= limit:
        return listed
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(listed), generator=generator)[:limit].sort().values
    return [listed[i] for i in drawn.tolist()]


def head_sets(model: al.HookedModel, config: Config, run: Run) -> dict[str, tuple[al.Head, ...]]:
    """By name: none, key by the mean over operations, key in some operation, strongest, random."""
    with said_plainly():
        pairs = all_operations(model, n=config.n, seed=config.seed)
    effects = al.path_patch(model, pairs, run=run, name="effects", engine=fitting_engine(model))
    of = torch.tensor([FOUR.index(name) for name in pairs.operation or ()])
    in_some = {
        head: None
        for place in range(len(FOUR))
        for head in al.key_heads(effects.heads.select(of == place))
    }
    sets = {
        "none": (),
        "key": tuple(al.key_heads(effects)),
        "key-in-some": tuple(in_some),
        "strongest": by_effect(effects, config.heads),
    }
    for seed in range(config.seed, config.seed + config.controls):
        order = random_order(model.n_layers, model.n_heads, seed)
        sets[f"random-{seed}"] = tuple(order[: config.heads])
    return sets


if __name__ == "__main__":
    command(main, "what_else_breaks", __doc__, shares=False)
