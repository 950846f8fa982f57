"""Do other prompts use the same heads? Powers, word problems, and published word problems.

The heads that matter on the four operations were found on short calculations. Each experiment finds
those of other prompts, and compares or counts them.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor

import arith_lens as al
from arith_lens.attention import attention_to
from arith_lens.knockout import knockout_curves
from arith_lens.operations import FOUR
from arith_lens.pairs import Role, answer, keep_correct
from arith_lens.reference.sets import world_pairs
from arith_lens.runs import Run
from arith_lens.templates import TEMPLATES
from arith_lens.word_problems import gsm8k_pairs
from experiments.are_they_needed import control_orders
from experiments.command import continue_after_part, exit_on_user_error
from experiments.configs.answers import PowersConfig, WordProblemsConfig
from experiments.configs.shared import PooledSampleSettings
from experiments.results import CLASS_ATTENTION, KNOCKOUT_CURVES, MAP, OUTCOMES
from experiments.settings import (
    Experiment,
    control_sets,
    operation_maps,
    patch_and_store,
    plan_maps,
    pooled,
    pooled_map,
    pooled_samples,
    save_maps,
    some_pairs,
    strongest_heads,
)

POWERS = tuple(template.name for template in TEMPLATES["exponentiation"])


def _save_powers(run: Run, model: al.HookedModel, config: PowersConfig) -> None:
    """The maps of the four operations, then effects and knockouts of each wording of powers."""
    pairs = pooled_samples(model, PooledSampleSettings(seed=config.seed))
    save_maps(run, model, pairs.items())
    for template in POWERS:
        with continue_after_part():
            _save_wording(run, model, template, config)


def _plan_powers(model: al.HookedModel, config: PowersConfig) -> str:
    return (
        f"{len(POWERS)} wordings and {len(FOUR)} operations, each: a path patching of every "
        f"head; for each wording {1 + 2 * config.controls} knockout curves"
    )


def _save_wording(run: Run, model: al.HookedModel, template: str, config: PowersConfig) -> None:
    """One wording: effects, and curves over the key heads and as many control heads."""
    with exit_on_user_error():
        pairs = al.sample_pairs(
            model, "exponentiation", templates=[template], draws=config.draws, seed=config.seed
        )
    key = al.key_heads(patch_and_store(run, model, pairs, MAP, template))
    shape = model.n_layers, model.n_heads
    orders = {"effect": key} | control_orders(key, [len(key)], *shape, config)[0]
    ks = range(len(key) + 1)
    knockout_curves(model, pairs, orders, ks=ks, run=run, name=KNOCKOUT_CURVES.name(template))


do_powers_use_them = Experiment(
    "do_powers_use_them", PowersConfig, _save_powers, _plan_powers, figure="table3", shares=True
)


MEANS = {"generated": "template", "word_problems": "role"}
"""Over which tokens a mean is taken. Word problems share no position but END."""

TOKEN_CLASSES = ("numbers", "operator", "BOS", "END", "other words")


def _save_crosswise(run: Run, model: al.HookedModel, config: WordProblemsConfig) -> None:
    """Effects and strongest heads of both kinds, then every set's knockout on both."""
    with exit_on_user_error():
        generated = pooled_samples(model, config)
        problems = _answered(model, _word_problems(model, config))
    both = {"generated": pooled(generated), "word_problems": problems}
    maps = {"generated": pooled_map(run, generated, operation_maps(run, model, generated))}
    maps["word_problems"] = patch_and_store(run, model, problems, MAP, "word_problems")
    strongest = {name: strongest_heads(effects, config.heads) for name, effects in maps.items()}
    sets = head_sets(strongest)
    every = sorted({*strongest["generated"], *strongest["word_problems"]})
    for name, pairs in both.items():
        every_nth = -(-len(pairs) // config.most)  # evenly spread, so that every template is in
        of_data = sets | control_sets(strongest[name], model, config)
        ks = {label: (len(heads),) for label, heads in of_data.items()}
        curves = knockout_curves(model, pairs[::every_nth], of_data, ks=ks, means=MEANS[name])
        for label, heads in of_data.items():
            out = curves[label].at(len(heads))
            OUTCOMES.save(run, out, label, name, heads=[str(head) for head in heads])
        looks = attention_to(model, pairs, every, classes, axis="class")
        CLASS_ATTENTION.save(run, looks, name)


def _plan_crosswise(model: al.HookedModel, config: WordProblemsConfig) -> str:
    with exit_on_user_error():
        both = {
            "generated": pooled(pooled_samples(model, config, keep="all")),
            "word_problems": _word_problems(model, config),
        }
    return plan_maps(model, both.items(), f"; then {5 + 2 * config.controls} knockouts")


def _inputs(config: WordProblemsConfig) -> tuple[Path, ...]:
    return () if config.data_dir is None else (config.data_dir / "gsm8k" / "test.jsonl",)


def _word_problems(model: al.HookedModel, config: WordProblemsConfig) -> al.PromptPairs:
    """The word problems that can be converted; at most `n`."""
    if config.data_dir is None:
        pairs, report = world_pairs(model, seed=config.seed)
    else:
        pairs, report = gsm8k_pairs(model, *_inputs(config), seed=config.seed)
    print(report)
    return some_pairs(pairs, config.n or 0, config.seed)


def _answered(model: al.HookedModel, pairs: al.PromptPairs) -> al.PromptPairs:
    """The pairs that are answered with C after the reference, and not after the counterfactual."""
    answered = keep_correct(model, pairs)
    still, _ = answer(model, answered, "counterfactual", batch_size=128)
    print(
        f"{len(answered)} of {len(pairs)} are answered right. {int(still.sum())} of these are left "
        "out, because their counterfactual is answered with C too"
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


do_word_problems_use_them = Experiment(
    "do_word_problems_use_them",
    WordProblemsConfig,
    _save_crosswise,
    _plan_crosswise,
    figure="table4",
    inputs=_inputs,
)
