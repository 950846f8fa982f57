"""Control orders, iterative masking against one knockout after another, and shrinking circuits."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.components import Component, every_head
from arith_lens.knockout import mask_greedily, matched_order, random_order, shrink_greedily
from arith_lens.model import HookedModel


def test_a_random_order_holds_every_head_once_and_follows_from_its_seed() -> None:
    order = random_order(12, 8, 3)
    assert sorted(order) == every_head(12, 8)
    assert order == random_order(12, 8, 3) != random_order(12, 8, 4)
    assert [str(head) for head in order[:3]] == ["5.4", "10.5", "1.1"], "on every machine"


def test_matched_heads_are_of_the_same_layers_and_never_key() -> None:
    keys = [al.Head(5, 5), al.Head(3, 4), al.Head(5, 2), al.Head(7, 3)]
    for seed in range(20):
        matched = matched_order(keys, 12, 8, seed)
        assert [head.layer for head in matched] == [head.layer for head in keys]
        assert not {*matched} & {*keys} and len({*matched}) == len(keys)
    assert matched_order(keys, 12, 8, 0) == matched_order(keys, 12, 8, 0)
    assert len({tuple(matched_order(keys, 12, 8, seed)) for seed in range(20)}) > 10


def test_a_layer_that_is_used_up_is_followed_by_the_nearest() -> None:
    keys = [al.Head(2, index) for index in range(3)]  # of four heads: one is left
    matched = matched_order(keys, 4, 4, 0)
    assert matched[0] == al.Head(2, 3)
    assert [head.layer for head in matched[1:]] == [1, 1], "the lower of two equally near"


def test_what_cannot_be_matched_is_refused() -> None:
    with pytest.raises(ValueError, match="as many others"):
        matched_order(every_head(2, 4)[:5], 2, 4, 0)
    with pytest.raises(ValueError, match="distinct key heads"):
        matched_order([al.Head(0, 0), al.Head(0, 0)], 2, 4, 0)
    with pytest.raises(IndexError):
        matched_order([al.Head(9, 0)], 2, 4, 0)


@pytest.fixture
def pairs(model: HookedModel) -> al.PromptPairs:
    return al.sample_pairs(model, "addition", n=16, keep="all", templates=["addition/0"])


def test_masking_takes_what_one_knockout_after_another_finds(
    model: HookedModel, pairs: al.PromptPairs
) -> None:
    candidates = [*every_head(model.n_layers, model.n_heads)[3:8], al.Mlp(1)]
    found = mask_greedily(model, pairs, candidates, n=3, progress=False)
    order: list[al.Head | al.Mlp] = []
    for _ in range(3):
        costs = {
            one: al.knock_out(model, pairs, [*order, one], progress=False)
            for one in candidates
            if one not in order
        }
        order.append(
            min(costs, key=lambda one: (costs[one].accuracy(), costs[one].mean_probability()))
        )
    assert [*found.order] == order
    assert found.n_variants == 1 + 6 + 5 + 4
    assert 1 < found.n_forwards < found.n_variants
    out = al.knock_out(model, pairs, order, progress=False)
    torch.testing.assert_close(found.curve.probability[3], out.probability)
    assert found.curve.ks == (0, 1, 2, 3)


def test_masking_breaks_ties_by_probability_and_then_by_the_order_of_the_candidates(
    llama: HookedModel, pairs: al.PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted outcomes: how many of 16 pairs stay right without a head, and p(C)."""
    outcomes = {0: (8, 0.1), 1: (4, 0.9), 2: (4, 0.5), 3: (4, 0.5)}

    class Planted:
        replacements = SimpleNamespace(kind="template")

        def __call__(self, variants: list[frozenset[al.Head]], **settings: Any) -> torch.Tensor:
            values = torch.zeros(3, len(variants), 16)
            for row, heads in enumerate(variants):
                n_right, probability = [(16, 1.0), *(outcomes[h.index] for h in heads)][-1]
                values[0, row, :n_right], values[1, row] = 1, probability
            return values

        def forwards(self, variants: list[frozenset[al.Head]]) -> float:
            return float(len(variants))

    monkeypatch.setattr("arith_lens.knockout.orders.engine_of", lambda *_, **__: Planted())
    for candidates, first in (([0, 1, 2, 3], 2), ([3, 1, 2, 0], 3), ([0, 1], 1)):
        heads = [al.Head(0, index) for index in candidates]
        found = mask_greedily(llama, pairs, heads, n=1, progress=False)
        assert found.order == (al.Head(0, first),)


@pytest.mark.parametrize("n", [0, 4])
def test_masking_takes_out_no_more_than_there_are(llama: HookedModel, n: int) -> None:
    pairs = al.sample_pairs(llama, "addition", n=4, keep="all", templates=["addition/0"])
    with pytest.raises(ValueError, match="expected n from 1 to the 3 candidates"):
        mask_greedily(llama, pairs, every_head(3, 4)[:3], n=n)


@pytest.fixture(scope="module")
def redundant() -> al.BuiltModel:
    return al.built_model("redundant", n=12)


@pytest.fixture(scope="module")
def shrinking(redundant: al.BuiltModel) -> list[Component]:
    """The components in the order in which a circuit keeps them longest."""
    model, pairs, _ = redundant
    return shrink_greedily(model, pairs, share=0.0, positions="end", progress=False)


def test_one_of_two_redundant_heads_stays(
    redundant: al.BuiltModel, shrinking: list[Component]
) -> None:
    """Each alone has no effect, but the circuit of four that is left has exactly one of them."""
    (model, pairs, truth), order = redundant, shrinking
    assert len(order) == len({*order}) == 9
    assert len({*order[:4]} & truth.heads) == 1 and truth.mlps < {*order[:4]}
    single = al.path_patch(model, pairs, metric="probability", progress=False)
    assert all(abs(float(single.heads.mean()[h.layer, h.index])) < 1e-6 for h in truth.heads)
    kept, fewer = (
        al.keep_only(model, pairs, order[:k], among="all", positions="end", progress=False)
        for k in (4, 3)
    )
    assert float(kept.correct.float().mean()) == 1.0
    assert float(fewer.correct.float().mean()) < 0.5


def test_the_first_step_by_hand(redundant: al.BuiltModel, shrinking: list[Component]) -> None:
    """The component that leaves first changes p(C) least, by `knock_out`."""
    model, pairs, _ = redundant
    settings = {"positions": "end", "progress": False}
    whole = float(al.knock_out(model, pairs, (), **settings).probability.mean())
    losses = {
        one: abs(float(al.knock_out(model, pairs, one, **settings).probability.mean()) - whole)
        for one in shrinking
    }
    assert losses[shrinking[-1]] == pytest.approx(min(losses.values()), abs=1e-6)


def test_shares_that_are_none(redundant: al.BuiltModel) -> None:
    with pytest.raises(ValueError, match="found 1"):
        shrink_greedily(redundant.model, redundant.pairs, share=1.0)
