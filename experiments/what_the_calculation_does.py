"""What does the model say with the calculation, and without it? (Figure 9.)

The likeliest next tokens of reference and counterfactual prompts: the four operations, two-digit
sums whose answer lacks its last digit, and stories of objects. Saves a run under
results/what_the_calculation_does/, which `figures/fig9.py` draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

import arith_lens as al
from arith_lens.next_tokens import next_tokens
from arith_lens.pairs.correctness import answer, keep_correct
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from experiments.command import command
from experiments.which_heads import Dtype, loaded_model, said_plainly

SIDES = ("reference", "counterfactual")
MEASURES = ("p(C)", "top-1 is C")
KINDS: Mapping[str, Mapping[str, Any]] = {
    **{operation: {"operation": operation} for operation in FOUR},
    "two_digits": {
        "operation": "addition",
        "templates": ("addition/4",),
        "operands": range(10, 100),
        "answer_token": "last",
    },
    "stories": {"operation": "addition", "templates": tuple(f"story/{i}" for i in range(9, 13))},
}
MANY = 200  # reference prompts of kinds that have thousands
BATCH = 128


@dataclass(frozen=True)
class Config:
    """What does the model say with the calculation, and without it?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    n: int | None = None
    """Distinct reference prompts of each kind, before the filter; if not given, all problems of one
    digit in each wording, and 200 two-digit sums."""
    seed: int = 0
    """Of the sampling."""
    k: int = 5
    """How many tokens."""
    keep: Literal["correct", "all"] = "correct"
    """Look at the prompts that the model answers right (of kinds that have any), or at all."""
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
    """Compute, save and print.

    Args:
        config: what to compute.
        root: where runs are kept.
        dry_run: print what would be computed, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config, weights=not dry_run)
    if dry_run:
        print(f"{len(KINDS)} kinds of prompts ({', '.join(KINDS)}), two forwards a prompt and side")
        return
    with said_plainly():
        opened = al.open_run("what_the_calculation_does", config, model=model, root=root,
                             again=again)  # fmt: skip
    with opened as run:
        for kind in KINDS:
            if again or f"{kind}-outcomes" not in run.names:
                compute(model, config, run, kind)
    report(run)


def compute(model: al.HookedModel, config: Config, run: Run, kind: str) -> None:
    """The likeliest tokens of every prompt of one kind, and whether they are C."""
    n = MANY if config.n is None and kind == "two_digits" else config.n
    with said_plainly():
        pairs = al.sample_pairs(model, n=n, seed=config.seed, keep="all", **KINDS[kind])
    if config.keep == "correct" and answer(model, pairs, "reference", BATCH)[0].any():
        pairs = keep_correct(model, pairs)  # a kind of which none is right is shown as it is
    for side in SIDES:
        prompts = getattr(pairs, f"{side}_text")
        said = next_tokens(model, prompts, k=config.k)
        run.save(f"{kind}-{side}", said, pairs=pairs, answers=pairs.answer.tolist())
    found = [answer(model, pairs, side, BATCH) for side in SIDES]
    outcomes = torch.stack([torch.stack([p, right.float()]) for right, p in found])
    run.save(f"{kind}-outcomes", _effects(outcomes, pairs), pairs=pairs)


def _effects(outcomes: torch.Tensor, pairs: al.PromptPairs) -> al.Effects:
    return al.Effects(
        outcomes,
        ("side", "measure"),
        "share",
        template=pairs.template,
        cluster=pairs.cluster,
        labels={"side": SIDES, "measure": MEASURES},
    )


def report(run: Run) -> None:
    """Print p(C) and how often C is likeliest, with and without the calculation."""
    print(run.config["model"])
    for kind in KINDS:
        effects = al.Effects.from_arrays(run.load_arrays(f"{kind}-outcomes"))
        (p, right), (p_c, right_c) = effects.mean().tolist()
        chosen = run.facts(f"{kind}-outcomes")["selection"]
        kept = f" ({chosen['n_kept']} of {chosen['n_drawn']} answered right)" if chosen else ""
        print(
            f"  {kind:>14}: {effects.n_pairs} pairs{kept}; with the calculation p(C) {p:.1%}, "
            f"C likeliest {right:.1%}; without it {p_c:.1%}, {right_c:.1%}"
        )
    print(f"\nsaved in {run.path}")


if __name__ == "__main__":
    command(main, "what_the_calculation_does", __doc__, shares=False)
