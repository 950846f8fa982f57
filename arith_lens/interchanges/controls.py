"""Controls of an interchange: what else is exchanged or written at the same site."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.interchanges.spaces import FitData, fitted_basis, principal_directions

COMPLEMENT = "everything but"
VARIANCE = "largest variance (no values)"
SPAN = "random in the span"
SHUFFLED = "variable shuffled"
ELSEWHERE = "of another site"
STREAM = "random (cannot fail)"
WRITE = "written"
WRITE_SPAN = "random in the span, written"
CONTROLS = (COMPLEMENT, VARIANCE, SPAN, SHUFFLED, ELSEWHERE, STREAM)
"""The controls of every subspace."""
WRITES = (WRITE, WRITE_SPAN)
"""Of one direction and a variable of two values: no source is used."""
RANDOM = (SHUFFLED, SPAN, STREAM, WRITE_SPAN)
"""The controls with a random part, of which there are several draws."""
SPAN_SIZE = 8
"""Directions of the differences that random ones are drawn from, beside the subspace itself."""


@dataclass(frozen=True, eq=False)
class FittedSite:
    """The subspaces of one site, all of them fitted on the same pairs."""

    basis: Float[Tensor, "width k"] | None
    length: float
    """The mean change of the projection on the first direction between two values."""
    controls: Mapping[str, tuple[Float[Tensor, "width k"], ...]] = field(default_factory=dict)
    """By name, the subspace of each draw of a control; one draw of what has no random part."""

    @classmethod
    def of(
        cls, data: FitData, space: str, k: int, draws: int, generator: torch.Generator
    ) -> "FittedSite":
        """Fit the subspace and those of its controls, with so many draws; 0: without controls."""
        basis = fitted_basis(data, space, k, generator)
        if basis is None:
            return cls(None, 0.0)
        moved = data.differences @ basis[:, 0].to(data.differences)
        length = float(moved.mean())
        if length < 0:  # a basis of DAS or PCA has no sign of its own
            basis, length = -basis, -length
        if not draws:
            return cls(basis, length)
        width, k = basis.shape
        span = principal_directions(data.differences, SPAN_SIZE + k)
        span = orthogonal_part(span.to(basis), basis)
        states = torch.cat([data.base, data.source]).double()
        controls = {
            VARIANCE: [principal_directions(states - states.mean(0), k)],
            # PCA reads no values, so that shuffling them would change nothing
            SHUFFLED: [
                one
                for _ in range(draws if space != "pca" else 0)
                if (one := fitted_basis(data.shuffled(generator), space, k, generator)) is not None
            ],
            SPAN: [
                _orthonormal(span @ _normal(span.shape[1], k, generator).to(span))
                for _ in range(draws)
            ],
            STREAM: [_orthonormal(_normal(width, k, generator).to(span)) for _ in range(draws)],
        }
        return cls(basis, length, {name: tuple(bases) for name, bases in controls.items()})


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
