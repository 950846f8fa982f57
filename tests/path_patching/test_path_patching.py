"""The sweep against oracles that share no code with it: raw Transformers, TransformerLens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles import Raw, components, effect, make_pairs
from torch import Tensor
from torch.testing import assert_close

from arith_lens.components import Head, Mlp
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import path_patch

FAMILIES = ["llama", "mistral", "deep"]


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def pairs(model: Any) -> PromptPairs:
    return make_pairs(model)


@pytest.fixture
def raw(request: pytest.FixtureRequest, model: Any, make_hf: Any) -> Any:
    """A Transformers model of the same weights that no bridge has touched."""
    cfg, family = model.cfg, request.node.callspec.params.get("model", "llama")
    sizes = {"num_hidden_layers": cfg.n_layers, "num_attention_heads": cfg.n_heads}
    sizes |= {"hidden_size": cfg.d_model, "intermediate_size": cfg.d_mlp}
    hf = make_hf("mistral" if family == "mistral" else "llama", **sizes)
    weights = model.bridge.original_model.named_parameters()
    for name, weight in weights:
        hf.get_parameter(name.replace("._original_component", "")).data.copy_(weight.data)
    return hf


@pytest.mark.parametrize("paths", ["via_mlps", "direct"])
@pytest.mark.parametrize("engine", ["sweep", "hooks"])
def test_every_effect_equals_raw_transformers_hooks(
    model: Any, raw: Any, pairs: PromptPairs, engine: str, paths: str
) -> None:
    oracle = Raw(raw, pairs)
    result = path_patch(model, pairs, metric="logit", engine=engine, paths=paths)
    for sender in components(model):
        expected = oracle.change(sender, paths)
        assert_close(effect(result, sender), expected, atol=oracle.tolerance, rtol=0)
        assert expected.abs().max() > 20 * oracle.tolerance, "the test must be able to fail"


def test_the_two_meanings_of_paths_differ(model: Any, pairs: PromptPairs) -> None:
    direct = path_patch(model, pairs, metric="logit", paths="direct")
    via_mlps = path_patch(model, pairs, metric="logit")
    assert (direct.heads.per_pair - via_mlps.heads.per_pair).abs().max() > 0.01
    last = model.cfg.n_layers - 1
    assert_close(direct.mlps.per_pair[last], via_mlps.mlps.per_pair[last], atol=1e-5, rtol=1e-4)


def test_total_effects_equal_raw_transformers_hooks(
    model: Any, raw: Any, pairs: PromptPairs
) -> None:
    oracle = Raw(raw, pairs)
    senders = [Head(0, 1), Head(1, 0), Mlp(0), Mlp(2)]
    result = path_patch(
        model, pairs, senders=senders, paths="total", engine="hooks", metric="logit"
    )
    for sender in senders:
        expected = oracle.change(sender, "total")
        assert_close(effect(result, sender), expected, atol=oracle.tolerance, rtol=0)
    assert (oracle.change(Head(0, 1), "total") - oracle.change(Head(0, 1))).abs().max() > 1e-3


@torch.no_grad()
def test_heads_equal_the_bridges_own_hooks(model: Any, pairs: PromptPairs) -> None:
    """Oracle C: TransformerLens' cache and hooks, z of every head given back as recorded."""
    bridge, mask = model.bridge, pairs.attention_mask
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    logits, clean = bridge.run_with_cache(pairs.reference, names_filter=names, attention_mask=mask)
    _, other = bridge.run_with_cache(pairs.counterfactual, names_filter=names, attention_mask=mask)
    result = path_patch(model, pairs, metric="logit")
    rows = torch.arange(len(pairs))
    for head in [Head(0, 0), Head(model.cfg.n_layers // 2, 1), Head(model.cfg.n_layers - 1, 0)]:
        values = {name: clean[name].clone() for name in names}
        place = names[head.layer]
        values[place][:, -1, head.index] = other[place][:, -1, head.index]
        hooks = [(name, lambda z, hook, value=values[name]: value) for name in names]
        patched = bridge.run_with_hooks(pairs.reference, fwd_hooks=hooks, attention_mask=mask)
        expected = (patched - logits)[rows, -1, pairs.answer]
        atol = 1e-5 * float(logits[:, -1].abs().max())
        assert_close(effect(result, head), expected, atol=atol, rtol=0)


def test_relative_logit_is_the_papers_ratio(model: Any, raw: Any, pairs: PromptPairs) -> None:
    oracle = Raw(raw, pairs)
    result = path_patch(model, pairs)
    origin = oracle.logits[0][torch.arange(len(pairs)), pairs.answer]
    assert (origin > 0.5).all()
    assert_close(result.logit, origin, atol=oracle.tolerance, rtol=0)
    expected = oracle.change(Head(1, 1)) / origin
    assert_close(effect(result, Head(1, 1)), expected, atol=2e-5, rtol=1e-4)
    assert result.heads.metric == "relative_logit" and result.heads.paths == "via_mlps"
    assert result.n_left_out == 0


@torch.no_grad()
@pytest.mark.parametrize("size", [1, 2, 64])
def test_the_shard_size_does_not_matter(model: Any, pairs: PromptPairs, size: int) -> None:
    whole = path_patch(model, pairs, metric="logit")
    parts = path_patch(model, pairs, metric="logit", batch_size=size)
    largest = float(model(pairs.reference, attention_mask=pairs.attention_mask)[:, -1].abs().max())
    for a, b in ((whole.heads, parts.heads), (whole.mlps, parts.mlps)):
        assert_close(a.per_pair, b.per_pair, atol=1e-5 * largest, rtol=0)


def test_the_same_shards_give_the_same_bits(model: Any, pairs: PromptPairs) -> None:
    first, again = (path_patch(model, pairs, batch_size=2) for _ in range(2))
    assert torch.equal(first.heads.per_pair, again.heads.per_pair)
    assert torch.equal(first.mlps.per_pair, again.mlps.per_pair)


def test_chosen_senders_are_exact_and_the_others_are_left_out(
    model: Any, pairs: PromptPairs
) -> None:
    everyone = path_patch(model, pairs, metric="logit")
    senders = [Mlp(1), Head(model.cfg.n_layers - 1, 1), Head(0, 1)]
    few = path_patch(model, pairs, metric="logit", senders=senders)
    for sender in components(model):
        if sender in senders:
            assert_close(effect(few, sender), effect(everyone, sender), atol=1e-5, rtol=1e-4)
        else:
            assert effect(few, sender).isnan().all()


def test_identity_a_prompt_patched_with_itself_is_unchanged(model: Any, pairs: PromptPairs) -> None:
    same = replace(pairs, counterfactual=pairs.reference)
    for paths in ("via_mlps", "direct"):
        with pytest.warns(UserWarning, match="certificate shows nothing"):
            result = path_patch(model, same, metric="logit", paths=paths)
        assert result.computation["certificate"]["vacuous"]
        assert result.heads.per_pair.abs().max() < 1e-5
        assert result.mlps.per_pair.abs().max() < 1e-4


def test_linearity_a_direct_path_has_a_closed_form(
    model: Any, raw: Any, pairs: PromptPairs
) -> None:
    """unembed(norm(stream + (z' - z) W_O)), written with the Transformers modules."""
    oracle = Raw(raw, pairs)
    hf, last = raw, model.cfg.n_layers - 1
    kept: list[Tensor] = []
    handle = hf.model.norm.register_forward_pre_hook(lambda _, given: kept.append(given[0][:, -1]))
    logits = oracle.run(pairs.reference, [handle])
    result = path_patch(model, pairs, metric="logit", paths="direct")
    for layer in (0, last):
        change = torch.zeros_like(oracle.z[0][layer][:, -1])
        part = slice(model.cfg.d_head, 2 * model.cfg.d_head)
        change[:, part] = (oracle.z[1][layer] - oracle.z[0][layer])[:, -1, part]
        with torch.no_grad():
            write = change @ hf.model.layers[layer].self_attn.o_proj.weight.T
            patched = hf.lm_head(hf.model.norm(kept[0] + write))
        expected = (patched - logits)[torch.arange(len(pairs)), pairs.answer]
        actual = effect(result, Head(layer, 1))
        assert_close(actual, expected, atol=oracle.tolerance, rtol=0)


def test_purity_pairs_and_weights_are_untouched(model: Any, pairs: PromptPairs) -> None:
    tensors = [pairs.reference, pairs.counterfactual, pairs.answer, pairs.attention_mask]
    before = [t.clone() for t in tensors], [p.clone() for p in model.bridge.parameters()]
    path_patch(model, pairs)
    after = tensors, list(model.bridge.parameters())
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))


def test_locality_pairs_do_not_see_each_other(model: Any, raw: Any, pairs: PromptPairs) -> None:
    """Another pair beside it, of another length, leaves a pair's effects where they were."""
    alone = path_patch(model, pairs[1:2], metric="logit")
    beside = path_patch(model, pairs, metric="logit")
    tolerance = Raw(raw, pairs).tolerance
    assert_close(
        alone.heads.per_pair[..., 0], beside.heads.per_pair[..., 1], atol=tolerance, rtol=0
    )


def test_null_a_token_behind_the_mask_moves_nothing(model: Any, pairs: PromptPairs) -> None:
    padding = ~pairs.attention_mask
    other = replace(pairs, counterfactual=pairs.reference.masked_fill(padding, 5))
    with pytest.warns(UserWarning, match="certificate shows nothing"):
        result = path_patch(model, other, metric="logit")
    assert result.heads.per_pair.abs().max() < 1e-4


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_bfloat16_agrees_with_float32_of_the_same_weights(
    make_model: Callable[..., Any], family: str
) -> None:
    model = make_model(family)
    model.bridge.original_model.to(torch.bfloat16).to(torch.float32)  # weights that bf16 can hold
    pairs = make_pairs(model)
    wide = path_patch(model, pairs, metric="logit")
    model.bridge.original_model.to(torch.bfloat16)
    narrow = path_patch(model, pairs, metric="logit", spot_checks=3)
    assert narrow.computation["dtype"] == "bfloat16"
    assert narrow.heads.per_pair.dtype == torch.float32
    scale = wide.heads.per_pair.abs().max()
    assert (wide.heads.per_pair - narrow.heads.per_pair).abs().max() < 0.1 * scale
    assert not torch.equal(wide.heads.per_pair, narrow.heads.per_pair)
