"""Which published word problems does a model answer at once, and which heads do they depend on?

The prompts are questions of SVAMP and GSM8K whose whole answer is one digit, and "The answer is ".
A pair is used if the model gives the answer after the question, and no longer gives it after the
counterfactual question. With fewer than 60 such pairs no head is patched.
Saves a run under results/which_word_problems/, which `figures/predictions.py` reads.
"""

import re
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from jaxtyping import Bool
from torch import Tensor

import arith_lens as al
from arith_lens.benchmarks import load_records
from arith_lens.runs import Run
from arith_lens.word_problems import WordProblem, word_problem_pairs
from arith_lens.word_problems.phrases import question_edits
from experiments.command import exit_on_user_error
from experiments.results import ANSWER_PROBABILITY, MAP
from experiments.settings import Experiment, Metric, ModelSettings, fitting_engine
from experiments.what_the_calculation_does import right_of_both_sides

MIN_PAIRS = 60
"""Pairs that a map needs."""
DIGIT = re.compile(r"(\d)(\.0*)?")


@dataclass(frozen=True)
class Config(ModelSettings):
    """Which word problems does a model answer at once, and which heads do they depend on?"""

    data_dir: Path = Path("data")
    """Holds svamp/ and gsm8k/."""
    datasets: tuple[str, ...] = ("svamp", "gsm8k")
    """Benchmarks of word problems: all questions of the split that results are usually about."""
    seed: int = 0
    """The seed of the draw among the replacements."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Which pairs are answered right, then the map of those that can be used."""
    usable = []
    for name in config.datasets:
        pairs = one_digit_pairs(model, name, config)
        if not ANSWER_PROBABILITY.is_in(run, name):
            ANSWER_PROBABILITY.save(run, right_of_both_sides(model, pairs), name, pairs=pairs)
        usable.append(pairs.filter(_right_and_usable(run, name)[1]))
    if sum(map(len, usable)) >= MIN_PAIRS:
        al.path_patch(
            model,
            reduce(add, usable),
            metric=config.metric,
            engine=fitting_engine(model),
            run=run,
            name=MAP.name("word_problems"),
        )


def one_digit_pairs(model: al.HookedModel, name: str, config: Config) -> al.PromptPairs:
    """The pairs of a benchmark's questions whose whole answer is one digit."""
    with exit_on_user_error():
        problems = [
            WordProblem(
                f"{record.question.strip()} The answer is ",
                digit[1],
                question_edits(record.question.strip()),
                f"{name}/question",
            )
            for record in load_records(name, config.data_dir)
            if (digit := DIGIT.fullmatch(record.gold))
        ]
        return word_problem_pairs(model, problems, seed=config.seed)[0]


def counts(run: Run, name: str) -> tuple[int, int, int]:
    """The pairs of a benchmark: all, those answered right, and those that can be used."""
    right, usable = _right_and_usable(run, name)
    return len(right), int(right.sum()), int(usable.sum())


def _right_and_usable(run: Run, name: str) -> tuple[Bool[Tensor, " pair"], Bool[Tensor, " pair"]]:
    """Which pairs are answered right, and which of them not after the counterfactual question."""
    reference, counterfactual = ANSWER_PROBABILITY.load(run, name).per_pair[:, 1].bool()
    return reference, reference & ~counterfactual


def _plan(model: al.HookedModel, config: Config) -> str:
    return (
        f"{', '.join(config.datasets)}: two forwards per pair, then a map of at least {MIN_PAIRS}"
    )


def report(run: Run) -> None:
    """Print how many are right, and the strongest heads."""
    for name in run.config["datasets"]:
        n, right, usable = counts(run, name)
        print(f"{name}: {right} of {n} right; of these {usable} not after the counterfactual")
    if MAP.is_in(run, "word_problems"):
        print("strongest:", ", ".join(map(str, MAP.load(run, "word_problems").heads.top(10))))
    else:
        print(f"fewer than {MIN_PAIRS} pairs: no map")


main = Experiment("which_word_problems", Config, compute, _plan, report, figure="predictions")
