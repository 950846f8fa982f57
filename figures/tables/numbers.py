"""The table `numbers`: is a number a line, a wave or a table?

Keys: kind (see `KINDS`); variable ("a", "b" or "answer"); place ("operand" or "end"); layer; shape;
space (see `Swaps.spaces`); source and period, of spectra; prediction, of, condition and verdict, of
predictions.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from arith_lens.effects import Effects
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, WHOLE, Swaps
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import numbers as tests
from experiments.results import NUMBER_SPECTRUM, NUMBER_SWAPS
from figures.tables.number import PROBLEMS, Number
from figures.tables.table import QuestionTable, Row, n_problems, row
from figures.verdicts import Finding, Within, judge_by_interval

KINDS = ("swap", "p", "spectrum", "prediction")
FOLLOWS = "answers that follow the value"
P_LABELS = "p of permuted labels"
POWER, P_POWER = "share of the variance between values", "p of the power"
N_RESAMPLES = 1000
LATE_LAYER = 7
"""The first layer of prediction N2."""
PASSES = 0.5
"""A shape passes the test of unseen values with at least this share of the whole vector's."""


def table(run: Run) -> QuestionTable:
    """The rows of a run of `numbers`.

    Raises:
        RunError: the run is damaged.
    """
    model = str(run.config["model"])
    results = {parts: NUMBER_SWAPS.load(run, *parts) for parts in _stored(run)}
    rows: list[Row] = []
    for parts, swaps in results.items():
        rows += _swap_rows(parts, swaps)
    for parts in tests.SPECTRA:
        if NUMBER_SPECTRUM.is_in(run, *parts):
            rows += _spectrum_rows(parts, NUMBER_SPECTRUM.load(run, *parts))
    rows += _predictions(results, model)
    return QuestionTable.of("numbers", model, rows)


Parts = tuple[str, str, str, str]
"""Value, place, layer and shape of a test."""


def _stored(run: Run) -> Iterator[Parts]:
    """The tests that the run has, in the order in which they were computed."""
    layers = {
        int(layer)
        for value in ("a", "b", "answer")
        for place in (tests.OPERAND, tests.END)
        for layer in NUMBER_SWAPS.labels(run, value, place, None, tests.LINE)
    }
    for value in ("a", "b", "answer"):
        for place in (tests.OPERAND, tests.END):
            for layer in sorted(layers):
                for shape in tests.SHAPES if place == tests.OPERAND else tests.AT_END:
                    if NUMBER_SWAPS.is_in(run, value, place, str(layer), shape):
                        yield value, place, str(layer), shape


def _keys(parts: Parts) -> dict[str, str | int]:
    value, place, layer, shape = parts
    return {"variable": value, "place": place, "layer": int(layer), "shape": shape}


def _swap_rows(parts: Parts, swaps: Swaps) -> Iterator[Row]:
    for space in swaps.spaces:
        number = _number(swaps.of(space))
        yield row(FOLLOWS, number, kind="swap", **_keys(parts), space=space)
    for space in swaps.null:
        number = Number(swaps.p_value(space), unit="p")
        yield row(P_LABELS, number, kind="p", **_keys(parts), space=space)


def _number(effects: Effects) -> Number:
    """A share with the interval that the predictions name: problems drawn with replacement."""
    low, high = effects.ci(method="percentile").tolist()
    return Number(float(effects.mean()), low, high, PROBLEMS, n_problems(effects))


def _spectrum_rows(parts: tuple[str, str, str], spectrum: Effects) -> Iterator[Row]:
    value, source, place = parts
    labels = spectrum.labels or {}
    values = spectrum.per_pair[..., 0]
    if "layer" not in spectrum.axes:
        values = values[None]
    for layer, of_layer in enumerate(values):
        for measure, unit, line in zip((POWER, P_POWER), ("share", "p"), of_layer, strict=True):
            for period, number in zip(labels["period"], line.tolist(), strict=True):
                keys = {"variable": value, "source": source, "place": place}
                if "layer" in spectrum.axes:
                    keys["layer"] = layer  # pyright: ignore[reportArgumentType]
                one = Number(number, unit=unit)  # pyright: ignore[reportArgumentType]
                yield row(measure, one, kind="spectrum", **keys, period=period)


def _draws(swaps: Swaps, spaces: tuple[str, ...]) -> np.ndarray:
    """Redrawn means of several spaces, over the same problems."""
    places = [swaps.spaces.index(space) for space in spaces]
    chosen = replace(swaps.effects, per_pair=swaps.effects.per_pair[places], labels=None)
    return resampled_means(chosen.sample(), slice(None), N_RESAMPLES, 0).numpy()


def _ratio(swaps: Swaps, space: str) -> Number:
    """A share divided by that of the whole vector, with its interval over problems."""
    draws = _draws(swaps, (space, WHOLE))
    low, high = np.nanquantile(draws[0] / draws[1], [0.025, 0.975])
    value = swaps.iia(space) / swaps.iia(WHOLE)
    return Number(value, float(low), float(high), PROBLEMS, n_problems(swaps.of(space)), "ratio")


def _pca_less_shape(swaps: Swaps) -> Number:
    pca = CONTROLS["pca"]
    draws = _draws(swaps, (pca, OWN))
    low, high = np.nanquantile(draws[0] - draws[1], [0.025, 0.975])
    value = swaps.iia(pca) - swaps.iia(OWN)
    return Number(value, float(low), float(high), PROBLEMS, n_problems(swaps.of(pca)), "points")


def _prediction(name: str, of: str, number: Number, words: str, rule: Within) -> Row:
    verdict = judge_by_interval(Finding(of, number, rule))
    keys = {"prediction": name, "of": of, "condition": words, "verdict": verdict}
    return row("prediction", number, kind="prediction", **keys)


def _predictions(results: dict[Parts, Swaps], model: str) -> Iterator[Row]:
    """The predictions of docs/how_it_calculates.md that one model can decide."""
    if model.startswith("reference"):
        yield from _unseen_at_operands(results)
        yield from _line_at_end(results)
    helix = [tests.LINE, tests.WAVES_10, tests.HELIX]
    for (value, place, layer, shape), swaps in results.items():
        if place == tests.OPERAND and shape in helix:
            of = f"{value}'s token, layer {layer}, k = {swaps.computation['k']}"
            number = _pca_less_shape(swaps)
            rule = Within(above=0.0, closed=True)
            yield _prediction("N3", f"PCA less {shape}, {of}", number, "at least 0", rule)
    if model.startswith("gemma"):
        for shape in (tests.WAVES_10, tests.WAVES_5, tests.WAVES_2):
            for (value, place, layer, name), swaps in results.items():
                if (value, place, name) == ("a", tests.OPERAND, shape):
                    p = swaps.p_value()
                    number = Number(p, p, p, "exact", unit="p")
                    of = f"{shape}, a's token, layer {layer}"
                    rule = Within(below=0.05, closed=True)
                    yield _prediction("N5", of, number, "p at most .05", rule)


def _unseen_at_operands(results: dict[Parts, Swaps]) -> Iterator[Row]:
    """Of each operand, the place and shape with the largest share of unseen values."""
    rule = Within(below=PASSES)
    for operand in ("a", "b"):
        own = {
            parts: swaps
            for parts, swaps in results.items()
            if parts[:2] == (operand, tests.OPERAND) and swaps.iia(WHOLE) > 0
        }
        if own:
            best = max(own, key=lambda parts: own[parts].iia(UNSEEN) / own[parts].iia(WHOLE))
            of = (
                f"unseen values of the whole vector, largest: {best[3]}, {operand}, layer {best[2]}"
            )
            yield _prediction("N1", of, _ratio(own[best], UNSEEN), "below .5", rule)


def _line_at_end(results: dict[Parts, Swaps]) -> Iterator[Row]:
    rule = Within(above=PASSES, closed=True)
    for (value, place, layer, shape), swaps in results.items():
        if (value, place, shape) == ("a", tests.END, tests.LINE) and int(layer) >= LATE_LAYER:
            of = f"unseen values of the whole vector, line, layer {layer}"
            yield _prediction("N2", of, _ratio(swaps, UNSEEN), "at least .5", rule)
