"""Knockout curves in a run: kept shard by shard, taken up again, not computed twice."""

from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.components import every_head
from arith_lens.knockout import KnockoutCurve, engine, knockout_curves, random_order
from arith_lens.model import HookedModel

SHARD = 4


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SHARD", SHARD)


@pytest.fixture
def pairs(model: HookedModel) -> al.PromptPairs:
    return al.sample_pairs(model, "addition", n=14, keep="all", templates=["addition/0"])


def curve(model: HookedModel, pairs: al.PromptPairs, **options: Any) -> KnockoutCurve:
    order = every_head(model.n_layers, model.n_heads)[:5]
    return al.knockout_curve(model, pairs, order, ks=[1, 3, 5], progress=False, **options)


def test_a_broken_computation_goes_on_bit_for_bit(
    model: HookedModel, pairs: al.PromptPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, compute, calls = curve(model, pairs), engine.run_variants, []

    def counted(*args: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(*args)

    monkeypatch.setattr(engine, "_agrees", lambda *_: True)  # its checks are runs too
    monkeypatch.setattr(engine, "run_variants", counted)
    with (
        pytest.raises(KeyboardInterrupt),
        al.open_run("knockout", {}, model=model, root=tmp_path) as run,
    ):
        curve(model, pairs, run=run)
    with al.open_run("knockout", {}, model=model, root=tmp_path) as run:
        resumed = curve(model, pairs, run=run)
    assert len(calls) == 5  # four shards, the third of them twice
    assert torch.equal(resumed.probability, whole.probability)
    assert torch.equal(resumed.correct, whole.correct)
    assert torch.equal(resumed.top, whole.top)


def test_a_finished_curve_is_read_again_and_others_are_not_taken_for_it(
    llama: HookedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = al.sample_pairs(llama, "addition", n=6, keep="all", templates=["addition/0"])
    with al.open_run("knockout", {}, model=llama, root=tmp_path) as run:
        first = curve(llama, pairs, run=run)
        other = curve(llama, pairs, run=run, ablation="zero")
        assert not torch.equal(first.probability, other.probability)
        again = curve(llama, pairs, run=run, ablation="zero")
        monkeypatch.setattr(engine, "run_variants", None)  # nothing can be computed any more
        assert torch.equal(curve(llama, pairs, run=run, ablation="zero").top, again.top)
        assert torch.equal(curve(llama, pairs, run=run).top, first.top)
        for changed in ({"ablation": "resample"}, {"positions": "end", "ablation": "zero"}):
            with pytest.raises(TypeError):
                curve(llama, pairs, run=run, **changed)
        with pytest.raises(TypeError):
            curve(llama, pairs[:5], run=run, ablation="zero")


def test_several_orders_are_one_result(llama: HookedModel, tmp_path: Path) -> None:
    pairs = al.sample_pairs(llama, "addition", n=6, keep="all", templates=["addition/0"])
    orders = {f"random {seed}": random_order(3, 4, seed) for seed in range(2)}
    with al.open_run("knockout", {}, model=llama, root=tmp_path) as run:
        curves = knockout_curves(llama, pairs, orders, ks=[2], run=run, name="controls")
        assert run.names == ("controls",)
    assert [*curves] == [*orders]
    assert len(curves.to_dataframe()) == 4
    assert repr(curves) == "KnockoutCurves(random 0, random 1)"
    assert len(curves.starting("random")) == 2


def test_orders_may_have_numbers_of_their_own(llama: HookedModel, tmp_path: Path) -> None:
    pairs = al.sample_pairs(llama, "addition", n=6, keep="all", templates=["addition/0"])
    orders = {f"random {seed}": random_order(3, 4, seed)[: 5 - seed] for seed in range(2)}
    ks = {"random 0": (1, 5), "random 1": (3,)}
    with al.open_run("knockout", {}, model=llama, root=tmp_path) as run:
        curves = knockout_curves(llama, pairs, orders, ks=ks, run=run, name="controls")
    assert [curve.ks for curve in curves.values()] == [(0, 1, 5), (0, 3)]
    for name, order in orders.items():
        alone = al.knockout_curve(llama, pairs, order, ks=ks[name])
        torch.testing.assert_close(curves[name].probability, alone.probability)
        assert torch.equal(curves[name].top, alone.top)
    with pytest.raises(ValueError, match="up to the 4 components of random 1, found 5"):
        knockout_curves(llama, pairs, orders, ks={**ks, "random 1": (5,)})
