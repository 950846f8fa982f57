"""Shapes that numbers may have in a model's state: waves, a line, a polynomial, and their fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.options import check_choice

KINDS = ("helix", "fourier", "pca", "polynomial")
RANK = 1e-6
"""A direction of a fit that is smaller than this share of the largest one is rounding."""


@dataclass(frozen=True)
class Shape:
    """The terms B(v) of a value v, without the constant; of PCA there are none."""

    kind: str
    periods: tuple[float, ...] = ()
    """Of the waves."""
    linear: bool = False
    """Whether a helix also has the value itself."""
    k: int = 0
    """The number of directions of PCA, or the degree of the polynomial."""
    low: int = 0
    high: int = 1
    """The range of values, to which a polynomial is scaled."""

    @property
    def n_terms(self) -> int:
        """The number of directions that the shape can have."""
        if self.kind in ("pca", "polynomial"):
            return self.k
        waves = sum(1 if period == 2 else 2 for period in self.periods)
        return waves + (self.kind == "helix" and self.linear)

    def terms(self, values: Int[Tensor, " value"]) -> Float[Tensor, "value term"]:
        """B(v) in float64. The sine of period 2 is 0 at each whole number, and is left out.

        Raises:
            TypeError: the shape is PCA, which has no terms.
        """
        if self.kind == "pca":
            raise TypeError(
                "expected a shape with terms, found PCA, which has a direction and no rule for a "
                "value; take kind='helix', 'fourier' or 'polynomial'"
            )
        numbers = values.double()
        scaled = (2 * numbers - (self.low + self.high)) / max(1, self.high - self.low)
        if self.kind == "polynomial":
            columns = [scaled**power for power in range(1, self.k + 1)]
        else:
            columns = []
            for period in self.periods:
                angle = 2 * torch.pi * numbers / period
                columns += [angle.cos()] if period == 2 else [angle.cos(), angle.sin()]
            if self.kind == "helix" and self.linear:
                columns.append(scaled)
        return torch.stack(columns, dim=1)

    def design(self, values: Int[Tensor, " value"]) -> Float[Tensor, "value one_and_term"]:
        """A constant and the terms."""
        terms = self.terms(values)
        return torch.cat([torch.ones(len(terms), 1, dtype=terms.dtype), terms], dim=1)

    def weights(
        self, values: Int[Tensor, " value"], means: Float[Tensor, "value width"]
    ) -> Float[Tensor, "one_and_term width"]:
        """The least-squares fit of class means, in float64."""
        return torch.linalg.lstsq(self.design(values), means.double(), driver="gelsd").solution

    def basis(
        self, values: Int[Tensor, " value"], means: Float[Tensor, "value width"]
    ) -> Float[Tensor, "width k"]:
        """An orthonormal basis of the directions of the fit, the largest first."""
        if self.kind == "pca":
            return principal_directions(means, self.k)
        return orthonormal_rows(self.weights(values, means)[1:])

    def __str__(self) -> str:
        if self.kind == "pca":
            return f"pca {self.k}"
        if self.kind == "polynomial":
            return "line" if self.k == 1 else f"polynomial {self.k}"
        periods = ", ".join(f"{period:g}" for period in self.periods)
        line = " and line" if self.kind == "helix" and self.linear else ""
        return f"waves {periods}{line}" if periods else "line"


def principal_directions(
    means: Float[Tensor, "value width"], k: int
) -> Float[Tensor, "width directions"]:
    """At most `k` directions in which the class means differ most."""
    return orthonormal_rows(means.double() - means.double().mean(0))[:, :k]


def orthonormal_rows(rows: Float[Tensor, "row width"]) -> Float[Tensor, "width rank"]:
    """An orthonormal basis of what the rows span."""
    _, sizes, vectors = torch.linalg.svd(rows.double(), full_matrices=False)
    return vectors[sizes > RANK * sizes.max().clamp(min=1e-30)].T


def checked_shape(
    kind: str, periods: Sequence[float | int], linear: bool, k: int | None, values: Sequence[int]
) -> Shape:
    """The shape, if its number of directions can be told from a table of these values.

    Raises:
        ValueError: an unknown kind, periods below 2, no direction, or too many.
    """
    check_choice("kind", kind, KINDS)
    if isinstance(periods, str) or not isinstance(periods, Sequence):
        raise ValueError(f"expected a list of periods, found {periods!r}; give periods=(10, 5)")
    if not all(isinstance(one, int | float) and 2 <= one < math.inf for one in periods) or (
        len({*periods}) < len(periods)
    ):
        raise ValueError(
            f"expected different periods of 2 or more, found {tuple(periods)}; whole "
            "numbers cannot tell a shorter period from a longer one"
        )
    if k is not None and (not isinstance(k, int) or isinstance(k, bool)):
        raise ValueError(f"expected k as a whole number, found {k!r}; give k=2")
    chosen = tuple(float(period) for period in periods)
    waves = Shape("helix", chosen, linear)
    if kind in ("helix", "fourier"):
        shape = Shape(kind, chosen, linear, 0, min(values), max(values))
    else:
        size = waves.n_terms if k is None else k
        shape = Shape(kind, (), False, size, min(values), max(values))
    most = (len(values) - 1) / 2
    if most < 1:
        raise ValueError(
            f"expected three values or more, found {[*values]}; give pairs of more operands, such "
            "as two-digit ones for the tens digit"
        )
    if not 1 <= shape.n_terms <= most:
        raise ValueError(
            f"expected 1 to {most:g} directions for {len(values)} values, k of at most (n - 1) / "
            f"2, found {shape.n_terms} of {shape}: the class means lie in {len(values) - 1} "
            "dimensions, and a shape with more than half of them fits almost any order of the "
            "values; give fewer periods, linear=False or a smaller k, or pairs with more values"
        )
    return shape
