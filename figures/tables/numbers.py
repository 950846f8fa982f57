"""The table `numbers`: is a number a line, a wave or a table?

Keys: kind (see `KINDS`); subject (see `experiments.numbers.SUBJECTS`); variable, such as "a" or
"a_ones"; place ("operand" or "end"); layer; shape; space (see `Swaps.spaces`); source and period,
of spectra; prediction, of, condition and verdict, of predictions.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from arith_lens.effects import Effects
from arith_lens.numbers import CONTROLS, OWN, UNSEEN, WHOLE, Swaps
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import numbers as tests
from experiments.results import NUMBER_OVERLAP, NUMBER_PRODUCTS, NUMBER_SPECTRUM, NUMBER_SWAPS
from figures.tables.number import PROBLEMS, Number
from figures.tables.table import QuestionTable, Row, model_key, n_problems, row
from figures.verdicts import Finding, Within, judge_by_interval

KINDS = ("swap", "p", "spectrum", "products", "overlap", "prediction")
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
    model = model_key(str(run.config["model"]))
    results = {parts: NUMBER_SWAPS.load(run, *parts) for parts in _stored(run)}
    rows: list[Row] = []
    for parts, swaps in results.items():
        rows += _swap_rows(parts, swaps)
        rows += _overlap_rows(run, parts)
    for parts in tests.SPECTRA:
        if NUMBER_SPECTRUM.is_in(run, *parts):
            rows += _spectrum_rows(parts, NUMBER_SPECTRUM.load(run, *parts))
    for shape in NUMBER_PRODUCTS.labels(run):
        rows += _product_rows(shape, NUMBER_PRODUCTS.load(run, shape))
    rows += _predictions(results, model)
    return QuestionTable.of("numbers", model, rows)


def _stored(run: Run) -> Iterator[tests.Parts]:
    """The tests that the run has, by subject, value, place, layer and shape."""
    for subject, (_, digit, _) in tests.SUBJECTS.items():
        values = dict.fromkeys((digit, "b", "answer"))
        for value, place in product(values, (tests.OPERAND, tests.END)):
            stored = [
                (int(layer), number, shape)
                for number, shape in enumerate(tests.SHAPES)
                for layer in NUMBER_SWAPS.labels(run, subject, value, place, None, shape)
            ]
            for layer, _, shape in sorted(stored):
                yield subject, value, place, str(layer), shape


def _keys(parts: tests.Parts) -> dict[str, str | int]:
    subject, value, place, layer, shape = parts
    keys: dict[str, str | int] = {"subject": subject, "variable": value, "place": place}
    return keys | {"layer": int(layer), "shape": shape}


def _swap_rows(parts: tests.Parts, swaps: Swaps) -> Iterator[Row]:
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
                keys = {"subject": tests.MAIN, "variable": value, "source": source, "place": place}
                if "layer" in spectrum.axes:
                    keys["layer"] = layer  # pyright: ignore[reportArgumentType]
                one = Number(number, unit=unit)  # pyright: ignore[reportArgumentType]
                yield row(measure, one, kind="spectrum", **keys, period=period)


def _product_rows(shape: str, products: Effects) -> Iterator[Row]:
    """What A and B have only together at END, and the products in it."""
    measures = (products.labels or {})["measure"]
    for layer, values in enumerate(products.per_pair[..., 0].tolist()):
        for measure, value in zip(measures, values, strict=True):
            keys = {"subject": tests.MAIN, "place": tests.END, "layer": layer, "shape": shape}
            yield row(measure, _plain(measure, value), kind="products", **keys)


def _overlap_rows(run: Run, parts: tests.Parts) -> Iterator[Row]:
    """The directions of the shape beside those that decide the answer."""
    subject, value, place, layer, shape = parts
    if (subject, place) != (tests.MAIN, tests.END):
        return
    if not NUMBER_OVERLAP.is_in(run, value, layer, shape):
        return
    overlap = NUMBER_OVERLAP.load(run, value, layer, shape)
    measures = (overlap.labels or {})["measure"]
    for measure, number in zip(measures, overlap.per_pair[:, 0].tolist(), strict=True):
        yield row(measure, _plain(measure, number), kind="overlap", **_keys(parts))


def _plain(measure: str, value: float) -> Number:
    """A number without an interval, with the unit that its measure has."""
    if measure.startswith("p"):
        return Number(value, unit="p")
    is_ratio = measure.startswith("F ") or measure.endswith("degrees")
    return Number(value, unit="ratio" if is_ratio else "share")


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


def _prediction(name: str, subject: str, of: str, number: Number, words: str, rule: Within) -> Row:
    """A number, and what its interval says of the rule; a number without one is exact."""
    ends = (number.value, number.value) if number.low is None else number.ends
    verdict = judge_by_interval(Finding(of, replace(number, low=ends[0], high=ends[1]), rule))
    keys = {"subject": subject, "prediction": name, "of": of, "condition": words}
    keys["verdict"] = verdict
    return row("prediction", number, kind="prediction", **keys)


def _predictions(results: dict[tests.Parts, Swaps], model: str) -> Iterator[Row]:
    """The predictions of docs/predictions.md that one model can decide."""
    if model.startswith("reference"):
        yield from _unseen_at_operands(results)
        yield from _line_at_end(results)
    helix = [tests.LINE, tests.WAVES_10, tests.HELIX]
    waves = (tests.WAVES_10, tests.WAVES_5, tests.WAVES_2)
    for (subject, value, place, layer, shape), swaps in results.items():
        if place == tests.OPERAND and shape in helix and CONTROLS["pca"] in swaps.spaces:
            of = f"{value}'s token, layer {layer}, k = {swaps.computation['k']}"
            number = _pca_less_shape(swaps)
            rule = Within(above=0.0, closed=True)
            keys = f"PCA less {shape}, {of}"
            yield _prediction("N3", subject, keys, number, "at least 0", rule)
        if model.startswith("gemma") and (value, place) == ("a", tests.OPERAND) and shape in waves:
            p = swaps.p_value()
            number = Number(p, unit="p")
            of = f"{shape}, a's token, layer {layer}"
            rule = Within(below=0.05, closed=True)
            yield _prediction("N5", subject, of, number, "p at most .05", rule)


def _unseen_at_operands(results: dict[tests.Parts, Swaps]) -> Iterator[Row]:
    """Of each operand, the place and shape with the largest share of unseen values."""
    rule = Within(below=PASSES)
    of_operands = {
        parts: swaps
        for parts, swaps in results.items()
        if parts[2] == tests.OPERAND and UNSEEN in swaps.spaces and swaps.iia(WHOLE) > 0
    }
    for subject, operand in dict.fromkeys(parts[:2] for parts in of_operands):
        own = {
            parts: swaps for parts, swaps in of_operands.items() if parts[:2] == (subject, operand)
        }
        best = max(own, key=lambda parts: own[parts].iia(UNSEEN) / own[parts].iia(WHOLE))
        of = f"unseen values of the whole vector, largest: {best[4]}, {operand}, layer {best[3]}"
        yield _prediction("N1", subject, of, _ratio(own[best], UNSEEN), "below .5", rule)


def _line_at_end(results: dict[tests.Parts, Swaps]) -> Iterator[Row]:
    rule = Within(above=PASSES, closed=True)
    for (subject, value, place, layer, shape), swaps in results.items():
        if value[0] != "a" or value == "answer" or (place, shape) != (tests.END, tests.LINE):
            continue
        if int(layer) >= LATE_LAYER and swaps.iia(WHOLE) > 0:
            of = f"unseen values of the whole vector, line, layer {layer}"
            yield _prediction("N2", subject, of, _ratio(swaps, UNSEEN), "at least .5", rule)
