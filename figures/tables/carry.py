"""The table `carry`: where the carry is, what of it one direction holds, who writes and reads it.

Where a model answers too few sums right for interchanges, the table has the sums alone.

Keys: kind (see `KINDS`); variable ("ones_carry", "tens_carry", "borrow"); test (`layers` or another
test of `experiments carry`); space ("whole", "mean", "das" or a control of `al.interchange`);
layer; ones_sum; component, of writers and readers; held, the set of components that are held;
what, of base rates and of right first digits.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from arith_lens.effects import Effects
from arith_lens.interchanges import Interchange
from arith_lens.interchanges.controls import SHUFFLED
from arith_lens.runs import Run
from experiments import carry as tests
from experiments.results import CARRY, CARRY_PARTS, CARRY_STEP, WRONG_SUMS
from figures.tables.number import Number, over_draws
from figures.tables.table import (
    QuestionTable,
    Row,
    interval_numbers,
    model_key,
    row,
)

KINDS = (
    "interchange",
    "base rate",
    "step",
    "writer",
    "held",
    "reader",
    "accuracy",
    "error",
)
DRAWS = {SHUFFLED: "shuffles"}
"""What a draw of a control is, where it is not simply a draw."""
FOLLOWS = "answers that follow the variable"
STEP = "projection, 0 without a carry and 1 with one"
WRITES = "share of the change"
RIGHT, ALL, WITH, WITHOUT = "right first digits", "all", "with a carry", "without a carry"
WRONG = "wrong first digits"
ONES = "ones_carry"
WHOLE, MEAN, SEARCH = "whole", "mean", "das"


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
    """Layer, space and share of each site of the stream; without controls that do not exist.

    Random controls have the median and the range of their draws.
    """
    numbers = iter(interval_numbers(result.effects, "share"))
    for index, site in enumerate(result.sites):
        for space in result.spaces:
            number = next(numbers)
            if space in result.draws:
                of_draws, what = result.of_draws(space)[index].numpy(), DRAWS.get(space, "draws")
                number = over_draws(of_draws, unit="share", what=what, middle="median")
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
        numbers = interval_numbers(effects, "relative" if kind == "writer" else "share")
        names = (effects.labels or {})["component"]
        for name, number in zip(names, numbers, strict=True):
            yield row(measure, number, kind=kind, component=name)
    held = CARRY_PARTS.load(run, tests.HELD)
    sets = CARRY_PARTS.facts(run, tests.HELD).get("sets", {})
    numbers = dict(zip((held.labels or {})["set"], interval_numbers(held, "share"), strict=True))
    others = [one.value for name, one in numbers.items() if name.startswith(tests.OTHERS)]
    for name in (tests.NOTHING, tests.STRONGEST):
        components = " ".join(sets.get(name, ()))
        yield row(FOLLOWS, numbers[name], kind="held", held=name, component=components)
    number = over_draws(others, unit="share", middle="median")
    yield row(FOLLOWS, number, kind="held", held=tests.OTHERS)


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
        yield row(RIGHT, *interval_numbers(right, "share"), kind="accuracy", what=what)
    names = (wrong.labels or {})["ones_sum"]
    for name, number in zip(names, interval_numbers(wrong, "share"), strict=True):
        if number.value == number.value:
            yield row(WRONG, number, kind="error", ones_sum=int(name))
    yield row("wrong first digits in all", Number(_n_wrong(wrong), unit="count"), kind="error")


def _n_wrong(wrong: Effects) -> int:
    return int(wrong.per_pair.nansum())


OF_TESTS = {
    tests.WORDINGS: "other wordings",
    tests.DIGITS: "other ones digits",
    tests.TENS: "sources of other tens",
    tests.LARGE: "sums from 110",
    tests.THREE: "sums of three digits",
}
