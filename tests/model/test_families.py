"""Model families against raw Transformers: swept exactly, or refused by name and left to hooks."""

import copy
import re
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import Raw, components, effect, logits_at_end, make_pairs
from support.families import (
    ADDITIVE,
    EVERY,
    GROUPED,
    LATENT,
    OWN_LAYERS,
    REFUSED,
    SWEPT,
    UNFAITHFUL,
    WITHOUT_HEADS,
    Family,
)
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.hooks import scale_mlps
from arith_lens.knockout import knock_out
from arith_lens.model import HookedModel, families, load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    CertificateError,
    UnsupportedTrunk,
    fitting_engine,
    path_patch,
    sweep,
)

PATHS = ["via_mlps", "direct"]
SOME = [Head(0, 0), Head(0, 3), Mlp(0), Head(1, 2), Mlp(1)]

Swept = Callable[[str], tuple[HookedModel, Any]]


def loaded(family: Family, tokenizer: Any, **config: Any) -> tuple[HookedModel, Any]:
    """The model, and another of the same weights that no bridge has touched."""
    hf = family.make(len(tokenizer), **config)
    return load_model((copy.deepcopy(hf), tokenizer)), hf


@pytest.fixture(scope="module")
def swept(tokenizer: Any) -> Swept:
    """`loaded` families by name, which tests share: hooks leave no trace."""
    return cache(lambda name: loaded(SWEPT[name], tokenizer))


def assert_equals_raw_hooks(
    model: HookedModel, raw: Raw, *, engine: str, paths: str, senders: Sequence[Head | Mlp] = ()
) -> None:
    senders = senders or components(model)
    result = path_patch(
        model, raw.pairs, senders=senders, metric="logit", engine=engine, paths=paths
    )
    strongest = 0.0
    for sender in senders:
        expected = raw.change(sender, paths)
        assert_close(effect(result, sender), expected, atol=raw.tolerance, rtol=0)
        strongest = max(strongest, float(expected.abs().max()))
    assert strongest > 1000 * raw.tolerance, "the test must be able to fail"
    rows = torch.arange(len(raw.pairs))
    answered = raw.logits[0][rows, raw.pairs.answer]
    assert_close(result.logit, answered, atol=raw.tolerance, rtol=0)


@pytest.mark.parametrize("name", SWEPT)
def test_a_swept_family_equals_raw_transformers_hooks(name: str, swept: Swept) -> None:
    model, hf = swept(name)
    raw = Raw(hf, make_pairs(hf, (9, 6, 8)), SWEPT[name].places)
    senders = [c for c in components(model) if c.layer in (0, 1, 10, 11)]
    for paths in PATHS:
        assert_equals_raw_hooks(model, raw, engine="sweep", paths=paths, senders=senders)


@pytest.mark.parametrize("name", ["Qwen3", "GPT-2", "Mixtral", "Gemma 3", "Pythia"])
def test_a_batch_of_one_equals_raw_transformers_hooks(name: str, tokenizer: Any) -> None:
    model, hf = loaded(SWEPT[name], tokenizer, seed=1)
    raw = Raw(hf, make_pairs(hf, (7,)), SWEPT[name].places)
    assert_equals_raw_hooks(model, raw, engine="sweep", paths="via_mlps")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_family_is_named_and_hooks_compute_it(name: str, tokenizer: Any) -> None:
    family, reason = REFUSED[name]
    model, hf = loaded(family, tokenizer)
    raw = Raw(hf, make_pairs(hf, (8, 6)), family.places)
    message = rf"{reason}.* in {type(hf).__name__}.*engine='hooks'"
    for paths in PATHS:
        with pytest.raises(UnsupportedTrunk, match=message):
            path_patch(model, raw.pairs, metric="logit", paths=paths)
        assert_equals_raw_hooks(model, raw, engine="hooks", paths=paths, senders=SOME)


@pytest.mark.parametrize("method", [al.neuron_effects, al.composition, al.edge_effects])
def test_a_method_without_engines_sends_a_refused_family_to_path_patching(
    method: Callable[..., Any], tokenizer: Any
) -> None:
    model, hf = loaded(REFUSED["OPT"][0], tokenizer)
    pairs = make_pairs(hf, (8, 6))
    chosen = [Mlp(1)] if method is al.neuron_effects else [Head(1, 0)]
    with pytest.raises(UnsupportedTrunk, match=r"; (use )?path_patch with engine='hooks'"):
        method(model, pairs, chosen)


@pytest.mark.parametrize("name", WITHOUT_HEADS)
def test_a_family_that_no_engine_computes_is_sent_to_none(name: str, tokenizer: Any) -> None:
    model, hf = loaded(WITHOUT_HEADS[name], tokenizer)
    pairs = make_pairs(hf, (8, 6))
    for refused in (lambda: path_patch(model, pairs), lambda: fitting_engine(model)):
        with pytest.raises(UnsupportedTrunk, match=r"in layer 0 .*; no engine can patch") as caught:
            refused()
        assert "engine=" not in str(caught.value)
    with pytest.raises(ValueError, match=r"path patching cannot be done"):
        path_patch(model, pairs, engine="hooks")


@pytest.mark.parametrize("name", ["GPT-J", "Falcon", "BLOOM", "Pythia"])
@torch.no_grad()
def test_knockout_in_two_layers_equals_raw_transformers_hooks(
    name: str, tokenizer: Any, tmp_path: Path
) -> None:
    """Some blocks return a tuple, which the forward that is resumed between layers must see."""
    family = EVERY[name]
    hf = family.make(len(tokenizer))
    hf.save_pretrained(tmp_path)  # a model from a folder returns its attentions, too
    tokenizer.save_pretrained(tmp_path)
    model, pairs = load_model(tmp_path), make_pairs(hf, (8, 6))
    heads = [Head(0, 3), Head(1, 2)]
    found = knock_out(model, pairs, heads, ablation="zero", progress=False).probability
    handles = [
        reduce(getattr, f"{family.places.blocks}.{layer}.{family.places.reads_z}".split("."), hf)
        .register_forward_pre_hook(partial(without, part=slice(8 * index, 8 * index + 8)))
        for layer, index in ((head.layer, head.index) for head in heads)
    ]  # fmt: skip
    logits = logits_at_end(hf, pairs.reference, pairs.attention_mask)
    for handle in handles:
        handle.remove()
    plain = logits_at_end(hf, pairs.reference, pairs.attention_mask)
    rows = torch.arange(len(pairs))
    expected, before = (some.softmax(-1)[rows, pairs.answer] for some in (logits, plain))
    assert_close(found, expected, rtol=1e-4, atol=0)
    assert ((expected - before).abs() > 0.01 * before).any(), "the test must be able to fail"


def without(_: Any, given: Any, *, part: slice) -> Any:
    """A head's z as zeros."""
    z = given[0].clone()
    z[..., part] = 0
    return (z, *given[1:])


@pytest.mark.parametrize("name", ["Gemma 2, uncapped", "OLMo 2", "Granite", "Pythia"])
def test_the_certificate_refuses_a_layer_that_is_taken_for_another(
    name: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, hf = loaded(OWN_LAYERS[name], tokenizer)
    pairs = make_pairs(hf, (8, 6))
    right = path_patch(model, pairs, metric="logit")
    monkeypatch.setattr(sweep, "is_additive", lambda *_: True)
    for block in model.blocks:  # OLMo 2 has no norm before its MLP
        if not hasattr(block, "ln2"):
            object.__setattr__(block, "ln2", block.ln2_post)
    with pytest.raises(CertificateError, match="FAILED"):
        path_patch(model, pairs, metric="logit")
    wrong = path_patch(model, pairs, metric="logit", certify=False)
    assert (wrong.heads.per_pair - right.heads.per_pair).abs().max() > 1e-3, "and it would be right"


@pytest.mark.parametrize(
    "name", ["Qwen3", "Gemma 3", "Granite", "Granite, factors of 1", "Pythia", "GPT-J", "OLMo 2"]
)
def test_uniform_hooks_act_in_the_sweep_too(name: str, swept: Swept) -> None:
    model, hf = swept(name)
    pairs = make_pairs(hf, (8, 6))
    plain = path_patch(model, pairs, senders=SOME, metric="logit", engine="hooks")
    with model.hooks(scale_mlps([0, 1], 1.7)):
        fast, general = (
            path_patch(model, pairs, senders=SOME, metric="logit", engine=engine)
            for engine in ("sweep", "hooks")
        )
    for part in ("heads", "mlps"):
        one, other, without = (getattr(e, part).per_pair for e in (fast, general, plain))
        assert_close(one, other, atol=1e-4, rtol=1e-3, equal_nan=True)
        assert (other - without).abs().nan_to_num().max() > 1e-3, "the hooks must act"


def test_a_first_norms_hook_is_refused_where_the_layer_computes_it_again(swept: Swept) -> None:
    model, hf = swept("GPT-J")
    pairs = make_pairs(hf, (8, 6))
    with (
        model.hooks([("blocks.1.ln1.hook_out", lambda value, hook: value * 1.5)]),
        pytest.raises(UnsupportedTrunk, match=r"act alike.*ln1"),
    ):
        path_patch(model, pairs, metric="logit")


def test_the_layers_own_code_computes_what_the_sum_computes(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, hf = swept("Qwen3")
    pairs = make_pairs(hf, (8, 6))
    by_sum = path_patch(model, pairs, metric="logit")
    monkeypatch.setattr(sweep, "is_additive", lambda *_: False)
    by_own_code = path_patch(model, pairs, metric="logit")
    for part in ("heads", "mlps"):
        one, other = (getattr(effects, part).per_pair for effects in (by_sum, by_own_code))
        assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_small_factor_is_looked_up_where_half_precision_would_not_notice(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.99 on the stream's additions is within bfloat16's tolerance of the certificate."""
    family = OWN_LAYERS["Granite"]
    model, hf = loaded(family, tokenizer, residual_multiplier=0.99, logits_scaling=1)
    raw = Raw(hf, make_pairs(hf, (8, 6)), family.places)
    assert_equals_raw_hooks(model, raw, engine="sweep", paths="via_mlps", senders=SOME)
    model.bridge.original_model.to(torch.bfloat16)
    monkeypatch.setattr(sweep, "is_additive", lambda *_: True)
    path_patch(model, raw.pairs, metric="logit")  # no CertificateError


def test_biases_of_the_unembedding_are_counted(tokenizer: Any) -> None:
    family = SWEPT["GPT-2"]
    hf = family.make(len(tokenizer), tie_word_embeddings=False)
    hf.lm_head.bias = torch.nn.Parameter(torch.linspace(-3, 3, len(tokenizer)))
    model = load_model((copy.deepcopy(hf), tokenizer))
    raw = Raw(hf, make_pairs(hf, (8, 6)), family.places)
    assert_equals_raw_hooks(model, raw, engine="sweep", paths="via_mlps")
    fast, general = (
        path_patch(model, raw.pairs, metric="logprob", engine=engine)
        for engine in ("sweep", "hooks")
    )
    assert_close(fast.heads.per_pair, general.heads.per_pair, atol=2e-5, rtol=1e-4)


def test_heads_that_do_not_split_as_the_configuration_says_are_refused(tokenizer: Any) -> None:
    """Multi-head latent attention: values have another width than queries."""
    model, _ = loaded(LATENT, tokenizer)
    tokens = torch.randint(3, len(tokenizer), (2, 6))
    pairs = PromptPairs.from_tokens(tokens, tokens.flip(0), tokens[:, 0])
    with pytest.raises(UnsupportedTrunk, match=r"W_O.*DeepseekV3ForCausalLM.*engine='hooks'"):
        path_patch(model, pairs)


@pytest.mark.parametrize("name", UNFAITHFUL)
def test_a_bridge_that_computes_another_model_is_refused(
    name: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = UNFAITHFUL[name]
    hf = family.make(len(tokenizer))
    with pytest.raises(ValueError, match=rf"bridge of {type(hf).__name__}.* with a mask .* differ"):
        load_model((copy.deepcopy(hf), tokenizer))
    monkeypatch.setattr("arith_lens.model.loading.require_faithful", lambda *_: None)
    model = load_model((copy.deepcopy(hf), tokenizer))
    raw = Raw(hf, make_pairs(hf, (8, 6)), family.places)
    result = path_patch(model, raw.pairs, senders=SOME, metric="logit", engine="hooks")
    errors = [(effect(result, s) - raw.change(s, "via_mlps")).abs().max() for s in SOME]
    assert max(errors) > 100 * raw.tolerance, "its effects would be wrong"


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("OPT", {"do_layer_norm_before": False}, "ln_final"),
        ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}, "split"),
    ],
)
def test_a_model_that_upstream_cannot_bridge_is_refused_at_once(
    name: str, config: dict[str, Any], said: str, tokenizer: Any
) -> None:
    with pytest.raises(ValueError, match=rf"can bridge, found {name}ForCausalLM.*{said}"):
        loaded(EVERY[name], tokenizer, **config)


NO_HEADS = {
    "JetMoe": Family(
        "JetMoe",
        {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "kv_channels": 8}
        | {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "Lfm2": Family("Lfm2", GROUPED | {"layer_types": ["conv", "full_attention"]}),
}
"""Families with layers that have no heads of the usual kind."""


@pytest.mark.parametrize("name", NO_HEADS)
def test_layers_without_heads_are_refused_by_name(name: str, tokenizer: Any) -> None:
    model, hf = loaded(NO_HEADS[name], tokenizer)
    pairs = make_pairs(hf, (8, 6))
    with pytest.raises(
        ValueError, match=rf"found that {name}For.* lacks .*blocks\.0\.attn\.hook_z"
    ):
        path_patch(model, pairs, engine="hooks", metric="logit")


def test_each_row_says_something_of_a_family_of_transformers() -> None:
    from transformers import CONFIG_MAPPING

    for name, row in families.FAMILIES.items():
        assert row.model_type == name
        assert row != families.Family(name), "a row without a fact"
        assert name in CONFIG_MAPPING
    tested = {family.row.model_type for family in (EVERY | UNFAITHFUL).values()}
    assert {*families.FAMILIES} - tested == {"llama4_text", "mistral"}, "of other tests"


def test_a_family_without_a_row_has_no_facts() -> None:
    olmo = families.family_of(SWEPT["OLMo"].row)
    assert olmo == families.Family("olmo")
    assert not (olmo.plain_layers or olmo.kv_cache or olmo.fused_qkv or olmo.refusals)


def test_the_documented_table_is_the_tested_list() -> None:
    page = (Path(__file__).parents[2] / "docs" / "path_patching.md").read_text(encoding="utf-8")
    names = ("the sum", "the layer's own code", r"refused, `engine=\"hooks\"` is right")
    for name, listed in zip(names, (ADDITIVE, OWN_LAYERS, REFUSED), strict=True):
        (row,) = re.findall(rf"^\| {name} \| (.+) \|$", page, re.MULTILINE)
        documented = {family.split(" (")[0] for family in row.split(", ")}
        assert documented == {family.split(", ")[0] for family in listed}
