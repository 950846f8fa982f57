"""Does the model add like a computer? Which digit each layer's MLP writes most (Figure 17).

The paper's sum, and sums with a carry, whose first and last digit are asked for. Saves a run under
results/like_a_computer/, which `figures/fig17.py` sets beside the column addition of a computer.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

import arith_lens as al
from arith_lens.next_tokens import next_tokens
from arith_lens.runs import Run
from experiments.command import command
from experiments.which_heads import Dtype, loaded_model, said_plainly

CASES = ((3, 4, "whole"), (7, 8, "first"), (7, 8, "last"), (27, 15, "last"))
"""A, B, and which token of C is asked for."""


@dataclass(frozen=True)
class Config:
    """Does the model add like a computer?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
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
        print(f"{len(CASES)} prompts, two forwards each")
        return
    with said_plainly():
        opened = al.open_run("like_a_computer", config, model=model, root=root, again=again)
    with opened as run:
        for a, b, asked in CASES:
            if f"{a}-{b}-{asked}" in run.names and not again:
                continue
            with said_plainly():
                compute(model, run, a, b, asked)
    report(run)


def compute(model: al.HookedModel, run: Run, a: int, b: int, asked: str) -> None:
    """One prompt's cosines of what MLPs write with the ten digits."""
    drawn = al.sample_pairs(model, operands={a, b}, templates=("addition/0",), answer_token=asked,
                            keep="all")  # fmt: skip
    assert drawn.operands is not None
    pairs = drawn.filter((drawn.operands == torch.tensor([a, b])).all(1).tolist())
    assert pairs.reference_text and pairs.answer_text
    digits = al.mlp_probe(model, pairs, read="write", tokens="digits")
    said = next_tokens(model, pairs.reference_text, k=1)
    run.save(
        f"{a}-{b}-{asked}",
        digits,
        pairs=pairs,
        text=pairs.reference_text[0],
        a=a,
        b=b,
        answer=pairs.answer_text[0].strip(),
        said=said.pieces[0][0].strip(),
        probability=float(said.probabilities[0, 0]),
    )


def report(run: Run) -> None:
    """Print each prompt and the winners, layer by layer."""
    for name in run.names:
        facts = run.facts(name)
        winners = al.Effects.from_arrays(run.load_arrays(name)).per_pair[..., 0].argmax(1).tolist()
        print(f"{facts['text']!r} -> {facts['said']!r} (right: {facts['answer']}): "
              f"layers write {' '.join(map(str, winners))}")  # fmt: skip
    print(f"\nsaved in {run.path}")


if __name__ == "__main__":
    command(main, "like_a_computer", __doc__, shares=False)
