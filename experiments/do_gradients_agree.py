"""How well do gradients and relevance agree with the exact effects, and at what cost?

For each operation some pairs are drawn. Their exact effects are computed, and every method of
attribution approximates them, with other heads frozen (via MLPs) and over all paths (total).
`figures/ladder.py` sets cost against agreement.
"""

from dataclasses import dataclass

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.path_patching.patch import SHARD
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.results import EXACT, LADDER
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Keep,
    Metric,
    SampleSettings,
    fitting_engine,
    operation_pairs,
    some_pairs,
)


@dataclass(frozen=True)
class Config(SampleSettings):
    """How well do gradients and relevance agree with the exact effects, and at what cost?"""

    via_mlps: int = 54
    """Pairs per operation with other heads frozen; 0: all, whose exact effects other experiments
    may have stored."""
    total: int = 18
    """Pairs per operation over all paths; 0: all."""
    steps: int = 5
    """Points of the methods that integrate."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""


def sizes(config: Config) -> dict[str, int]:
    """The number of pairs, by paths."""
    return {"via_mlps": config.via_mlps, "total": config.total}


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The exact effects of each operation and kind of paths, and each method's."""
    for operation, pairs in operation_pairs(model, config, keep=config.keep):
        for paths, count in sizes(config).items():
            some = some_pairs(pairs, count, config.seed)
            settings = {"paths": paths, "metric": config.metric, "run": run, "batch_size": SHARD}
            with continue_after_part():
                name = LADDER.name(operation, paths, EXACT)
                engine = fitting_engine(model, paths)
                al.path_patch(model, some, name=name, engine=engine, **settings)
            for method in ATTRIBUTION_METHODS:
                with continue_after_part():
                    name = LADDER.name(operation, paths, method)
                    own = {"method": method, "steps": config.steps, "name": name}
                    try:
                        al.attribute(model, some, **settings, **own)
                    except UnsupportedRule as error:
                        print(f"{method} is left out: {error}")


def _plan(model: al.HookedModel, config: Config) -> str:
    lines = []
    for operation, pairs in operation_pairs(model, config, keep="all"):
        for paths, count in sizes(config).items():
            some = some_pairs(pairs, count, config.seed)
            engine = fitting_engine(model, paths)
            cost = al.plan(model, some, paths=paths, metric=config.metric, engine=engine)
            lines.append(f"{operation}, {paths}, exact: {cost}{BEFORE_FILTER}")
    n_runs = (2 + model.n_layers * 2 * (config.steps - 1)) * 3
    lines.append(f"the most expensive method takes about as long as {n_runs} forwards of each pair")
    return "\n".join(lines)


main = Experiment("do_gradients_agree", Config, compute, _plan, figure="ladder")
