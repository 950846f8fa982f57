"""What surrounds the sweep: certificate, refusals, other trunks, memory, cost, metrics."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracles import make_pairs
from support.families import SWEPT
from torch.testing import assert_close

from arith_lens.components import Head, Mlp
from arith_lens.hooks import scale_mlps
from arith_lens.metrics import Targets
from arith_lens.model import load_model
from arith_lens.pairs import PromptPairs
from arith_lens.path_patching import (
    UnsupportedTrunk,
    engines,
    fitting_engine,
    layers,
    path_patch,
    sweep,
)
from arith_lens.runs import open_run


@pytest.fixture
def pairs(model: Any) -> PromptPairs:
    return make_pairs(model)


@pytest.fixture
def gpt2(tokenizer: Any) -> Any:
    """Biases everywhere, LayerNorm."""
    return load_model((SWEPT["GPT-2"].make(len(tokenizer)), tokenizer))


def assert_engines_agree(model: Any, pairs: PromptPairs, **options: Any) -> None:
    options = {"metric": "logit"} | options
    fast, general = (path_patch(model, pairs, engine=e, **options) for e in ("sweep", "hooks"))
    for a, b in ((fast.heads, general.heads), (fast.mlps, general.mlps)):
        assert_close(a.per_pair, b.per_pair, atol=2e-5, rtol=1e-4)
        assert a.per_pair.abs().max() > 1e-3, "the test must be able to fail"
    assert_close(fast.logit, general.logit, atol=2e-5, rtol=1e-4)


def test_the_engine_that_fits_is_the_sweep_unless_the_model_or_the_paths_refuse_it(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    assert fitting_engine(llama, explain=reasons.append) == "sweep"
    assert fitting_engine(llama, "direct") == "sweep"
    assert fitting_engine(llama, "total", explain=reasons.append) == "hooks"
    assert reasons == []
    monkeypatch.setattr(llama.blocks[1].mlp, "name", None)  # as an MLP that is part of its layer
    assert fitting_engine(llama, explain=reasons.append) == "hooks"
    assert "fit this model: an MLP that is not a module of its own in layer 1" in reasons[0]
    with pytest.raises(UnsupportedTrunk, match="not a module of its own"):
        path_patch(llama, make_pairs(llama))


@pytest.mark.parametrize("metric", ["logit", "logprob", "probability", "logit_difference"])
def test_every_metric_agrees_with_whole_rows_of_logits(
    model: Any, pairs: PromptPairs, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "VOCABULARY_CHUNK", 100)  # several chunks, the last one short
    foil = (pairs.answer + 1) % model.cfg.d_vocab if metric == "logit_difference" else None
    for paths in ("via_mlps", "direct"):
        assert_engines_agree(model, pairs, metric=metric, foil=foil, paths=paths)


def test_the_mlp_takes_rows_in_parts(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "LEAST_MLP_ROWS", 7)
    monkeypatch.setattr(sweep, "MLP_BYTES", {"cpu": 0})
    assert_engines_agree(model, pairs)


def test_layer_norms_in_bfloat16_see_float32_rows(gpt2: Any) -> None:
    assert gpt2.blocks[0].attn.b_O is not None
    pairs = make_pairs(gpt2)
    wide = path_patch(gpt2, pairs, metric="logit")
    gpt2.bridge.original_model.to(torch.bfloat16)
    narrow = path_patch(gpt2, pairs, metric="logit")
    worst = (wide.heads.per_pair - narrow.heads.per_pair).abs().max()
    assert 0 < worst < 0.1 * wide.heads.per_pair.abs().max()


def test_hooks_on_the_mlp_are_part_of_the_model(llama: Any) -> None:
    """The sweep calls the model's own MLP, hooks and all: it sweeps the model as it then is."""
    pairs = make_pairs(llama)
    plain = path_patch(llama, pairs, metric="logit")
    with llama.hooks(scale_mlps([1], 0.5)):
        assert_engines_agree(llama, pairs)
        halved = path_patch(llama, pairs, metric="logit")
    assert (halved.heads.per_pair - plain.heads.per_pair).abs().max() > 0.01


def test_a_hook_at_one_position_of_an_mlp_is_refused(llama: Any) -> None:
    """It means another row to the sweep than to the model."""
    hooks = scale_mlps([1], 0.5, positions=-1)
    with llama.hooks(hooks), pytest.raises(UnsupportedTrunk, match="act alike"):
        path_patch(llama, make_pairs(llama))


def test_a_bare_bridge_will_do(llama: Any) -> None:
    pairs = make_pairs(llama)
    bare = path_patch(llama.bridge, pairs, metric="logit", spot_checks=2)
    whole = path_patch(llama, pairs, metric="logit")
    assert torch.equal(bare.heads.per_pair, whole.heads.per_pair)


@torch.no_grad()
def test_the_final_norm_and_the_unembedding_may_be_on_two_devices(model: Any) -> None:
    """As where an unembedding that is tied to the embedding stays on the first device."""
    right = sweep.trunk_of(model)
    apart = replace(right, unembed=SimpleNamespace(W_U=right.unembed.W_U.to("meta")))
    rows = torch.randn(4, 3, model.cfg.d_model)
    readout = apart.read(rows, Targets(torch.tensor([5, 6, 7]), vocabulary=True))
    assert readout.answer.device.type == "meta" and readout.answer.shape == (4, 3)


def test_an_unembedding_without_weights_is_refused(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    pairs = make_pairs(model)
    model.bridge.original_model.lm_head.to("meta")
    with pytest.raises(UnsupportedTrunk, match=r"weights without values"):
        path_patch(model, pairs)


def test_spot_checks_recompute_cells_by_hooks(
    model: Any, pairs: PromptPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = path_patch(model, pairs, metric="logit", spot_checks=4).computation["spot_checks"]
    assert found["cells"] == 4 and found["largest_difference"] < 1e-4
    right = engines.sweep_rows
    monkeypatch.setattr(engines, "sweep_rows", lambda *given: 1.01 * right(*given) + 0.1)
    wrong = path_patch(model, pairs, metric="logit", spot_checks=4, certify=False)
    assert wrong.computation["spot_checks"]["largest_difference"] > 1e-4


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_out_of_memory_halves_the_chunk_and_loses_nothing(
    model: Any,
    pairs: PromptPairs,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    whole = path_patch(model, pairs, metric="logit")
    right, sizes = engines.sweep_rows, []

    def small(trunk: Any, recording: Any, senders: Any) -> torch.Tensor:
        sizes.append(recording.stream.shape[1])
        if sizes[-1] > 2:
            raise error("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return right(trunk, recording, senders)

    monkeypatch.setattr(engines, "sweep_rows", small)
    parts = path_patch(model, pairs, metric="logit")
    assert sizes == [5, 2, 2, 1]
    assert parts.computation["chunk_sizes"] == [2]
    assert caplog.messages == ["out of memory with 5 pairs at once; goes on with 2"]
    assert_close(parts.heads.per_pair, whole.heads.per_pair, atol=1e-5, rtol=1e-4)


def test_no_memory_for_one_pair_says_what_to_do(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engines, "sweep_rows", never)
    with pytest.raises(MemoryError, match="senders="):
        path_patch(llama, make_pairs(llama))


def test_other_errors_are_not_taken_for_memory(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("something else")

    monkeypatch.setattr(engines, "sweep_rows", broken)
    with pytest.raises(RuntimeError, match="something else"):
        path_patch(llama, make_pairs(llama))


def test_small_and_negative_logits_are_told(llama: Any) -> None:
    pairs = make_pairs(llama)
    with torch.no_grad():
        logits = llama(pairs.reference, attention_mask=pairs.attention_mask)[:, -1]
    least = logits.argmin(-1)
    near = logits.masked_fill(logits < 0, 99).argmin(-1)  # the smallest positive logit
    answer = torch.cat([least[:2], near[2:3], pairs.answer[3:]])
    with pytest.warns(UserWarning, match="found 2 of 5 pairs left out .*, and 1 with a smaller"):
        result = path_patch(llama, replace(pairs, answer=answer))
    assert result.n_left_out == 2
    assert result.heads.per_pair[..., :2].isnan().all()
    assert result.heads.per_pair[..., 2:].isfinite().all()
    assert result.heads.mean().isfinite().all()


def test_a_result_says_how_it_was_computed(model: Any, pairs: PromptPairs) -> None:
    result = path_patch(model, pairs, batch_size=2, paths="direct")
    computation = json.loads(json.dumps(dict(result.computation)))
    assert computation["engine"] == "sweep" and computation["paths"] == "direct"
    assert computation["shard_size"] == 2 and computation["n_pairs"] == 5
    assert computation["dtype"] == "float32" and computation["device"] == "cpu"
    assert result.heads.axes == ("layer", "head") and result.mlps.axes == ("layer",)
    assert result.heads.cluster is not None and len(result.heads.cluster) == 5


def test_an_open_run_keeps_the_result(llama: Any, tmp_path: Path) -> None:
    pairs = make_pairs(llama)
    with open_run("engines", {}, model=llama, root=tmp_path) as run:
        result = path_patch(llama, pairs, metric="logit", run=run)
    assert run.names == ("path_patching",)
    assert torch.equal(run.load("path_patching").heads.per_pair, result.heads.per_pair)
    assert run.facts("path_patching")["pairs"] == len(pairs)


def test_nan_in_the_weights_names_the_layer(make_model: Callable[..., Any]) -> None:
    model = make_model("llama")
    pairs = make_pairs(model)
    model.bridge.original_model.model.layers[1].mlp.original_component.down_proj.weight.data[0] = (
        float("nan")
    )
    with pytest.raises(FloatingPointError, match=r"blocks\.1|layer 1"):
        path_patch(model, pairs)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"senders": [Head(0, 4)]}, IndexError, "from 0 to 3"),
        ({"senders": [Mlp(3)]}, IndexError, "from 0 to 2"),
        ({"senders": []}, ValueError, "none"),
        ({"senders": ["1.2.3"]}, Exception, "Head"),
        ({"paths": "all"}, ValueError, "via_mlps, direct, total"),
        ({"paths": "total"}, ValueError, "engine='hooks'"),
        ({"engine": "fast"}, ValueError, "engine among sweep, hooks"),
        ({"metric": "accuracy"}, ValueError, "relative_logit"),
        ({"metric": "logit_difference"}, ValueError, "foil"),
        ({"metric": "logit_difference", "foil": torch.tensor([3])}, ValueError, "5 pairs"),
        ({"batch_size": 0}, ValueError, "batch_size"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    llama: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        path_patch(llama, make_pairs(llama), **options)


@pytest.mark.parametrize("columns", [slice(0, 2), slice(-1, None)], ids=["left", "right"])
def test_padding_that_no_mask_covers_is_refused(llama: Any, columns: slice) -> None:
    pairs = make_pairs(llama, (8, 8, 8))
    tokens = pairs.reference.clone()
    tokens[1, columns] = llama.tokenizer.pad_token_id
    bare = PromptPairs.from_tokens(tokens, tokens, pairs.answer)
    with pytest.raises(ValueError, match=r"pair 1 .*padding token 2; give the mask"):
        path_patch(llama, bare)
    masked = PromptPairs.from_tokens(
        tokens, tokens, pairs.answer, tokens != llama.tokenizer.pad_token_id
    )
    with pytest.warns(UserWarning, match="certificate shows nothing"):  # the prompts are equal
        path_patch(llama, masked, metric="logit")


def test_a_run_names_results_by_the_pairs_operation(llama: Any, tmp_path: Path) -> None:
    pairs = make_pairs(llama)
    with open_run("engines", {}, root=tmp_path) as run:
        for operations in [("addition",) * 5, ("addition",) * 4 + ("division",)]:
            path_patch(llama, replace(pairs, operation=operations), metric="logit", run=run)
        path_patch(llama, pairs, metric="logit", run=run, name="mine")
    assert run.names == ("addition", "path_patching", "mine")


def test_prompts_that_begin_with_the_padding_token_are_read_under_a_mask_of_ones(
    llama: Any,
) -> None:
    """As those of an adder of ten digits whose tokenizer pads with a digit."""
    pairs = make_pairs(llama, (8, 8, 8))
    tokens = pairs.reference.clone()
    tokens[:, :2] = llama.tokenizer.pad_token_id
    other = torch.where(pairs.reference == pairs.counterfactual, tokens, pairs.counterfactual)
    ones = torch.ones_like(tokens)
    meant = PromptPairs.from_tokens(tokens, other, pairs.answer, ones)
    path_patch(llama, meant, metric="logit", progress=False)
    with pytest.raises(ValueError, match="expected attention_mask with padded prompts"):
        path_patch(llama, PromptPairs.from_tokens(tokens, other, pairs.answer))


def test_another_forward_is_named_as_such(make_model: Any) -> None:
    """As NNsight(model) puts a forward of its own on each module."""
    model = make_model("llama")
    mlp = model.blocks[1].mlp.original_component
    own = mlp.forward
    mlp.forward = lambda *args: own(*args)
    pairs = make_pairs(model)
    with pytest.raises(UnsupportedTrunk, match=r"found another forward in place of .*mlp.*nnsight"):
        path_patch(model, pairs, progress=False)
    effects = path_patch(model, pairs, senders=["0.1"], engine="hooks", progress=False)
    assert effects.heads.per_pair[0, 1].isfinite().any()
