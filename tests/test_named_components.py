"""Every function that takes heads or components takes one of them, and its name."""

from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.components import Head, Mlp, z_name
from arith_lens.model import HookedModel
from arith_lens.pairs import PromptPairs

NAMES: list[Any] = [Head(1, 2), "1.2", (1, 2)]


@pytest.fixture(scope="module")
def pairs(llama: HookedModel) -> PromptPairs:
    return al.sample_pairs(llama, "addition", n=4, keep="all", templates=["addition/0"])


@pytest.mark.parametrize("head", NAMES, ids=repr)
def test_hooks_take_a_head_by_any_name(head: Any) -> None:
    source = {z_name(1): torch.ones(4, 8)}
    for make in (
        lambda heads: al.ablate_heads(heads, ablation="zero"),
        lambda heads: al.ablate_heads(heads, source),
        lambda heads: al.patch_heads(heads, source),
        lambda heads: al.scale_heads(heads, 2.0),
    ):
        ((name, edit),) = make(head)
        assert (name, edit.heads) == (z_name(1), (2,))


@pytest.mark.parametrize("mlp", [Mlp(1), "MLP 1", 1], ids=repr)
def test_hooks_take_an_mlp_by_any_name(mlp: Any) -> None:
    ((name, _),) = al.ablate_mlps(mlp, ablation="zero")
    assert name == "blocks.1.hook_mlp_out"


@pytest.mark.parametrize("head", NAMES, ids=repr)
def test_methods_take_a_head_by_any_name(head: Any, llama: HookedModel, pairs: PromptPairs) -> None:
    quiet: dict[str, Any] = {"progress": False}
    effects = al.path_patch(llama, pairs, senders=head, metric="logit", certify=False, **quiet)
    assert effects.heads.mean().isfinite().nonzero().tolist() == [[1, 2]]
    assert al.knock_out(llama, pairs, head, means="all_tokens", **quiet).components == (Head(1, 2),)
    assert al.knockout_curve(llama, pairs, head, ks=[1], **quiet).order == (Head(1, 2),)
    assert al.attention_by_role(llama, pairs, head).labels == al.attention_by_role(
        llama, pairs, [Head(1, 2)]
    ).labels  # fmt: skip


def test_methods_take_heads_and_mlps_in_a_mixture(llama: HookedModel, pairs: PromptPairs) -> None:
    effects = al.path_patch(
        llama, pairs, senders=["MLP 0", "0.1"], metric="logit", certify=False, progress=False
    )
    assert effects.mlps.mean().isfinite().tolist() == [True, False, False]
    out = al.knock_out(llama, pairs, "MLP 2", ablation="zero", progress=False)
    assert out.components == (Mlp(2),)


def test_tuning_takes_components_by_any_name(source: Any, tmp_path: Any) -> None:
    """What the model does not have is refused by name, so the names were read."""
    rows = [{"prompt": "3 plus 5 = ", "answer": "8"}]
    options: list[dict[str, Any]] = [{"heads": "2.9"}, {"mlps": "MLP 7"}]
    for components, name in zip(options, ("2.9", "MLP 7"), strict=True):
        with pytest.raises(IndexError, match=name):
            al.fine_tune(source, rows, output=tmp_path / name, **components)
