"""Products of A and B at END by another route, and directions that decide the answer."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import arith_lens as al
from arith_lens.model import HookedModel
from arith_lens.numbers import mediation_overlap, number_products, overlap
from arith_lens.numbers.overlap import MEASURES as OVERLAPS
from arith_lens.numbers.products import MEASURES, _Designs
from arith_lens.numbers.products import ProductNulls as Nulls
from arith_lens.numbers.shapes import Shape
from arith_lens.numbers.swap import swap_tests
from arith_lens.pairs import Role

CELLS = torch.tensor([(a, b) for a in range(1, 9) for b in range(1, 10 - a)])
WAVES = Shape("fourier", (10.0,), False, 0, 1, 8)


def measures(means: Tensor, cells: Tensor = CELLS, shape: Shape = WAVES) -> dict[str, float]:
    design = _Designs.of(cells, (shape, shape))
    values = design.test(means.double(), design.nulls(Nulls(permutations=99))).tolist()
    return dict(zip(MEASURES, values, strict=True))


def noise(seed: int, n: int = len(CELLS), width: int = 6) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)).double()


def parts(seed: int, width: int = 6) -> Tensor:
    """A sum of a part for A and a part for B."""
    rows = noise(seed, 20, width)
    return 5 * rows[CELLS[:, 0]] + 5 * rows[10 + CELLS[:, 1]]


def test_the_f_ratio_is_that_of_two_least_squares_fits() -> None:
    means = parts(0) + noise(1)
    a, b = CELLS.numpy().T
    sums = np.concatenate([a[:, None] == np.arange(1, 9), b[:, None] == np.arange(1, 9)], 1)
    angle = [2 * math.pi * one / 10 for one in (a, b)]
    terms = [np.stack([np.cos(one), np.sin(one)], 1) for one in angle]
    products = (terms[0][:, :, None] * terms[1][:, None]).reshape(len(a), -1)
    left = []
    for design in (sums.astype(float), np.concatenate([sums, products], 1)):
        fitted = design @ np.linalg.lstsq(design, means.numpy(), rcond=None)[0]
        left.append(((means.numpy() - fitted) ** 2).sum())
    n_sums = np.linalg.matrix_rank(sums)
    wanted = (left[0] - left[1]) / 4 / (left[1] / (len(a) - n_sums - 4))
    own = measures(means)
    assert own["F of the products"] == pytest.approx(wanted, rel=1e-9)
    assert own["share of it in the products"] == pytest.approx(1 - left[1] / left[0], rel=1e-9)
    other = measures(means, shape=replace(WAVES, periods=(5.0,)))
    assert abs(other["F of the products"] - wanted) > 1e-3


def test_p_is_right_where_a_sum_has_noise_alone_and_small_where_a_wave_of_the_sum_is() -> None:
    """Each null is uniform: of 24 tables of noise, about a twentieth is below .05."""
    p = [measures(parts(seed) + noise(100 + seed))["p, B permuted within A"] for seed in range(24)]
    assert sum(one <= 0.05 for one in p) <= 4 and 0.25 < np.mean(p) < 0.75
    angle = 2 * math.pi * CELLS.sum(1).double() / 10
    wave = torch.stack([angle.cos(), angle.sin()], 1) @ noise(3, 2)
    joined = measures(parts(0) + 2 * wave + 0.3 * noise(4))
    assert joined["p, B permuted within A"] == joined["p, values permuted"] == 0.01
    assert joined["share of it in the products"] > 0.9 > joined["the same, values permuted"]
    table = torch.eye(10)[CELLS.sum(1)].double() @ noise(5, 10)
    assert measures(parts(0) + table)["p, values permuted"] > 0.05


def test_a_built_model_joins_the_operands_where_it_calculates() -> None:
    """Layer 0 brings the digits of A and B to END side by side; layer 1 calculates."""
    every: dict[str, Any] = {"table": {"n_layers": 2}, "clock": {"frequencies": (1, 2)}}
    for name, options in every.items():
        model, pairs, _ = al.built_model(name, **options)
        with pytest.raises(ValueError, match="pairs of one operation, found addition, subtraction"):
            number_products(model, pairs)
        sums = pairs.filter([one == "addition" for one in pairs.operation or ()])
        products = number_products(model, sums, permutations=99)
        assert products.axes == ("layer", "measure")
        joined, _, p, _, _, p_shape = products.per_pair[..., 0].T
        assert float(joined[0]) < 1e-6 and float(p[0]) == float(p_shape[0]) == 1
        assert float(joined[-1]) > 0.1
        assert float(p[-1]) <= 0.05


def test_the_measures_of_heads_and_mlps_have_their_axes(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    heads = number_products(llama, pairs, "heads", permutations=3)
    assert heads.axes == ("layer", "head", "measure") and heads.per_pair.shape == (3, 4, 6, 1)
    again = [number_products(llama, pairs, "heads", permutations=3, seed=s) for s in (0, 1)]
    assert torch.equal(again[0].per_pair, heads.per_pair)
    assert not torch.equal(again[1].per_pair, heads.per_pair), "the seed decides the nulls"
    mlps = number_products(llama, pairs, "mlps", "polynomial", k=1, permutations=3)
    assert mlps.per_pair.shape == (3, 6, 1)


@pytest.fixture(scope="module")
def pairs(tokenizer: Any) -> al.PromptPairs:
    return al.sample_pairs(tokenizer, "addition", keep="all", templates=["addition/0"])


def test_the_search_finds_the_plane_of_a_clock_and_permuted_labels_do_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its digits have no other directions, so that p is 1; a random subspace has 4 of 128."""
    model, pairs, truth = al.built_model("clock", frequencies=(1, 2))
    space = al.number_subspace(model, pairs, 0, "end", "a", "fourier")
    result = mediation_overlap(model, pairs, space, n=40, permutations=19)
    assert result.axes == ("measure",)
    own = dict(zip(OVERLAPS, result.per_pair[:, 0].tolist(), strict=True))
    assert 0.4 < own["overlap"] <= 1.0001 and own["swaps in the mediating directions"] > 0.4
    assert own["overlap"] == pytest.approx(own["overlap, labels permuted"], abs=0.02)
    assert own["p of permuted labels"] > 0.05
    assert own["smallest angle, degrees"] < 30 < own["largest angle, degrees"] <= 90
    order = torch.randperm(len(space.values), generator=torch.Generator().manual_seed(3))
    relabelled = overlap._relabelled(space, torch.Generator().manual_seed(3))
    assert torch.equal(relabelled, space.shape.basis(space.values[order], space.means))
    assert not torch.equal(relabelled, space.basis)
    elsewhere = torch.eye(model.d_model).double()[:, -space.k :]
    assert truth.circuit.slots["a"].stop < model.d_model - space.k
    halves: list[set[str]] = []

    def tests(some: al.PromptPairs, *options: Any) -> Any:
        halves.append({*some.problem})
        return swap_tests(some, *options)

    monkeypatch.setattr(overlap, "swap_tests", tests)
    missed = mediation_overlap(model, pairs, replace(space, basis=elsewhere), n=8, permutations=2)
    assert halves == [{*space.fitted}, {*pairs.problem} - space.fitted], "searched on one half"
    assert float(missed.per_pair[0]) < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "W_E"}, "expected of among"),
        ({"kind": "pca"}, "expected a shape with terms, found 'pca'"),
        ({"permutations": 0}, "expected permutations of at least 1"),
        ({"kind": "helix", "periods": (10, 5), "linear": False}, "expected 1 to 3.5 directions"),
    ],
)
def test_bad_input_is_refused_by_name(
    llama: HookedModel, pairs: al.PromptPairs, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        number_products(llama, pairs, **options)


def test_too_few_cells_and_operand_tokens_are_refused(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    assert pairs.operands is not None
    few = pairs.filter([(a < 4 and b < 4) or b == 1 for a, b in pairs.operands.tolist()])
    with pytest.raises(ValueError, match=r"(expected more cells A x B|directions for)"):
        number_products(llama, few)
    space = al.number_subspace(llama, pairs, 0, Role.OPERAND_A, "a", "polynomial", k=1)
    with pytest.raises(ValueError, match="expected a subspace at END"):
        mediation_overlap(llama, pairs, space)
