"""Neurons as components, against plain Transformers with a hook before `down_proj`."""

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
import torch
from oracles import Raw, make_pairs
from support.families import EVERY

import arith_lens as al
from arith_lens.components import (
    Mlp,
    as_components,
    in_forward_order,
    neurons_name,
    parse_component,
)
from arith_lens.knockout import circuit_curve
from arith_lens.model import HookedModel


def with_neurons(raw: Raw, change: Any, *layers: int, frozen: bool = False) -> torch.Tensor:
    """The raw model's logits at END if `change(layer, neurons)` goes into the down projections.

    `frozen`: the heads have their outputs of the reference run.
    """
    handles = []
    for layer, block in enumerate(raw.hf.model.layers):
        if frozen:
            kept = partial(lambda x, _, args: (x, *args[1:]), raw.z[0][layer])
            handles.append(block.self_attn.o_proj.register_forward_pre_hook(kept))
        if layer in layers:
            put = partial(lambda at, _, args: (change(at, args[0].clone()),), layer)
            handles.append(block.mlp.down_proj.register_forward_pre_hook(put))
    return raw.run(raw.pairs.reference, handles)


def activations(raw: Raw, tokens: torch.Tensor) -> list[torch.Tensor]:
    """What the down projections of the raw model read, [pair pos neuron] per layer."""
    kept: list[torch.Tensor] = []
    blocks = raw.hf.model.layers
    raw.run(
        tokens,
        [
            b.mlp.down_proj.register_forward_pre_hook(lambda _, x: kept.append(x[0].clone()))
            for b in blocks
        ],
    )
    return kept


def oracle(
    raw: Raw, neurons: list[al.Neuron], source: Any, where: slice, frozen: bool = False
) -> Any:
    """Logits with some neurons replaced by `source[layer]` (or 0) at some positions."""

    def change(layer: int, x: torch.Tensor) -> torch.Tensor:
        for one in neurons:
            if one.layer == layer:
                x[:, where, one.index] = 0 if source is None else source[layer][:, where, one.index]
        return x

    return with_neurons(raw, change, *{one.layer for one in neurons}, frozen=frozen)


def test_a_neuron_has_a_short_name_and_a_place_in_the_order() -> None:
    neuron = al.Neuron(11, 57)
    assert str(neuron) == "MLP 11.57"
    for text in ("MLP 11.57", "mlp 11 neuron 57", "L11N57"):
        assert parse_component(text) == neuron
    assert parse_component("MLP 11") == Mlp(11)
    assert in_forward_order([Mlp(2), neuron, al.Neuron(2, 5), al.Head(2, 7)]) == [
        al.Head(2, 7),
        al.Neuron(2, 5),
        Mlp(2),
        neuron,
    ]
    with pytest.raises(TypeError, match=r"found the neuron MLP 11\.57; neuron_effects"):
        as_components([neuron])
    with pytest.raises(ValueError, match="counted from 0"):
        al.Neuron(1, -1)


@pytest.mark.parametrize("name", ["llama", "mistral", "deep"])
@torch.no_grad()
def test_an_effect_via_mlps_is_that_of_one_column_before_down_proj(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Prompts are padded on the left; `deep` has layers beyond 10; the last pair runs alone."""
    model = request.getfixturevalue(name)
    pairs = make_pairs(model)
    raw = Raw(model.bridge.original_model, pairs)
    other, rows = activations(raw, pairs.counterfactual), torch.arange(len(pairs))
    before = raw.logits[0][rows, pairs.answer]
    layers = [0, 1, model.n_layers - 1]
    effects = al.neuron_effects(model, pairs, layers, paths="via_mlps", metric="logit")
    for row, layer in enumerate(layers):
        size = effects.per_pair[row].abs().mean(-1)
        for index in size.topk(2).indices.tolist():
            at_end = slice(-1, None)
            patched = oracle(raw, [al.Neuron(layer, index)], other, at_end, frozen=True)
            expected = patched[rows, pairs.answer] - before
            assert torch.allclose(effects.per_pair[row, index], expected, atol=1e-5)
            assert expected.abs().max() > 5e-4, "an effect of 0 would be seen"
    alone = al.neuron_effects(model, pairs[-1:], [1], paths="via_mlps", metric="logit")
    assert torch.allclose(alone.per_pair, effects.per_pair[1:2, :, -1:], atol=1e-5)
    strongest = effects.top(1)[0]
    assert isinstance(strongest, al.Neuron)
    assert effects[strongest].mean() == effects.mean().min()
    with pytest.raises(KeyError, match="expected a neuron of MLP 1, found MLP 0"):
        alone["MLP 0.3"]
    few = al.neuron_effects(model, pairs, [1], paths="via_mlps", metric="logit", top=3)
    known = ~few.per_pair.isnan().any(-1)
    assert known.sum() == 3
    sizes = al.neuron_effects(model, pairs, [1], metric="logit").mean()[0]
    assert known[0].nonzero().flatten().tolist() == sorted(sizes.abs().topk(3).indices.tolist())
    with_sign = al.neuron_effects(model, pairs, [*range(model.n_layers)], metric="logit").mean()
    assert bool((with_sign.abs().topk(3).values != with_sign.topk(3).values).any())
    assert torch.allclose(few.per_pair[known], effects.per_pair[1:2][known], atol=1e-6)


@torch.no_grad()
def test_an_effect_via_mlps_in_bfloat16(make_hf: Any, tokenizer: Any) -> None:
    hf = make_hf("llama").to(torch.bfloat16)
    model, pairs = al.load_model((hf, tokenizer)), make_pairs(hf)
    exact = al.load_model((make_hf("llama"), tokenizer))
    effects, expected = (
        al.neuron_effects(one, pairs, [0], paths="via_mlps", metric="logit").per_pair
        for one in (model, exact)
    )
    assert (effects - expected).norm() < 0.1 * expected.norm()


@pytest.mark.parametrize("positions", ["end", "all"])
@torch.no_grad()
def test_knocked_out_neurons_are_replaced_before_down_proj(
    model: HookedModel, positions: str
) -> None:
    pairs = make_pairs(model)
    raw = Raw(model.bridge.original_model, pairs)
    chosen = [al.Neuron(0, 3), al.Neuron(0, 7), al.Neuron(2, 40)]
    where = slice(-1, None) if positions == "end" else slice(None)
    other = activations(raw, pairs.counterfactual)
    shared: dict[str, Any] = {"positions": positions, "progress": False}
    for ablation, source in (("zero", None), ("counterfactual", other)):
        expected = oracle(raw, chosen, source, where).softmax(-1)
        expected = expected.gather(1, pairs.answer[:, None])[:, 0]
        out = al.knock_out(model, pairs, chosen, ablation=ablation, **shared)
        assert torch.allclose(out.probability, expected, atol=1e-5)
        base = raw.logits[0].softmax(-1).gather(1, pairs.answer[:, None])[:, 0]
        assert (out.probability - base).abs().max() > 1e-4, "the oracle would see no knockout"
    with model.hooks([("blocks.0.hook_mlp_out", lambda x, hook: x)]):  # no plain layers: by hooks
        slow = al.knock_out(model, pairs, chosen, ablation="counterfactual", **shared)
    assert torch.allclose(slow.probability, out.probability, atol=1e-5)
    every = [al.Neuron(layer, i) for layer in range(model.n_layers) for i in range(48)]
    rest = [one for one in every if one not in chosen]
    kept = al.keep_only(model, pairs, chosen, among="neurons", ablation="counterfactual", **shared)
    expected = oracle(raw, rest, other, where).softmax(-1).gather(1, pairs.answer[:, None])[:, 0]
    assert torch.allclose(kept.probability, expected, atol=1e-5)


def test_neurons_of_a_whole_mlp_are_the_mlp(llama: HookedModel) -> None:
    pairs = make_pairs(llama)
    whole = al.knock_out(llama, pairs, ["MLP 1"], progress=False)
    neurons = [al.Neuron(1, i) for i in range(48)]
    parts = al.knock_out(llama, pairs, neurons, progress=False)
    assert torch.allclose(whole.probability, parts.probability, atol=1e-5)
    curve = al.knockout_curve(llama, pairs, neurons[:2], ks=[1], progress=False)
    assert type(curve).from_arrays(curve.to_arrays()).order == tuple(neurons[:2])
    order = [*neurons, *(al.Neuron(k, i) for k in (0, 2) for i in range(48))]
    sizes = circuit_curve(llama, pairs, order, among="neurons", fractions=[0.5], progress=False)
    assert sizes.sizes == (0, 72, 144)
    means = al.counterfactual_means(llama, pairs, neurons[:1])
    assert means[neurons_name(1)].shape == (48,)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@torch.no_grad()
def test_hooks_of_neurons(name: str, make_hf: Any, tokenizer: Any) -> None:
    """Gated and plain MLPs: patch, scale, ablate, against a hook before the last matrix."""
    hf = make_hf("llama") if name == "llama" else EVERY["GPT-2"].make(len(tokenizer))
    model = al.load_model((hf, tokenizer))
    tokens = make_pairs(hf, (8, 8)).reference
    inner = hf.model.layers[1].mlp.down_proj if name == "llama" else hf.transformer.h[1].mlp.c_proj
    source = al.record(model, tokens.flip(0), [neurons_name(1)])
    one = al.Neuron(1, 5)

    def expected(change: Any) -> torch.Tensor:
        with ExitStack() as stack:
            stack.callback(
                inner.register_forward_pre_hook(lambda _, x: change(x[0].clone())).remove
            )
            return hf(tokens).logits

    def put(x: torch.Tensor, value: Any) -> torch.Tensor:
        x[..., 5] = value
        return x

    cases = {
        "patch": (al.patch_neurons(one, source), lambda x: put(x, source[neurons_name(1)][..., 5])),
        "scale": (al.scale_neurons([one], 3.0), lambda x: put(x, 3 * x[..., 5])),
        "zero": (al.ablate_neurons("MLP 1.5", ablation="zero"), lambda x: put(x, 0.0)),
    }
    for hooks, change in cases.values():
        assert torch.allclose(
            model.run_with_hooks(tokens, fwd_hooks=hooks), expected(change), atol=1e-5
        )
        assert not torch.allclose(expected(change), hf(tokens).logits, atol=1e-5)


def test_strange_neurons_are_refused(llama: HookedModel, tokenizer: Any) -> None:
    pairs = make_pairs(llama)
    with pytest.raises(
        IndexError, match=r"expected a neuron from 0 to 47 in MLP 1, found MLP 1\.48"
    ):
        al.knock_out(llama, pairs, ["MLP 1.48"])
    with pytest.raises(IndexError, match="expected a layer from 0 to 2"):
        al.knock_out(llama, pairs, [al.Neuron(3, 0)])
    with pytest.raises(TypeError, match=r"found the neuron MLP 1\.4"):
        al.path_patch(llama, pairs, senders=["MLP 1.4"])
    with pytest.raises(TypeError, match="expected neurons such as Neuron"):
        al.scale_neurons(["1.4"], 0.0)
    with pytest.raises(IndexError, match="the MLP has 48 neurons"):
        source = al.record(llama, pairs.reference[:1], [neurons_name(1)])
        al.patch_neurons("MLP 1.48", source)
    with pytest.raises(ValueError, match="expected top from 1 to the 48 neurons"):
        al.neuron_effects(llama, pairs, [1], top=49)
    with pytest.raises(ValueError, match="expected paths among direct, via_mlps"):
        al.neuron_effects(llama, pairs, [1], paths="total")
    hf = EVERY["Mixtral"].make(len(tokenizer))
    experts = al.load_model((hf, tokenizer))
    with pytest.raises(ValueError, match="a mixture of experts has one for each expert"):
        al.knock_out(experts, make_pairs(hf, (8, 6)), ["MLP 1.0"])


@torch.no_grad()
def test_an_effect_is_the_change_of_the_logit_by_hand(model: HookedModel) -> None:
    hf = model.bridge.original_model
    pairs = make_pairs(hf)
    raw = Raw(hf, pairs)
    kept: list[torch.Tensor] = []
    down, norm = hf.model.layers[1].mlp.down_proj, hf.model.norm
    for tokens in (pairs.reference, pairs.counterfactual):
        watch = [down.register_forward_pre_hook(lambda _, x: kept.append(x[0][:, -1]))]
        watch.append(norm.register_forward_pre_hook(lambda _, x: kept.append(x[0][:, -1])))
        raw.run(tokens, watch)
    before, end, after, _ = (part.reshape(len(pairs), -1) for part in kept)
    scale = end.square().mean(-1, keepdim=True).add(hf.config.rms_norm_eps).sqrt()
    columns = hf.lm_head.weight[pairs.answer]
    logit = raw.logits[0].gather(1, pairs.answer[:, None])
    per_neuron = torch.einsum("pd,dn->pn", columns * norm.weight / scale, down.weight)
    expected = ((after - before) * per_neuron / logit).T
    effects = al.neuron_effects(model, pairs, "MLP 1")
    assert effects.per_pair.shape == (1, 48, len(pairs))
    assert torch.allclose(effects.per_pair[0], expected, atol=2e-5)
    assert not torch.allclose(effects.per_pair[0], -expected, atol=2e-3), "the sign would be seen"


def test_neurons_sum_to_the_direct_effect_of_their_mlp(llama: HookedModel) -> None:
    pairs = make_pairs(llama.bridge.original_model)
    neurons = al.neuron_effects(llama, pairs, [0, 2])
    direct = al.path_patch(llama, pairs, paths="direct", progress=False)
    expected = direct.mlps.without_norm_scale().per_pair[[0, 2]]
    assert torch.allclose(neurons.per_pair.sum(1), expected, atol=2e-5)
    assert expected.abs().max() > 1e-3


def test_an_mlp_that_does_not_write_its_neurons_times_w_out_is_refused(llama: HookedModel) -> None:
    pairs = make_pairs(llama.bridge.original_model)
    with (
        llama.hooks(al.scale_mlps("MLP 1", 1.5)),
        pytest.raises(ValueError, match="expected parts that add up to what MLP 1 adds"),
    ):
        al.neuron_effects(llama, pairs, "MLP 1")


@pytest.mark.parametrize("name", ["Mixtral", "gpt-oss", "Gemma 3", "OPT"])
def test_a_family_without_neurons_that_write_is_sent_to_path_patching(
    name: str, tokenizer: Any
) -> None:
    """Experts; a norm after the MLP; an MLP that is part of its layer."""
    reasons = {
        "Gemma 3": r"parts that add up to what MLP 1 adds to the stream, .*; use path_patch",
        "OPT": r"found an MLP that is not a module .*; use path_patch with engine='hooks'",
    }
    experts = r"writes its neurons times W_out, found MLP 1 without one W_out .*; use path_patch"
    hf = EVERY[name].make(len(tokenizer))
    pairs = make_pairs(hf, (8, 6))
    model = al.load_model((hf, tokenizer))
    with pytest.raises(ValueError, match=reasons.get(name, experts)):
        al.neuron_effects(model, pairs, [1])


def test_strange_mlps_are_refused(llama: HookedModel) -> None:
    pairs = make_pairs(llama.bridge.original_model)
    with pytest.raises(ValueError, match="found none"):
        al.neuron_effects(llama, pairs, [])
    with pytest.raises(IndexError):
        al.neuron_effects(llama, pairs, 9)
