"""Do the strongest heads depend on the counterfactual? Three kinds of it, on the same problems.

A counterfactual prompt replaces the operator by a word without meaning (`word`), the operator by
another one (`operator`), or the operands by others (`operands`). For each operation and kind, every
head and MLP is patched. Saves a run under results/which_counterfactual/, which
`figures/counterfactuals.py` draws.
"""

from dataclasses import dataclass
from itertools import combinations

import arith_lens as al
from arith_lens.runs import Run
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import COUNTERFACTUAL_MAP
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Metric,
    Sample,
    drawn_pairs,
    fitting_engine,
)

KINDS = ("word", "operator", "operands")


@dataclass(frozen=True)
class Config(Sample):
    """Do the strongest heads depend on the counterfactual? Three kinds of it, side by side."""

    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation and kind of counterfactual."""
    engine = fitting_engine(model)
    for operation in config.operations:
        with continue_after_part():
            for kind, pairs in _pairs(model, operation, config).items():
                name = COUNTERFACTUAL_MAP.name(operation, kind)
                al.path_patch(model, pairs, metric=config.metric, engine=engine, run=run, name=name)


def _pairs(
    model: al.HookedModel, operation: str, config: Config, *, keep: str = "correct"
) -> dict[str, al.PromptPairs]:
    """The pairs of each kind. The reference prompts are the same, where all kinds align."""
    with exit_on_user_error():
        return {
            kind: drawn_pairs(
                model,
                operation,
                config,
                problems=config.problems,
                counterfactual=kind,
                keep=keep,
            )
            for kind in KINDS
        }


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    engine = fitting_engine(model)
    return "\n".join(
        f"{operation}, {kind}: {al.plan(model, pairs, engine=engine)}{BEFORE_FILTER}"
        for operation in config.operations
        for kind, pairs in _pairs(model, operation, config, keep="all").items()
    )


def report(run: Run) -> None:
    """For each operation, print the strongest heads of each kind, and how many they share."""
    for operation in run.config["operations"]:
        top = {kind: COUNTERFACTUAL_MAP.load(run, operation, kind).heads.top(10) for kind in KINDS}
        print(f"\n{operation}")
        for kind, heads in top.items():
            print(f"  {kind:<9} {', '.join(map(str, heads))}")
        for a, b in combinations(KINDS, 2):
            print(f"  {a} and {b}: {len({*top[a]} & {*top[b]})} of 10 heads in both")


EXPERIMENT = Experiment(
    "which_counterfactual", Config, compute, _plan, report, figure="counterfactuals"
)
main = EXPERIMENT.main()
SHARES = True  # several processes share its work
