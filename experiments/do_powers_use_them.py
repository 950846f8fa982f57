"""Do powers use the same heads? Key heads of exponentiation, and their knockout (Table 3).

For each of the two wordings ("2 ^ 3 = " and "2 to the power of 3 equals "): the heads whose effect
is below -5%, what knocking them out costs, what as many control heads cost (drawn from all heads,
and from the other heads of the same layers), and which of the heads are key heads of the four
operations too. Saves a run under results/do_powers_use_them/, which
`figures/table3.py` prints.
"""

from dataclasses import dataclass
from typing import Any

import arith_lens as al
from arith_lens.knockout import knockout_curves, matched_order, random_order
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import CURVES, MAP
from experiments.settings import Experiment, ModelSettings, fitting_engine

POWERS = tuple(template.name for template in TEMPLATES["exponentiation"])


@dataclass(frozen=True)
class Config(ModelSettings):
    """Do powers use the same heads? Key heads of exponentiation, and their knockout."""

    controls: int = 20
    """Draws of each kind of control: of all heads, and of the same layers."""
    draws: int = 3
    """Counterfactuals drawn for each reference prompt: there are only 20 of each wording."""
    seed: int = 0
    """The seed of the sampling, and of the first random order."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The maps of the four operations, then effects and knockouts of each wording of powers."""
    engine = fitting_engine(model)
    for operation in FOUR:
        with exit_on_user_error():
            pairs = al.sample_pairs(model, operation, seed=config.seed)
        with continue_after_part():
            al.path_patch(model, pairs, run=run, name=MAP.name(operation), engine=engine)
    for template in POWERS:
        with continue_after_part():
            compute_wording(run, model, template, config)


def _plan(model: al.HookedModel, config: Config) -> str:
    return (
        f"{len(POWERS)} wordings and {len(FOUR)} operations, each: a path patching of every "
        f"head; for each wording {1 + 2 * config.controls} knockout curves"
    )


def compute_wording(run: Run, model: al.HookedModel, template: str, config: Config) -> None:
    """One wording: effects, and curves over the key heads and as many control heads."""
    with exit_on_user_error():
        pairs = al.sample_pairs(
            model, "exponentiation", templates=[template], draws=config.draws, seed=config.seed
        )
    settings = {"run": run, "name": MAP.name(template), "engine": fitting_engine(model)}
    key = al.key_heads(al.path_patch(model, pairs, **settings))
    orders: dict[str, Any] = {"effect": key}
    for seed in range(config.seed, config.seed + config.controls):
        shape = model.n_layers, model.n_heads
        orders[f"random {seed}"] = random_order(*shape, seed)
        if 2 * len(key) <= shape[0] * shape[1]:
            orders[f"matched {len(key)} {seed}"] = matched_order(key, *shape, seed)
    ks = range(len(key) + 1)
    knockout_curves(model, pairs, orders, ks=ks, run=run, name=CURVES.name(template))


EXPERIMENT = Experiment("do_powers_use_them", Config, compute, _plan, figure="table3")
main = EXPERIMENT.main()
SHARES = True  # several processes share its work
