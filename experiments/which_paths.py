"""On which paths do the strongest heads act? Direct, through MLPs, through later heads.

For each operation, the heads with the strongest effects via MLPs, and their effect on the answer's
logit if nothing else may react (direct, Algorithm 1), if MLPs may react (Appendix B), and if
everything may (total, activation patching by hooks). Saves a run under results/which_paths/, which
`python -m figures paths` shows.
"""

from dataclasses import dataclass
from typing import Any

import arith_lens as al
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.results import PATH_EFFECTS
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Keep,
    Metric,
    SampleSettings,
    fitting_engine,
    operation_pairs,
)

PATHS_SETTINGS: tuple[dict[str, Any], ...] = (
    {"paths": "via_mlps"},
    {"paths": "direct"},
    {"paths": "total", "engine": "hooks"},
)


@dataclass(frozen=True)
class Config(SampleSettings):
    """On which paths do the strongest heads act? Direct, through MLPs, through later heads."""

    top: int = 5
    """Heads per operation, the strongest via MLPs."""
    metric: Metric = "relative_logit"
    """What is read from the logits."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The map of each operation, then its strongest heads on the other kinds of paths."""
    engine = fitting_engine(model)
    for operation, pairs in operation_pairs(model, config, keep=config.keep):
        heads = None  # first every head, then the strongest ones
        with continue_after_part():
            for meaning in PATHS_SETTINGS:
                settings = {"senders": heads, "metric": config.metric, "engine": engine, **meaning}
                name = PATH_EFFECTS.name(operation, meaning["paths"])
                effects = al.path_patch(model, pairs, run=run, name=name, **settings)
                heads = heads or effects.heads.top(config.top)


def _plan(model: al.HookedModel, config: Config) -> str:
    engine, lines = fitting_engine(model), []
    some = [al.Head(0, index) for index in range(min(config.top, model.n_heads))]
    for operation, pairs in operation_pairs(model, config, keep="all"):
        for meaning in PATHS_SETTINGS:
            settings = {"senders": some, "metric": config.metric, "engine": engine, **meaning}
            cost = al.plan(model, pairs, **settings)
            lines.append(f"{operation}, {meaning['paths']}: {cost}{BEFORE_FILTER}")
    return "\n".join(lines)


main = Experiment("which_paths", Config, compute, _plan, figure="paths", shares=True)
