"""Control orders, and iterative masking against one knockout after another."""

import pytest
import torch

import arith_lens as al
from arith_lens.components import every_head
from arith_lens.knockout import mask_greedily, matched_order, random_order
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


@pytest.mark.parametrize("n", [0, 4])
def test_masking_takes_out_no_more_than_there_are(llama: HookedModel, n: int) -> None:
    pairs = al.sample_pairs(llama, "addition", n=4, keep="all", templates=["addition/0"])
    with pytest.raises(ValueError, match="expected n from 1 to the 3 candidates"):
        mask_greedily(llama, pairs, every_head(3, 4)[:3], n=n)
