"""What do MLPs read, and what do they add? Cosines with the numbers' columns of W_U, by layer.

At END: the operands in what each MLP reads, the answer in what it writes, which digit each layer
writes most, and what the model would answer if it stopped there. Saves a run under
results/what_do_mlps_add/, which `figures/fig6.py`, `fig13.py` and `fig14.py` draw.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

import arith_lens as al
from arith_lens.effects import Effects
from arith_lens.probes import chance, curve_of, distinct, turning_layers, winners
from arith_lens.problems import FOUR
from arith_lens.runs import Run
from experiments.command import command
from experiments.which_heads import BEFORE_FILTER, Dtype, Operation, loaded_model, said_plainly

CASE = (4, 3)
"""The paper's example is 4 + 3; where it is not among the pairs, the first that tells A, B, C and
C±1 apart."""


@dataclass(frozen=True)
class Config:
    """What do MLPs read, and what do they add?"""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    operations: tuple[Operation, ...] = FOUR
    """Which calculations."""
    n: int | None = None
    """Distinct reference prompts an operation; all there are if not given."""
    seed: int = 0
    """Of the sampling."""
    final_norm: bool = False
    """Send what is read and written through the final norm first; the paper does not."""
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
        dry_run: print what it would cost, and stop.
        again: compute anew what an earlier run of this configuration has saved.
    """
    model = loaded_model(config, weights=not dry_run)
    keep = "all" if dry_run else "correct"
    with said_plainly():
        samples = {
            name: al.sample_pairs(model, name, n=config.n, seed=config.seed, keep=keep)
            for name in config.operations
        }
    if dry_run:
        total = sum(map(len, samples.values()))
        print(
            f"{total} prompts, seven forwards each: {total * 7} forwards without the vocabulary"
            f"{BEFORE_FILTER}"
        )
        return
    with said_plainly():
        opened = al.open_run("what_do_mlps_add", config, model=model, root=root, again=again)
    with opened as run:
        for name, pairs in samples.items():
            if again or f"{name}-winners" not in run.names:
                _save(run, name, model, pairs, final_norm=config.final_norm)
    report(run)


def _save(
    run: Run, name: str, model: al.HookedModel, pairs: al.PromptPairs, *, final_norm: bool
) -> None:
    for read in ("mlp_in", "write"):
        probe = al.mlp_probe(model, pairs, read=read, final_norm=final_norm)
        run.save(f"{name}-{read}", probe, pairs=pairs)
    for read in ("mlp_in", "write", "mlp_out"):
        run.save(f"{name}-lens-{read}", al.logit_lens(model, pairs, read=read), pairs=pairs)
    digits = al.mlp_probe(model, pairs, read="write", final_norm=final_norm, tokens="digits")
    run.save(f"{name}-digits", digits, pairs=pairs, case=_case(pairs))
    apart = distinct(pairs).tolist()
    run.save(f"{name}-chance", chance(pairs), pairs=pairs, distinct_classes=apart)
    run.save(f"{name}-winners", winners(digits, pairs), pairs=pairs, distinct_classes=apart)


def _case(pairs: al.PromptPairs) -> dict[str, Any]:
    """The pair of the case study: its place, text, A, B and C."""
    assert pairs.operands is not None and pairs.reference_text and pairs.answer_text
    like = (pairs.operands == torch.tensor(CASE)).all(1)
    apart = distinct(pairs)
    row = int((like if bool(like.any()) else apart if bool(apart.any()) else ~apart).nonzero()[0])
    a, b = pairs.operands[row].tolist()
    c = int(pairs.answer_text[row])
    return {"pair": row, "text": pairs.reference_text[row], "a": a, "b": b, "c": c}


def report(run: Run) -> None:
    """Print where the curves turn, which digits win, and when C is the likeliest."""
    print(run.config["model"])
    for name in run.config["operations"]:
        facts = run.facts(f"{name}-winners")
        print(f"\n{name}: {facts['pairs']} pairs, {facts['distinct']} distinct references")
        for title, curve, shape in curves(run, name):
            turning = turning_layers(curve, shape)
            ends = ", ".join(
                "none" if one is None else f"{one[0]:.0f} to {one[1]:.0f}"
                for one in turning.intervals
            )
            print(
                f"  {title:<34} turns at {turning!s:<12} ({ends}); rises by {turning.height:.2f}"
                + (f", falls by {turning.depth:.2f}" if shape == "rise_and_fall" else "")
            )
        _print_winners(run, name)


def curves(run: Run, name: str) -> list[tuple[str, Effects, str]]:
    """What turning layers are asked of: title, curve and shape."""
    reads, writes = (effects_of(run, f"{name}-{what}") for what in ("mlp_in", "write"))
    others = "others without A, B, C"
    return [
        ("MLP_in: A and B", curve_of(reads, "A", "B"), "rise_and_fall"),
        (
            "MLP_in: A and B less other digits",
            curve_of(reads, "A", "B", less=others),
            "rise_and_fall",
        ),
        ("write: C", curve_of(writes, "C"), "rise"),
        ("write: C less other digits", curve_of(writes, "C", less="others without C"), "rise"),
    ]


def effects_of(run: Run, name: str) -> Effects:
    """One result of the run, as effects."""
    return Effects.from_arrays(run.load_arrays(name))


def _print_winners(run: Run, name: str) -> None:
    """Where A, B, C and C±1 are four digits: the share of pairs in which each wins, by layer."""
    apart = torch.tensor(run.facts(f"{name}-winners")["distinct_classes"])
    if not bool(apart.any()):
        return
    shares = effects_of(run, f"{name}-winners").select(apart).mean()
    by_chance = effects_of(run, f"{name}-chance").select(apart).mean()
    lens = effects_of(run, f"{name}-lens-mlp_out").mean()
    print(f"  winners of what MLPs write, {int(apart.sum())} pairs whose A, B, C, C±1 differ:")
    print("    layer      C      A      B    C±1  other   rank and p(C) of the stream")
    for layer, row in enumerate(shares.tolist()):
        cells = " ".join(f"{share:6.0%}" for share in row)
        rank, probability = lens[layer].tolist()
        print(f"    {layer:>5} {cells}   {rank:6.1f} {probability:6.1%}")
    print("   chance " + " ".join(f"{share:6.0%}" for share in by_chance.tolist()))


if __name__ == "__main__":
    command(main, "what_do_mlps_add", __doc__, shares=False)
