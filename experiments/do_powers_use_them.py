"""Do powers use the same heads? Key heads of exponentiation, and their knockout (Table 3).

For each of the two wordings ("2 ^ 3 = " and "2 to the power of 3 equals "): the heads whose effect
is below -5%, what knocking them out costs, what as many control heads cost (drawn from all heads,
and from the other heads of the same layers), and which of the heads are key heads of the four
operations too. Saves a run under results/do_powers_use_them/, which
`figures/table3.py` prints.
"""

from dataclasses import dataclass

import arith_lens as al
from arith_lens.knockout import knockout_curves
from arith_lens.operations import FOUR
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.are_they_needed import control_orders
from experiments.command import continue_after_part, exit_on_user_error
from experiments.results import KNOCKOUT_CURVES, MAP
from experiments.settings import (
    Experiment,
    ModelSettings,
    PooledSampleSettings,
    fitting_engine,
    pooled_samples,
    save_maps,
)

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
    pairs = pooled_samples(model, PooledSampleSettings(seed=config.seed))
    save_maps(run, model, MAP, pairs.items())
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
    shape = model.n_layers, model.n_heads
    orders = {"effect": key} | control_orders(key, [len(key)], *shape, config)[0]
    ks = range(len(key) + 1)
    knockout_curves(model, pairs, orders, ks=ks, run=run, name=KNOCKOUT_CURVES.name(template))


main = Experiment("do_powers_use_them", Config, compute, _plan, figure="table3", shares=True)
