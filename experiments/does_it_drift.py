"""Does a tuned model's accuracy drift over thousands of answers?

Unseen word problems in random order, one chunk after another, asked of the model as it was and of
each precisely tuned one (Table 1); at the end the first chunk again, whose answers must be the same
to the letter. A model keeps nothing from one prompt to the next, so a drift would be a fault of the
program (a hook left behind, weights that move, a cache that is kept). Reads the newest finished run
of experiments/does_tuning_help, and saves one under results/does_it_drift/, which
`figures/drift.py` draws.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

import arith_lens as al
from arith_lens.answers import Answers, Question, trend
from arith_lens.reference.sets import world_questions
from arith_lens.runs import Run
from experiments.command import command, exit_on_user_error
from experiments.does_tuning_help.tuned import precise_models, tuning_run
from experiments.results import DRIFT


@dataclass(frozen=True)
class Config:
    """Does a tuned model's accuracy drift?"""

    model: str = "reference"
    """The model that was tuned: a shipped one's name, a Hugging Face id, or a directory."""
    questions: int = 4000
    """Word problems of the test set, drawn at random; 0 takes all."""
    chunk: int = 250
    """Questions a point of the figure."""
    seed: int = 0
    """Of their order."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Ask, save and say.

    Args:
        config: what to compute.
        root: where runs are kept, that of the tuning among them.
        dry_run: print what would be asked, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    asked = in_random_order(config)
    with exit_on_user_error():
        tuned = precise_models(tuning_run(config.model, root))
    if dry_run:
        print(f"{len(asked)} questions, each answered by {1 + len(tuned)} models")
        return
    with exit_on_user_error():
        model = al.load_model(config.model)
        told = {**vars(config), "tuned": [one.sha256 for one in tuned]}
        opened = al.open_run("does_it_drift", told, model=model, root=root, again=again)
    with opened as run:
        if again or not DRIFT.is_in(run, "before"):
            ask(model, asked, config, run, "before")
        for one in tuned:
            if again or not DRIFT.is_in(run, one.name):
                ask(one.load(), asked, config, run, one.name)
    report(run)


def in_random_order(config: Config) -> list[Question]:
    """The test problems of all families, mixed."""
    questions = world_questions("word_problems_test")
    order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(config.seed))
    return [questions[i] for i in order.tolist()][: config.questions or None]


def ask(model: Any, asked: list[Question], config: Config, run: Run, name: str) -> None:
    """All chunks one after another, then the first again."""
    chunks = [asked[start : start + config.chunk] for start in range(0, len(asked), config.chunk)]
    answered = [al.answer_questions(model, chunk) for chunk in [*chunks, chunks[0]]]
    *kept, repeated = answered
    same = sum(a == b for a, b in zip(kept[0].said, repeated.said, strict=True))
    whole = Answers(
        torch.cat([part.correct for part in kept]),
        *(sum((getattr(part, text) for part in kept), ()) for text in ("said", "expected", "task")),
    )
    DRIFT.save(run, whole, name, repeated=len(repeated), same=same)


def report(run: Run) -> None:
    """Print each model's trend."""
    for name in DRIFT.labels(run):
        answers, facts = DRIFT.load(run, name), DRIFT.facts(run, name)
        found = trend(answers.correct)
        low, high = (100 * end for end in found.ci())
        print(
            f"{name}: {answers.accuracy:.1%} of {len(answers)}; {100 * found.slope:+.2f} points a "
            f"thousand answers [{low:+.2f}, {high:+.2f}], {'flat' if found.flat else 'NOT flat'}; "
            f"the first {facts['repeated']} again at the end: {facts['same']} answers the same"
        )
    print(f"saved in {run.path}; python -m figures drift --model {run.config['model']} draws it")


if __name__ == "__main__":
    command(main, "does_it_drift", __doc__, shares=False)
