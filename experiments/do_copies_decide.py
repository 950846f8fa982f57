"""Do the same heads matter where no answer can be copied? Larger numbers, computed problems alone.

In most products and quotients of single digits the answer equals an operand, so that a head which
copies looks like one which calculates. With larger operands there are enough problems whose
answer's token is no token of the prompt. This experiment compares the maps of both sets of
problems. Saves a run under results/do_copies_decide/, which `figures/counterfactuals.py`
draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import arith_lens as al
from arith_lens.runs import Run
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import SET_MAP
from experiments.selection import LARGEST_OPERAND
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Metric,
    PooledSample,
    Problems,
    drawn_pairs,
    fitting_engine,
)

SETS: Mapping[str, Problems] = {"one-digit": "any", "computed": "computed"}
"""All problems of single digits; computed problems of larger operands."""


@dataclass(frozen=True)
class Config(PooledSample):
    """Do the same heads matter where no answer can be copied?"""

    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation and set of problems."""
    engine = fitting_engine(model)
    for operation in LARGEST_OPERAND:
        with continue_after_part():
            for label in SETS:
                pairs = _pairs(model, operation, label, config)
                name = SET_MAP.name(operation, label)
                al.path_patch(model, pairs, metric=config.metric, engine=engine, run=run, name=name)


def _pairs(
    model: al.HookedModel, operation: str, label: str, config: Config, *, keep: str = "correct"
) -> al.PromptPairs:
    """The pairs of a set of problems."""
    with exit_on_user_error():
        return drawn_pairs(model, operation, config, problems=SETS[label], keep=keep)


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    engine = fitting_engine(model)
    return "\n".join(
        f"{operation}, {label}: "
        f"{al.plan(model, _pairs(model, operation, label, config, keep='all'), engine=engine)}"
        f"{BEFORE_FILTER}"
        for operation in LARGEST_OPERAND
        for label in SETS
    )


def report(run: Run) -> None:
    """For each operation, print the strongest heads of both sets, and how many they share."""
    for operation in LARGEST_OPERAND:
        top = {label: SET_MAP.load(run, operation, label).heads.top(10) for label in SETS}
        for label, heads in top.items():
            problems = SET_MAP.facts(run, operation, label).get("problems")
            print(f"{operation}, {label}, {problems} problems: {', '.join(map(str, heads))}")
        print(f"  {len(set.intersection(*map(set, top.values())))} of 10 heads in both")


EXPERIMENT = Experiment("do_copies_decide", Config, compute, _plan, report, figure="computed")
main = EXPERIMENT.main()
SHARES = True  # several processes share its work
