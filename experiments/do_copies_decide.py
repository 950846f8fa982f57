"""Do the same heads matter where no answer can be copied? Larger numbers, computed problems alone.

In most products and quotients of single digits the answer equals an operand, so that a head which
copies looks like one which calculates. With larger operands there are enough problems whose
answer's token is no token of the prompt. This experiment compares the maps of both sets of
problems. Saves a run under results/do_copies_decide/, which `figures/counterfactuals.py`
draws.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import arith_lens as al
from arith_lens.runs import Run
from experiments.results import SET_MAP
from experiments.selection import LARGEST_OPERAND
from experiments.settings import (
    Experiment,
    Metric,
    PooledSampleSettings,
    Problems,
    drawn_pairs,
    plan_maps,
    print_shared,
    save_maps,
)

PROBLEM_SETS: Mapping[str, Problems] = {"one-digit": "any", "computed": "computed"}
"""All problems of single digits; computed problems of larger operands."""


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """Do the same heads matter where no answer can be copied?"""

    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation and set of problems."""
    save_maps(run, model, SET_MAP, _pairs(model, config), metric=config.metric)


def _pairs(
    model: al.HookedModel, config: Config, *, keep: str = "correct"
) -> Iterator[tuple[tuple[str, str], al.PromptPairs]]:
    """The pairs of each operation and set of problems."""
    for operation, (label, problems) in product(LARGEST_OPERAND, PROBLEM_SETS.items()):
        pairs = drawn_pairs(model, operation, config, problems=problems, keep=keep)
        yield (operation, label), pairs


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    return plan_maps(model, _pairs(model, config, keep="all"))


def report(run: Run) -> None:
    """For each operation, print the strongest heads of both sets, and how many they share."""
    for operation in LARGEST_OPERAND:
        print_shared(run, SET_MAP, operation, PROBLEM_SETS)


main = Experiment(
    "do_copies_decide", Config, compute, _plan, report, figure="computed", shares=True
)
