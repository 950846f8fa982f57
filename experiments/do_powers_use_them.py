"""Do powers use the same heads? Key heads of exponentiation, and their knockout (Table 3).

For each of the two wordings ("2 ^ 3 = " and "2 to the power of 3 equals "): the heads whose effect
is below -5%, what knocking them out costs, what as many random heads cost, and which of the heads
are key heads of the four operations too. Saves a run under results/do_powers_use_them/, which
`figures/table3.py` prints.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import arith_lens as al
from arith_lens.knockout import knockout_curves, random_order
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from experiments.command import command, parts_said
from experiments.which_heads import Dtype, fitting_engine, loaded_model, said_plainly

POWERS = tuple(template.name for template in TEMPLATES["exponentiation"])


@dataclass(frozen=True)
class Config:
    """Do powers use the same heads? Key heads of exponentiation, and their knockout."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    controls: int = 10
    """Random orders to set beside."""
    draws: int = 3
    """Counterfactuals drawn for each reference prompt: there are only 20 of each wording."""
    seed: int = 0
    """Of the sampling, and the first of the random orders."""
    dtype: Dtype = None
    """The checkpoint's own on a GPU, float32 on a CPU, if not given."""
    device: str | None = None
    """Such as cuda:1; the GPU if there is one."""


def main(
    config: Annotated[Config, tyro.conf.arg(name="")],
    *,
    root: Path = Path("results"),
    dry_run: bool = False,
    again: bool = False,
) -> None:
    """Compute, save and say where.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what would be computed, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config, weights=not dry_run)
    if dry_run:
        print(
            f"{len(POWERS)} wordings and {len(FOUR)} operations, each: a path patching of every "
            f"head; for each wording {1 + config.controls} knockout curves"
        )
        return
    with said_plainly():
        opened = al.open_run("do_powers_use_them", config, model=model, root=root, again=again)
    with opened as run:
        for operation in FOUR:
            if again or operation not in run.names:
                with said_plainly():
                    pairs = al.sample_pairs(model, operation, seed=config.seed)
                with parts_said():
                    al.path_patch(
                        model, pairs, run=run, name=operation, engine=fitting_engine(model)
                    )
        for name in POWERS:
            if again or result_name(name) not in run.names:
                with parts_said():
                    compute(model, name, config, run)
    print(f"saved in {run.path}; python -m figures.table3 --model {config.model} prints it")


def result_name(template: str) -> str:
    """What a template's results are called in a run."""
    return template.replace("/", "-")


def compute(model: al.HookedModel, template: str, config: Config, run: Run) -> None:
    """One wording: effects, and curves over the key heads and as many random heads."""
    with said_plainly():
        pairs = al.sample_pairs(
            model, "exponentiation", templates=[template], draws=config.draws, seed=config.seed
        )
    effects = al.path_patch(
        model, pairs, run=run, name=f"{result_name(template)}-effects", engine=fitting_engine(model)
    )
    key = al.key_heads(effects)
    orders: dict[str, Any] = {"effect": key}
    for seed in range(config.seed, config.seed + config.controls):
        orders[f"random {seed}"] = random_order(model.n_layers, model.n_heads, seed)
    kept = {"run": run, "name": result_name(template)}
    knockout_curves(model, pairs, orders, ks=range(len(key) + 1), **kept)


if __name__ == "__main__":
    command(main, "do_powers_use_them", __doc__, shares=True)
