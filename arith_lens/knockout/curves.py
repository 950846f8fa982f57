"""Accuracy and p(C) as more and more components are knocked out: one curve, or several."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.arrays import Arrays, joined_arrays
from arith_lens.components import Component, Head, parse_component
from arith_lens.effects import Effects
from arith_lens.knockout.outcomes import (
    OUTCOME_MEASURES,
    Drop,
    Outcomes,
    components_text,
    drop,
    read_back,
    select_pairs,
    stored,
)
from arith_lens.statistics import HasUnits

if TYPE_CHECKING:
    from pandas import DataFrame

    from arith_lens.plotting import Figure, Line


@dataclass(frozen=True)
class KnockoutCurve(HasUnits):
    """Outcomes after the first k components of an order are knocked out, for each k."""

    correct: Bool[Tensor, "k pair"]
    probability: Float[Tensor, "k pair"]
    top: Int[Tensor, "k pair rank"]
    """This, and the two fields above: as in `Outcomes`, for each k."""
    ks: tuple[int, ...]
    """The numbers of components that are out. 0, the baseline, is always one of them. If the pairs
    were filtered for right answers, the baseline is 100% by construction."""
    order: tuple[Component, ...]
    """The components, in the order in which they are knocked out."""
    ablation: str
    positions: str
    means: str
    template: tuple[str, ...] | None = None
    cluster: Int[Tensor, " pair"] | None = None
    problem: tuple[str, ...] | None = None
    computed: Bool[Tensor, " pair"] | None = None
    n_forwards: float = field(default=float("nan"))
    """The cost, in whole forwards of the pairs."""

    @property
    def n_pairs(self) -> int:
        """The number of pairs."""
        return self.correct.shape[-1]

    def effects(self) -> Effects:
        """Both measures, [measure k pair]."""
        return Effects(
            per_pair=torch.stack([self.correct.float(), self.probability.float()]),
            axes=("measure", "k"),
            metric="after knockout",
            **self.units,
            labels={"measure": OUTCOME_MEASURES, "k": tuple(str(k) for k in self.ks)},
        )

    def accuracy(self) -> Float[Tensor, " k"]:
        """The share of pairs answered with C at each k. Templates have equal weight."""
        return self.effects().mean()[0]

    def mean_probability(self) -> Float[Tensor, " k"]:
        """The mean of p(C) at each k."""
        return self.effects().mean()[1]

    def at(self, k: int) -> Outcomes:
        """The outcomes with the first k components out. Raises ValueError: k is not in `ks`."""
        if k not in self.ks:
            raise ValueError(f"expected k among {list(self.ks)}, found {k}; compute it with ks=")
        row = self.ks.index(k)
        return Outcomes(
            correct=self.correct[row],
            probability=self.probability[row],
            top=self.top[row],
            components=self.order[:k],
            ablation=self.ablation,
            positions=self.positions,
            means=self.means,
            computed=self.computed,
            correct_before=self.correct[self.ks.index(0)],
            **self.units,
        )

    def drop(self, k: int, *, level: float = 0.95) -> Drop:
        """The loss from the baseline to k components out, absolute and relative.

        Raises:
            ValueError: k is not in `ks`.
        """
        return drop(self.at(0), self.at(k), level=level)

    def select(
        self, mask: Bool[Tensor, " pair"] | Int[Tensor, " chosen"] | slice
    ) -> "KnockoutCurve":
        """The curve of some of the pairs, such as those whose answer is computed, not copied."""
        return select_pairs(self, mask)

    def to_dataframe(self) -> "DataFrame":
        """One row per k: the k-th component, and both measures with 95% intervals."""
        from pandas import DataFrame

        effects = self.effects()
        mean, (low, high) = effects.mean(), effects.ci()
        columns: dict[str, Any] = {
            "k": list(self.ks),
            "component": [str(self.order[k - 1]) if k else "" for k in self.ks],
        }
        for row, name in enumerate(("accuracy", "probability")):
            columns[name] = mean[row].numpy()
            columns[f"{name}_low"], columns[f"{name}_high"] = low[row].numpy(), high[row].numpy()
        return DataFrame(columns)

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        header = {"ks": list(self.ks), "order": [*map(str, self.order)]}
        return stored("knockout_curve", self, header | {"n_forwards": self.n_forwards})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "KnockoutCurve":
        """Read `to_arrays` back. Raises ValueError for another kind of result."""
        fields, header = read_back("knockout_curve", arrays)
        return cls(
            ks=tuple(header["ks"]),
            order=tuple(map(parse_component, header["order"])),
            n_forwards=header["n_forwards"],
            **fields,
        )

    def __repr__(self) -> str:
        accuracy = self.accuracy()
        return (
            f"KnockoutCurve({accuracy[0]:.1%} right with all, {accuracy[-1]:.1%} without "
            f"{self.ks[-1]} of {components_text(self.order)}; {self.setting()})"
        )

    def line(self, name: str, colour: str, *, measure: int = 0) -> "Line":
        """Accuracy (with `measure=1`: p(C)) in percent over k, with its 95% interval, to draw.

        Args:
            name, colour: of the line (`#rrggbb`)
        """
        from arith_lens.plotting import Line

        effects = self.effects()
        low, high = 100 * effects.ci()[:, measure].numpy()
        mean = 100 * effects.mean()[measure].numpy()
        return Line(np.array(self.ks), mean, name, colour, low=low, high=high)

    def setting(self) -> str:
        """The number of pairs and the kind of knockout, in words."""
        return (
            f"{self.n_pairs} pairs, ablation {self.ablation}, positions {self.positions}, "
            f"means {self.means}"
        )

    def plot(self) -> "Figure":
        """A plotly figure: right answers and the mean of p(C) over k, with 95% intervals."""
        from arith_lens import plotting

        panel = plotting.CurvePanel("", tuple(self._lines()), y_range=(0, 104))
        return plotting.curve_panels(
            [panel],
            x_title=f"Knocked out: the first k of {plotting.plain(components_text(self.order))}",
            unit="%",
            notes=[self.setting()],
        )

    def _lines(self) -> "list[Line]":
        from arith_lens import plotting

        return [
            self.line(name, colour, measure=measure)
            for measure, (name, colour) in enumerate(
                (("right", plotting.COLOURS["verdict"]), ("mean p(C)", plotting.COLOURS["answer"]))
            )
        ]

    def _repr_html_(self) -> str:
        from arith_lens import plotting
        from arith_lens.plotting import render

        title = f"without the first k of {components_text(self.order)}"
        drawn = plotting.svg_lines(
            self._lines(), x_title="k", y_title="right, mean p(C)", title=title, unit="%", top=100
        )
        image = plotting.as_image(drawn, alt=repr(self))
        template = "<div>{{ image }}<div>{{ setting }}</div></div>"
        return render(template, image=image, setting=self.setting())


def range_line(
    curves: Sequence[KnockoutCurve], name: str, colour: str, *, measure: int = 0
) -> "Line":
    """The mean over several orders with the same `ks`, in percent. The band contains all of them.

    Args:
        name, colour: of the line (`#rrggbb`)
        measure: 0 for accuracy, 1 for p(C)
    """
    from arith_lens.plotting import Line

    percent = np.stack([100 * curve.effects().mean()[measure].numpy() for curve in curves])
    low, high = percent.min(0), percent.max(0)
    return Line(np.array(curves[0].ks), percent.mean(0), name, colour, low=low, high=high)


def grouped_lines(curves: Mapping[str, KnockoutCurve], *, measure: int = 0) -> list["Line"]:
    """One line per order. Orders whose names differ only in a final number share one line.

    Shared lines are first, in grey, so that single orders are drawn above them.
    """
    from arith_lens import plotting

    groups: dict[tuple[str, tuple[int, ...]], dict[str, KnockoutCurve]] = {}
    for name, curve in curves.items():
        numbered = re.fullmatch(r"(.*\S)\s+\d+", name)
        groups.setdefault((numbered[1] if numbered else name, curve.ks), {})[name] = curve
    several = [(name, [*group.values()]) for (name, _), group in groups.items() if len(group) > 1]
    single = [one for group in groups.values() if len(group) == 1 for one in group.items()]
    pale = (plotting.COLOURS["control"], plotting.PALE)
    inks = [plotting.COLOURS[one] for one in ("verdict", "operand", "operator", "answer")]
    return [
        range_line(group, name, pale[i % len(pale)], measure=measure)
        for i, (name, group) in enumerate(several)
    ] + [
        curve.line(name, inks[i % len(inks)], measure=measure)
        for i, (name, curve) in enumerate(single)
    ]


@dataclass(frozen=True)
class KnockoutCurves(Mapping[str, KnockoutCurve]):
    """Curves by name, such as `effect`, `random 0`, `random 1`, stored as one result."""

    curves: Mapping[str, KnockoutCurve]

    def __getitem__(self, name: str) -> KnockoutCurve:
        return self.curves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.curves)

    def __len__(self) -> int:
        return len(self.curves)

    def starting(self, prefix: str) -> list[KnockoutCurve]:
        """The curves whose names start with `prefix`, such as all `random` ones."""
        return [curve for name, curve in self.curves.items() if name.startswith(prefix)]

    def to_dataframe(self) -> "DataFrame":
        """The tables of all curves in one, with a column `curve`."""
        from pandas import concat

        tables = {name: curve.to_dataframe() for name, curve in self.curves.items()}
        return concat(tables, names=["curve"]).reset_index("curve").reset_index(drop=True)

    def to_arrays(self) -> Arrays:
        """The arrays for a file; `from_arrays` reads them."""
        parts = {name: curve.to_arrays() for name, curve in self.curves.items()}
        return joined_arrays("knockout_curves", parts, header={"names": list(self.curves)})

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
        from arith_lens import plotting

        first = next(iter(self.curves.values()))
        only_heads = all(isinstance(c, Head) for curve in self.curves.values() for c in curve.order)
        lines = [grouped_lines(self.curves, measure=measure) for measure in (0, 1)]
        ranges = len(lines[0]) < len(self)
        bands = "Bands: 95% intervals" + ", or the range over several control orders." * ranges
        return plotting.curve_panels(
            [
                plotting.CurvePanel("", tuple(lines[row]), y_title=title, y_range=(0, 104))
                for row, title in enumerate(("Right answers", "Mean p(C)"))
            ],
            x_title=f"{'Heads' if only_heads else 'Components'} knocked out",
            unit="%",
            notes=[f"{first.setting()}. {bands.rstrip('.')}."],
            panel=(300, 230),
        )

    def _repr_html_(self) -> str:
        from arith_lens import plotting

        drawn = plotting.svg_lines(
            grouped_lines(self.curves), x_title="components out", y_title="right", unit="%", top=100
        )
        return plotting.as_image(drawn, alt=repr(self))
