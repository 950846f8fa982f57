"""What does the model say with the calculation, and without it? (Figure 9.)

The likeliest next tokens of reference and counterfactual prompts: the four operations, two-digit
sums whose answer lacks its last digit, and stories of objects. Saves a run under
results/what_the_calculation_does/, which `figures/next_tokens.py` draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import arith_lens as al
from arith_lens.next_tokens import next_tokens
from arith_lens.operations import FOUR
from arith_lens.pairs.correctness import answer, keep_correct
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import ANSWER_PROBABILITY, LIKELIEST
from experiments.settings import Experiment, Keep, ModelSettings

SIDES = ("reference", "counterfactual")
ANSWER_MEASURES = ("p(C)", "top-1 is C")
PAIR_KINDS: Mapping[str, Mapping[str, Any]] = {
    **{operation: {"operation": operation} for operation in FOUR},
    "two_digits": {
        "operation": "addition",
        "templates": ("addition/4",),
        "operands": range(10, 100),
        "answer_token": "last",
    },
    "stories": {"operation": "addition", "templates": tuple(f"story/{i}" for i in range(9, 13))},
}
N_SAMPLED = 200  # reference prompts of kinds that have thousands
BATCH = 128


@dataclass(frozen=True)
class Config(ModelSettings):
    """What does the model say with the calculation, and without it?"""

    n: int | None = None
    """Distinct reference prompts of each kind, before the filter; by default all problems of one
    digit in each wording, and 200 two-digit sums."""
    seed: int = 0
    """The seed of the sampling."""
    k: int = 5
    """How many next tokens."""
    keep: Keep = "correct"
    """Use the prompts that the model answers right (if a kind has any), or all."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """For each kind of prompt: the likeliest tokens of every prompt, and whether they are C."""
    for kind, prompts in PAIR_KINDS.items():
        n = N_SAMPLED if config.n is None and kind == "two_digits" else config.n
        with exit_on_user_error():
            pairs = al.sample_pairs(model, n=n, seed=config.seed, keep="all", **prompts)
        if config.keep == "correct" and answer(model, pairs, "reference", BATCH)[0].any():
            pairs = keep_correct(model, pairs)  # if none is right, all are shown
        for side in SIDES:
            tokens = next_tokens(model, getattr(pairs, f"{side}_text"), k=config.k)
            LIKELIEST.save(run, tokens, kind, side, pairs=pairs, answers=pairs.answer.tolist())
        ANSWER_PROBABILITY.save(run, right_of_both_sides(model, pairs), kind, pairs=pairs)


def _plan(model: al.HookedModel, config: Config) -> str:
    names = ", ".join(PAIR_KINDS)
    return f"{len(PAIR_KINDS)} kinds of prompts ({names}), two forwards per prompt and side"


def right_of_both_sides(model: al.HookedModel, pairs: al.PromptPairs) -> al.Effects:
    """p(C) and whether C is the likeliest token, after both prompts, [side measure pair]."""
    answers = [answer(model, pairs, side, BATCH) for side in SIDES]
    outcomes = torch.stack([torch.stack([p, right.float()]) for right, p in answers])
    return al.Effects(
        outcomes,
        ("side", "measure"),
        "share",
        **pairs.units,
        labels={"side": SIDES, "measure": ANSWER_MEASURES},
    )


def report(run: Run) -> None:
    """Print p(C) and how often C is likeliest, with and without the calculation."""
    print(run.config["model"])
    for kind in PAIR_KINDS:
        effects = ANSWER_PROBABILITY.load(run, kind)
        (p, right), (p_c, right_c) = effects.mean().tolist()
        chosen = ANSWER_PROBABILITY.facts(run, kind)["selection"]
        note = f" ({chosen['n_kept']} of {chosen['n_drawn']} answered right)" if chosen else ""
        print(
            f"  {kind:>14}: {effects.n_pairs} pairs{note}; with the calculation p(C) {p:.1%}, "
            f"C likeliest {right:.1%}; without it {p_c:.1%}, {right_c:.1%}"
        )


main = Experiment("what_the_calculation_does", Config, compute, _plan, report, figure="fig9")
