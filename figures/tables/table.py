"""One schema for all numbers: a row is one number that someone may quote, with its keys.

`QuestionTable` is what a module of `figures.tables` makes. `frame` and `read_back` turn it into a
DataFrame and a CSV file, from which everything is drawn.
"""

from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from io import StringIO
from math import inf
from operator import or_
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
from pandas import DataFrame, concat, read_csv

from arith_lens.effects import Effects
from figures.tables.number import PROBLEMS, Number, Unit

Key: TypeAlias = str | int | float
IDENTITY = ("question", "model")
"""The first columns: the question's key, and the model's name."""
MEASURED = ("measure", "value", "low", "high", "spread", "n", "unit")
"""The last columns. Those of the keys are between."""
NUMERIC = (
    *("above", "below", "p_within", "p_outside"),
    *("value", "low", "high", "n"),
    *("k", "layer", "index", "draws", "rate", "size", "seed"),
    *("position", "rank", "base", "column", "dial", "ones_sum", "step", "period"),
    *("n_heads", "n_mlps", "sample", "freedom"),
)
"""The columns whose texts are numbers."""
DIGITS = 6
"""Significant digits in a CSV file."""


@dataclass(frozen=True)
class Row:
    """One number, with what it is of."""

    measure: str
    """What was measured, such as "accuracy"."""
    number: Number
    keys: Mapping[str, Any]
    """What it was measured on, such as the operation; in the order of the columns."""


def row(measure: str, number: Number, **keys: Key) -> Row:
    """A row from its number and keys."""
    return Row(measure, number, keys)


@dataclass(frozen=True)
class QuestionTable:
    """The rows of one question."""

    question: str
    """Its key, such as "knockout"."""
    model: str
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, question: str, model: str, rows: Iterable[Row]) -> "QuestionTable":
        """The table of some rows."""
        return cls(question, model, tuple(rows))

    def select(self, measure: str | None = None, **keys: Key) -> Iterator[Row]:
        """The rows with this measure and these keys; without a measure, of any."""
        for one in self.rows:
            if measure in (None, one.measure) and all(
                one.keys.get(name, "") == value for name, value in keys.items()
            ):
                yield one

    def number(self, measure: str, **keys: Key) -> Number:
        """The number of the one row with this measure and these keys.

        Raises:
            KeyError: no row has them, or several.
        """
        rows = [*self.select(measure, **keys)]
        if len(rows) != 1:
            raise KeyError(
                f"expected one row of {self.question} with {measure!r} and {keys}, found "
                f"{len(rows)}; name more keys"
            )
        return rows[0].number

    def frame(self) -> DataFrame:
        """One row per number, with the columns of `IDENTITY`, of the keys, and of `MEASURED`."""
        names = [*dict.fromkeys(name for one in self.rows for name in one.keys)]
        records = []
        for one in self.rows:
            low, high = one.number.ends
            spread = "" if low is None and high is None else one.number.spread
            keys = {name: one.keys.get(name, "") for name in names}
            records.append(
                {"question": self.question, "model": self.model, **keys}
                | {"measure": one.measure, "value": one.number.value, "low": low, "high": high}
                | {"spread": spread, "n": one.number.n, "unit": one.number.unit}
            )
        return DataFrame(records, columns=[*IDENTITY, *names, *MEASURED])


def to_csv(frame: DataFrame) -> str:
    """The text of a CSV file, whose numbers have `DIGITS` significant digits, more if whole."""
    texts = [name for name in frame.columns if name not in NUMERIC]
    visible = frame.assign(**{name: frame[name].map(_one_line) for name in texts})
    return visible.to_csv(index=False, float_format=_number_text)


def _one_line(text: Any) -> Any:
    """A text without a carriage return, which would end a row of a file."""
    return text.replace("\r", "␍") if isinstance(text, str) else text


def _number_text(number: float) -> str:
    is_long = 10**DIGITS <= abs(number) < inf
    return f"{number:.0f}" if is_long else f"{number:.{DIGITS}g}"


def from_csv(text: str) -> DataFrame:
    """A table from the text of its CSV file. Only the columns of `NUMERIC` are numbers."""
    frame = read_csv(StringIO(text), dtype=str, keep_default_na=False).astype(object)
    for name in set(NUMERIC) & {*frame.columns}:
        frame[name] = frame[name].replace("", "nan").astype(float)
    return frame


def read_back(*tables: QuestionTable) -> DataFrame:
    """The table as it is in its CSV file. Everything that is shown is made from this.

    Several tables, such as those of several models, are one file: one below the other, and a row
    that they share once.
    """
    return joined(table.frame() for table in tables)


def joined(frames: Iterable[DataFrame]) -> DataFrame:
    """Tables of several models or questions as one; a row that they share is there once."""
    frame = concat(frames, ignore_index=True).drop_duplicates()
    keys = [name for name in frame.columns if name not in (*IDENTITY, *MEASURED)]
    return from_csv(to_csv(DataFrame(frame[[*IDENTITY, *keys, *MEASURED]])))


def select(frame: DataFrame, **keys: Key | Sequence[Key]) -> DataFrame:
    """The rows of a table with these keys. A sequence of values means any of them.

    Rows of a table without a key have none of its values.
    """
    rows = np.ones(len(frame), bool)
    for name, value in keys.items():
        values = [value] if isinstance(value, (str, int, float)) else value
        if name in frame.columns:
            column = frame[name].to_numpy()
            rows &= reduce(or_, (column == one for one in values), np.zeros(len(frame), bool))
        else:
            rows &= "" in values
    return frame if rows.all() else DataFrame(frame.take(np.flatnonzero(rows)))


def records(frame: DataFrame) -> list[Any]:
    """The rows, each with its columns as attributes."""
    record = _record_type(tuple(map(str, frame.columns)))
    return [*map(record, *(frame[name].tolist() for name in frame.columns))]


@cache
def _record_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Record", names, rename=True)


def number_of(one: Any) -> Number:
    """The number of one of `records`."""
    low, high = (None if end != end else end for end in (one.low, one.high))
    n = None if one.n != one.n else int(one.n)
    anything = (-inf, inf)  # the ends are cut already
    freedom = getattr(one, "freedom", inf)
    freedom = inf if freedom != freedom else freedom
    return Number(one.value, low, high, one.spread, n, one.unit, (), freedom, anything)


def value(frame: DataFrame, **keys: Key) -> float:
    """The value of the one row with these keys.

    Raises:
        KeyError: no row has them, or several.
    """
    values = select(frame, **keys).value
    if len(values) != 1:
        raise KeyError(f"expected one row with {keys}, found {len(values)}; name more keys")
    return float(values.iloc[0])


def has(frame: DataFrame, **keys: Key | Sequence[Key]) -> bool:
    """Whether some row has these keys."""
    return bool(len(select(frame, **keys)))


def keys_of(frame: DataFrame, name: str) -> list[Any]:
    """The values of a key, in the table's order; rows without this key are left out."""
    values = frame[name].drop_duplicates().tolist() if name in frame else []
    return [one for one in values if one != "" and one == one]


def model_key(name: str) -> str:
    """A model as a table names it: a folder by its own name, and a training's `final` by that of
    the training, so that no table has the path of a machine."""
    path = PurePath(name)
    if path.name == "final" and path.parent.name:
        return path.parent.name
    return path.name if path.is_absolute() else name


def interval_numbers(effects: Effects, unit: Unit) -> list[Number]:
    """The mean of each component with its 95% interval, in the order of the flattened axes."""
    mean, (low, high) = effects.mean().flatten(), effects.ci().reshape(2, -1)
    return [
        Number(float(m), float(lo), float(hi), PROBLEMS, n, unit)
        for m, lo, hi, n in zip(mean, low, high, problem_counts(effects), strict=True)
    ]


def n_problems(effects: Effects) -> int:
    """How many problems the effects are over; reference prompts where problems are not known."""
    return max(problem_counts(effects), default=0)


def problem_counts(effects: Effects) -> list[int]:
    """`n_problems` of each component: problems whose pairs are all left out (NaN) do not count."""
    units: Sequence[Any] = range(effects.per_pair.shape[-1])
    if effects.problem is not None:
        units = effects.problem
    elif effects.cluster is not None:
        units = effects.cluster.tolist()
    finite = effects.per_pair.isfinite().reshape(-1, effects.per_pair.shape[-1])
    if bool(finite.all()):
        return [len({*units})] * len(finite)
    return [len({unit for unit, has in zip(units, row, strict=True) if has}) for row in finite]


def sample_rows(facts: Mapping[str, Any], **keys: Key) -> list[Row]:
    """The sizes of a sample: distinct reference prompts, and problems where they are known."""
    sizes = {"references": facts.get("distinct"), "problems": facts.get("problems")}
    return [
        row(name, Number(size, unit="count"), **keys)
        for name, size in sizes.items()
        if size is not None
    ]
