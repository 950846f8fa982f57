"""Direct effects of neurons: by hand from the plain model's weights, and as a sum the MLP's own."""

from typing import Any

import pytest
import torch
from oracles import Raw, make_pairs
from support.families import EVERY

import arith_lens as al
from arith_lens.model import HookedModel


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
        pytest.raises(ValueError, match="expected an MLP that writes its neurons times W_out"),
    ):
        al.neuron_effects(llama, pairs, "MLP 1")


@pytest.mark.parametrize("name", ["Mixtral", "gpt-oss", "Gemma 3", "OPT"])
def test_a_family_without_neurons_that_write_is_sent_to_path_patching(
    name: str, tokenizer: Any
) -> None:
    """Experts; a norm after the MLP; an MLP that is part of its layer."""
    reasons = {
        "Gemma 3": r"writes its neurons times W_out, found .*MLP 1 differs .*; use path_patch",
        "OPT": r"found an MLP that is no module of its own .*; use path_patch with engine='hooks'",
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
