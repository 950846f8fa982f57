"""The table `emergence`: what is measured of each snapshot of a training, and when it rises.

Keys: kind (see `KINDS`); step; sums, of accuracies; lens ("operands" or "word"), of effects;
component, a head of the final ten, or group ("final ten" or "other heads") for a mean; space, layer
and layer_of (which snapshot's strongest layer it is), of the carry; what (a curve), of rises;
prediction, of, condition and verdict.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arith_lens.components import Head
from arith_lens.effects import Effects
from arith_lens.interchanges.controls import COMPLEMENT, SPAN
from arith_lens.runs import Run
from arith_lens.statistics import HasUnits
from experiments.circuit import first_half
from experiments.emergence import LENSES, ONE_DIGIT, WITH_CARRY, WITHOUT_CARRY
from experiments.results import (
    SNAPSHOT_ANSWERS,
    SNAPSHOT_CARRY,
    SNAPSHOT_LAST_MLP,
    SNAPSHOT_MAP,
    TRAINING_LOSS,
)
from figures.tables.carry import MEAN, WHOLE, prediction_row
from figures.tables.number import Number
from figures.tables.resampled import resampled_number
from figures.tables.table import QuestionTable, Row, interval_numbers, row
from figures.verdicts import Within

KINDS = ("accuracy", "loss", "head", "group", "overlap", "last mlp", "carry", "rise", "prediction")
SUMS = (ONE_DIGIT, WITH_CARRY, WITHOUT_CARRY)
FINAL_TEN, OTHER_HEADS = "final ten", "other heads"
N_FINAL = 10
ACCURACY, LOSS, LOST, OVERLAP = "accuracy", "loss", "effect", "final ten among the ten strongest"
FOLLOWS, OTHER = "answers that follow the variable", "answers the other problem"
OF_LAST, OF_OWN = "last snapshot", "this snapshot"
"""Which snapshot's strongest layer is meant."""
STEP, CHANCE = "step at which it rises", "share of the most frequent answer"
SPACES = (WHOLE, MEAN, COMPLEMENT, SPAN)
HEADS_RISE, LAST_MLP, DIRECTION = "median of the final ten heads", "last MLP", "one direction"
Curve = np.ndarray


def table(run: Run) -> QuestionTable:
    """The rows of a run of `emergence`.

    Raises:
        RunError: the run is damaged.
    """
    training = Training(run)
    rows = [
        *_accuracy_rows(training),
        *_loss_rows(run),
        *_head_rows(training),
        *_share_rows(training),
        *_carry_rows(training),
        *_rise_rows(training),
        *_predictions(training),
    ]
    return QuestionTable.of("emergence", training.name, rows)


@dataclass(frozen=True)
class Training:
    """The stored results of all snapshots. Each kind is read once."""

    run: Run

    @property
    def name(self) -> str:
        """The name of the training: of the folder that has the snapshots' folder."""
        return Path(self.run.config["folder"]).parent.name

    @property
    def steps(self) -> list[int]:
        """The steps of the snapshots."""
        return [int(step) for step in self.run.config["steps"]]

    def stacked(self, values: list[Tensor], units: HasUnits, metric: str) -> Effects:
        """One number for each snapshot and pair, on the same pairs, [step … pair]."""
        axes = ("step", *("layer", "head")[: values[0].ndim - 1])
        return Effects(torch.stack(values), axes, metric, **units.units)

    @cached_property
    def accuracy(self) -> dict[str, Effects]:
        """Whether sums are answered right, by kind of sum, [step pair]."""
        curves = {}
        for sums in SUMS:
            parts = [SNAPSHOT_ANSWERS.load(self.run, str(step), sums) for step in self.steps]
            curves[sums] = self.stacked(
                [part.correct.float() for part in parts], parts[0], "correct"
            )
        return curves

    @cached_property
    def chance(self) -> dict[str, float]:
        """The share of the most frequent answer, by kind of sum."""
        shares = {}
        for sums in SUMS:
            facts: Any = SNAPSHOT_ANSWERS.facts(self.run, str(self.steps[0]), sums)
            answers = torch.tensor(facts["answers"])
            shares[sums] = float(answers.unique(return_counts=True)[1].max()) / len(answers)
        return shares

    @cached_property
    def maps(self) -> dict[str, Effects]:
        """How much of the answer is lost without each head, by lens, [step layer head pair]."""
        maps = {}
        for lens in LENSES:
            parts = [SNAPSHOT_MAP.load(self.run, str(step), lens).heads for step in self.steps]
            maps[lens] = self.stacked([-part.per_pair for part in parts], parts[0], LENSES[lens])
        return maps

    def halves(self, lens: str) -> tuple[Effects, Effects]:
        """The effects of the half that chooses the final ten, and those of the other half."""
        effects: Any = self.maps[lens]
        first = first_half(effects, int(self.run.config["seed"]))
        return effects.select(first), effects.select(~first)

    def final_ten(self, lens: str) -> list[Head]:
        """The strongest heads of the last snapshot, on the half that chooses."""
        return [Head(*divmod(i, self.n_heads)) for i in _strongest(self.halves(lens)[0].mean()[-1])]

    @property
    def n_heads(self) -> int:
        """The heads of a layer."""
        return self.maps["operands"].per_pair.shape[2]

    @cached_property
    def last_mlp(self) -> Effects:
        """Whether the other problem is answered with the last MLP exchanged, [step pair]."""
        parts = [SNAPSHOT_LAST_MLP.load(self.run, str(step)) for step in self.steps]
        return self.stacked([part.answers_other for part in parts], parts[0], "answers_other")

    @cached_property
    def carry(self) -> Effects:
        """Whether the answer follows the carry, [step layer space pair]."""
        parts = [SNAPSHOT_CARRY.load(self.run, str(step)) for step in self.steps]
        columns = [parts[0].spaces.index(space) for space in SPACES]
        values = torch.stack([part.effects.per_pair[:, columns] for part in parts])
        return replace(
            parts[0].effects, per_pair=values, axes=("step", "layer", "space"), labels=None
        )

    @cached_property
    def carry_layer(self) -> int:
        """The layer at which the direction has the most in the last snapshot."""
        return int(self.carry.mean()[-1, :, SPACES.index(MEAN)].argmax())


def _strongest(effects: Tensor | np.ndarray, k: int = N_FINAL) -> list[int]:
    """The indices of the largest effects among all heads."""
    return np.asarray(effects).flatten().argsort(kind="stable")[::-1][:k].tolist()


def _accuracy_rows(training: Training) -> Iterator[Row]:
    for sums, curve in training.accuracy.items():
        for step, number in zip(training.steps, interval_numbers(curve, "share"), strict=True):
            yield row(ACCURACY, number, kind="accuracy", step=step, sums=sums)
        n = curve.n_pairs
        yield row(CHANCE, Number(training.chance[sums], n=n), kind="accuracy", sums=sums)


def _loss_rows(run: Run) -> Iterator[Row]:
    if TRAINING_LOSS.is_in(run):
        losses = TRAINING_LOSS.load(run)
        for step, loss in zip((losses.labels or {})["step"], losses.mean().tolist(), strict=True):
            yield row(LOSS, Number(loss, unit="nats"), kind="loss", step=int(step))


def _head_rows(training: Training) -> Iterator[Row]:
    """The final ten heads of the first lens; for each lens, their mean and that of all others."""
    for lens in LENSES:
        unit = "logit" if lens == "operands" else "relative"
        _, tested = training.halves(lens)
        final = training.final_ten(lens)
        flat = tested.per_pair.flatten(1, 2)
        inside = torch.zeros(flat.shape[1], dtype=torch.bool)
        inside[[head.layer * training.n_heads + head.index for head in final]] = True
        for group, chosen in ((FINAL_TEN, inside), (OTHER_HEADS, ~inside)):
            means = replace(tested, per_pair=flat[:, chosen].mean(1), axes=("step",))
            for step, number in zip(training.steps, interval_numbers(means, unit), strict=True):
                yield row(LOST, number, kind="group", step=step, lens=lens, group=group)
        for head in final:
            own = replace(
                tested, per_pair=tested.per_pair[:, head.layer, head.index], axes=("step",)
            )
            for step, number in zip(training.steps, interval_numbers(own, unit), strict=True):
                yield row(LOST, number, kind="head", step=step, lens=lens, component=str(head))


def _share_rows(training: Training) -> Iterator[Row]:
    for step in training.steps:
        yield row(OVERLAP, _overlap(training, step), kind="overlap", step=step)
    numbers = interval_numbers(training.last_mlp, "share")
    for step, number in zip(training.steps, numbers, strict=True):
        yield row(OTHER, number, kind="last mlp", step=step)


def _overlap(training: Training, step: int) -> Number:
    """How many of a snapshot's ten strongest heads, on the other half, are among the final ten."""
    _, tested = training.halves("operands")
    at = training.steps.index(step)
    final = {head.layer * training.n_heads + head.index for head in training.final_ten("operands")}
    own = replace(tested, per_pair=tested.per_pair[at], axes=("layer", "head"))
    number = resampled_number(
        lambda means: float(len(final & {*_strongest(means)})), own, unit="count"
    )
    assert number is not None
    return number


def _carry_rows(training: Training) -> Iterator[Row]:
    """At the layer of the last snapshot, and where each snapshot's direction has the most."""
    means = training.carry.mean()[..., SPACES.index(MEAN)]
    for i, step in enumerate(training.steps):
        own = int(means[i].argmax())
        for layer in sorted({training.carry_layer, own}):
            values = replace(
                training.carry, per_pair=training.carry.per_pair[i, layer], axes=("space",)
            )
            for space, number in zip(SPACES, interval_numbers(values, "share"), strict=True):
                where = OF_LAST if layer == training.carry_layer else OF_OWN
                keys = {"step": step, "layer": layer, "space": space, "layer_of": where}
                yield row(FOLLOWS, number, kind="carry", **keys)


def rise(curve: Curve, steps: list[int], chance: float = 0) -> float:
    """The first step at which a curve is halfway from chance to its last value; NaN if never."""
    if not curve[-1] > chance:
        return float("nan")
    return float(steps[int(np.argmax(curve >= (chance + curve[-1]) / 2))])


def _heads_rise(effects: Curve, steps: list[int]) -> float:
    """The median over heads, [step head], of the step at which a head's effect rises."""
    rises = [rise(effects[:, head], steps) for head in range(effects.shape[1])]
    return float(np.nanmedian(rises)) if not np.isnan(rises).all() else float("nan")


@dataclass(frozen=True)
class Rises:
    """What rises: the effects whose means make each curve, and the step that they give."""

    training: Training

    @cached_property
    def curves(self) -> Mapping[str, tuple[Effects, Any]]:
        """By name: the effects, and a function of their means that gives the step."""
        training, steps = self.training, self.training.steps
        curves = {
            sums: (curve, partial(rise, steps=steps, chance=training.chance[sums]))
            for sums, curve in training.accuracy.items()
        }
        _, tested = training.halves("operands")
        final = training.final_ten("operands")
        values = torch.stack([tested.per_pair[:, one.layer, one.index] for one in final], dim=1)
        heads = replace(tested, per_pair=values, axes=("step", "head"))
        curves[HEADS_RISE] = (heads, partial(_heads_rise, steps=steps))
        curves[LAST_MLP] = (training.last_mlp, partial(rise, steps=steps))
        direction = training.carry.per_pair[:, training.carry_layer, SPACES.index(MEAN)]
        carry = replace(training.carry, per_pair=direction, axes=("step",))
        curves[DIRECTION] = (carry, partial(rise, steps=steps))
        return curves

    def step(self, name: str) -> Number | None:
        """The step at which a curve rises; None if it does not."""
        effects, function = self.curves[name]
        return resampled_number(function, effects, unit="count")

    def ratio(self, name: str, to: str) -> Number | None:
        """One step divided by another; each is computed anew in every resample."""
        (above, of_above), (below, of_below) = self.curves[name], self.curves[to]
        return resampled_number(lambda x, y: of_above(x) / of_below(y), above, below, unit="ratio")


BEFORE = 1500
"""The step of E2: half of the steps of the training that the prediction was written for."""


def _rise_rows(training: Training) -> Iterator[Row]:
    rises = Rises(training)
    for name in rises.curves:
        if (number := rises.step(name)) is not None:
            yield row(STEP, number, kind="rise", what=name)


def _predictions(training: Training) -> Iterator[Row]:
    """The predictions of docs/predictions.md, each with its outcome."""
    rises = Rises(training)
    near = Within(above=0.5, below=2, closed=True), "from 0.5 to 2"
    for name, what, to, (rule, words) in (
        ("E1", HEADS_RISE, ONE_DIGIT, near),
        ("E3", WITH_CARRY, ONE_DIGIT, (Within(above=1), "above 1")),
        ("E4", LAST_MLP, ONE_DIGIT, near),
        ("E5", DIRECTION, WITH_CARRY, near),
    ):
        if (number := rises.ratio(what, to)) is not None:
            yield prediction_row(name, f"{what}, step divided by that of {to}", number, words, rule)
    before = [step for step in training.steps if step < BEFORE]
    if before:
        rule, of = Within(below=8, closed=True), f"{OVERLAP}, step {before[-1]}"
        number = _overlap(training, before[-1])
        yield prediction_row("E2", of, number, "at most 8", rule)
    first = rises.step(WITH_CARRY)
    if first is not None:
        yield from _first_direction(training, int(first.value))


def _first_direction(training: Training, step: int) -> Iterator[Row]:
    """E6: the direction's share of the whole stream's, in the first snapshot with carries."""
    at = training.steps.index(step)
    means = training.carry.mean()[at]
    layer = int(means[:, SPACES.index(MEAN)].argmax())
    columns = [SPACES.index(MEAN), SPACES.index(WHOLE)]
    both = replace(
        training.carry, per_pair=training.carry.per_pair[at, layer, columns], axes=("space",)
    )
    number = resampled_number(
        lambda means: float(means[0] / means[1]) if means[1] else float("nan"), both, unit="ratio"
    )
    if number is not None:
        of = f"{DIRECTION}, of the whole stream, step {step}, layer {layer}"
        rule = Within(above=0.5, closed=True)
        yield prediction_row("E6", of, number, "at least .5", rule)
