"""Runs with planted truths, for predictions to be judged on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from support import made_claims as made
from support.made_runs import MadePairs, made_run
from torch import Tensor

from arith_lens.components import Component, every_head, every_mlp
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects
from arith_lens.knockout import CircuitCurve, KnockoutCurves
from arith_lens.runs import Run
from experiments import results
from experiments.are_they_specific import COMPUTED_SET, LATE_SET, STRONGEST_SET
from figures.tables import predictions
from figures.tables.table import Row

OPERATIONS = ("addition", "division")


def effects_with(means: Tensor) -> ComponentEffects:
    """Effects of heads with these means, on 8 problems; a fifth of the MLPs' is the norm's part."""
    noise = 1 + 0.1 * torch.linspace(-1, 1, 8)
    units: dict[str, Any] = {
        "metric": "digit_contrast",
        "paths": "via_mlps",
        "problem": tuple(map(str, range(8))),
        "cluster": torch.arange(8),
    }
    mlps = -0.5 * noise.repeat(len(means), 1)
    return ComponentEffects(
        Effects(means[..., None] * noise, HEAD_AXES, **units, held_norm=means[..., None] * noise),
        Effects(mlps, MLP_AXES, **units, held_norm=0.8 * mlps),
        torch.ones(8),
    )


def maps(strongest: list[list[int]]) -> dict[str, dict[str, ComponentEffects]]:
    """Maps of 6 layers of 4 heads; for each operation, the heads that take 10% away."""
    made = {}
    for operation, heads in zip(("addition", "division"), strongest, strict=True):
        means = torch.linspace(0, 0.001, 24)
        means[heads] = -0.1
        effects = effects_with(means.view(6, 4))
        made[operation] = dict.fromkeys(("word", "operator", "operands"), effects)
    return made


def circuit_curve(order: list[Component], right: dict[int, float], kind: str) -> CircuitCurve:
    """The metric, and so the share of right answers, at each size; with some noise."""
    noise = torch.randn(len(right), made.N_PAIRS, generator=torch.Generator().manual_seed(1))
    value = torch.tensor([*right.values()])[:, None] + 0.2 * noise
    settings = {"ablation": "mean", "positions": "all", "means": "template", "metric": "logit"}
    settings |= {"sizes": tuple(right), "order": tuple(order), "kind": kind, **made.SHARED}
    return CircuitCurve(value=value, correct=value > 0.5, **settings)  # pyright: ignore


def circuits(root: Path) -> tuple[Run, Run]:
    """What is left with few heads, and what is lost without them and without late MLPs."""
    heads: Any = every_head(made.N_LAYERS, made.N_HEADS)
    mlps: Any = every_mlp(made.N_LAYERS)[6:]
    with made_run("do_they_suffice", {"model": "made"}, root) as kept:
        for name in OPERATIONS:
            curve = circuit_curve(heads, {0: 0.0, 4: 0.6, 5: 0.9, 96: 1.0}, "keep_only")
            place = name, "heads", "end", "keep_only", "effect"
            results.CIRCUIT_CURVE.save(kept, curve, *place, pairs=MadePairs())
    with made_run("are_they_specific", {"model": "made"}, root) as lost:
        for name in OPERATIONS:
            for label, order, among, without in (
                (STRONGEST_SET, heads, "heads", 0.1),
                (LATE_SET, mlps, "mlps", 0.4),
                (COMPUTED_SET, mlps, "mlps", 0.9),
            ):
                curve = circuit_curve(order, {0: 1.0, 7: without, len(order): 0.0}, "knock_out")
                place = name, among, "all", "knock_out", label
                results.CIRCUIT_CURVE.save(lost, curve, *place, pairs=MadePairs())
            controls = {str(i): made.curve(heads, {0: 1.0, 7: 1 - i / 9}) for i in range(2)}
            results.CONTROL_CURVES.save(lost, KnockoutCurves(controls), name, pairs=MadePairs())
            values = torch.linspace(0.01, 0.04, made.N_PAIRS).repeat(2, 1)
            divergence = Effects(values, ("set",), "divergence")
            results.DIVERGENCE.save(lost, divergence, name, pairs=MadePairs())
    return kept, lost


def outcomes(root: Path, looks: Run, probes: Run, stories: Run, trainings: Run) -> Iterator[Row]:
    """The outcome of every prediction.

    Args:
        root: where runs of circuits are made.
        looks: where heads look, and their effects.
        probes: what MLPs read and write.
        stories: the effects on word problems.
        trainings: what tuning gains.
    """
    made_maps = maps([[*range(10)], [*range(3, 13)]])
    kept, lost = circuits(root)
    yield from predictions.few_heads(kept, OPERATIONS)
    yield from predictions.shared(made_maps)
    yield from predictions.middle_layers(made_maps)
    yield from predictions.readers(looks, OPERATIONS)
    yield from predictions.late_mlps(lost, OPERATIONS)
    yield from predictions.norm_parts(made_maps)
    yield from predictions.specific(lost, OPERATIONS)
    yield from predictions.written_outcomes(probes, OPERATIONS)
    yield from predictions.word_problem_outcomes(stories, looks, OPERATIONS)
    yield from predictions.tuning_outcomes(trainings)
