"""What does each head and each MLP do? Everything that the explorer shows, for every part.

For each operation: maps on several paths and metrics, and for one more counterfactual; of each head
what it looks at, writes, is fed by and acts through; of each MLP what it reads and writes, and its
strongest neurons; and the answers without every set of the ten strongest heads. Saves a run under
results/what_does_each_part_do/, which `python -m figures explorer` shows.
"""

from dataclasses import dataclass

import arith_lens as al
from arith_lens.exploration import MAP_SETTINGS, explored
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.results import EXPLORATION
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    Keep,
    SampleSettings,
    fitting_engine,
    operation_pairs,
)

OPERANDS_RESULT = "{}-other_operands"
"""The name of the pairs whose counterfactual has other operands."""


@dataclass(frozen=True)
class Config(SampleSettings):
    """What does each head and each MLP do?"""

    keep: Keep = "correct"
    """Use the prompts that the model answers right, or all."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """For each operation: everything, then the map of another counterfactual."""
    for operation, pairs in operation_pairs(model, config, keep=config.keep):
        with continue_after_part():
            name = EXPLORATION.name(operation)
            explored(model, pairs, setup=_setup(config, operation), run=run, name=name)
            options = {"n": config.n, "seed": config.seed, "counterfactual": "operands"}
            others = al.sample_pairs(model, operation, keep=config.keep, **options)
            name = EXPLORATION.name(OPERANDS_RESULT.format(operation))
            setup = _setup(config, operation, counterfactual="operands")
            few = {"settings": MAP_SETTINGS[:1], "maps_only": True}
            explored(model, others, setup=setup, run=run, name=name, **few)


def _setup(config: Config, operation: str, **options: str) -> str:
    """The code that makes the model and the pairs, for the reader of the page."""
    options |= {"keep": config.keep} if config.keep != "correct" else {}
    n = "" if config.n is None else f", n={config.n}, seed={config.seed}"
    more = "".join(f", {name}={value!r}" for name, value in options.items())
    return (
        f"import arith_lens as al\n\nmodel = al.load_model({config.model!r})\n"
        f"pairs = al.sample_pairs(model, {operation!r}{n}{more})"
    )


def _plan(model: al.HookedModel, config: Config) -> str:
    engine = fitting_engine(model)
    return "\n".join(
        f"{operation}, {setting['paths']}, {setting['metric']}: "
        f"{al.plan(model, pairs, engine=engine, **setting)}{BEFORE_FILTER}"
        for operation, pairs in operation_pairs(model, config, keep="all")
        for setting in MAP_SETTINGS
    )


main = Experiment("what_does_each_part_do", Config, compute, _plan, figure="explorer")
