"""The carry of built models: what is true by construction, and what a swap says of it."""

import functools

import pytest
import torch

import arith_lens as al
from arith_lens.interchanges import Interchange, InterchangePairs, projections
from arith_lens.model import HookedModel
from experiments.built_carries import SITES, built_pairs

CONTROLS = ("everything but", "random in the span", "variable shuffled")


@functools.cache
def drawn(name: str) -> tuple[HookedModel, InterchangePairs]:
    built, rotation = ("carry", 0) if name == "rotated" else (name, None)
    model = al.built_model(built, n=2, rotation=rotation).model
    return model, built_pairs(model, n=120)


@functools.cache
def exchanged(name: str) -> Interchange:
    model, pairs = drawn(name)
    return al.interchange(model, pairs, SITES)


def share(name: str, layer: int, space: str) -> float:
    result = exchanged(name)
    return float(result.iia[layer, result.spaces.index(space)])


@pytest.mark.parametrize("name", ["carry", "rotated"])
def test_one_direction_has_the_carry_where_it_was_built(name: str) -> None:
    assert [share(name, layer, "whole") for layer in range(3)] == [1, 1, 1]
    assert [share(name, layer, "mean") for layer in range(3)] == [0, 1, 0]
    assert [share(name, layer, "written") for layer in range(3)] == [0, 1, 0]
    assert max(share(name, 1, control) for control in CONTROLS) <= 0.05
    assert share(name, 2, "everything but") == 1  # the answer is written, and the carry is not read


def test_the_built_number_is_the_carry_and_the_direction_is_near_it() -> None:
    """The carry has a channel of its own. The ones digits, which stay, differ with it a little."""
    model, pairs = drawn("carry")
    channel = al.built_model("carry", n=2).truth.circuit.slots["carry"].start
    axis = torch.eye(model.d_model)[:, [channel]]
    read = projections(model, pairs, SITES[1], axis)
    assert torch.allclose(read, 2.0 * pairs.values.T - 1, atol=1e-5)
    cosine = float((exchanged("carry").bases[str(SITES[1])].float().T @ axis).abs())
    assert 0.9 < cosine < 0.999


def test_a_carry_of_two_numbers_is_no_direction() -> None:
    """The same test can fail: the carry is there, and most of it is outside the direction."""
    assert share("carry_plane", 1, "whole") == 1
    assert share("carry_plane", 1, "mean") == 0 and share("carry_plane", 1, "written") == 0
    assert share("carry_plane", 1, "everything but") > 0.5


def test_both_numbers_together_have_it() -> None:
    """PCA of what the MLP of layer 1 writes, which is nothing else."""
    model, pairs = drawn("carry_plane")
    options = {"space": "pca", "controls": False}
    one, two = (al.interchange(model, pairs, al.Mlp(1), k=k, **options).iia[0, 1] for k in (1, 2))
    assert float(two) == 1 and float(one) < 0.7
