"""Measured rows: kept in a run, printed as Markdown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from arith_lens.arrays import Arrays

if TYPE_CHECKING:
    from pandas import DataFrame

Cell: TypeAlias = str | int | float | None
"""None where nothing was measured."""


@dataclass(frozen=True)
class Column:
    """How a column is printed: its name in the rows, a format, and what numbers are times."""

    name: str
    form: str = ""
    scale: int | float = 1

    def written(self, value: Cell) -> str:
        """Nothing is written for None."""
        if value is None:
            return ""
        return format(value if isinstance(value, str) else self.scale * value, self.form)


@dataclass(frozen=True)
class Table:
    """Rows with the same columns, each of text or of numbers."""

    rows: Sequence[Mapping[str, Cell]]

    def to_arrays(self) -> Arrays:
        """Numbers as float64 tensors, NaN for None; text in the header."""
        columns = self.to_dataframe().to_dict(orient="list")
        text = {name: column for name, column in columns.items() if _is_text(column)}
        numbers = {
            str(name): torch.tensor(
                [math.nan if value is None else float(value) for value in column],
                dtype=torch.float64,
            )
            for name, column in columns.items()
            if name not in text
        }
        return Arrays(numbers, {"kind": "table", "columns": list(columns), "text": text})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Table":
        """Read `to_arrays` back; all numbers are then floats.

        Raises:
            ValueError: the arrays are of another kind of result.
        """
        arrays.require("table")
        numbers = {
            name: [None if math.isnan(value) else value for value in tensor.tolist()]
            for name, tensor in arrays.tensors.items()
        }
        columns: dict[str, list[Any]] = numbers | arrays.header["text"]
        names = arrays.header["columns"]
        rows = zip(*(columns[name] for name in names), strict=True)
        return cls([dict(zip(names, row, strict=True)) for row in rows])

    def to_dataframe(self) -> "DataFrame":
        """A row a measurement."""
        from pandas import DataFrame

        return DataFrame(list(self.rows), dtype=object)

    def markdown(self, columns: Mapping[str, Column]) -> str:
        """The columns asked for, by their headings."""
        lines = [list(columns), ["---"] * len(columns)]
        lines += [
            [column.written(row[column.name]) for column in columns.values()] for row in self.rows
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_text(column: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in column)
