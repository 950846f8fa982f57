"""Does the gain of tuning hold on questions that were not tuned on?

Tuning sees four families of word problems, in fixed wordings and ranges of numbers. The model
before tuning and those that Table 1 tuned (everything, the strongest heads, LoRA, random heads; at
both chosen rates) answer unseen problems of these families, the same problems in other wordings,
problems with larger numbers, and calculations of other kinds. Reads the newest finished run of
experiments/does_tuning_help, uses the models whose weights are stored, and saves a run under
results/does_the_gain_hold/, which `figures/generalisation.py` draws.
"""

from dataclasses import asdict, dataclass, replace

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.reference.sets import unfamiliar_questions
from arith_lens.runs import Run
from experiments.does_tuning_help.models import AfterTuning
from experiments.results import GENERALISATION_ANSWERS, UNTUNED_ANSWERS
from experiments.settings import Experiment, ModelSettings


@dataclass(frozen=True)
class Config(ModelSettings):
    """Does the gain of tuning hold on questions that were not tuned on?"""

    questions: int = 50
    """Questions of each family or operation in each set, at most; each problem once."""


def compute(run: Run, model: al.HookedModel, question: AfterTuning[Config]) -> None:
    """The answers of the model before tuning and of each tuned one."""
    unfamiliar = generalisation_questions(question.settings)

    def answer(model: al.HookedModel, name: str, **facts: object) -> None:
        settings = {"whole_words": False, "run": run, "name": GENERALISATION_ANSWERS.name(name)}
        al.answer_questions(model, unfamiliar, facts=facts, progress=True, **settings)

    answer(model, UNTUNED_ANSWERS.name())
    for tuned in question.models:
        training = tuned.training
        tuned_model = tuned.load(question.settings)
        run.admit(tuned_model)
        facts = {"rate": training.rate, "seed": training.seed, "chosen_for": tuned.chosen_for}
        answer(tuned_model, training.name, **asdict(training.tuned), **facts)


def generalisation_questions(config: Config) -> list[Question]:
    """The questions of all sets; the task of each is its set and its family or operation."""
    return [
        replace(question, task=f"{name}/{question.task}")
        for name, of_set in unfamiliar_questions(config.questions).items()
        for question in of_set
    ]


def _plan(model: al.HookedModel, question: AfterTuning[Config]) -> str:
    n_questions, n_models = (
        len(generalisation_questions(question.settings)),
        1 + len(question.models),
    )
    return f"{n_questions} questions, each answered by {n_models} models"


main = Experiment(
    "does_the_gain_hold",
    Config,
    compute,
    _plan,
    figure="generalisation",
    question=AfterTuning.of_every_method,
    identity=lambda question: question.identity,
)
