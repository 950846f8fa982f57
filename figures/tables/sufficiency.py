"""The table `sufficiency`: do the strongest heads suffice? The model with the first k alone.

Keys: operation; components ("heads" or "MLPs"); positions where the others are replaced ("all" or
"END"); kind ("keep_only" or "knock_out"); order ("effect", "growing", "iterative", "weights", or
"random", the mean of several); k. Orders are chosen on one half of the problems, and the numbers
are of the other half. So is the base rate, the share of the majority answer. Two measures are about
further splits of the problems: the mean accuracy with its range over splits, and the share of
prompts that are right in most of the splits that do not choose by them.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.knockout import CircuitCurve
from arith_lens.runs import Run
from experiments import results
from experiments.circuits import CURVE_KINDS, enough
from figures.tables.base_rates import answers_of, majority_rows
from figures.tables.number import PROBLEMS, Number, Unit, over_draws
from figures.tables.table import QuestionTable, Row, interval_numbers, n_problems, row, sample_rows

ACCURACY, FAITHFULNESS, CPR, CMD = "accuracy", "faithfulness", "CPR", "CMD"
ENOUGH = "k from which on 90% are right"
RANDOM, SPLIT = "random-", "split-"
OVER_SPLITS, IN_SPLITS = "accuracy, mean of the splits", "prompts that are right in most splits"
COMPONENTS = {"heads": "heads", "mlps": "MLPs"}
POSITIONS = {"all": "all", "end": "END"}
"""The words of the table, by those in the names of results."""


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `do_they_suffice`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for operation in run.config["operations"]:
        name = operation, "heads", "all", "keep_only", "effect"
        rows += sample_rows(results.CIRCUIT_CURVE.facts(run, *name), operation=operation)
        rows += _base_rate(results.CIRCUIT_CURVE.load(run, *name), operation)
        for components, positions, kind in product(COMPONENTS, POSITIONS, CURVE_KINDS):
            curves = _curves(run, operation, components, positions, kind)
            keys = {
                "operation": operation,
                "components": COMPONENTS[components],
                "positions": POSITIONS[positions],
                "kind": kind,
            }
            rows += _curve_rows(curves, **keys)
    return QuestionTable.of("sufficiency", str(run.config["model"]), rows)


def _base_rate(curve: CircuitCurve, operation: str) -> Iterator[Row]:
    """The share of the majority answer among the prompts of the half that is drawn."""
    if curve.problem is not None:
        yield from majority_rows(answers_of(curve.problem), curve.units, operation=operation)


def _curves(run: Run, *keys: str) -> dict[str, CircuitCurve]:
    """The curve of each order; `keys`: operation, heads or MLPs, positions, kept or knocked out."""
    labels = results.CIRCUIT_CURVE.labels(run, *keys, None)
    return {label: results.CIRCUIT_CURVE.load(run, *keys, label) for label in labels}


def _curve_rows(curves: dict[str, CircuitCurve], **keys: str) -> Iterator[Row]:
    """The rows of each order, then those of the random ones together."""
    for order, curve in curves.items():
        if not order.startswith((RANDOM, SPLIT)):
            yield from order_rows(curve, **keys, order=order)
    if random := [curve for order, curve in curves.items() if order.startswith(RANDOM)]:
        yield from _random_rows(random, **keys, order="random")
    if splits := [curve for order, curve in curves.items() if order.startswith(SPLIT)]:
        yield from _split_rows(splits, **keys, order="effect")


def order_rows(curve: CircuitCurve, **keys: str) -> Iterator[Row]:
    """Accuracy and faithfulness at each size, both areas, and the size that is enough."""
    n = n_problems(curve.effects())
    right = interval_numbers(curve.effects(), "share")[: len(curve.sizes)]
    sampled = curve.to_dataframe()
    ends = zip(sampled.faithfulness_low, sampled.faithfulness_high, strict=True)
    for k, accuracy, value, (low, high) in zip(
        curve.sizes, right, curve.faithfulness(), ends, strict=True
    ):
        yield row(ACCURACY, accuracy, **keys, k=k)
        faithfulness = Number(float(value), float(low), float(high), PROBLEMS, n, "ratio")
        yield row(FAITHFULNESS, faithfulness, **keys, k=k)
    for name, area, (low, high) in zip(
        (CPR, CMD), (curve.cpr, curve.cmd), curve.intervals().values(), strict=True
    ):
        yield row(name, Number(area, low, high, PROBLEMS, n, "ratio"), **keys)
    yield row(ENOUGH, Number(enough(curve), unit="count"), **keys)


def _random_rows(curves: Sequence[CircuitCurve], **keys: str) -> Iterator[Row]:
    """The means over random orders, with their ranges."""
    at_sizes: dict[tuple[str, Unit], np.ndarray] = {
        (ACCURACY, "share"): np.stack([curve.accuracy().numpy() for curve in curves]),
        (FAITHFULNESS, "ratio"): np.stack([curve.faithfulness() for curve in curves]),
    }
    for (measure, unit), values in at_sizes.items():
        for k, of_orders in zip(curves[0].sizes, values.T, strict=True):
            yield row(measure, over_draws(of_orders, unit=unit, what="orders"), **keys, k=k)
    for measure, areas in (
        (CPR, [curve.cpr for curve in curves]),
        (CMD, [curve.cmd for curve in curves]),
    ):
        yield row(measure, over_draws(areas, unit="ratio", what="orders"), **keys)


def _split_rows(curves: Sequence[CircuitCurve], **keys: str) -> Iterator[Row]:
    """The mean over splits at each size; and the prompts that are right in most of those that try
    them, which have Wilson's interval over problems."""
    accuracies = np.stack([curve.accuracy().numpy() for curve in curves])
    for k, of_splits in zip(curves[0].sizes, accuracies.T, strict=True):
        yield row(OVER_SPLITS, over_draws(of_splits, unit="share", what="splits"), **keys, k=k)
    by_prompt: dict[tuple[str, str], list[Tensor]] = {}
    for curve in curves:
        prompts = zip(curve.problem or (), curve.template or (), strict=True)
        for prompt, right in zip(prompts, curve.correct.T.double(), strict=True):
            by_prompt.setdefault(prompt, []).append(right)
    effects = Effects(
        torch.stack([torch.stack(of).mean(0) > 0.5 for of in by_prompt.values()], dim=-1).double(),
        ("k",),
        "correct",
        problem=tuple(problem for problem, _ in by_prompt),
        template=tuple(template for _, template in by_prompt),
    )
    for k, number in zip(curves[0].sizes, interval_numbers(effects, "share"), strict=True):
        yield row(IN_SPLITS, number, **keys, k=k)
