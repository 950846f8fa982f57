"""Do the same heads matter where no answer can be copied? Larger numbers, computed problems alone.

In most products and quotients of single digits the answer equals an operand, so that a head which
copies looks like one which calculates. With larger operands there are enough problems whose
answer's token is no token of the prompt. This experiment compares the maps of both sets of
problems. Saves a run under results/do_copies_decide/, which `figures/computed.py` draws.
"""

from dataclasses import dataclass
from typing import Any

import torch

import arith_lens as al
from arith_lens.pairs import keep_correct
from arith_lens.runs import Run
from experiments.command import command, continue_after_part, exit_on_user_error
from experiments.results import SET_MAP
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Metric,
    PooledSample,
    drawn_pairs,
    fitting_engine,
)

LARGEST = {"multiplication": 19, "division": 99}
"""The operations, and the largest operand of their computed problems."""
SETS = ("one-digit", "computed")
"""All problems of single digits; computed problems of larger operands."""


@dataclass(frozen=True)
class Config(PooledSample):
    """Do the same heads matter where no answer can be copied?"""

    metric: Metric = "relative_logit"
    """What is read from the logits."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation and set of problems."""
    engine = fitting_engine(model)
    for operation in LARGEST:
        with continue_after_part():
            for label in SETS:
                pairs = _pairs(model, operation, label, config)
                name = SET_MAP.name(operation, label)
                al.path_patch(model, pairs, metric=config.metric, engine=engine, run=run, name=name)


def _pairs(
    model: al.HookedModel, operation: str, label: str, config: Config, *, keep: str = "correct"
) -> al.PromptPairs:
    """The pairs of a set of problems."""
    if label == SETS[0]:
        with exit_on_user_error():
            return drawn_pairs(model, operation, config, keep=keep)
    return computed_pairs(model, operation, config, n=config.n, keep=keep)


def computed_pairs(
    model: al.HookedModel,
    operation: str,
    config: PooledSample,
    *,
    n: int | None,
    keep: str = "correct",
    **options: Any,
) -> al.PromptPairs:
    """Pairs of larger numbers whose answer's token is no token of the prompt.

    Args:
        model: the model.
        operation: a key of `LARGEST`.
        config: seed, templates and examples.
        n: how many pairs are drawn, before the filter; None: all.
        keep: "correct" or "all".
        options: other arguments of `sample_pairs`.
    """
    with exit_on_user_error():
        operands = range(1, LARGEST[operation] + 1)
        options |= {"operands": operands, "answer_token": "last"}
        drawn = drawn_pairs(model, operation, config, n=None, keep="all", **options)
        assert drawn.computed is not None
        computed = drawn.filter(drawn.computed)
        if n is not None:
            generator = torch.Generator().manual_seed(config.seed)
            computed = computed[torch.randperm(len(computed), generator=generator)[:n]]
        return keep_correct(model, computed) if keep == "correct" else computed


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    engine = fitting_engine(model)
    return "\n".join(
        f"{operation}, {label}: "
        f"{al.plan(model, _pairs(model, operation, label, config, keep='all'), engine=engine)}"
        f"{BEFORE_FILTER}"
        for operation in LARGEST
        for label in SETS
    )


def report(run: Run) -> None:
    """For each operation, print the strongest heads of both sets, and how many they share."""
    for operation in LARGEST:
        top = {label: SET_MAP.load(run, operation, label).heads.top(10) for label in SETS}
        for label, heads in top.items():
            problems = SET_MAP.facts(run, operation, label).get("problems")
            print(f"{operation}, {label}, {problems} problems: {', '.join(map(str, heads))}")
        print(f"  {len(set.intersection(*map(set, top.values())))} of 10 heads in both")


EXPERIMENT = Experiment("do_copies_decide", Config, compute, _plan, report, figure="computed")
main = EXPERIMENT.main()

if __name__ == "__main__":
    command(main, "do_copies_decide", __doc__, shares=True)
