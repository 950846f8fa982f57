"""The operations of one training step that no implementation can do without, by method.

Matrix products alone, two operations a multiplication and addition, attention's scores without
regard to causality, as libraries compute them. The forward is the same for all. In the backward,
gradients flow as inputs' gradients from the loss down to the lowest trained matrix and no further,
and weights have gradients only where they are trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from arith_lens import Head, Mlp
from experiments.benchmark.shapes import Shape


@dataclass(frozen=True)
class Work:
    """FLOPs of one step: its forward, its inputs' gradients and its weights' gradients."""

    forward: int
    inputs: int
    weights: int

    @property
    def total(self) -> int:
        return self.forward + self.inputs + self.weights


def full(shape: Shape) -> Work:
    """Every matrix is trained, and the embeddings below the first layer."""
    linear = _per_element(shape) * (shape.n_layers * _layer(shape) + _head(shape))
    scores = shape.n_layers * _product(shape)
    return Work(linear + 2 * scores, linear + 4 * scores, linear)


def precise(shape: Shape, heads: Sequence[Head], mlps: Sequence[Mlp] = ()) -> Work:
    """Chosen heads' slices of four matrices, and MLPs whole.

    In the lowest tuned layer the gradient goes through W_O and attention to Q, K and V, whose
    inputs want none; where an MLP alone is tuned there, it goes through the MLP's last matrix.
    """
    lowest = min(component.layer for component in (*heads, *mlps))
    above = shape.n_layers - 1 - lowest
    through = above * _layer(shape) + _head(shape) + shape.d_model * shape.d_mlp
    scores = above * _product(shape)
    if any(head.layer == lowest for head in heads):
        through += 2 * shape.d_model * shape.d_mlp + shape.d_model**2
        scores += _product(shape)
    d_head = shape.d_model // shape.n_heads
    tuned = len(set(heads)) * 4 * d_head * shape.d_model
    tuned += len(set(mlps)) * 3 * shape.d_model * shape.d_mlp
    per = _per_element(shape)
    return Work(full(shape).forward, per * through + 4 * scores, per * tuned)


def lora(shape: Shape, rank: int) -> Work:
    """Adapters of all four attention matrices in every layer; the embeddings want no gradient."""
    adapters = shape.n_layers * 4 * 2 * rank * shape.d_model
    first = 3 * shape.d_model**2 + 3 * rank * shape.d_model  # Q, K, V of layer 0 and their A
    whole, per = full(shape), _per_element(shape)
    return Work(
        whole.forward + per * adapters, whole.inputs + per * (adapters - first), per * adapters
    )


def _per_element(shape: Shape) -> int:
    """Of one number of a matrix, for all tokens."""
    return 2 * shape.n_pairs * shape.n_tokens


def _layer(shape: Shape) -> int:
    return 4 * shape.d_model**2 + 3 * shape.d_model * shape.d_mlp


def _head(shape: Shape) -> int:
    return shape.d_model * shape.d_vocab


def _product(shape: Shape) -> int:
    """One of attention's products, such as scores from queries and keys."""
    return 2 * shape.n_pairs * shape.n_tokens**2 * shape.d_model
