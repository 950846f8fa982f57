"""Subspaces of a site: how they are fitted, and what is exchanged within them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from arith_lens.interchanges.runs import SiteRuns

SPACES = ("whole", "mean", "pca", "das")


@dataclass(frozen=True, eq=False)
class FitData:
    """One site on the pairs on which subspaces are fitted."""

    runs: Sequence[SiteRuns]
    """Batch by batch."""
    expected: Int[Tensor, " pair"]
    own: Int[Tensor, " pair"]
    """The base's own answer."""
    values: Int[Tensor, "pair base_source=2"]

    @property
    def base(self) -> Float[Tensor, "pair width"]:
        return torch.cat([run.base for run in self.runs])

    @property
    def source(self) -> Float[Tensor, "pair width"]:
        return torch.cat([run.source for run in self.runs])

    @property
    def differences(self) -> Float[Tensor, "pair width"]:
        """From the lower value to the higher one, in float64."""
        sign = (self.values[:, 1] - self.values[:, 0]).sign().to(self.base.device)
        return (self.source - self.base).double() * sign[:, None]

    def shuffled(self, generator: torch.Generator) -> "FitData":
        """The same pairs, with the variable's values permuted among the problems."""
        both = self.values.flatten()
        values = both[torch.randperm(len(both), generator=generator)].view(-1, 2)
        keeps = values[:, 0] == values[:, 1]
        expected = torch.where(keeps, self.own, self.expected)
        return FitData(self.runs, expected, self.own, values)


def swapped(
    base: Float[Tensor, "pair width"],
    source: Float[Tensor, "pair width"],
    basis: Float[Tensor, "width k"] | None,
) -> Float[Tensor, "pair width"]:
    """The base's values, with the source's in the subspace; None: everywhere."""
    if basis is None:
        return source
    basis = basis.to(base)
    return base + (source - base) @ basis @ basis.T


def without(
    base: Float[Tensor, "pair width"],
    source: Float[Tensor, "pair width"],
    basis: Float[Tensor, "width k"],
) -> Float[Tensor, "pair width"]:
    """The source's values, with the base's in the subspace."""
    return swapped(source, base, basis)


def written(
    base: Float[Tensor, "pair width"],
    direction: Float[Tensor, "width 1"],
    length: float,
    value: Int[Tensor, " pair"],
) -> Float[Tensor, "pair width"]:
    """The base's values moved along a direction, up where its variable is 0 and down where it is 1.

    The source is not used.
    """
    step = length * (1 - 2 * value).to(base)
    return base + step[:, None] * direction.to(base)[:, 0]


def fitted_basis(
    data: FitData, space: str, k: int, generator: torch.Generator
) -> Float[Tensor, "width k"] | None:
    """An orthonormal basis of the subspace that the pairs show; None for the whole space."""
    if space == "whole":
        return None
    if space == "mean":
        return mean_direction(data)
    if space == "pca":
        return principal_directions(data.differences, k)
    return das_basis(data, k, generator)


def mean_direction(data: FitData) -> Float[Tensor, "width 1"]:
    """The mean of the states with value 1 less the mean of those with value 0, of length 1."""
    states = torch.cat([data.base, data.source]).double()
    values = torch.cat([data.values[:, 0], data.values[:, 1]]).to(states.device)
    high = values == values.max()
    difference = states[high].mean(0) - states[~high].mean(0)
    return (difference / difference.norm().clamp(min=torch.finfo(torch.float64).tiny))[:, None]


def principal_directions(
    rows: Float[Tensor, "row width"], k: int
) -> Float[Tensor, "width directions"]:
    """At most `k` directions in which the rows are largest, about zero."""
    return torch.linalg.svd(rows.double(), full_matrices=False).Vh[:k].T


STEPS, CHECKED_EACH, PATIENCE, RATE = 300, 20, 4, 0.02
"""Of the search: steps, steps between checks, checks without progress before it ends, step size."""


def das_basis(data: FitData, k: int, generator: torch.Generator) -> Float[Tensor, "width k"]:
    """The subspace whose exchange makes the expected answers most likely (DAS, Geiger et al. 2024).

    Gradient steps change a matrix [width k], whose QR decomposition is the basis. Every fifth pair
    is not fitted; the basis with the lowest loss on these is returned.
    """
    width = data.base.shape[1]
    start = torch.randn(width, k, generator=generator, dtype=torch.float64)
    matrix = start.to(data.base.device, torch.float32).requires_grad_()
    optimiser = torch.optim.Adam([matrix], lr=RATE)
    batches = _batches(data)
    held = [(run, expected, _every_fifth(len(expected))) for run, expected in batches]
    best, best_loss, waits = torch.linalg.qr(matrix.detach())[0], float("inf"), 0
    for step in range(STEPS):
        run, expected, hidden = held[step % len(held)]
        with torch.enable_grad():
            basis = torch.linalg.qr(matrix)[0]
            loss = _loss(run, expected, basis, ~hidden)
            (matrix.grad,) = torch.autograd.grad(loss, matrix)
        optimiser.step()
        if (step + 1) % CHECKED_EACH:
            continue
        basis = torch.linalg.qr(matrix.detach())[0]
        with torch.no_grad():
            now = sum(float(_loss(*one[:2], basis, one[2])) for one in held)
        if now < best_loss:
            best, best_loss, waits = basis, now, 0
        elif (waits := waits + 1) >= PATIENCE:
            break
    return best.double()


def _batches(data: FitData) -> list[tuple[SiteRuns, Tensor]]:
    sizes = [len(run.base) for run in data.runs]
    return list(zip(data.runs, data.expected.split(sizes), strict=True))


def _every_fifth(n: int) -> Bool[Tensor, " pair"]:
    """All of them if there are fewer than five."""
    return torch.arange(n) % 5 == 4 if n >= 5 else torch.ones(n, dtype=torch.bool)


def _loss(
    run: SiteRuns, expected: Int[Tensor, " pair"], basis: Tensor, rows: Bool[Tensor, " pair"]
) -> Tensor:
    logits = run.logits(swapped(run.base, run.source, basis)[None])[0].float()
    chosen = (rows if bool(rows.any()) else ~rows).to(logits.device)
    return cross_entropy(logits[chosen], expected.to(logits.device)[chosen])
