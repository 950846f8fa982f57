"""The table `carry`: where the carry is, what of it one direction holds, who writes and reads it.

Where a model answers too few sums right for interchanges, the table has the sums alone.

Keys: kind (see `KINDS`); variable ("ones_carry", "tens_carry", "borrow"); test (`layers` or another
test of `experiments carry`); space ("whole", "mean", "das" or a control of `al.interchange`);
layer; ones_sum; component, of writers and readers; held, the set of components that are held;
prediction, of (what it is about), condition and verdict, of predictions; what, of base rates and
of right first digits.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.interchanges import Interchange
from arith_lens.interchanges.controls import COMPLEMENT
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import carry as tests
from experiments.results import CARRY, CARRY_PARTS, CARRY_STEP, WRONG_SUMS
from figures.tables.number import PROBLEMS, Number
from figures.tables.table import (
    QuestionTable,
    Row,
    interval_numbers,
    model_key,
    n_problems,
    row,
)
from figures.verdicts import Finding, Within, judge_by_interval

KINDS = (
    "interchange",
    "base rate",
    "step",
    "writer",
    "held",
    "reader",
    "accuracy",
    "error",
    "prediction",
)
FOLLOWS = "answers that follow the variable"
STEP = "projection, 0 without a carry and 1 with one"
WRITES = "share of the change"
RIGHT, ALL, WITH, WITHOUT = "right first digits", "all", "with a carry", "without a carry"
WRONG, OF_WRONG = "wrong first digits", "of the wrong first digits, at sums 9 and 10"
ONES, TENS, BORROW = "ones_carry", "tens_carry", "borrow"
WHOLE, MEAN, SEARCH = "whole", "mean", "das"
N_RESAMPLES = 1000
STEP_SUMS = ("9", "10")
FIRST_LATE_LAYER = 12
"""The first layer at which prediction G3 lets the whole stream hold the carry."""


def table(run: Run) -> QuestionTable:
    """The rows of a run of `carry`.

    Raises:
        RunError: the run is damaged.
    """
    model = model_key(str(run.config["model"]))
    rows: list[Row] = []
    for variable in run.config["subjects"]:
        for test in TESTS:
            if CARRY.is_in(run, variable, test):
                result = CARRY.load(run, variable, test)
                rows += _interchange_rows(result, variable, test)
    if CARRY_STEP.is_in(run):
        rows += _step_rows(run)
    if CARRY_PARTS.is_in(run, tests.READERS):  # the last result of the tests at one layer
        rows += _part_rows(run)
    if WRONG_SUMS.is_in(run):
        rows += _error_rows(run)
        rows += _gemma_predictions(run) if model.startswith("gemma") else ()
    if CARRY_PARTS.is_in(run, tests.READERS):
        rows += _predictions(run, model)
    return QuestionTable.of("carry", model, rows)


TESTS = (
    tests.LAYERS,
    tests.CHOICE,
    tests.WORDINGS,
    tests.DIGITS,
    tests.TENS,
    tests.LARGE,
    tests.THREE,
    *tests.CONTEXTS.values(),
    tests.SEARCH,
    tests.SEARCH_DIGITS,
    tests.MAGNITUDE,
    tests.UNTRAINED,
)


def layer_of_site(site: str) -> int:
    """The layer in the name of a site of the stream."""
    return int(site.split()[1])


def interchange_numbers(result: Interchange) -> Iterator[tuple[int, str, Number]]:
    """Layer, space and share of each site of the stream; without controls that do not exist."""
    numbers = iter(bootstrap_numbers(result.effects))
    for site in result.sites:
        for space in result.spaces:
            number = next(numbers)
            if number.value == number.value:
                yield layer_of_site(site), space, number


def _interchange_rows(result: Interchange, variable: str, test: str) -> Iterator[Row]:
    about = {"variable": variable, "test": test}
    for layer, space, number in interchange_numbers(result):
        yield row(FOLLOWS, number, kind="interchange", space=space, layer=layer, **about)
    for what, rate in result.computation["base_rates"].items():
        number = Number(rate, n=result.n_problems)
        yield row("base rate", number, kind="base rate", what=what, **about)


def _step_rows(run: Run) -> Iterator[Row]:
    step = CARRY_STEP.load(run)
    labels = step.labels or {}
    numbers = iter(interval_numbers(step, "ratio"))
    for layer in labels["layer"]:
        for ones_sum in labels["ones_sum"]:
            number = next(numbers)
            if number.value == number.value:
                keys = {"layer": int(layer), "ones_sum": int(ones_sum)}
                yield row(STEP, number, kind="step", **keys)


def _part_rows(run: Run) -> Iterator[Row]:
    for part, kind, measure in (
        (tests.WRITERS, "writer", WRITES),
        (tests.READERS, "reader", FOLLOWS),
    ):
        effects = CARRY_PARTS.load(run, part)
        numbers = (
            interval_numbers(effects, "relative")
            if kind == "writer"
            else bootstrap_numbers(effects)
        )
        names = (effects.labels or {})["component"]
        for name, number in zip(names, numbers, strict=True):
            yield row(measure, number, kind=kind, component=name)
    held = CARRY_PARTS.load(run, tests.HELD)
    sets = CARRY_PARTS.facts(run, tests.HELD).get("sets", {})
    for name, number in zip((held.labels or {})["set"], bootstrap_numbers(held), strict=True):
        components = " ".join(sets.get(name, ()))
        yield row(FOLLOWS, number, kind="held", held=name, component=components)


def _right_sums(wrong: Effects) -> dict[str, Effects]:
    """Whether the first digit of each sum is right: of all sums, with a carry, and without one."""
    sums = torch.tensor([int(name) for name in (wrong.labels or {})["ones_sum"]])
    has_carry = (~wrong.per_pair[sums > 9].isnan()).any(0)
    right = 1 - wrong.per_pair.nanmean(0)
    chosen = {ALL: torch.ones_like(has_carry), WITH: has_carry, WITHOUT: ~has_carry}
    every = replace(wrong, per_pair=right[None], axes=("one",), labels=None)
    return {what: every.select(rows) for what, rows in chosen.items()}


def _error_rows(run: Run) -> Iterator[Row]:
    wrong = WRONG_SUMS.load(run)
    for what, right in _right_sums(wrong).items():
        yield row(RIGHT, bootstrap_numbers(right)[0], kind="accuracy", what=what)
    names = (wrong.labels or {})["ones_sum"]
    for name, number in zip(names, interval_numbers(wrong, "share"), strict=True):
        if number.value == number.value:
            yield row(WRONG, number, kind="error", ones_sum=int(name))
    yield row("wrong first digits in all", Number(_n_wrong(wrong), unit="count"), kind="error")


def _n_wrong(wrong: Effects) -> int:
    return int(wrong.per_pair.nansum())


def chosen_layer(run: Run) -> int:
    """The layer at which the direction has the most on the problems of the choice."""
    return best_layer(CARRY.load(run, ONES, tests.CHOICE))


def best_layer(result: Interchange) -> int:
    """The layer at which the direction has the most."""
    return layer_of_site(result.sites[int(result.iia[:, result.spaces.index(MEAN)].argmax())])


def _pairs(result: Interchange, layer: int, space: str) -> Tensor:
    """Whether each pair follows, at a layer and in a space."""
    sites = [layer_of_site(site) for site in result.sites]
    return result.effects.per_pair[sites.index(layer), result.spaces.index(space)]


def _of_pairs(effects: Effects, values: Tensor) -> Number:
    own = replace(effects, per_pair=values[None], axes=("one",), labels=None)
    return bootstrap_numbers(own)[0]


def bootstrap_numbers(effects: Effects) -> list[Number]:
    """Means with the intervals that the predictions name: problems drawn with replacement."""
    n = n_problems(effects)
    means, ends = effects.mean().flatten(), effects.ci(method="percentile").flatten(1)
    return [
        Number(mean, low, high, PROBLEMS, n, "share")
        for mean, low, high in zip(means.tolist(), *ends.tolist(), strict=True)
    ]


def _draws(effects: Effects, values: Tensor) -> np.ndarray:
    own = replace(effects, per_pair=values, axes=("one",), labels=None)
    return resampled_means(own.sample(), slice(None), N_RESAMPLES, 0).numpy()


def _ratio(effects: Effects, above: Tensor, below: Tensor) -> Number:
    """A share divided by another of the same pairs, with its interval over problems."""
    draws = _draws(effects, torch.stack([above, below]))
    low, high = np.nanquantile(draws[0] / draws[1], [0.025, 0.975])
    value = float(above.mean() / below.mean())
    return Number(value, float(low), float(high), PROBLEMS, n_problems(effects), "ratio")


def _difference(a: Effects, of_a: Tensor, b: Effects, of_b: Tensor) -> Number:
    """A share less another of other pairs, with its interval over problems."""
    draws = _draws(a, of_a[None])[0] - _draws(b, of_b[None])[0]
    low, high = np.quantile(draws, [0.025, 0.975])
    value = float(of_a.mean() - of_b.mean())
    n = min(n_problems(a), n_problems(b))
    return Number(value, float(low), float(high), PROBLEMS, n, "points")


def prediction_row(name: str, of: str, number: Number, words: str, rule: Within) -> Row:
    """A prediction with its outcome; the condition is given in words, and as a rule."""
    verdict = judge_by_interval(Finding(of, number, rule))
    keys = {"prediction": name, "of": of, "condition": words, "verdict": verdict}
    return row("prediction", number, kind="prediction", **keys)


def _predictions(run: Run, model: str) -> Iterator[Row]:
    """The predictions of docs/predictions.md, each with its outcome."""
    layers = CARRY.load(run, ONES, tests.LAYERS)
    effects, layer = layers.effects, chosen_layer(run)
    ends = (7, 8) if model == "reference" else (5, 10)
    for at, words, rule in (
        (ends[0], "below .5", Within(below=0.5)),
        (ends[1], "above .5", Within(above=0.5)),
    ):
        number = _of_pairs(effects, _pairs(layers, at, WHOLE))
        yield prediction_row("C1", f"whole stream, layer {at}", number, words, rule)
    yield from _one_direction(("C2", "C2"), layers, layer, f"layer {layer}")
    search = CARRY.load(run, ONES, tests.SEARCH)
    best, mean = _pairs(search, layer, SEARCH), _pairs(layers, layer, MEAN)
    better = replace(_of_pairs(effects, best - mean), unit="points")
    rule = Within(below=0.05, closed=True)
    yield prediction_row("C3", "search less difference of means", better, "at most .05", rule)
    wrong = WRONG_SUMS.load(run)
    if _n_wrong(wrong):
        yield prediction_row("C4", OF_WRONG, _at_step(wrong), "above .5", Within(above=0.5))
    held = CARRY_PARTS.load(run, tests.HELD)
    names = (held.labels or {})["set"]
    both = (held.per_pair[names.index(name)] for name in (tests.STRONGEST, tests.NOTHING))
    rule = Within(below=0.5, closed=True)
    yield prediction_row(
        "C5", "two heads held, of none held", _ratio(held, *both), "at most .5", rule
    )
    carry, magnitude = (
        CARRY.load(run, ONES, one) for one in (tests.SEARCH_DIGITS, tests.MAGNITUDE)
    )
    number = _difference(
        carry.effects,
        _pairs(carry, layer, SEARCH),
        magnitude.effects,
        _pairs(magnitude, layer, SEARCH),
    )
    rule = Within(above=0.2, closed=True)
    yield prediction_row("C6", "carry less magnitude", number, "at least .2", rule)
    free = CARRY.load(run, ONES, tests.UNTRAINED)
    number = _of_pairs(free.effects, _pairs(free, layer, SEARCH))
    yield prediction_row("C7", "untrained, 8 directions", number, "below .2", Within(below=0.2))
    for name, test, least in (
        ("C8", tests.WORDINGS, 0.9),
        ("C8", tests.DIGITS, 0.9),
        ("C9", tests.TENS, 0.9),
        ("C11", tests.LARGE, 0.5),
    ):
        one = CARRY.load(run, ONES, test)
        number = _of_pairs(one.effects, _pairs(one, layer, MEAN))
        rule, words = Within(above=least, closed=True), f"at least {least:.1f}"
        yield prediction_row(name, OF_TESTS[test], number, words, rule)
    if CARRY.is_in(run, BORROW, tests.LAYERS):
        borrow = CARRY.load(run, BORROW, tests.LAYERS)
        at = best_layer(borrow)
        yield from _one_direction(("C10", "C10"), borrow, at, f"layer {at}")
    for total, test in tests.CONTEXTS.items():
        if CARRY.is_in(run, ONES, test):
            context = CARRY.load(run, ONES, test)
            yield from _one_direction(("C12", "C13"), context, layer, f"tens sum {total}")


def _gemma_predictions(run: Run) -> Iterator[Row]:
    """The predictions on a pretrained model; those on the stream only where it was exchanged."""
    right = _right_sums(WRONG_SUMS.load(run))
    number = bootstrap_numbers(right[ALL])[0]
    yield prediction_row("G1", "right first digits", number, "below .6", Within(below=0.6))
    plain, carried = right[WITHOUT], right[WITH]
    less = _difference(plain, plain.per_pair[0], carried, carried.per_pair[0])
    of = "right without a carry, less with one"
    yield prediction_row("G2", of, less, "above 0", Within(above=0.0))
    if not CARRY.is_in(run, ONES, tests.LAYERS):
        return
    layers = CARRY.load(run, ONES, tests.LAYERS)
    early = range(FIRST_LATE_LAYER)
    most = max(early, key=lambda layer: float(_pairs(layers, layer, WHOLE).mean()))
    number = _of_pairs(layers.effects, _pairs(layers, most, WHOLE))
    of = f"whole stream, most before layer {FIRST_LATE_LAYER}: layer {most}"
    yield prediction_row("G3", of, number, "at most .5", Within(below=0.5, closed=True))
    at = best_layer(layers)
    share = _ratio(layers.effects, _pairs(layers, at, MEAN), _pairs(layers, at, WHOLE))
    of = f"direction, of the whole stream, layer {at}"
    yield prediction_row("G4", of, share, "below .9", Within(below=0.9))


OF_TESTS = {
    tests.WORDINGS: "other wordings",
    tests.DIGITS: "other ones digits",
    tests.TENS: "sources of other tens",
    tests.LARGE: "sums from 110",
    tests.THREE: "sums of three digits",
}


def _one_direction(
    names: tuple[str, str], result: Interchange, layer: int, where: str
) -> Iterator[Row]:
    """Whether the direction has what the stream has, and the rest nothing."""
    direction, whole = (_pairs(result, layer, space) for space in (MEAN, WHOLE))
    number = _ratio(result.effects, direction, whole)
    rule = Within(above=0.9, closed=True)
    of = f"direction, of the whole stream, {where}"
    yield prediction_row(names[0], of, number, "at least .9", rule)
    rest = _of_pairs(result.effects, _pairs(result, layer, COMPLEMENT))
    rule = Within(below=0.05, closed=True)
    yield prediction_row(names[1], f"everything but it, {where}", rest, "at most .05", rule)


def _at_step(wrong: Effects) -> Number:
    """The share of the wrong sums at which the ones digits add to 9 or 10."""
    values = wrong.per_pair
    is_wrong = values.nan_to_num().sum(0) > 0
    names = (wrong.labels or {})["ones_sum"]
    at = torch.stack([values[names.index(name)] == 1 for name in STEP_SUMS]).any(0)[is_wrong]
    chosen = wrong.select(is_wrong)
    own = replace(chosen, per_pair=at.float()[None], axes=("one",), labels=None)
    low, high = own.ci(method="share")[:, 0].tolist()
    return Number(float(at.float().mean()), low, high, PROBLEMS, n_problems(own))
