"""Do the strongest heads suffice, and not only matter? Keep only the first k, and knock them out.

For each operation, the problems are split in two halves. Orders of the heads are chosen on one
half: by effect, growing (each next head raises p(C) most), by iterative masking, by the norm of the
weights, and at random. On the other half the first k heads of each order are kept while all other
heads are replaced, and knocked out while all others stay. The same is done with MLPs by effect.
Saves a run under results/do_they_suffice/, which `python -m figures sufficiency` draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import arith_lens as al
from arith_lens.knockout import (
    completed,
    grow_greedily,
    halves,
    mask_greedily,
    random_order,
    weight_norm_order,
)
from arith_lens.knockout.circuits import FRACTIONS
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.results import CIRCUIT_CURVE, SEARCH_MAP
from experiments.settings import (
    Experiment,
    Metric,
    SampleSettings,
    fitting_engine,
    operation_pairs,
    strongest_heads,
)

CURVE_KINDS = ("keep_only", "knock_out")
FINE = tuple(sorted({*FRACTIONS, 0.03, 0.075, 0.15, 0.3, 0.4, 0.75}))
"""The shares of components at which the curves are read."""


@dataclass(frozen=True)
class Config(SampleSettings):
    """Do the strongest heads suffice? Accuracy with only the first k heads, and without them."""

    controls: int = 5
    """Random orders."""
    candidates: int = 24
    """Heads that the two searches choose from, the strongest by effect; 0 leaves them out."""
    searched: int = 12
    """Heads that each search chooses; the others follow by effect."""
    search_every: int = 3
    """The searches use every third pair."""
    measure: Metric = "probability"
    """The metric that faithfulness is made of."""
    ablation: Literal["mean", "resample"] = "mean"
    """What replaces a component's output."""


def compute(run: Run, model: al.HookedModel, config: Config) -> None:
    """The curves of each operation."""
    for operation, pairs in operation_pairs(model, config):
        with continue_after_part():
            chosen_on, drawn_on = halves(pairs, config.seed)
            name = SEARCH_MAP.name(operation)
            effects = al.path_patch(
                model, chosen_on, run=run, name=name, engine=fitting_engine(model)
            )
            for among, label, order in orders(model, chosen_on, effects, config):
                for kind in CURVE_KINDS:
                    for positions in ("all", "end") if label == "effect" else ("all",):
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
                            name=CIRCUIT_CURVE.name(operation, among, positions, kind, label),
                        )


def orders(
    model: al.HookedModel, pairs: al.PromptPairs, effects: al.ComponentEffects, config: Config
) -> Iterator[tuple[str, str, list[Any]]]:
    """Which components, the name of an order, and the order, chosen on `pairs`."""
    n_heads = model.n_layers * model.n_heads
    by_effect = strongest_heads(effects, n_heads)
    yield "heads", "effect", [*by_effect]
    yield "mlps", "effect", [*effects.mlps.top(model.n_layers)]
    yield "heads", "weights", [*weight_norm_order(model)]
    for seed in range(config.seed, config.seed + config.controls):
        yield "heads", f"random-{seed}", [*random_order(model.n_layers, model.n_heads, seed)]
    candidates = by_effect[: config.candidates]
    if candidates:
        few, n = pairs[:: config.search_every], min(config.searched, len(candidates))
        settings: dict[str, Any] = {"n": n, "ablation": config.ablation, "seed": config.seed}
        yield (
            "heads",
            "growing",
            completed(grow_greedily(model, few, candidates, **settings), by_effect),
        )
        mask = mask_greedily(model, few, candidates, **settings)
        yield "heads", "iterative", completed(mask.order, by_effect)


def _plan(model: al.HookedModel, config: Config) -> str:
    """The computation in words."""
    curves = 2 * (2 * 2 + 1 + config.controls + 2 * bool(config.candidates))
    left = max(config.candidates - config.searched, 0)
    tried = 2 * sum(range(config.candidates, left, -1))
    return (
        f"{len(config.operations)} operations, each: a path patching of every head on half of the "
        f"problems; {tried} knockouts to choose heads; {curves} curves of up to {len(FINE) + 1} "
        "sizes on the other half. A size costs at most one forward of the pairs."
    )


def report(run: Run) -> None:
    """For each operation and order, print CPR, CMD, and how many heads answer 90%."""
    for operation in run.config["operations"]:
        facts = CIRCUIT_CURVE.facts(run, operation, "heads", "all", "keep_only", "effect")
        print(f"\n{operation}: {facts['distinct']} references of the half that is drawn")
        for positions in ("all", "end"):
            for label in CIRCUIT_CURVE.labels(
                run, operation, "heads", positions, "keep_only", None
            ):
                curve = CIRCUIT_CURVE.load(run, operation, "heads", positions, "keep_only", label)
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


main = Experiment(
    "do_they_suffice", Config, compute, _plan, report, figure="sufficiency", shares=True
)
