"""Several knockout curves of the same pairs, under their names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arith_lens.arrays import Arrays, joined
from arith_lens.knockout.charts import chart, grouped_lines
from arith_lens.knockout.curve import KnockoutCurve

if TYPE_CHECKING:
    from pandas import DataFrame

    from arith_lens.plotting import Figure


@dataclass(frozen=True)
class KnockoutCurves(Mapping[str, KnockoutCurve]):
    """Curves by name, such as `effect`, `random 0`, `random 1`; a run keeps them as one result."""

    curves: Mapping[str, KnockoutCurve]

    def __getitem__(self, name: str) -> KnockoutCurve:
        return self.curves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.curves)

    def __len__(self) -> int:
        return len(self.curves)

    def starting(self, prefix: str) -> list[KnockoutCurve]:
        """The curves whose names start so, such as all `random` ones."""
        return [curve for name, curve in self.curves.items() if name.startswith(prefix)]

    def to_dataframe(self) -> "DataFrame":
        """The curves' tables below one another, with a column `curve`."""
        from pandas import concat

        tables = {name: curve.to_dataframe() for name, curve in self.curves.items()}
        return concat(tables, names=["curve"]).reset_index("curve").reset_index(drop=True)

    def to_arrays(self) -> Arrays:
        """For a file; `from_arrays` gives the same curves back."""
        parts = {name: curve.to_arrays() for name, curve in self.curves.items()}
        return joined("knockout_curves", parts, header={"names": list(self.curves)})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "KnockoutCurves":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        arrays.require("knockout_curves")
        names = arrays.header["names"]
        return cls({name: KnockoutCurve.from_arrays(arrays.part(name)) for name in names})

    def __repr__(self) -> str:
        return f"KnockoutCurves({', '.join(self.curves)})"

    def plot(self) -> "Figure":
        """A plotly figure: right answers and the mean of p(C), one line per order.

        Orders that differ in a number at the end of their name, such as `random 0` and `random 1`,
        are drawn as their mean and range.
        """
        return chart(self.curves)

    def _repr_html_(self) -> str:
        from arith_lens import plotting

        drawn = plotting.svg_lines(
            grouped_lines(self.curves), x_title="components out", y_title="right", unit="%", top=100
        )
        return plotting.as_image(drawn, alt=repr(self))
