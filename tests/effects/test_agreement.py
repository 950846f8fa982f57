"""Agreement, against SciPy and against counts by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

import arith_lens as al
from arith_lens.effects import HEAD_AXES, MLP_AXES, ComponentEffects, Effects

N_PAIRS = 40


def effects(heads: Tensor, mlps: Tensor, signed: bool = True) -> ComponentEffects:
    """Two wordings of 20 problems."""
    units: dict[str, Any] = {
        "template": tuple(f"addition/{index % 2}" for index in range(N_PAIRS)),
        "problem": tuple(f"{index // 2} + 1" for index in range(N_PAIRS)),
        "cluster": torch.arange(N_PAIRS),
    }
    parts = (Effects(heads, HEAD_AXES, "logit", **units), Effects(mlps, MLP_AXES, "logit", **units))
    return ComponentEffects(*parts, torch.ones(N_PAIRS), computation={"signed": signed})


@pytest.fixture
def exact() -> ComponentEffects:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.linspace(-1, 1, 24).reshape(4, 6, 1) ** 3
    noise = torch.randn(4, 6, N_PAIRS, generator=generator)
    return effects(sizes + 0.1 * noise, torch.randn(4, N_PAIRS, generator=generator))


@pytest.fixture
def near(exact: ComponentEffects) -> ComponentEffects:
    generator = torch.Generator().manual_seed(1)
    heads = 2 * exact.heads.per_pair + torch.randn(4, 6, 1, generator=generator) * 0.4
    return effects(heads, exact.mlps.per_pair)


def values(table: Any, part: str) -> dict[str, tuple[float, float, float]]:
    rows = table[table["part"] == part].itertuples()
    return {row.measure: (row.value, row.low, row.high) for row in rows}


def test_measures_are_those_of_scipy_and_of_counts_by_hand(
    exact: ComponentEffects, near: ComponentEffects
) -> None:
    found = values(al.agreement(near, exact), "heads")
    a, b = (part.heads.mean().flatten().double().numpy() for part in (near, exact))
    tested: Any = {"pearson": pearsonr(a, b), "spearman": spearmanr(a, b)}
    for name, test in tested.items():
        assert found[name][0] == pytest.approx(test.statistic, abs=1e-6)
    assert found["slope"][0] == pytest.approx(float(a @ b / (a @ a)), abs=1e-6)
    for k in (5, 10, 20):
        ours, best = (set(np.argsort(-np.abs(part))[:k].tolist()) for part in (a, b))
        mass = [np.abs(b[list(chosen)]).sum() for chosen in (ours, best)]
        assert found[f"recall {k}"][0] == pytest.approx(len(ours & best) / k)
        assert found[f"missed {k}"][0] == pytest.approx(1 - mass[0] / mass[1], abs=1e-6)
    assert found["missed 5"][0] > 0 and found["recall 5"][0] < 1, "the test must be able to fail"
    assert all(low - 1e-9 <= high for _, low, high in found.values())


def test_pairs_that_one_side_leaves_out_are_left_out_of_both(
    exact: ComponentEffects, near: ComponentEffects
) -> None:
    """The other side has large effects on these pairs, which must not count."""
    left_out = torch.arange(N_PAIRS) % 4 < 2  # every other problem, in both wordings
    order = torch.randn(4, 6, 1, generator=torch.Generator().manual_seed(3))
    wild = torch.where(left_out, 100 * order, exact.heads.per_pair)
    holed = near.heads.per_pair.masked_fill(left_out, float("nan"))
    a, b = (part.heads.per_pair[..., ~left_out].mean(-1).flatten() for part in (near, exact))
    expected: Any = pearsonr(a.double().numpy(), b.double().numpy())
    for sides in ((holed, wild), (wild, holed)):
        parts = [replace(exact, heads=replace(exact.heads, per_pair=side)) for side in sides]
        found, low, high = values(al.agreement(*parts), "heads")["pearson"]
        assert found == pytest.approx(expected.statistic, abs=1e-5)
        assert low <= found <= high


def test_an_effect_agrees_with_itself(exact: ComponentEffects) -> None:
    for part in ("heads", "MLPs"):
        for measure, ends in values(al.agreement(exact, exact), part).items():
            expected = 0.0 if measure.startswith("missed") else 1.0
            assert ends == pytest.approx((expected,) * 3, abs=1e-9)
    opposite = replace(exact, heads=replace(exact.heads, per_pair=-exact.heads.per_pair))
    found = values(al.agreement(opposite, exact), "heads")
    assert found["pearson"][0] == pytest.approx(-1) and found["recall 5"][0] == 1


def test_scores_without_a_sign_are_compared_with_sizes(exact: ComponentEffects) -> None:
    sizes = exact.heads.mean().abs()[..., None].expand(4, 6, N_PAIRS)
    unsigned = effects(sizes, exact.mlps.per_pair.abs(), signed=False)
    assert values(al.agreement(unsigned, exact), "heads")["pearson"][0] == pytest.approx(1)
    signed = replace(unsigned, computation={"signed": True})
    assert values(al.agreement(signed, exact), "heads")["pearson"][0] < 0.5


def test_intervals_count_problems_and_not_pairs(exact: ComponentEffects) -> None:
    """Components whose order differs between problems, and not between wordings of one."""
    generator = torch.Generator().manual_seed(2)
    by_problem = torch.randn(4, 6, N_PAIRS // 2, generator=generator).repeat_interleave(2, -1)
    noisy = effects(exact.heads.per_pair + 2 * by_problem, exact.mlps.per_pair)

    def width(some: ComponentEffects) -> float:
        _, low, high = values(al.agreement(some, exact), "heads")["pearson"]
        return high - low

    independent = tuple(map(str, range(N_PAIRS)))
    assert width(noisy) > 0.05
    apart = [
        replace(part, heads=replace(part.heads, problem=independent),
                mlps=replace(part.mlps, problem=independent))
        for part in (noisy, exact)
    ]  # fmt: skip
    _, low, high = values(al.agreement(*apart), "heads")["pearson"]
    assert high - low < 0.9 * width(noisy)


def test_other_pairs_and_other_paths_are_refused(exact: ComponentEffects) -> None:
    fewer = effects(exact.heads.per_pair, exact.mlps.per_pair)
    fewer = replace(fewer, heads=replace(fewer.heads, paths="total"))
    with pytest.raises(ValueError, match="one metric and one meaning of paths"):
        al.agreement(fewer, exact)


def test_edges_are_compared_as_one_part(exact: ComponentEffects, near: ComponentEffects) -> None:
    of_heads = values(al.agreement(near, exact), "heads")
    of_edges = values(al.agreement(near.heads, exact.heads, ks=(5,)), "edges")
    assert of_edges == {name: of_heads[name] for name in of_edges}
    assert {*of_edges} == {"pearson", "spearman", "slope", "recall 5", "missed 5"}
    with pytest.raises(ValueError, match="expected two ComponentEffects or two Effects"):
        al.agreement(near.heads, exact)
