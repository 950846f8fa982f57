"""`mediation_overlap`: do the directions that show a number also decide the answer?

A shape is fitted to what the state shows: its subspace *reads* the number. The subspace that
*mediates* is found without a shape, by a search for the directions whose exchange changes the
answer. Two subspaces of a small space are never far apart, so their angle needs a chance level.
"""

import random
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.interchanges import SiteRuns, swapped
from arith_lens.interchanges.spaces import FitData, das_basis
from arith_lens.model import HookedLike
from arith_lens.numbers.shapes import principal_directions
from arith_lens.numbers.subspace import NumberSpace, check_space
from arith_lens.numbers.swap import swap_runs, swap_tests
from arith_lens.pairs import PromptPairs
from arith_lens.statistics import permutation_p_value

OVERLAP, P_VALUE = "overlap", "p of permuted labels"
LABELS, SPAN = "overlap, labels permuted", "overlap, random in the span"
SMALLEST, LARGEST = "smallest angle, degrees", "largest angle, degrees"
AGREEMENT, SWAPPED = "overlap of two searches", "swaps in the mediating directions"
MEASURES = (OVERLAP, P_VALUE, LABELS, SPAN, SMALLEST, LARGEST, AGREEMENT, SWAPPED)


def mediation_overlap(
    model: HookedLike,
    pairs: PromptPairs,
    space: NumberSpace,
    *,
    n: int = 150,
    permutations: int = 999,
    seed: int = 0,
) -> Effects:
    """Compare the subspace of a shape with the one that decides the answer (not in the paper).

    The mediating subspace has as many directions as the shape. It is found by DAS on swaps of the
    value between fitted problems: the directions whose exchange makes the source's value the
    answer. The overlap is the mean squared cosine of the principal angles: 1 for the same
    subspace, 0 for orthogonal ones. Beside it are the same shape fitted with permuted labels,
    random subspaces of the span of the class means, and a second search, which says how well the
    mediating subspace is determined at all. Read an overlap only where swaps in the mediating
    directions follow on other problems: in a saturated model the search finds nothing.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: the pairs that `space` was fitted on.
        space: of `number_subspace`, at END.
        n: the most swaps of the search, and of its test on the other half.
        permutations: of the labels, and random subspaces.
        seed: of all draws.

    Returns:
        [measure 1]; the measures are `MEASURES`.

    Raises:
        ValueError: the subspace is at an operand's token; n or permutations are below 1; no
            problems differ in the value alone.
        UnsupportedEndRuns: the model cannot be run at END alone.
    """
    check_space(model, pairs, space)
    if not space.site.is_end:
        raise ValueError(
            f"expected a subspace at END, found one at {space.site}; a search needs gradients "
            "through runs of END alone"
        )
    for number, what in ((n, "n"), (permutations, "permutations")):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"expected {what} of at least 1, found {number!r}; give 150")
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    fitted = space.is_fitted(pairs)
    data = _fit_data(model, pairs[fitted], space, n, rng)
    mediating, second = (das_basis(data, space.k, generator).cpu() for _ in range(2))
    own = _overlap(space.basis, mediating)
    null = torch.stack(
        [_overlap(_relabelled(space, generator), mediating) for _ in range(permutations)]
    )
    span = principal_directions(space.means, len(space.values) - 1)
    draws = (torch.randn(span.shape[1], space.k, generator=generator) for _ in range(permutations))
    inside = [_overlap(torch.linalg.qr(span @ one.double())[0], mediating) for one in draws]
    cosines = torch.linalg.svdvals(space.basis.T @ mediating).clamp(max=1)
    angles = cosines.acos().rad2deg()
    measured = [
        own,
        permutation_p_value(null, own),
        null.mean(),
        torch.stack(inside).mean(),
        angles.min(),
        angles.max(),
        _overlap(second, mediating),
        _swapped(model, pairs[~fitted], space, mediating, n, rng),
    ]
    return Effects(
        torch.stack(measured).float()[:, None],
        ("measure",),
        metric=f"mediation overlap of {space.shape} at {space.site}",
        labels={"measure": MEASURES},
    )


def _overlap(
    first: Float[Tensor, "width k"], second: Float[Tensor, "width j"]
) -> Float[Tensor, ""]:
    """The mean squared cosine of the principal angles."""
    return (first.T @ second).square().sum() / min(first.shape[1], second.shape[1])


def _relabelled(space: NumberSpace, generator: torch.Generator) -> Float[Tensor, "width k"]:
    """The subspace of the same fit with the values in another order; of PCA a random order too."""
    order = torch.randperm(len(space.values), generator=generator)
    return space.shape.basis(space.values[order], space.means)


def _fit_data(
    model: HookedLike, pairs: PromptPairs, space: NumberSpace, n: int, rng: random.Random
) -> FitData:
    """Swaps of the value between fitted problems, for the search."""
    test = swap_tests(pairs, space, n, rng)
    runs: list[SiteRuns] = [one for _, one in swap_runs(model, pairs, space, test)]
    expected = torch.tensor(test.expected)
    none = torch.zeros(len(expected), 2, dtype=torch.long)
    return FitData(runs, expected, pairs.answer[test.rows], none)


def _swapped(
    model: HookedLike,
    pairs: PromptPairs,
    space: NumberSpace,
    basis: Float[Tensor, "width k"],
    n: int,
    rng: random.Random,
) -> Float[Tensor, ""]:
    """The share of swaps of other problems that follow, if these directions are exchanged."""
    searched = replace(space, basis=basis)
    test = swap_tests(pairs, searched, n, rng)
    expected, right = torch.tensor(test.expected), []
    for rows, runs in swap_runs(model, pairs, searched, test):
        states = swapped(runs.base, runs.source, basis)[None]
        right.append(runs.answers(states)[0] == expected[rows])
    return torch.cat(right).double().mean()
