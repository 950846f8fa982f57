"""Which heads and MLPs are a circuit? The first k components of an order, kept alone.

The problems are split in two halves. Orders are chosen on one half, and curves are drawn on the
other.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.components import Component
from arith_lens.knockout import (
    completed,
    grow_greedily,
    half_of_problems,
    halves,
    mask_greedily,
    random_order,
    shrink_greedily,
    weight_norm_order,
)
from arith_lens.knockout.circuits import FRACTIONS, components_among
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.configs.answers import OrderConfig, SufficiencyConfig
from experiments.results import CIRCUIT_CURVE, EXACT, FAITHFUL_SCORES, MAP, SEARCH_MAP
from experiments.settings import (
    Experiment,
    operation_pairs,
    patch_and_store,
    some_pairs,
    strongest_heads,
)

CURVE_KINDS = ("keep_only", "knock_out")
FINE = tuple(sorted({*FRACTIONS, 0.03, 0.075, 0.15, 0.3, 0.4, 0.75}))
"""The shares of components at which the curves are read."""
SPLIT_SIZES = (5, 14)
"""The numbers of heads that are kept in further splits of the problems."""


def _save_head_curves(run: Run, model: al.HookedModel, config: SufficiencyConfig) -> None:
    """The curves of each operation."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            chosen_on, drawn_on = halves(pairs, config.seed)
            effects = patch_and_store(run, model, chosen_on, SEARCH_MAP, operation)
            for among, label, order in _head_orders(model, chosen_on, effects, config):
                end = ("end",) if label.startswith(("effect", "random-")) else ()
                for kind, positions in product(CURVE_KINDS, ("all", *end)):
                    name = CIRCUIT_CURVE.name(operation, among, positions, kind, label)
                    al.circuit_curve(
                        model,
                        drawn_on,
                        order,
                        kind=kind,
                        among=among,
                        metric=config.measure,
                        ablation=config.ablation,
                        positions=positions,
                        seed=config.seed,
                        fractions=FINE,
                        run=run,
                        name=name,
                    )
            _save_splits(run, model, operation, pairs, config)


def _save_splits(
    run: Run, model: al.HookedModel, operation: str, pairs: al.PromptPairs, config: Any
) -> None:
    """The strongest heads kept at END, in each further split of the problems."""
    if not config.splits:
        return
    effects = patch_and_store(run, model, pairs, MAP, operation)
    n_heads = model.n_layers * model.n_heads
    for split in range(config.seed + 1, config.seed + 1 + config.splits):
        inside = half_of_problems(pairs.problem, split)
        al.circuit_curve(
            model,
            pairs[~inside],
            effects.heads.select(inside).top(n_heads),
            metric=config.measure,
            ablation=config.ablation,
            positions="end",
            seed=config.seed,
            fractions=[k / n_heads for k in SPLIT_SIZES if k <= n_heads],
            run=run,
            name=CIRCUIT_CURVE.name(operation, "heads", "end", "keep_only", f"split-{split}"),
        )


def _head_orders(
    model: al.HookedModel,
    pairs: al.PromptPairs,
    effects: al.ComponentEffects,
    config: SufficiencyConfig,
) -> Iterator[tuple[str, str, list[Any]]]:
    """Which components, the name of an order, and the order, chosen on `pairs`."""
    shape = model.n_layers, model.n_heads
    by_effect = strongest_heads(effects, prod(shape))
    yield "heads", "effect", [*by_effect]
    yield "mlps", "effect", [*effects.mlps.top(model.n_layers)]
    yield "heads", "weights", [*weight_norm_order(model)]
    for seed in range(config.seed, config.seed + config.controls):
        yield "heads", f"random-{seed}", [*random_order(*shape, seed)]
    if candidates := by_effect[: config.candidates]:
        few, n = pairs[:: config.search_every], min(config.searched, len(candidates))
        settings: dict[str, Any] = {"n": n, "ablation": config.ablation, "seed": config.seed}
        grown = grow_greedily(model, few, candidates, **settings)
        yield "heads", "growing", completed(grown, by_effect)
        mask = mask_greedily(model, few, candidates, **settings)
        yield "heads", "iterative", completed(mask.order, by_effect)


def _plan_head_curves(model: al.HookedModel, config: SufficiencyConfig) -> str:
    curves = 2 * (2 * 2 + 1 + 2 * config.controls + 2 * bool(config.candidates))
    left = max(config.candidates - config.searched, 0)
    tried = 2 * sum(range(config.candidates, left, -1))
    return (
        f"{len(config.operations)} operations, each: a path patching of every head on half of the "
        f"problems; {tried} knockouts to choose heads; {curves} curves of up to {len(FINE) + 1} "
        f"sizes on the other half, and {config.splits} further splits with {len(SPLIT_SIZES)} "
        "sizes. A size costs at most one forward of the pairs."
    )


def _report_head_curves(run: Run) -> None:
    """For each operation and order, print CPR, CMD, and how many heads answer 90%."""
    for operation in run.config["operations"]:
        facts = CIRCUIT_CURVE.facts(run, operation, "heads", "all", "keep_only", "effect")
        print(f"\n{operation}: {facts['distinct']} references of the half that is drawn")
        for positions in ("all", "end"):
            parts = (operation, "heads", positions, "keep_only")
            for label in CIRCUIT_CURVE.labels(run, *parts, None):
                if label.startswith("split-"):
                    continue
                curve = CIRCUIT_CURVE.load(run, *parts, label)
                print(
                    f"  {label:<10} positions {positions}: {areas(curve)}, 90% right with "
                    f"{enough(curve)} heads"
                )


def areas(curve: al.CircuitCurve) -> str:
    """CPR and CMD, with their intervals."""
    cpr, cmd = (f"[{low:.2f}, {high:.2f}]" for low, high in curve.intervals().values())
    return f"CPR {curve.cpr:.2f} {cpr}, CMD {curve.cmd:.2f} {cmd}"


def enough(curve: al.CircuitCurve, share: float = 0.9) -> int:
    """The smallest size from which on at least this share is answered right."""
    below = (curve.accuracy() < share).nonzero().flatten().tolist()
    return curve.sizes[min(below[-1] + 1, len(curve.sizes) - 1)] if below else curve.sizes[0]


do_they_suffice = Experiment(
    "do_they_suffice",
    SufficiencyConfig,
    _save_head_curves,
    _plan_head_curves,
    _report_head_curves,
    figure="sufficiency",
    shares=True,
)


SIGNED, BY_SIZE = "signed", "by_size"
"""Orders by score, and by the size of the score."""
GREEDY, SHRINKING = "greedy", "shrinking"
"""The orders of the two searches."""
RIVAL = "eap_ig"
"""The node attribution by integrated gradients that circuits are compared with."""


def _save_curves(run: Run, model: al.HookedModel, config: OrderConfig) -> None:
    """The curves of each operation."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            chosen_on, other = halves(pairs, config.seed)
            drawn_on = some_pairs(other, config.drawn_on, config.seed)
            settings = {"among": "all", "metric": config.measure, **_knockout_settings(config)}
            for label, order in _orders(run, operation, model, chosen_on, config):
                name = CIRCUIT_CURVE.name(operation, "all", "end", "keep_only", label)
                al.circuit_curve(model, drawn_on, order, run=run, name=name, **settings)


def _knockout_settings(config: OrderConfig) -> dict[str, Any]:
    """How components are replaced, in searches and curves."""
    return {"ablation": config.ablation, "positions": "end", "seed": config.seed}


def _orders(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: OrderConfig
) -> Iterator[tuple[str, list[Component]]]:
    """The name of each order, and the order, chosen on `pairs`."""
    everything = components_among(model, "all")
    scores = scores_of(run, operation, model, pairs, config)
    for name, effects in scores.items():
        signed = bool(effects.computation.get("signed", True))
        yield f"{name}-{SIGNED}", ranked(effects, everything, by_size=not signed)
        yield f"{name}-{BY_SIZE}", ranked(effects, everything, by_size=True)
    by_effect = ranked(scores[EXACT], everything, by_size=False)
    few, settings = some_pairs(pairs, config.searched_on, config.seed), _knockout_settings(config)
    candidates = by_effect[: config.candidates]
    grown = grow_greedily(model, few, candidates, n=config.searched, among="all", **settings)
    yield GREEDY, completed(grown, by_effect)
    yield SHRINKING, shrink_greedily(model, few, metric=config.measure, **settings)
    for seed in range(config.seed, config.seed + config.controls):
        mixed = torch.randperm(len(everything), generator=torch.Generator().manual_seed(seed))
        yield f"random-{seed}", [everything[i] for i in mixed.tolist()]


def scores_of(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: OrderConfig
) -> Mapping[str, al.ComponentEffects]:
    """Exact effects via MLPs and over all paths, and each approximation over all paths."""
    few, some = (some_pairs(pairs, n, config.seed) for n in (config.total, config.approximated))

    total: dict[str, Any] = {"paths": "total", "metric": config.measure}
    via_mlps = total | {"paths": "via_mlps"}
    scores = {
        name: patch_and_store(run, model, on, FAITHFUL_SCORES, operation, name, **settings)
        for name, on, settings in ((EXACT, some, via_mlps), (f"{EXACT}_total", few, total))
    }
    for method in ATTRIBUTION_METHODS:
        name = FAITHFUL_SCORES.name(operation, method)
        try:
            scores[method] = al.attribute(model, some, method=method, run=run, name=name, **total)
        except UnsupportedRule as error:
            print(f"{method} is left out: {error}")
    return scores


def ranked(
    effects: al.ComponentEffects, components: list[Component], *, by_size: bool
) -> list[Component]:
    """The components whose effects are most negative first; by size: the largest first."""
    means = torch.cat([effects.heads.mean().flatten(), effects.mlps.mean()])
    keys = -means.abs() if by_size else means
    return [components[i] for i in keys.argsort(stable=True).tolist()]


def _plan_curves(model: al.HookedModel, config: OrderConfig) -> str:
    n = model.n_layers * (model.n_heads + 1)
    n_methods = len(ATTRIBUTION_METHODS)
    return (
        f"{len(config.operations)} operations, each: {n} forwards of {config.total} pairs, "
        f"{n_methods} approximations, a search of {config.candidates * config.searched} "
        f"knockouts, and {2 * (2 + n_methods) + 1 + config.controls} curves of up to 12 sizes"
    )


def _report_curves(run: Run) -> None:
    """For each operation and order CPR and CMD, and CMD as a share of the rival's."""
    for operation in run.config["operations"]:
        parts = (operation, "all", "end", "keep_only")
        rival = CIRCUIT_CURVE.load(run, *parts, f"{RIVAL}-{BY_SIZE}")
        print(f"\n{operation}: {rival.value.shape[1]} pairs")
        for label in CIRCUIT_CURVE.labels(run, *parts, None):
            curve = CIRCUIT_CURVE.load(run, *parts, label)
            share, (low, high) = cmd_ratio(curve, rival)
            ratio = f"of {RIVAL}'s {share:.2f} [{low:.2f}, {high:.2f}]"
            print(f"  {label:<26} {areas(curve)}, {ratio}")


def cmd_ratio(curve: al.CircuitCurve, rival: al.CircuitCurve) -> tuple[float, tuple[float, float]]:
    """CMD over the rival's CMD on the same pairs, and its 95% interval.

    Problems are drawn alike for both.
    """
    ours, theirs = (side.sampled("cmd") for side in (curve, rival))
    low, high = np.nanquantile(ours / theirs, [0.025, 0.975])
    return curve.cmd / rival.cmd, (float(low), float(high))


which_order_is_faithful = Experiment(
    "which_order_is_faithful", OrderConfig, _save_curves, _plan_curves, _report_curves, shares=True
)
