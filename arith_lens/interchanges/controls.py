"""Controls of an interchange: what else is exchanged or written at the same site."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.interchanges.spaces import FitData, fitted_basis, principal_directions

COMPLEMENT = "everything but"
SPAN = "random in the span"
SHUFFLED = "variable shuffled"
ELSEWHERE = "of another site"
STREAM = "random (cannot fail)"
WRITE = "written"
WRITE_SPAN = "random in the span, written"
CONTROLS = (COMPLEMENT, SPAN, SHUFFLED, ELSEWHERE, STREAM)
"""The controls of every subspace."""
WRITES = (WRITE, WRITE_SPAN)
"""Of one direction and a variable of two values: no source is used."""
SPAN_SIZE, DRAWS = 8, 5
"""Directions of the differences that random ones are drawn from, beside the subspace itself; random
draws of each kind, over which a pair's result is averaged."""


@dataclass(frozen=True, eq=False)
class FittedSite:
    """The subspaces of one site, all of them fitted on the same pairs."""

    basis: Float[Tensor, "width k"] | None
    shuffled: Float[Tensor, "width k"] | None
    span: tuple[Float[Tensor, "width k"], ...]
    stream: tuple[Float[Tensor, "width k"], ...]
    length: float
    """The mean change of the projection on the first direction between two values."""

    @classmethod
    def of(
        cls, data: FitData, space: str, k: int, controls: bool, generator: torch.Generator
    ) -> "FittedSite":
        """Fit the subspace and those of its controls."""
        basis = fitted_basis(data, space, k, generator)
        if basis is None:
            return cls(None, None, (), (), 0.0)
        moved = data.differences @ basis[:, 0].to(data.differences)
        length = float(moved.mean())
        if length < 0:  # a basis of DAS or PCA has no sign of its own
            basis, length = -basis, -length
        if not controls:
            return cls(basis, None, (), (), length)
        # PCA reads no values, so that shuffling them would change nothing
        other = (
            None if space == "pca" else fitted_basis(data.shuffled(generator), space, k, generator)
        )
        width, k = basis.shape
        span = principal_directions(data.differences, SPAN_SIZE + k)
        span = orthogonal_part(span.to(basis), basis)
        return cls(
            basis=basis,
            shuffled=other,
            span=tuple(
                _orthonormal(span @ _normal(span.shape[1], k, generator).to(span))
                for _ in range(DRAWS)
            ),
            stream=tuple(_orthonormal(_normal(width, k, generator).to(span)) for _ in range(DRAWS)),
            length=length,
        )


def orthogonal_part(
    rows: Float[Tensor, "width row"], basis: Float[Tensor, "width k"]
) -> Float[Tensor, "width left"]:
    """An orthonormal basis of what the columns have beside the subspace."""
    left = rows - basis @ (basis.T @ rows)
    vectors, sizes, _ = torch.linalg.svd(left, full_matrices=False)
    return vectors[:, sizes > 1e-9 * sizes.max().clamp(min=1e-30)]


def _orthonormal(rows: Float[Tensor, "width k"]) -> Float[Tensor, "width k"]:
    return torch.linalg.qr(rows)[0]


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)
