"""Do word problems use the same heads? Key heads of both kinds of prompt, crosswise (Table 4).

The ten strongest heads on the generated prompts (four operations) and on word problems; what a
knockout of each set, of their overlap and of the rest costs on both kinds of prompt; what as many
control heads cost; and where each head looks from END. With `--data-dir`, the word problems are
rewritten ones of GSM8K; else they are the closed world's. Saves a run under
results/do_word_problems_use_them/, which `figures/table4.py` prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

import arith_lens as al
from arith_lens.attention import attention_to
from arith_lens.knockout import knockout_curves
from arith_lens.pairs import Role, keep_correct
from arith_lens.pairs.correctness import answer
from arith_lens.reference.sets import world_pairs
from arith_lens.runs import Run
from arith_lens.word_problems import gsm8k_pairs
from experiments.command import exit_on_user_error
from experiments.results import CLASS_ATTENTION, MAP, OUTCOMES
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    PooledSampleSettings,
    control_sets,
    fitting_engine,
    operation_maps,
    pooled,
    pooled_map,
    pooled_samples,
    strongest_heads,
)

MEANS: dict[str, Literal["template", "vector"]] = {
    "generated": "template",
    "word_problems": "vector",
}
"""What replaces a head's output. Word problems share no position but END."""

TOKEN_CLASSES = ("numbers", "operator", "BOS", "END", "other words")


@dataclass(frozen=True)
class Config(PooledSampleSettings):
    """Do word problems use the same heads? Key heads of both, crosswise."""

    data_dir: Path | None = None
    """Holds gsm8k/test.jsonl; by default the closed world's word problems."""
    heads: int = 10
    """Heads per set."""
    controls: int = 20
    """Control sets of each kind to compare with."""
    most: int = 400
    """Pairs of each kind for knockouts, at most; effects use all pairs."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """Effects and strongest heads of both kinds, then every set's knockout on both."""
    with exit_on_user_error():
        generated = pooled_samples(model, config)
        problems = _answered(model, _word_problems(model, config))
    both = {"generated": pooled(generated), "word_problems": problems}
    maps = {"generated": pooled_map(run, generated, operation_maps(run, model, generated))}
    settings = {"run": run, "name": MAP.name("word_problems"), "engine": fitting_engine(model)}
    maps["word_problems"] = al.path_patch(model, problems, **settings)
    strongest = {name: strongest_heads(effects, config.heads) for name, effects in maps.items()}
    sets = head_sets(strongest)
    every = sorted({*strongest["generated"], *strongest["word_problems"]})
    for name, pairs in both.items():
        some = pairs[
            :: -(-len(pairs) // config.most)
        ]  # evenly spread, so that every template is in
        of_data = sets | control_sets(strongest[name], model, config)
        curves = knockout_curves(
            model, some, of_data, ks={label: (len(heads),) for label, heads in of_data.items()},
            means=MEANS[name],
        )  # fmt: skip
        for label, heads in of_data.items():
            out = curves[label].at(len(heads))
            OUTCOMES.save(run, out, label, name, heads=[str(head) for head in heads])
        looks = attention_to(model, pairs, every, classes, axis="class")
        CLASS_ATTENTION.save(run, looks, name)


def _plan(model: al.HookedModel, config: Config) -> str:
    with exit_on_user_error():
        both = {
            "generated": pooled(pooled_samples(model, config, keep="all")),
            "word_problems": _word_problems(model, config),
        }
    return "\n".join(
        f"{name}: {al.plan(model, pairs, engine=fitting_engine(model))}; then "
        f"{5 + 2 * config.controls} knockouts{BEFORE_FILTER}"
        for name, pairs in both.items()
    )


def _inputs(config: Config) -> tuple[Path, ...]:
    return () if config.data_dir is None else (config.data_dir / "gsm8k" / "test.jsonl",)


def _word_problems(model: al.HookedModel, config: Config) -> al.PromptPairs:
    """All word problems that can be converted."""
    if config.data_dir is None:
        pairs, report = world_pairs(model, seed=config.seed)
    else:
        file = config.data_dir / "gsm8k" / "test.jsonl"
        pairs, report = gsm8k_pairs(model, file, seed=config.seed)
    print(report)
    return pairs


def _answered(model: al.HookedModel, pairs: al.PromptPairs) -> al.PromptPairs:
    """The pairs that are answered with C after the reference, and not after the counterfactual."""
    answered = keep_correct(model, pairs)
    still, _ = answer(model, answered, "counterfactual", batch_size=128)
    print(
        f"{len(answered)} of {len(pairs)} answered right; of these {int(still.sum())} are left "
        "out: their counterfactual is answered with C too, so that nothing was taken away"
    )
    return answered.filter(~still)


def head_sets(strongest: Mapping[str, tuple[al.Head, ...]]) -> dict[str, tuple[al.Head, ...]]:
    """By name: no heads, both sets, their overlap, and the rest of each."""
    ours, theirs = strongest["generated"], strongest["word_problems"]
    return {
        "none": (),
        "generated": ours,
        "word_problems": theirs,
        "overlap": tuple(head for head in ours if head in theirs),
        "generated_only": tuple(head for head in ours if head not in theirs),
        "word_problems_only": tuple(head for head in theirs if head not in ours),
    }


def classes(pairs: al.PromptPairs) -> dict[str, Bool[Tensor, "pair pos"]]:
    """Which tokens are digits, operators, BOS, END, or other words; each token is in one."""
    pieces, mask = pairs.pieces or {}, pairs.attention_mask
    digits = torch.tensor([token for token, piece in pieces.items() if piece.strip("▁Ġ").isdigit()])
    masks = {
        "END": pairs.role_mask(Role.END),
        "BOS": pairs.role_mask(Role.BOS),
        "operator": pairs.role_mask(Role.OPERATOR),
        "numbers": torch.isin(pairs.reference, digits),
    }
    taken = torch.zeros_like(mask)
    for name, where in masks.items():
        masks[name] = where & mask & ~taken
        taken |= where
    masks["other words"] = mask & ~taken
    return {name: masks[name] for name in TOKEN_CLASSES}


main = Experiment(
    "do_word_problems_use_them", Config, compute, _plan, figure="table4", inputs=_inputs
)
