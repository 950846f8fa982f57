"""Do word problems use the same heads? Key heads of both kinds of prompt, crosswise (Table 4).

The ten strongest heads on the generated prompts (four operations) and on word problems; their
overlap; what knocking out each set, the overlap and the rest costs on both; and where each head
looks from END. Word problems are GSM8K's, rewritten, where `--data-dir` has them; else the closed
world's, which stand in for them. Saves a run under results/do_word_problems_use_them/, which
`figures/table4.py` prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from jaxtyping import Bool
from torch import Tensor

import arith_lens as al
from arith_lens.attention import attention_to
from arith_lens.knockout import random_order
from arith_lens.pairs import Role, keep_correct
from arith_lens.pairs.correctness import answer
from arith_lens.reference.pairs import world_pairs
from arith_lens.runs import Run
from arith_lens.word_problems import gsm8k_pairs
from experiments.command import command
from experiments.strongest import all_operations, by_effect
from experiments.which_heads import BEFORE_FILTER, Dtype, fitting_engine, loaded_model, said_plainly

MEANS: dict[str, Literal["template", "vector"]] = {
    "generated": "template",
    "word_problems": "vector",
}
"""What stands in for a head: word problems are aligned with one another in no position but END."""

CLASSES = ("numbers", "operator", "BOS", "END", "other words")


@dataclass(frozen=True)
class Config:
    """Do word problems use the same heads? Key heads of both, crosswise."""

    model: str = "reference"
    """A shipped model's name, a Hugging Face id, or a directory."""
    data_dir: Path | None = None
    """Holds gsm8k/test.jsonl; the closed world's word problems if not given."""
    heads: int = 10
    """How many heads a set has."""
    controls: int = 10
    """Random sets to set beside."""
    most: int = 400
    """Knockouts are of at most so many pairs of each kind; effects are of all."""
    n: int | None = None
    """Distinct reference prompts an operation, before the filter; all there are if not given."""
    seed: int = 0
    """Of the sampling, and the first of the random sets."""
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
    with said_plainly():
        keep = "all" if dry_run else "correct"
        both = {"generated": all_operations(model, n=config.n, seed=config.seed, keep=keep)}
        drawn = _word_problems(model, config)
        both["word_problems"] = drawn if dry_run else _answered(model, drawn)
    if dry_run:
        for name, pairs in both.items():
            cost = al.plan(model, pairs, engine=fitting_engine(model))
            print(f"{name}: {cost}; then {5 + config.controls} knockouts{BEFORE_FILTER}")
        return
    inputs = () if config.data_dir is None else (config.data_dir / "gsm8k" / "test.jsonl",)
    with said_plainly():
        opened = al.open_run(
            "do_word_problems_use_them", config, model=model, inputs=inputs, root=root, again=again
        )
    with opened as run:
        if again or "attention-word_problems" not in run.names:  # the last to be saved
            compute(model, both, config, run)
    print(f"saved in {run.path}; python -m figures.table4 --model {config.model} prints it")


def _word_problems(model: al.HookedModel, config: Config) -> al.PromptPairs:
    """All that convert."""
    if config.data_dir is None:
        pairs, report = world_pairs(model, seed=config.seed)
    else:
        file = config.data_dir / "gsm8k" / "test.jsonl"
        pairs, report = gsm8k_pairs(model, file, seed=config.seed)
    print(report)
    return pairs


def _answered(model: al.HookedModel, pairs: al.PromptPairs) -> al.PromptPairs:
    """The pairs that the model answers right, and whose counterfactual it does not answer so."""
    kept = keep_correct(model, pairs)
    still, _ = answer(model, kept, "counterfactual", batch_size=128)
    print(
        f"{len(kept)} of {len(pairs)} answered right; of these {int(still.sum())} are left out: "
        "their counterfactual is answered with C too, so that nothing was taken away"
    )
    return kept.filter(~still)


def compute(
    model: al.HookedModel, both: Mapping[str, al.PromptPairs], config: Config, run: Run
) -> None:
    """Effects and strongest heads of both kinds, then every set's knockout on both."""
    strongest = {}
    for name, pairs in both.items():
        effects = al.path_patch(model, pairs, engine=fitting_engine(model))
        run.save(f"effects-{name}", effects, pairs=pairs)
        strongest[name] = by_effect(effects, config.heads)
    sets = head_sets(strongest, model, config)
    every = sorted({*strongest["generated"], *strongest["word_problems"]})
    for name, pairs in both.items():
        some = pairs[:: -(-len(pairs) // config.most)]  # from end to end, so of every template
        for label, heads in sets.items():
            out = al.knock_out(model, some, heads, means=MEANS[name], progress=False)
            run.save(f"{label}-on-{name}", out, heads=[str(head) for head in heads])
        run.save(f"attention-{name}", attention_to(model, pairs, every, classes, axis="class"))


def head_sets(
    strongest: Mapping[str, tuple[al.Head, ...]], model: al.HookedModel, config: Config
) -> dict[str, tuple[al.Head, ...]]:
    """By name: none, both sets, what they share, what each has alone, and random ones."""
    ours, theirs = strongest["generated"], strongest["word_problems"]
    sets = {
        "none": (),
        "generated": ours,
        "word_problems": theirs,
        "overlap": tuple(head for head in ours if head in theirs),
        "generated_only": tuple(head for head in ours if head not in theirs),
        "word_problems_only": tuple(head for head in theirs if head not in ours),
    }
    for seed in range(config.seed, config.seed + config.controls):
        order = random_order(model.n_layers, model.n_heads, seed)
        sets[f"random-{seed}"] = tuple(order[: config.heads])
    return sets


def classes(pairs: al.PromptPairs) -> dict[str, Bool[Tensor, "pair pos"]]:
    """Which tokens are digits, operators, BOS, END, or other words; each token is in one."""
    pieces, mask = pairs.pieces or {}, pairs.attention_mask
    digits = torch.tensor([token for token, piece in pieces.items() if piece.strip("▁Ġ").isdigit()])
    found = {
        "END": pairs.role_mask(Role.END),
        "BOS": pairs.role_mask(Role.BOS),
        "operator": pairs.role_mask(Role.OPERATOR),
        "numbers": torch.isin(pairs.reference, digits),
    }
    taken = torch.zeros_like(mask)
    for name, where in found.items():
        found[name] = where & mask & ~taken
        taken |= where
    found["other words"] = mask & ~taken
    return {name: found[name] for name in CLASSES}


if __name__ == "__main__":
    command(main, "do_word_problems_use_them", __doc__, shares=False)
