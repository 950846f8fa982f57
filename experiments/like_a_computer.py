"""Does the model add like a computer? Which digit each layer's MLP writes most (Figure 17).

The paper's sum, and sums with a carry, of whose answer the model writes the first or
the last digit. Saves a run under results/like_a_computer/, which `figures/fig17.py` compares with
the column addition of a computer.
"""

from dataclasses import dataclass

import torch

import arith_lens as al
from arith_lens.next_tokens import next_tokens
from arith_lens.runs import Run
from experiments.command import exit_on_user_error
from experiments.results import SUM_COSINES
from experiments.settings import Experiment, ModelSettings

CASES = ((3, 4, "whole"), (7, 8, "first"), (7, 8, "last"), (27, 15, "last"))
"""A, B, and the token of C that follows the prompt."""


@dataclass(frozen=True)
class Config(ModelSettings):
    """Does the model add like a computer?"""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The cosines of what MLPs write with the ten digits, for each sum."""
    for case in CASES:
        with exit_on_user_error():
            compute_sum(run, model, *case)


def _plan(model: al.HookedModel, config: Config) -> str:
    return f"{len(CASES)} prompts, two forwards each"


def compute_sum(run: Run, model: al.HookedModel, a: int, b: int, token: str) -> None:
    """One prompt; `token` says which token of C follows it."""
    drawn = al.sample_pairs(model, operands={a, b}, templates=("addition/0",), answer_token=token,
                            keep="all")  # fmt: skip
    assert drawn.operands is not None
    pairs = drawn.filter((drawn.operands == torch.tensor([a, b])).all(1).tolist())
    assert pairs.reference_text and pairs.answer_text
    prediction = next_tokens(model, pairs.reference_text, k=1)
    facts = {
        "text": pairs.reference_text[0],
        "a": a,
        "b": b,
        "answer": pairs.answer_text[0].strip(),
        "said": prediction.pieces[0][0].strip(),
        "probability": float(prediction.probabilities[0, 0]),
    }
    settings = {"read": "write", "tokens": "digits"}
    name = f"{a}-{b}-{token}"
    SUM_COSINES.compute(run, al.mlp_probe, model, pairs, name, facts=facts, **settings)


def report(run: Run) -> None:
    """Print each prompt and the winners, layer by layer."""
    for name in SUM_COSINES.labels(run):
        facts = SUM_COSINES.facts(run, name)
        winners = SUM_COSINES.load(run, name).per_pair[..., 0].argmax(1).tolist()
        print(f"{facts['text']!r} -> {facts['said']!r} (right: {facts['answer']}): "
              f"layers write {' '.join(map(str, winners))}")  # fmt: skip


main = Experiment("like_a_computer", Config, compute, _plan, report, figure="fig17")
