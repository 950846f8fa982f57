"""Which MLPs carry a head's effect: against raw Transformers hooks, identities, cost, files."""

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import LLAMA, Places, Raw, make_pairs
from support.families import EVERY
from torch import Tensor
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from arith_lens.arrays import Arrays
from arith_lens.components import Head, Mlp
from arith_lens.mediation import Mediation, mediators
from arith_lens.methods import Certificate
from arith_lens.metrics import METRICS, Readout
from arith_lens.model import load_model
from arith_lens.path_patching import UnsupportedTrunk, patch, path_patch
from arith_lens.path_patching.engines import effects_of
from arith_lens.path_patching.layers import AdditiveLayer, LayerInput
from arith_lens.path_patching.recording import record_pairs
from arith_lens.runs import open_run


def change(raw: Raw, head: Head, frozen: list[int]) -> Tensor:
    """Of the answer's logit, by torch's own hooks: other heads and the MLPs of `frozen` held."""
    handles = []
    for layer in range(len(raw.layers)):
        heads = [head.index] if head.layer == layer else []
        hook = partial(raw._put_z, layer=layer, heads=heads, frozen=True)
        handles.append(raw._reads_z(layer).register_forward_pre_hook(hook))
        if layer in frozen:
            held = partial(raw._put_mlp, layer=layer, run=0)
            handles.append(raw._mlp(layer).register_forward_hook(held))
    logits = raw.run(raw.pairs.reference, handles)
    return (logits - raw.logits[0])[torch.arange(len(logits)), raw.pairs.answer]


def assert_as_raw(
    model: Any, heads: list[Head], places: Places = LLAMA, first: int | None = None
) -> None:
    """`first` is the first layer whose MLP a head reaches; None: that of the first head."""
    hf = model.bridge.original_model
    pairs = make_pairs(hf)
    found = mediators(model, pairs, heads, metric="logit")
    raw, layers = Raw(hf, pairs, places), range(hf.config.num_hidden_layers)
    close = partial(assert_close, atol=raw.tolerance, rtol=1e-4)
    for index, head in enumerate(heads):
        for layer in layers:
            others = [k for k in layers if k != layer]
            expected = [change(raw, head, frozen) for frozen in ([layer], others)]
            close(found.all_but_one_mlp.per_pair[index, layer], expected[0])
            close(found.only_one_mlp.per_pair[index, layer], expected[1])
        close(found.via_mlps.per_pair[index], change(raw, head, []))
        close(found.direct.per_pair[index], change(raw, head, [*layers]))
    first = heads[0].layer if first is None else first
    for view in (found.mediated, found.mediated_alone):
        assert (view.per_pair.abs().amax((0, 2))[first:] > 20 * raw.tolerance).all(), (
            "the test must be able to fail in every layer"
        )


def test_each_number_is_that_of_raw_hooks(model: Any) -> None:
    """Two heads of a layer, one of another; out of order; pairs of unequal lengths."""
    assert_as_raw(model, [Head(1, 3), Head(0, 2), Head(0, 0)])


def test_layers_of_two_digits_are_right(deep: Any) -> None:
    assert_as_raw(deep, [Head(10, 1), Head(11, 0)])


@pytest.mark.parametrize(("name", "first"), [("Gemma 3", 0), ("Pythia", 1)])
def test_layers_that_are_no_plain_sum_are_right(name: str, first: int, tokenizer: Any) -> None:
    """In a parallel block the MLP of a head's own layer does not see the head."""
    family = EVERY[name]
    model = load_model((family.make(len(tokenizer)), tokenizer))
    assert_as_raw(model, [Head(0, 2), Head(0, 0)], family.places, first)


def test_half_precision_is_close_to_its_own_raw_hooks(make_model: Any) -> None:
    model = make_model("mistral", seed=3)
    wide = mediators(model, make_pairs(model), [Head(0, 1), Head(1, 0)], metric="logit")
    pairs = make_pairs(model)
    model.bridge.original_model.to(torch.bfloat16)
    narrow = mediators(model, pairs, [Head(0, 1), Head(1, 0)], metric="logit")
    for a, b in (
        (wide.all_but_one_mlp, narrow.all_but_one_mlp),
        (wide.only_one_mlp, narrow.only_one_mlp),
    ):
        worst = (a.per_pair - b.per_pair).abs().max()
        assert 0 < worst < 0.1 * a.per_pair.abs().max()


def test_a_wrong_row_would_be_seen(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair of one row that misses one MLP."""
    right, layers = AdditiveLayer.advance, itertools.cycle(range(llama.cfg.n_layers))

    def skipping(self: AdditiveLayer, inputs: LayerInput) -> None:
        rows = inputs.rows[:-1] if next(layers) == 1 else inputs.rows
        right(self, replace(inputs, rows=rows))

    assert_as_raw(llama, [Head(0, 1)])
    monkeypatch.setattr(AdditiveLayer, "advance", skipping)
    monkeypatch.setattr(Certificate, "require", lambda *_: None)
    with pytest.raises(AssertionError, match="not close"):
        assert_as_raw(llama, [Head(0, 1)])


@pytest.mark.parametrize("metric", ["relative_logit", "logit_difference", "logprob"])
def test_both_engines_agree_and_ends_are_those_of_path_patching(model: Any, metric: str) -> None:
    pairs, heads = make_pairs(model), [Head(2, 1), Head(0, 3)]
    settings: dict[str, Any] = {"metric": metric}
    if metric == "logit_difference":
        settings["foil"] = (pairs.answer + 1) % model.cfg.d_vocab
    fast, general = (
        mediators(model, pairs, heads, engine=e, **settings) for e in ("sweep", "hooks")
    )
    close = partial(assert_close, atol=2e-5, rtol=1e-4, equal_nan=True)
    for name in ("via_mlps", "direct", "all_but_one_mlp", "only_one_mlp"):
        close(getattr(fast, name).per_pair, getattr(general, name).per_pair)
    for paths, ends in (("via_mlps", fast.via_mlps), ("direct", fast.direct)):
        known = path_patch(model, pairs, senders=heads, paths=paths, **settings).heads.per_pair
        close(ends.per_pair, torch.stack([known[head.layer, head.index] for head in heads]))


def test_parts_and_what_is_left_are_the_effect(deep: Any) -> None:
    found = mediators(deep, make_pairs(deep), [Head(12, 0), Head(3, 1)], metric="logit")
    assert (found.mediated.per_pair[0, :12] == 0).all() and (
        found.mediated_alone.per_pair[1, :3] == 0
    ).all()
    for view, left in zip((found.mediated, found.mediated_alone), (0, 1), strict=True):
        parts = found.direct.per_pair + view.per_pair.sum(1) + found.interaction.per_pair[:, left]
        assert_close(parts, found.via_mlps.per_pair)
    # the last head has one MLP after it, and nothing for that to act together with
    assert (
        found.interaction.per_pair[0].abs().max() < 1e-5 < found.interaction.per_pair[1].abs().max()
    )


def test_each_state_is_computed_once(deep: Any) -> None:
    pairs, heads = make_pairs(deep), [Head(4, 0), Head(4, 1), Head(9, 0)]
    with FlopCounterMode(display=False) as counter:
        mediators(deep, pairs, heads, certify=False, progress=False)
    n_layers, mlp = deep.n_layers, sum(p.numel() for p in deep.blocks[0].mlp.parameters())
    evaluations = n_layers
    for head in heads:
        after = n_layers - head.layer
        evaluations += after + after * (after - 1) // 2 + after - 1
    d_model, d_head = deep.cfg.d_model, deep.cfg.d_head
    n_rows = 1 + sum(2 * (1 + n_layers - head.layer) for head in heads)
    swept = 2 * (evaluations * mlp + len(heads) * d_head * d_model + n_rows * d_model)
    with FlopCounterMode(display=False) as recorded:
        record_pairs(deep, pairs)
    assert counter.get_total_flops() - recorded.get_total_flops() == len(pairs) * swept


def test_a_run_keeps_the_result_and_does_not_compute_it_again(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, heads = make_pairs(llama), [Head(1, 2), Head(0, 0)]
    with open_run("which_mlps_carry_them", {}, model=llama, root=tmp_path) as run:
        found = mediators(llama, pairs, heads, run=run, name="sums", batch_size=2)
        monkeypatch.setattr(patch.SweepEngine, "__call__", None)
        again = mediators(llama, pairs, heads, run=run, name="sums", batch_size=2)
    kept = Mediation.from_arrays(run.load_arrays("sums"))
    for other in (again, kept):
        assert other.heads == found.heads and other.computation["certificate"]
        assert torch.equal(other.all_but_one_mlp.per_pair, found.all_but_one_mlp.per_pair)
        assert torch.equal(other.interaction.per_pair, found.interaction.per_pair)
    table = found.to_dataframe()
    assert len(table) == 2 * 3 and table["head"].tolist()[:3] == ["1.2"] * 3
    chosen = table[(table["head"] == "0.0") & (table["mlp"] == "MLP 2")]
    assert chosen["mediated"].item() == pytest.approx(float(found.mediated.mean()[1, 2]))
    assert table[["layer", "index"]].values.tolist()[:3] == [[1, 2]] * 3


def test_results_that_count_layers_in_place_of_mlps_are_still_read(llama: Any) -> None:
    found = mediators(llama, make_pairs(llama), [Head(1, 2)])
    arrays = found.to_arrays()
    old = {
        name: dict(arrays.header[name], axes=["head", "layer", "pair"], labels={"head": ["1.2"]})
        for name in ("but", "only")  # the names in files
    }
    back = Mediation.from_arrays(Arrays(arrays.tensors, {**arrays.header, **old}))
    assert back.to_dataframe().equals(found.to_dataframe())


def test_shards_change_nothing_but_rounding(mistral: Any) -> None:
    pairs, heads = make_pairs(mistral), [Head(0, 1)]
    whole, alone = (mediators(mistral, pairs, heads, batch_size=size) for size in (None, 1))
    assert_close(
        whole.all_but_one_mlp.per_pair, alone.all_but_one_mlp.per_pair, atol=2e-5, rtol=1e-4
    )


def test_what_cannot_be_is_refused(llama: Any) -> None:
    pairs = make_pairs(llama)
    wrong: Any = [Mlp(1)]
    with pytest.raises(ValueError, match=r"expected heads .* found .*Mlp"):
        mediators(llama, pairs, wrong)
    with pytest.raises(ValueError, match=r"found none"):
        mediators(llama, pairs, [])
    with pytest.raises(IndexError, match=r"9\.9|9"):
        mediators(llama, pairs, [Head(9, 9)])
    with pytest.raises(ValueError, match=r"engine among sweep, hooks"):
        mediators(llama, pairs, [Head(0, 0)], engine="fast")


def test_a_model_that_is_not_swept_is_refused_and_hooks_do_it(tokenizer: Any) -> None:
    model = load_model((EVERY["BLOOM"].make(len(tokenizer)), tokenizer))
    pairs, heads = make_pairs(model), [Head(0, 1)]
    with pytest.raises(UnsupportedTrunk, match="engine='hooks'"):
        mediators(model, pairs, heads)
    found = mediators(model, pairs, heads, engine="hooks", metric="logit")
    assert found.mediated.per_pair.abs().max() > 1e-3


def test_a_row_that_is_not_finite_is_named() -> None:
    logits = torch.ones(3, 2)
    logits[2, 1] = torch.nan
    with pytest.raises(FloatingPointError, match="second"):
        effects_of(Readout(logits), METRICS["logit"], ["first", "second"])
