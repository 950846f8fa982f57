"""The table `knockout`: are the key heads needed? Accuracy and p(C) without heads and MLPs.

Keys: operation; components ("heads" or "MLPs"); order ("effect", "END" for effect at END alone,
"resample", "zero" or "mean" for effect with another ablation, "iterative", and the controls
"random" and "same layers"); k, how many of the order are out; component, the k-th one; draws. Base
rates (`figures.tables.base_rates`) are of the same prompts: the majority answer, and the token that
the model gives most often without the k strongest heads or MLPs.
"""

from collections.abc import Iterator

import torch

from arith_lens.effects import Effects, key_heads
from arith_lens.knockout import KnockoutCurve, KnockoutCurves, Outcomes
from arith_lens.runs import Run
from experiments import results
from figures.tables.answers import (
    CHANGE,
    CONTROLS,
    change_number,
    change_over_draws,
    change_rows,
)
from figures.tables.base_rates import majority_rows, same_token_rows
from figures.tables.number import Number, over_draws
from figures.tables.table import (
    QuestionTable,
    Row,
    interval_numbers,
    n_problems,
    row,
    sample_rows,
)

MEASURES = ("accuracy", "p(C)")
RANDOM_MLPS = "MLPs random "
KEY_HEADS, DROP_DONE, OF = "key heads", "k with nine tenths of the drop", "components"


def table(run: Run, /) -> QuestionTable:
    """The rows of a run of `are_they_needed`. Raises RunError if it is damaged."""
    rows: list[Row] = []
    for operation in results.KNOCKOUT_CURVES.labels(run):
        curves = results.KNOCKOUT_CURVES.load(run, operation)
        effects = results.MAP.load(run, operation)
        n_key = Number(len(key_heads(effects)), unit="count")
        rows += [
            *sample_rows(results.KNOCKOUT_CURVES.facts(run, operation), operation=operation),
            row(KEY_HEADS, n_key, operation=operation),
            *_totals(operation, heads=effects.heads, MLPs=effects.mlps),
            *curve_rows(operation, curves),
        ]
    return QuestionTable.of("knockout", str(run.config["model"]), rows)


def _totals(operation: str, **effects: Effects) -> Iterator[Row]:
    for name, of_kind in effects.items():
        total = Number(of_kind.mean().numel(), unit="count")
        yield row(OF, total, operation=operation, components=name)


def curve_rows(operation: str, curves: KnockoutCurves) -> Iterator[Row]:
    """The rows of an operation's curves: both measures, changes, and the controls."""
    effect = curves["effect"]
    for name, curve in curves.items():
        if not name.startswith((*(f"{kind} " for kind in CONTROLS), RANDOM_MLPS)):
            components, order = ("MLPs", "effect") if name == "MLPs" else ("heads", name)
            yield from _order_rows(curve, operation=operation, components=components, order=order)
    yield from _change_rows(operation, effect)
    yield from _base_rates(operation, curves)
    for k in effect.ks[1:]:
        for kind, sampled in results.controls_at(curves, k).items():
            keys = {"operation": operation, "components": "heads", "order": CONTROLS[kind]}
            if k == effect.ks[1]:  # their curves begin with no head out
                yield from _measures([effect.at(0)] * len(sampled), **keys, k=0)
            yield from _control_rows(effect.at(0), sampled, **keys, k=k)
    if sampled_mlps := curves.starting(RANDOM_MLPS):
        for k in sampled_mlps[0].ks:
            keys = {"operation": operation, "components": "MLPs", "order": "random", "k": k}
            yield from _measures([curve.at(k) for curve in sampled_mlps], **keys)


def _order_rows(curve: KnockoutCurve, **keys: str) -> Iterator[Row]:
    names = ["" if not k else str(curve.order[k - 1]) for k in curve.ks]
    numbers = interval_numbers(curve.effects(), "share")
    for i, number in enumerate(numbers):
        measure, at = MEASURES[i // len(curve.ks)], i % len(curve.ks)
        yield row(measure, number, **keys, k=curve.ks[at], component=names[at])


def _change_rows(operation: str, curve: KnockoutCurve) -> Iterator[Row]:
    keys = {"operation": operation, "components": "heads", "order": "effect"}
    n = n_problems(curve.effects())
    for k in curve.ks[1:]:
        yield from change_rows(curve.drop(k).accuracy, n, **keys, k=k)
    accuracy = curve.accuracy()
    done = float(accuracy[0] - 0.9 * (accuracy[0] - accuracy.min()))
    complete = Number(curve.ks[int(torch.nonzero(accuracy <= done)[0])], unit="count")
    yield row(DROP_DONE, complete, **keys)


def _base_rates(operation: str, curves: KnockoutCurves) -> Iterator[Row]:
    """Of the answers, as far as the whole model gives them all; and of the tokens at each k."""
    whole = curves["effect"].at(0)
    if not whole.correct.all():
        return
    answers = whole.top[:, 0]
    yield from majority_rows(answers, whole.units, operation=operation)
    for components, order in (("heads", "effect"), ("MLPs", "MLPs")):
        if (curve := curves.get(order)) is not None:
            keys = {"operation": operation, "components": components, "order": "effect"}
            for k in curve.ks[1:]:
                yield from same_token_rows(curve.at(k).top[:, 0], answers, curve.units, **keys, k=k)


def _control_rows(before: Outcomes, sampled: list[Outcomes], **keys: str | int) -> Iterator[Row]:
    """The means over the draws, and the mean change with an interval over draws and problems."""
    yield from _measures(sampled, **keys)
    change = change_over_draws(before, sampled)
    number = change_number(change, before.accuracy(), sampled="draws", units="problems")
    yield row(CHANGE, number, **keys, draws=len(sampled))


def _measures(sampled: list[Outcomes], **keys: str | int) -> Iterator[Row]:
    for i, measure in enumerate(MEASURES):
        means = [float(outcomes.effects().mean()[i]) for outcomes in sampled]
        yield row(measure, over_draws(means, unit="share"), **keys, draws=len(sampled))
