"""`number_subspace`: fit a shape to the means of a model's state by the value of a number."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arith_lens.components import resid_post_name
from arith_lens.interchanges import Site
from arith_lens.model import HookedLike
from arith_lens.numbers.shapes import Shape, checked_shape
from arith_lens.numbers.values import (
    check_value,
    class_means,
    rests_of,
    site_of,
    states_of,
    values_of,
)
from arith_lens.options import refuse_unknown_options, value_object
from arith_lens.pairs import PromptPairs, Role


@dataclass(frozen=True)
class Fit:
    """What is rarely said of a fit."""

    k: int | None = None
    """The number of directions of `"pca"` and the degree of `"polynomial"`; None: as many as the
    helix of these periods has."""
    seed: int = 0
    """Of the halves of the problems."""


class FitOptions(TypedDict, total=False):
    """The fields of `Fit`, as keyword arguments."""

    k: int | None
    seed: int


@dataclass(frozen=True, eq=False)
class NumberSpace:
    """A shape that was fitted to the class means at one place of a model."""

    site: Site
    """The stream at the exit of a layer, at one token."""
    value: str
    """The number: `a`, `b`, `answer`, or a digit of an operand."""
    shape: Shape
    values: Int[Tensor, " value"]
    """The values that have a class mean, in order."""
    means: Float[Tensor, "value width"]
    """The class means M of the fitted half, in float64."""
    basis: Float[Tensor, "width k"]
    """Q: the orthonormal basis of the fit's directions."""
    fitted: frozenset[str]
    """The problems of the fitted half."""

    @property
    def k(self) -> int:
        """The number of directions."""
        return self.basis.shape[1]

    @property
    def weights(self) -> Float[Tensor, "one_and_term width"]:
        """W: the constant's row, then one row for each term."""
        return self.shape.weights(self.values, self.means)

    def is_fitted(self, pairs: PromptPairs) -> Bool[Tensor, " pair"]:
        """Whether each pair's problem is of the fitted half."""
        return torch.tensor([problem in self.fitted for problem in pairs.problem])

    def __repr__(self) -> str:
        return (
            f"NumberSpace({self.shape}, {self.k} of {self.means.shape[1]} dimensions, for "
            f"{self.value} at {self.site}; {len(self.values)} values)"
        )


def number_subspace(
    model: HookedLike,
    pairs: PromptPairs,
    layer: int,
    at: Role | str,
    value: str = "a",
    kind: str = "helix",
    periods: Sequence[float | int] = (10, 5),
    linear: bool = True,
    **options: Unpack[FitOptions],
) -> NumberSpace:
    """Fit a shape to the class means of a number in the residual stream (not in the paper).

    The class means M have one row for each value: the mean of the stream over the reference prompts
    of one half of the problems, with wording and other operand held equal (a fit of their sums; the
    plain mean where each value comes with all others). The shape is W = lstsq([1, B(v)], M) in
    float64, and the subspace is what the rows of W but the constant's span.

    Args:
        model: HookedModel or TransformerBridge.
        pairs: of `sample_pairs`; only reference prompts are read.
        layer: the stream is read at this layer's exit, counted from 0.
        at: `"end"`, or the `Role` of an operand, whose number must be one token there.
        value: `"a"`, `"b"`, `"answer"`, or one digit: `"a_ones"`, `"a_tens"`, `"b_ones"`,
            `"b_tens"`.
        kind: `"helix"`: waves of the periods, and the value itself if `linear`; `"fourier"`: waves
            alone; `"polynomial"`; `"pca"`: the directions in which class means differ most.
        periods: of the waves, 2 or more.
        linear: whether a helix has the value itself.
        k: directions of `"pca"`, or degree of `"polynomial"`; None: as many as the helix has.
        seed: of the halves of the problems.

    Returns:
        The subspace. It has at most the number of directions that was asked for: fewer if a term
        has no part in the class means.

    Raises:
        ValueError: an unknown choice; more than (n - 1) / 2 directions for n values; pairs without
            operands; a number of several tokens.
        IndexError: the model does not have this layer, or nothing reads this token after it.
    """
    refuse_unknown_options(number_subspace, options, Fit)
    fit = value_object(Fit, options)
    check_value(model, pairs, value)
    site = site_of(model, pairs, layer, at, value)
    numbers = values_of(pairs, value)
    shape = checked_shape(kind, periods, linear, fit.k, numbers.unique().tolist())
    fitted = _first_half(pairs, numbers, fit.seed)
    half = torch.tensor([problem in fitted for problem in pairs.problem])
    name = resid_post_name(layer)
    states, known = states_of(model, pairs[half], [name], site)[:, 0], numbers[half]
    classes = known.unique()
    means = class_means(states, known, classes, rests_of(pairs[half], value))
    return NumberSpace(site, value, shape, classes, means, shape.basis(classes, means), fitted)


def check_space(model: HookedLike, pairs: PromptPairs, space: NumberSpace) -> None:
    """Check that a subspace is of this model and of these pairs.

    Raises:
        TypeError: no NumberSpace, or no PromptPairs.
        ValueError: a subspace of a stream of another width, or of other problems.
    """
    if not isinstance(space, NumberSpace):
        raise TypeError(
            f"expected a subspace of number_subspace, found {type(space).__name__}; fit one first"
        )
    check_value(model, pairs, space.value)
    if len(space.basis) != int(model.cfg.d_model):
        raise ValueError(
            f"expected a subspace of the model's {model.cfg.d_model} dimensions, found one of "
            f"{len(space.basis)}; fit it on this model"
        )
    if not bool(space.is_fitted(pairs).any()):
        raise ValueError(
            "expected the pairs that the subspace was fitted on, found none of its problems; give "
            "swap_values the pairs of number_subspace"
        )


def _first_half(pairs: PromptPairs, numbers: Int[Tensor, " pair"], seed: int) -> frozenset[str]:
    """Half of the problems with each value, and the only one where there is one."""
    by_value: dict[int, set[str]] = {}
    for problem, number in zip(pairs.problem, numbers.tolist(), strict=True):
        by_value.setdefault(number, set()).add(problem)
    rng = random.Random(seed)
    chosen: set[str] = set()
    for number in sorted(by_value):
        problems = sorted(by_value[number])
        rng.shuffle(problems)
        chosen |= {*problems[: (len(problems) + 1) // 2]}
    return frozenset(chosen)
