"""Does a tuned model's accuracy drift over thousands of answers?

The model before tuning and each precisely tuned one (Table 1) answer unseen word problems in random
order, one chunk after another. At the end they answer the first chunk again; these answers must be
exactly the same. A model keeps nothing from one prompt to the next, so a drift would be a fault of
the program (a hook that stays, weights that change, a cache that is not cleared). Reads the newest
finished run of experiments/does_tuning_help, and saves one under results/does_it_drift/, which
`figures/drift.py` draws.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

import arith_lens as al
from arith_lens.answers import Answers, Question, trend
from arith_lens.arrays import Arrays
from arith_lens.reference.sets import world_questions
from arith_lens.runs import ResultSlot, Run
from experiments.command import command
from experiments.does_tuning_help.training import AfterTuning
from experiments.results import DRIFT
from experiments.settings import Experiment, ModelSettings


@dataclass(frozen=True)
class Config(ModelSettings):
    """Does a tuned model's accuracy drift?"""

    questions: int = 4000
    """Word problems of the test set, drawn at random; 0 takes all."""
    chunk: int = 250
    """Questions per point of the figure."""
    seed: int = 0
    """The seed of their order."""


def compute(run: Run, model: al.HookedModel, question: AfterTuning[Config]) -> None:
    """The answers of the model before tuning and of each tuned one."""
    config = question.settings
    answer_in_order(model, config, run, "before")
    for tuned in question.models:
        tuned_model = tuned.load(config)
        run.admit(tuned_model)
        answer_in_order(tuned_model, config, run, tuned.name)


def _plan(model: al.HookedModel, question: AfterTuning[Config]) -> str:
    n_questions = len(in_random_order(question.settings))
    return f"{n_questions} questions, each answered by {1 + len(question.models)} models"


def in_random_order(config: Config) -> list[Question]:
    """The test problems of all families, mixed."""
    questions = world_questions("word_problems_test")
    order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(config.seed))
    return [questions[i] for i in order.tolist()][: config.questions or None]


def answer_in_order(model: al.HookedModel, config: Config, run: Run, name: str) -> None:
    """Answer all chunks, then the first one again; a killed run continues at its chunk."""
    questions = in_random_order(config)
    starts = range(0, len(questions), config.chunk)
    chunks = [questions[start : start + config.chunk] for start in starts]
    answers = _answers(model, [*chunks, chunks[0]], run, name)
    n, repeated = len(questions), answers.said[len(questions) :]
    same = sum(a == b for a, b in zip(answers.said, repeated, strict=False))
    first_time = answers.select([index < n for index in range(len(answers))])
    DRIFT.save(run, first_time, name, repeated=len(repeated), same=same)


def _answers(model: al.HookedModel, chunks: list[list[Question]], run: Run, name: str) -> Answers:
    digest = hashlib.sha256(repr(chunks).encode()).hexdigest()
    slot = ResultSlot.of(run, DRIFT.name(name), model, None, method="does_it_drift", chunks=digest)
    if (stored := slot.stored(progress=True)) is not None:
        return Answers.from_arrays(stored)

    def answer_chunk(index: int) -> Arrays:
        return al.answer_questions(model, chunks[index]).to_arrays()

    bar: dict[str, Any] = {"title": name, "unit": "question", "sizes": [*map(len, chunks)]}
    shards = slot.shards(answer_chunk, len(chunks), progress=True, **bar)
    return slot.save(_joined([Answers.from_arrays(shard) for shard in shards]))


def _joined(parts: Sequence[Answers]) -> Answers:
    texts = (
        sum((getattr(part, name) for part in parts), ()) for name in ("said", "expected", "task")
    )
    return Answers(torch.cat([part.correct for part in parts]), *texts)


def report(run: Run) -> None:
    """Print each model's trend."""
    for name in DRIFT.labels(run):
        answers, facts = DRIFT.load(run, name), DRIFT.facts(run, name)
        drift = trend(answers.correct)
        low, high = (100 * end for end in drift.ci())
        print(
            f"{name}: {answers.accuracy:.1%} of {len(answers)}; {100 * drift.slope:+.2f} points a "
            f"thousand answers [{low:+.2f}, {high:+.2f}], {'flat' if drift.flat else 'NOT flat'}; "
            f"the first {facts['repeated']} again at the end: {facts['same']} answers the same"
        )


EXPERIMENT = Experiment(
    "does_it_drift",
    Config,
    compute,
    _plan,
    report,
    figure="drift",
    question=AfterTuning.find,
    identity=lambda question: question.identity,
)
main = EXPERIMENT.main()

if __name__ == "__main__":
    command(main, "does_it_drift", __doc__, shares=False)
