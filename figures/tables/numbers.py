"""The table `numbers`: is a number a line, a wave or a table?

Keys: kind (see `KINDS`); subject (see `experiments.numbers.SUBJECTS`); variable, such as "a" or
"a_ones"; place ("operand" or "end"); layer; shape; space (see `Swaps.spaces`); source and period,
of spectra.
"""

from collections.abc import Iterator
from itertools import product

from arith_lens.effects import Effects
from arith_lens.numbers import Swaps
from arith_lens.runs import Run
from experiments import numbers as tests
from experiments.results import NUMBER_OVERLAP, NUMBER_PRODUCTS, NUMBER_SPECTRUM, NUMBER_SWAPS
from figures.tables.number import PROBLEMS, Number, over_draws
from figures.tables.table import QuestionTable, Row, model_key, n_problems, row

KINDS = ("swap", "p", "spectrum", "products", "overlap")
FOLLOWS = "answers that follow the value"
P_LABELS = "p of permuted labels"
POWER, P_POWER = "share of the variance between values", "p of the power"


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
        yield row(FOLLOWS, swap_number(swaps, space), kind="swap", **_keys(parts), space=space)
    for space in swaps.null:
        number = Number(swaps.p_value(space), unit="p")
        yield row(P_LABELS, number, kind="p", **_keys(parts), space=space)


def swap_number(swaps: Swaps, space: str) -> Number:
    """The share of swaps that follow; of random controls, the median and the range of the draws."""
    if space in swaps.draws:
        return over_draws(swaps.of_draws(space).numpy(), unit="share", middle="median")
    own = swaps.of(space)
    return Number(swaps.iia(space), *swaps.ci(space), PROBLEMS, n_problems(own))


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
