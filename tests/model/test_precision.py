"""Half precision: the rows and the readout stay float32, and the experiment that measures it.

Double precision: padding on the left."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles import Raw, effect, logits_at_end, make_pairs
from support.families import SWEPT
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import arith_lens as al
from arith_lens.components import Head, Mlp
from arith_lens.hooks import Edit
from arith_lens.knockout.means import narrowed
from arith_lens.model import HookedModel, load_model
from arith_lens.path_patching import engines, path_patch
from arith_lens.path_patching.layers import AdditiveLayer, LayerInput
from arith_lens.path_patching.sweep import Trunk

HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(params=["Qwen3, 12 layers", "GPT-2"])
def wide_and_hf(request: pytest.FixtureRequest, tokenizer: Any) -> tuple[HookedModel, Any]:
    """A float32 model whose weights bfloat16 can hold, so that only the arithmetic differs."""
    hf = SWEPT[request.param].make(len(tokenizer)).to(torch.bfloat16).to(torch.float32)
    return load_model((copy.deepcopy(hf), tokenizer)), hf


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rows_and_readout_are_float32_whatever_the_model(
    wide_and_hf: tuple[HookedModel, Any],
    tokenizer: Any,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, hf = wide_and_hf
    pairs = make_pairs(hf, (8, 6))
    model = load_model((copy.deepcopy(hf), tokenizer), dtype=dtype)
    seen: dict[str, set[torch.dtype]] = {"mlp": set(), "rows": set(), "logits": set()}
    read, advance = Trunk.read, AdditiveLayer.advance

    def watched_advance(layer: AdditiveLayer, inputs: LayerInput) -> None:
        seen["rows"].add(inputs.rows.dtype)
        advance(layer, inputs)

    def watched_read(trunk: Trunk, rows: Tensor, *given: Any, **options: Any) -> Any:
        readout = read(trunk, rows, *given, **options)
        seen["rows"].add(rows.dtype)
        seen["logits"].add(readout.answer.dtype)
        return readout

    monkeypatch.setattr(AdditiveLayer, "advance", watched_advance)
    monkeypatch.setattr(Trunk, "read", watched_read)

    def noted(value: Tensor) -> Tensor:
        seen["mlp"].add(value.dtype)
        return value

    with model.hooks([("blocks.0.hook_mlp_out", Edit(noted))]):
        path_patch(model, pairs, metric="logit")
    assert seen == {"mlp": {dtype}, "rows": {torch.float32}, "logits": {torch.float32}}


@pytest.fixture
def masks_of_transformers() -> Iterator[None]:
    """Transformers' own masks before and after the test, whatever was loaded before."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(AttentionMaskInterface._global_mapping, "eager", eager_mask)
        yield


@pytest.mark.parametrize("name", ["Llama-3", "Gemma 3, 12 layers", "Pythia"])
def test_padding_in_float64_changes_no_number(
    name: str, tokenizer: Any, masks_of_transformers: None
) -> None:
    """Plain Transformers, whose padded prompts are NaN there, computes each prompt alone."""
    family = SWEPT[name]
    hf = family.make(len(tokenizer))
    pairs = make_pairs(hf, (9, 6))
    hf.double()
    padded = logits_at_end(hf, pairs.reference, pairs.attention_mask)
    assert not bool(padded[1].isfinite().all()), "the test must be able to fail"
    alone = [narrowed(pairs[pair : pair + 1]) for pair in (0, 1)]
    after = {"Gemma 3, 12 layers": "post_feedforward_layernorm"}
    places = replace(family.places, mlp=after.get(name, family.places.mlp))
    raws = [Raw(hf, pair, places) for pair in alone]
    last = hf.config.num_hidden_layers - 1
    senders = [Head(0, 1), Mlp(0), Head(last, 3), Mlp(last)]
    expected = {sender: torch.cat([raw.change(sender) for raw in raws]) for sender in senders}
    logits = torch.cat([raw.logits[0] for raw in raws])
    model = load_model((copy.deepcopy(hf), tokenizer))
    ours = model(pairs.reference, attention_mask=pairs.attention_mask)[:, -1]
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours, logits, atol=1e-5, rtol=1e-5)  # softmax in float32
    options: dict[str, Any] = {"metric": "logit", "progress": False}
    for engine in ("sweep", "hooks"):
        result = path_patch(model, pairs, senders=senders, engine=engine, **options)
        for sender in senders:
            found = effect(result, sender)
            torch.testing.assert_close(found.double(), expected[sender], atol=1e-5, rtol=1e-4)
    out = al.knock_out(model, pairs, [Head(0, 1)], ablation="zero")
    alone_out = [al.knock_out(model, pair, [Head(0, 1)], ablation="zero") for pair in alone]
    probability = torch.cat([one.probability for one in alone_out], dim=-1)
    torch.testing.assert_close(out.probability, probability, atol=1e-5, rtol=1e-4)
    assert al.attribute(model, pairs, method="atp", paths="total", **options).logit.isfinite().all()


class NarrowLayer(AdditiveLayer):
    """The same layer with rows rounded to bfloat16 wherever they change."""

    def advance(self, inputs: LayerInput) -> None:
        inputs.rows.copy_(inputs.rows.bfloat16())
        super().advance(inputs)
        inputs.rows.copy_(inputs.rows.bfloat16())


class NarrowTrunk(Trunk):
    """The same trunk with final norm and logits rounded to bfloat16."""

    def read(self, rows: Tensor, *given: Any, **options: Any) -> Any:
        readout = super().read(rows.bfloat16().float(), *given, **options)
        return replace(readout, answer=readout.answer.bfloat16().float())


def test_rows_in_bfloat16_would_be_worse(
    wide_and_hf: tuple[HookedModel, Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, hf = wide_and_hf
    pairs = make_pairs(hf, (8, 7, 6, 8))
    model = load_model((copy.deepcopy(hf), tokenizer), dtype=torch.bfloat16)
    right = path_patch(wide, pairs, metric="logit").heads.per_pair
    ours = path_patch(model, pairs, metric="logit").heads.per_pair
    trunk_of = engines.trunk_of

    def narrow_trunk(model: HookedModel, **options: Any) -> NarrowTrunk:
        parts: dict[str, Any] = dict(vars(trunk_of(model, **options)))
        parts["layers"] = [NarrowLayer(**vars(layer)) for layer in parts["layers"]]
        return NarrowTrunk(**parts)

    monkeypatch.setattr(engines, "trunk_of", narrow_trunk)
    narrow = path_patch(model, pairs, metric="logit", certify=False).heads.per_pair
    error, narrow_error = ((found - right).square().mean().sqrt() for found in (ours, narrow))
    assert 0 < error < narrow_error
