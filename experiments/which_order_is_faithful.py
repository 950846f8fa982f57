"""Which order of heads and MLPs gives faithful circuits? Exact effects, approximations, searches.

For each operation, the problems are split in two halves. Orders of all heads and MLPs are chosen on
one half: by exact effects, by each method of attribution, by two greedy searches, and at random. On
the other half the first k components of each order are kept while the others are replaced at END,
and the curve is summed up as MIB does: by CPR, for orders by score, and by CMD, for orders by the
size of the score. Saves a run under results/which_order_is_faithful/, and prints a table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

import arith_lens as al
from arith_lens.attribution import ATTRIBUTION_METHODS, UnsupportedRule
from arith_lens.components import Component
from arith_lens.knockout import completed, grow_greedily, halves, shrink_greedily
from arith_lens.knockout.circuits import components_among
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.do_they_suffice import areas
from experiments.results import CIRCUIT_CURVE, EXACT, FAITHFUL_SCORES
from experiments.settings import (
    Experiment,
    SampleSettings,
    fitting_engine,
    operation_pairs,
    some_pairs,
)

SIGNED, BY_SIZE = "signed", "by_size"
"""Orders by score, and by the size of the score."""
GREEDY = "greedy"
SHRINKING = "shrinking"
RIVAL = "eap_ig"
"""The node attribution by integrated gradients that circuits are compared with."""


@dataclass(frozen=True)
class Config(SampleSettings):
    """Which order of heads and MLPs gives faithful circuits?"""

    total: int = 18
    """Pairs of which the exact effects over all paths are computed."""
    approximated: int = 54
    """Pairs on which the other scores are computed; 0: all of the half."""
    candidates: int = 24
    """Components that the greedy search chooses from, the strongest by effect."""
    searched: int = 12
    """Components that it chooses; the others follow by effect."""
    searched_on: int = 18
    """Pairs of the greedy search."""
    drawn_on: int = 108
    """Pairs on which curves are drawn, at most; 0: all of the other half."""
    controls: int = 5
    """Random orders."""
    measure: Literal["digit_contrast", "logit", "probability"] = "digit_contrast"
    """What is approximated, and what faithfulness is made of."""
    ablation: Literal["mean", "resample"] = "mean"
    """What replaces a component's output at END."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The curves of each operation."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            chosen_on, other = halves(pairs, config.seed)
            drawn_on = some_pairs(other, config.drawn_on, config.seed)
            for label, order in orders(run, operation, model, chosen_on, config):
                al.circuit_curve(
                    model,
                    drawn_on,
                    order,
                    among="all",
                    metric=config.measure,
                    ablation=config.ablation,
                    positions="end",
                    seed=config.seed,
                    run=run,
                    name=CIRCUIT_CURVE.name(operation, "all", "end", "keep_only", label),
                )


def orders(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> Iterator[tuple[str, list[Component]]]:
    """The name of each order, and the order, chosen on `pairs`."""
    everything = components_among(model, "all")
    scores = scores_of(run, operation, model, pairs, config)
    for name, effects in scores.items():
        signed = bool(effects.computation.get("signed", True))
        yield f"{name}-{SIGNED}", ranked(effects, everything, by_size=not signed)
        yield f"{name}-{BY_SIZE}", ranked(effects, everything, by_size=True)
    by_effect = ranked(scores[EXACT], everything, by_size=False)
    grown = grow_greedily(
        model,
        some_pairs(pairs, config.searched_on, config.seed),
        by_effect[: config.candidates],
        n=config.searched,
        among="all",
        ablation=config.ablation,
        positions="end",
        seed=config.seed,
    )
    yield GREEDY, completed(grown, by_effect)
    yield (
        SHRINKING,
        shrink_greedily(
            model,
            some_pairs(pairs, config.searched_on, config.seed),
            metric=config.measure,
            ablation=config.ablation,
            positions="end",
            seed=config.seed,
        ),
    )
    for seed in range(config.seed, config.seed + config.controls):
        yield f"random-{seed}", some_order(everything, seed)


def scores_of(
    run: Run, operation: str, model: al.HookedModel, pairs: al.PromptPairs, config: Config
) -> Mapping[str, al.ComponentEffects]:
    """Exact effects via MLPs and over all paths, and each approximation over all paths."""
    few, some = (some_pairs(pairs, n, config.seed) for n in (config.total, config.approximated))

    def patched(pairs: al.PromptPairs, paths: str, name: str) -> al.ComponentEffects:
        return al.path_patch(
            model,
            pairs,
            paths=paths,
            metric=config.measure,
            engine=fitting_engine(model, paths),
            run=run,
            name=FAITHFUL_SCORES.name(operation, name),
        )

    scores = {
        EXACT: patched(some, "via_mlps", EXACT),
        f"{EXACT}_total": patched(few, "total", f"{EXACT}_total"),
    }
    for method in ATTRIBUTION_METHODS:
        name = FAITHFUL_SCORES.name(operation, method)
        settings: dict[str, Any] = {"paths": "total", "metric": config.measure, "method": method}
        try:
            scores[method] = al.attribute(model, some, run=run, name=name, **settings)
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


def some_order(components: list[Component], seed: int) -> list[Component]:
    """A random order."""
    mixed = torch.randperm(len(components), generator=torch.Generator().manual_seed(seed))
    return [components[i] for i in mixed.tolist()]


def _plan(model: al.HookedModel, config: Config) -> str:
    n = model.n_layers * (model.n_heads + 1)
    n_methods = len(ATTRIBUTION_METHODS)
    return (
        f"{len(config.operations)} operations, each: {n} forwards of {config.total} pairs, "
        f"{n_methods} approximations, a search of {config.candidates * config.searched} "
        f"knockouts, and {2 * (2 + n_methods) + 1 + config.controls} curves of up to 12 sizes"
    )


def report(run: Run) -> None:
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
    ours, theirs = (side.drawn("cmd") for side in (curve, rival))
    low, high = np.nanquantile(ours / theirs, [0.025, 0.975])
    return curve.cmd / rival.cmd, (float(low), float(high))


main = Experiment("which_order_is_faithful", Config, compute, _plan, report, shares=True)
