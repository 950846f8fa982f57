"""Patching at positions other than END, against raw Transformers hooks that replace z there."""

from typing import Any

import pytest
import torch
from oracles import Raw, effect, make_pairs
from torch import Tensor
from torch.testing import assert_close

from arith_lens.components import Head, Mlp
from arith_lens.pairs import Role, sample_pairs
from arith_lens.path_patching import path_patch

SENDERS: list[Head | Mlp] = [Head(0, 1), Head(1, 3), Mlp(0)]
TOTAL: dict[str, Any] = {"senders": SENDERS, "paths": "total", "engine": "hooks", "metric": "logit"}


def patched_at(raw: Raw, sender: Head | Mlp, where: Tensor) -> Tensor:
    """Change of C's logit if the sender gets its counterfactual output at some tokens."""

    def put(out: Tensor, other: Tensor, part: slice) -> Tensor:
        changed = out.clone()
        changed[..., part] = torch.where(where[..., None], other[..., part], out[..., part])
        return changed

    if isinstance(sender, Head):
        part = slice(sender.index * raw.d_head, (sender.index + 1) * raw.d_head)
        handle = raw.layers[sender.layer].self_attn.o_proj.register_forward_pre_hook(
            lambda _, z: (put(z[0], raw.z[1][sender.layer], part), *z[1:])
        )
    else:
        handle = raw.layers[sender.layer].mlp.register_forward_hook(
            lambda _, __, out: put(out, raw.mlp[1][sender.layer], slice(None))
        )
    rows = torch.arange(len(raw.pairs))
    change = raw.run(raw.pairs.reference, [handle]) - raw.logits[0]
    return change[rows, raw.pairs.answer]


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_each_position_is_patched_alone(family: str, make_hf: Any, make_model: Any) -> None:
    """Prompts of unequal lengths; a prompt that lacks a position has no effect there."""
    hf = make_hf(family)
    raw, model = Raw(hf, make_pairs(hf)), make_model(family)
    pairs = raw.pairs
    effects = path_patch(model, pairs, positions="each", batch_size=2, **TOTAL)
    assert effects.heads.axes == ("layer", "head", "position")
    assert effects.mlps.axes == ("layer", "position")
    assert (effects.heads.labels or {})["position"] == tuple(map(str, range(-9, 0)))
    for sender in SENDERS:
        for column in range(9):
            where = torch.zeros_like(pairs.attention_mask)
            where[:, column] = True
            right = patched_at(raw, sender, where)
            right[~pairs.attention_mask[:, column]] = torch.nan
            found = effect(effects, sender)[column]
            assert_close(found, right, atol=raw.tolerance, rtol=1e-4, equal_nan=True)
    sizes = effects.mlps.per_pair[0].abs().nan_to_num().amax(-1)
    assert (sizes[4:7] > 20 * raw.tolerance).all() and not sizes[:4].any(), (
        "prompts differ at 4 to 6"
    )
    end = path_patch(model, pairs, **TOTAL)
    assert_close(effects.mlps.per_pair[0, -1], end.mlps.per_pair[0], atol=1e-6, rtol=1e-5)
    table: Any = effects.to_dataframe().set_index(["component", "position"])["mean"]
    names = (effects.mlps.labels or {})["position"]
    for sender, name in ((one, str(one)) for one in SENDERS):
        for column in (4, 6):
            assert table[name, names[column]] == pytest.approx(
                float(effect(effects, sender)[column].nanmean()), rel=1e-5
            )
    with pytest.raises(TypeError, match="found the axes"):
        effects.explore()


def test_a_number_counts_from_the_first_token_or_from_end(llama: Any, make_hf: Any) -> None:
    raw = Raw(make_hf("llama"), make_pairs(llama))
    first = (~raw.mask.bool()).sum(1)
    for position, column in ((3, first + 3), (-4, torch.full((5,), 5))):
        result = path_patch(llama, raw.pairs, positions=position, **TOTAL)
        where = torch.arange(9) == column[:, None]
        right = patched_at(raw, Mlp(0), where)
        assert_close(effect(result, Mlp(0)), right, atol=raw.tolerance, rtol=1e-4)
        assert right.abs().max() > 20 * raw.tolerance, "the test must be able to fail"
    with pytest.raises(IndexError, match="expected positions from -9 to 8, found 9"):
        path_patch(llama, raw.pairs, positions=9, **TOTAL)


def test_a_role_is_patched_at_all_its_tokens(llama: Any, make_hf: Any) -> None:
    pairs = sample_pairs(
        llama, n=6, keep="all", operands=range(8, 13), templates="symbols", answer_token="last"
    )
    raw = Raw(make_hf("llama"), pairs)
    result = path_patch(llama, pairs, positions=Role.OPERATOR, **TOTAL)
    for sender in SENDERS:
        right = patched_at(raw, sender, pairs.role_mask(Role.OPERATOR))
        assert_close(effect(result, sender), right, atol=raw.tolerance, rtol=1e-4)
    one = pairs[:1]
    names = path_patch(llama, one, positions="each", **TOTAL).mlps.labels or {}
    assert names["position"][-1] == "-1 END" and "BOS" in names["position"][0]
    assert any("operator" in name for name in names["position"])


def test_what_other_positions_cannot_be_combined_with_is_refused(llama: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(ValueError, match="expected paths='total' and engine='hooks'"):
        path_patch(llama, pairs, positions="each")
    with pytest.raises(ValueError, match="expected no spot_checks"):
        path_patch(llama, pairs, positions="each", spot_checks=2, **TOTAL)
    with pytest.raises(ValueError, match="expected positions 'end', 'each'"):
        path_patch(llama, pairs, positions="all", **TOTAL)
    with pytest.raises(ValueError, match="expected pairs with the roles"):
        path_patch(llama, pairs, positions=Role.OPERAND_A, **TOTAL)


def test_effects_at_two_positions_are_not_joined(llama: Any) -> None:
    pairs = make_pairs(llama)
    first, end = (path_patch(llama, pairs, positions=at, **TOTAL) for at in (0, -1))
    with pytest.raises(ValueError, match="expected effects of the same paths"):
        _ = first.heads + end.heads
    with pytest.raises(ValueError, match="found True"):
        path_patch(llama, pairs, positions=True, **TOTAL)
