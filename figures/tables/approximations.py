"""The table `approximations`: what approximations by gradients cost, and how well they agree.

Keys: operation ("mean": the mean over the operations); paths; method; components ("heads" or
"MLPs"). The method "exact" has costs alone.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from arith_lens.effects import ComponentEffects, agreement
from arith_lens.runs import Run
from experiments import results
from experiments.results import EXACT
from figures.tables.number import PROBLEMS, Number, Unit
from figures.tables.table import QuestionTable, Row, n_problems, row

COST, PAIRS = "processor milliseconds per pair", "pairs"
PASSES = ("forwards", "backwards")
DEARER = "methods dearer than exact in every operation"
METHODS = "methods"
MEAN = "mean"
"""The operation of the means over the operations, which have equal weights."""
UNITS: Mapping[str, Unit] = {
    "pearson": "correlation",
    "spearman": "correlation",
    "slope": "ratio",
    "recall": "share",
    "missed": "share",
}
"""Of a measure of `arith_lens.agreement`, by its first word."""


def table(run: Run, /, paths: str) -> QuestionTable:
    """The rows of one kind of paths of a run of `do_gradients_agree` that has its exact effects.

    Raises:
        RunError: the run is damaged.
    """
    operations = results.LADDER.labels(run, None, paths, EXACT)
    by_operation = {name: [*_operation_rows(run, name, paths)] for name in operations}
    rows = [one for of_operation in by_operation.values() for one in of_operation]
    rows += [*_means(rows), *_dearer([*by_operation.values()])]
    rows = [row(one.measure, one.number, paths=paths, **one.keys) for one in rows]
    return QuestionTable.of("approximations", str(run.config["model"]), rows)


def _operation_rows(run: Run, operation: str, paths: str) -> Iterator[Row]:
    """The costs of each method, and each measure of its agreement."""
    exact = results.LADDER.load(run, operation, paths, EXACT)
    yield row(PAIRS, Number(exact.heads.n_pairs, unit="count"), operation=operation)
    yield from _costs(exact, operation=operation, method=EXACT)
    for method in results.LADDER.labels(run, operation, paths, None):
        if method == EXACT:
            continue
        approximate = results.LADDER.load(run, operation, paths, method)
        keys = {"operation": operation, "method": method}
        yield from _costs(approximate, **keys)
        n = n_problems(exact.heads)
        for one in agreement(approximate, exact).to_dict("records"):
            unit = UNITS[one["measure"].split()[0]]
            number = Number(one["value"], one["low"], one["high"], PROBLEMS, n, unit)
            yield row(one["measure"], number, **keys, components=one["part"])


def _costs(effects: ComponentEffects, **keys: str) -> Iterator[Row]:
    """Processor time per pair in milliseconds, and passes."""
    computation = effects.computation
    milliseconds = 1000 * computation["processor_seconds"] / computation["n_pairs"]
    yield row(COST, Number(milliseconds, unit="milliseconds"), **keys)
    for name in PASSES:
        if name in computation:
            yield row(name, Number(computation[name], unit="count"), **keys)


def _means(rows: Sequence[Row]) -> Iterator[Row]:
    """The mean over operations of every cost and measure, with equal weights."""
    values: dict[tuple[str, str, str], list[Number]] = {}
    for one in rows:
        if "method" in one.keys:
            place = (one.keys["method"], one.keys.get("components", ""), one.measure)
            values.setdefault(place, []).append(one.number)
    for (method, components, measure), numbers in values.items():
        mean = Number(float(np.mean([one.value for one in numbers])), unit=numbers[0].unit)
        keys = {"components": components} if components else {}
        yield row(measure, mean, operation=MEAN, method=method, **keys)


def _dearer(operations: Sequence[Sequence[Row]]) -> Iterator[Row]:
    """How many methods cost more than the exact effects in every operation, and of how many."""
    if not operations:
        return
    costs = [
        {one.keys["method"]: one.number.value for one in rows if one.measure == COST}
        for rows in operations
    ]
    methods = [name for name in costs[0] if name != EXACT]
    dearer = sum(all(of_one[name] > of_one[EXACT] for of_one in costs) for name in methods)
    yield row(DEARER, Number(dearer, unit="count"))
    yield row(METHODS, Number(len(methods), unit="count"))
