"""Do the strongest heads depend on the counterfactual? Three kinds of it, on the same problems.

A counterfactual prompt replaces the operator by a word without meaning (`word`), the operator by
another one (`operator`), or the operands by others (`operands`). For each operation and kind, every
head and MLP is patched. Saves a run under results/which_counterfactual/, which
`figures/counterfactuals.py` draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import arith_lens as al
from arith_lens.runs import Run
from experiments.results import COUNTERFACTUAL_MAP
from experiments.settings import (
    Experiment,
    Metric,
    SampleSettings,
    drawn_pairs,
    plan_maps,
    print_shared,
    save_maps,
)

COMPARED_KINDS = ("word", "operator", "operands")


@dataclass(frozen=True)
class Config(SampleSettings):
    """Do the strongest heads depend on the counterfactual? Three kinds of it, side by side."""

    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation and kind of counterfactual."""
    save_maps(run, model, COUNTERFACTUAL_MAP, _pairs(model, config), metric=config.metric)


def _pairs(
    model: al.HookedModel, config: Config, *, keep: str = "correct"
) -> Iterator[tuple[tuple[str, str], al.PromptPairs]]:
    """The pairs of each operation and kind.

    The kinds have the same reference prompts, where all kinds align.
    """
    for operation, kind in product(config.operations, COMPARED_KINDS):
        options = {"counterfactual": kind, "keep": keep}
        pairs = drawn_pairs(model, operation, config, problems=config.problems, **options)
        yield (operation, kind), pairs


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    return plan_maps(model, _pairs(model, config, keep="all"))


def report(run: Run) -> None:
    """For each operation, print the strongest heads of each kind, and how many they share."""
    for operation in run.config["operations"]:
        print_shared(run, COUNTERFACTUAL_MAP, operation, COMPARED_KINDS)


main = Experiment(
    "which_counterfactual", Config, compute, _plan, report, figure="counterfactuals", shares=True
)
