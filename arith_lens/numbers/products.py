"""`number_products`: does the state at END hold products of A's terms and B's terms?

A state that holds A and B side by side is a sum: one part for A, one for B. A calculation joins
them. So the means over cells A x B are compared with the best sum, and what the sum leaves is
compared with products B(A) B(B) of the terms of a shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arith_lens.effects import Effects
from arith_lens.model import HookedLike
from arith_lens.numbers.shapes import RANK, Shape, checked_shape
from arith_lens.numbers.values import (
    STATE_NAMES,
    check_means,
    check_value,
    class_means,
    states_of,
    values_of,
)
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs
from arith_lens.statistics import permutation_p_value

F_RATIO, P_VALUE = "F of the products", "p, B permuted within A"
JOINED = "share of the variance that no sum has"
EXPLAINED, PERMUTED = "share of it in the products", "the same, values permuted"
P_SHAPE = "p, values permuted"
MEASURES = (JOINED, F_RATIO, P_VALUE, EXPLAINED, PERMUTED, P_SHAPE)


@dataclass(frozen=True)
class ProductNulls:
    """The shape of the products, and their nulls."""

    k: int | None = None
    """The degree of `"polynomial"`; None: as many terms as the helix of these periods has."""
    permutations: int = 999
    """Permutations of each null."""
    seed: int = 0
    """Of the permutations."""


class ProductOptions(TypedDict, total=False):
    """The fields of `ProductNulls`, as keyword arguments."""

    k: int | None
    permutations: int
    seed: int


def number_products(
    model: HookedLike,
    pairs: PromptPairs,
    of: str = "stream",
    kind: str = "fourier",
    periods: Sequence[float | int] = (10,),
    linear: bool = True,
    **options: Unpack[ProductOptions],
) -> Effects:
    """Test whether END holds products of the terms of A and of B (not in the paper).

    The means at END have one row for each cell A x B, with the wording held equal. They are fitted
    by one part for each A and one for each B; the rest is what A and B have only together. The
    products of each term of A with each term of B are fitted to this rest.

    Two nulls, because they answer two questions. *B permuted within A*: the rests of the sum change
    places among the cells of one A, and F is computed again; a small p says that the rest has an
    order that these products see. *Values permuted*: the products of the same shape with the values
    in another order, the same for A and for B; a small p says that it is this shape and no other.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: of `sample_pairs`; only reference prompts are read, all of them.
        of: `"stream"`, at each layer's exit; `"heads"`, z of each head; `"mlps"`, what each adds.
        kind: `"fourier"`, `"helix"` or `"polynomial"`, as in `number_subspace`.
        periods: of the waves.
        linear: whether a helix has the value itself.
        k: degree of `"polynomial"`.
        permutations: of each null.
        seed: of the permutations.

    Returns:
        [layer measure 1], with heads [layer head measure 1]. The measures are `MEASURES`.

    Raises:
        ValueError: an unknown choice; PCA, which has no terms; several operations; too few cells.
    """
    refuse_unknown_options(number_products, options, ProductNulls)
    settings = value_object(ProductNulls, options)
    check_means(of, STATE_NAMES, settings.permutations)
    if kind == "pca":
        raise ValueError("expected a shape with terms, found 'pca'; take kind='fourier'")
    check_value(model, pairs, "a")
    operations = sorted({*(pairs.operation or ())})
    if len(operations) > 1:
        raise ValueError(
            f"expected pairs of one operation, found {', '.join(operations)}; test each alone"
        )
    a, b = values_of(pairs, "a"), values_of(pairs, "b")
    shapes = tuple(
        checked_shape(kind, periods, linear, settings.k, one.unique().tolist()) for one in (a, b)
    )
    cells, index = torch.stack([a, b], 1).unique(dim=0, return_inverse=True)
    design = _Designs.of(cells, shapes)
    wordings = [(name,) for name in pairs.template or ("",) * len(pairs)]
    states = states_of(model, pairs, of)
    means = class_means(states, index, torch.arange(len(cells)), wordings).movedim(0, -2)
    places = means.flatten(0, -3)
    nulls = design.nulls(settings)
    tested = torch.stack([design.test(one, nulls) for one in places])
    axes = ("layer", "head") if of == "heads" else ("layer",)
    return Effects(
        tested.unflatten(0, means.shape[:-2]).float()[..., None],
        (*axes, "measure"),
        metric=f"products of {shapes[0]} in {of} at end",
        labels={"measure": MEASURES},
    )


@dataclass(frozen=True, eq=False)
class _Designs:
    """What the sums can fit, and what the products can fit of the rest."""

    cells: Int[Tensor, "cell 2"]
    sums: Float[Tensor, "cell sum"]
    """An orthonormal basis of all sums of a part for A and a part for B."""
    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, cells: Int[Tensor, "cell 2"], shapes: tuple[Shape, ...]) -> "_Designs":
        """The designs, if the cells can tell them apart."""
        parts = [(column[:, None] == column.unique()).double() for column in cells.T]
        design = cls(cells, _orthonormal(torch.cat(parts, 1)), shapes)
        left = len(cells) - design.sums.shape[1]
        n_products = design.products(*cells.T).shape[1]
        if n_products < 1 or n_products >= left:
            raise ValueError(
                f"expected more cells A x B than {design.sums.shape[1]} sums and {n_products} "
                f"products, found {len(cells)}; give fewer periods, or pairs of more operands"
            )
        return design

    def products(
        self, a: Int[Tensor, " cell"], b: Int[Tensor, " cell"]
    ) -> Float[Tensor, "cell product"]:
        """An orthonormal basis of the products, without their part in the sums."""
        first, second = (shape.terms(one) for shape, one in zip(self.shapes, (a, b), strict=True))
        joined = (first[:, :, None] * second[:, None, :]).flatten(1)
        return _orthonormal(joined - self.sums @ (self.sums.T @ joined))

    def nulls(self, settings: ProductNulls) -> "_Nulls":
        """Orders of the cells, and products of other values, the same for all places."""
        generator = torch.Generator().manual_seed(settings.seed)
        orders = [_within(self.cells[:, 0], generator) for _ in range(settings.permutations)]
        values, bases = self.cells.unique(), []
        for _ in range(settings.permutations):
            names = values[torch.randperm(len(values), generator=generator)]
            a, b = (names[torch.searchsorted(values, one.contiguous())] for one in self.cells.T)
            bases.append(self.products(a, b))
        return _Nulls(torch.stack(orders), bases)

    def test(
        self, means: Float[Tensor, "cell width"], nulls: "_Nulls"
    ) -> Float[Tensor, " measure"]:
        """The measures of one place."""
        left, sizes, _ = torch.linalg.svd(means - means.mean(0), full_matrices=False)
        rows = left * sizes  # the same distances in fewer columns
        rest = rows - self.sums @ (self.sums.T @ rows)
        total = _size(rest)
        joined = total / _size(rows).clamp(min=torch.finfo(torch.float64).tiny)
        if float(joined) < RANK:  # the state is a sum, and what is left is rounding
            nothing = torch.zeros((), dtype=torch.float64)
            return torch.stack([joined, nothing, nothing + 1, nothing, nothing, nothing + 1])
        products = self.products(*self.cells.T)
        own, share = self._f_ratio(rest, products), _size(products.T @ rest) / total
        null = self._f_ratio(rest[nulls.orders], products)
        shares = torch.stack([_size(basis.T @ rest) for basis in nulls.bases]) / total
        of_null, of_shares = permutation_p_value(null, own), permutation_p_value(shares, share)
        return torch.stack([joined, own, of_null, share, shares.mean(), of_shares])

    def _f_ratio(
        self, rest: Float[Tensor, "*draw cell width"], products: Float[Tensor, "cell product"]
    ) -> Float[Tensor, "*draw"]:
        """F of the products against what neither they nor the sums fit, over all dimensions."""
        n_sums, n_products = self.sums.shape[1], products.shape[1]
        explained = _size(products.T @ rest)
        left = _size(rest) - _size(self.sums.T @ rest) - explained
        freedom = len(products) - n_sums - n_products
        return (explained / n_products) / (left / freedom).clamp(min=1e-300)


@dataclass(frozen=True, eq=False)
class _Nulls:
    """What the products of one design are compared with."""

    orders: Int[Tensor, "permutation cell"]
    """Cells of one A change places."""
    bases: Sequence[Tensor]
    """The products with the values in other orders, the same for A and B."""


def _orthonormal(columns: Float[Tensor, "cell column"]) -> Float[Tensor, "cell rank"]:
    left, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > RANK * sizes.max().clamp(min=1e-30)]


def _size(rows: Float[Tensor, "*draw row column"]) -> Float[Tensor, "*draw"]:
    return rows.square().sum((-2, -1))


def _within(a: Int[Tensor, " cell"], generator: torch.Generator) -> Int[Tensor, " cell"]:
    """An order of the cells that exchanges cells of one A."""
    order = torch.arange(len(a))
    for value in a.unique():
        rows = (a == value).nonzero().flatten()
        order[rows] = rows[torch.randperm(len(rows), generator=generator)]
    return order
