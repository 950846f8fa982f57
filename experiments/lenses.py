"""Does a conclusion hold under every lens? The main results for each counterfactual and metric."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

import arith_lens as al
from arith_lens.attribution import UnsupportedRule
from arith_lens.components import Component, every_component
from arith_lens.knockout import matched_order, random_order
from arith_lens.pairs import NO_ANSWER
from arith_lens.runs import Run
from experiments.circuit import first_half, selected
from experiments.command import continue_after_part
from experiments.configs.effects import LensesConfig
from experiments.results import LENS_KEPT, LENS_MEDIATION, LENS_SCORES, NODES, PROMPT_EXCHANGE
from experiments.selection import some_of
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    patch_and_store,
    plan_maps,
    sampled_operation,
    some_pairs,
)

METHODS = ("atp", "eap_ig", "relp", "ig_activations")
"""The approximations that are graded."""
TESTS: Mapping[str, tuple[str, str]] = {
    "knocked out": ("mean", "all"),
    "kept": ("mean", "end"),
    "exchanged": ("counterfactual", "end"),
}
"""What is done with heads: the ablation, and the positions."""
SIZES: Mapping[str, tuple[int, ...]] = {
    "knocked out": (5, 10),
    "kept": (1, 2, 3, 5, 7, 10, 14, 19, 24),
    "exchanged": (1, 2, 3, 5, 7, 10, 14, 19, 24),
}
"""The numbers of heads, the strongest first."""
N_NEEDED, N_MEDIATED = 10, 5
"""Heads that are compared with random ones; heads whose mediators are measured."""
RANDOM, MATCHED = "random", "matched"
"""Orders by chance: of any heads, and of as many heads in each layer as those of a lens."""
NOTHING, LAST_MLP, EVERYTHING = "nothing", "last MLP", "everything"
"""What gets its output from the counterfactual prompt at END; everything: as if the whole prompt
were exchanged, because both prompts end with the same token."""


def compute(run: Run, model: al.HookedModel, config: LensesConfig) -> None:
    """The results of each operation and lens."""
    for operation, counterfactual in product(config.operations, config.counterfactuals):
        pairs = sampled_pairs(model, config, operation, counterfactual, keep=config.keep)
        with continue_after_part():
            _save_counterfactual(run, model, config, pairs, (operation, counterfactual))


def sampled_pairs(
    model: al.HookedModel, config: LensesConfig, operation: str, counterfactual: str, *, keep: str
) -> al.PromptPairs:
    """The pairs of an operation and a counterfactual."""
    options = {"counterfactual": counterfactual, "keep": keep}
    pairs = sampled_operation(model, operation, config, problems=config.problems, **options)
    return some_pairs(pairs, config.drawn, config.seed)


def graded_pairs(n_pairs: int, settings: Mapping[str, Any]) -> Int[Tensor, " chosen"]:
    """The indices of the pairs on which attribution is graded, among all pairs of a map."""
    return torch.tensor(some_of([*range(n_pairs)], settings["approximated"], settings["seed"]))


def has_other_answers(pairs: al.PromptPairs) -> bool:
    """Whether the counterfactual of some pair has an answer, and another one than C."""
    other = pairs.counterfactual_answer
    return bool(((other != NO_ANSWER) & (other != pairs.answer)).any())


def _save_counterfactual(
    run: Run,
    model: al.HookedModel,
    config: LensesConfig,
    pairs: al.PromptPairs,
    key: tuple[str, str],
) -> None:
    """The whole prompt's effect; then, for each metric, effects, approximations and carriers."""
    last = al.Mlp(model.n_layers - 1)
    everything = every_component(model.n_layers, model.n_heads)
    sets: dict[str, Sequence[Component]] = {
        NOTHING: everything,
        LAST_MLP: [one for one in everything if one != last],
        EVERYTHING: [],
    }
    for metric in ("logit", "digit_contrast"):
        name = PROMPT_EXCHANGE.name(*key, metric)
        al.keep_each(model, pairs, sets, metric=metric, positions="end", run=run, name=name)
    first = first_half(pairs, config.seed)
    graded = pairs[
        graded_pairs(len(pairs), {"approximated": config.approximated, "seed": config.seed})
    ]
    others = pairs[~first]
    orders: dict[str, list[al.Head]] = {}
    for metric in config.metrics:
        if metric == "interchange" and not has_other_answers(pairs):
            print(f"{', '.join(key)}: interchange is left out, no counterfactual has an answer")
            continue
        effects = patch_and_store(run, model, pairs, NODES, *key, metric, metric=metric)
        heads: Any = selected(effects, first).heads
        orders[metric] = heads.top(model.n_layers * model.n_heads)
        al.mediators(
            model,
            some_pairs(others, config.carried, config.seed),
            orders[metric][:N_MEDIATED],
            metric=metric,
            run=run,
            name=LENS_MEDIATION.name(*key, metric),
        )
        _save_scores(run, model, graded, (*key, metric))
    tested = some_pairs(others, config.tested, config.seed)
    for test, (ablation, positions) in TESTS.items():
        al.keep_each(
            model,
            tested,
            tested_sets(orders, test, everything, config),
            ablation=ablation,
            positions=positions,
            run=run,
            name=LENS_KEPT.name(*key, test.replace(" ", "-")),
        )


def _save_scores(
    run: Run, model: al.HookedModel, pairs: al.PromptPairs, key: tuple[str, str, str]
) -> None:
    for method in METHODS:
        name = LENS_SCORES.name(*key, method)
        try:
            al.attribute(model, pairs, method=method, metric=key[-1], run=run, name=name)
        except UnsupportedRule as error:
            print(f"{method} is left out: {error}")


def tested_sets(
    orders: Mapping[str, Sequence[al.Head]],
    test: str,
    everything: Sequence[Component],
    config: LensesConfig,
) -> dict[str, list[Component]]:
    """What stays as it is in each set of a test. Names: the order, and how many heads.

    Args:
        orders: all heads, the strongest first, by metric.
        test: one of `TESTS`.
        everything: all components.
        config: how many random sets there are.
    """
    every_head = [one for one in everything if isinstance(one, al.Head)]
    n_layers, n_heads = (
        1 + max(getattr(one, of) for one in every_head) for of in ("layer", "index")
    )
    chosen: dict[str, Sequence[Component]] = {f"{RANDOM} 0": []}
    for metric, order in orders.items():
        chosen |= {f"{metric} {k}": order[:k] for k in SIZES[test] if k <= len(order)}
    for seed in range(config.controls):
        drawn = random_order(n_layers, n_heads, seed)
        chosen |= {
            f"{RANDOM}-{seed} {k}": drawn[:k] for k in (N_MEDIATED, N_NEEDED) if k <= len(drawn)
        }
        if test == "knocked out":
            for metric, order in orders.items():
                name = f"{MATCHED}-{metric}-{seed} {N_NEEDED}"
                chosen[name] = matched_order(order[:N_NEEDED], n_layers, n_heads, seed)[:N_NEEDED]
    remainders: dict[str, list[Component]] = {}
    for name, heads in chosen.items():
        changed = {*every_head} - {*heads} if test == "kept" else {*heads}
        remainders[name] = [one for one in everything if one not in changed]
    return remainders


def _plan(model: al.HookedModel, config: LensesConfig) -> str:
    labelled = [
        (
            (operation, counterfactual),
            sampled_pairs(model, config, operation, counterfactual, keep="all"),
        )
        for operation, counterfactual in product(config.operations, config.counterfactuals)
    ]
    n_sets = sum(len(sizes) for sizes in SIZES.values()) * len(config.metrics) + 9 * config.controls
    return "\n".join(
        [
            plan_maps(model, labelled, f"; for each of {len(config.metrics)} metrics"),
            f"and for each operation and counterfactual {n_sets} sets of heads on at most "
            f"{config.tested} pairs, and for each lens {len(METHODS)} approximations on "
            f"{config.approximated} pairs{BEFORE_FILTER}",
        ]
    )


def keys(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Operation, counterfactual and metric of each lens of a run."""
    yield from product(settings["operations"], settings["counterfactuals"], settings["metrics"])


main = Experiment("lenses", LensesConfig, compute, _plan, figure="lenses", shares=True)
