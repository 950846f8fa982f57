"""Inference changes no weight: what a tuning has gained is not lost by use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import arith_lens as al


@pytest.fixture(scope="module")
def model() -> al.HookedModel:
    return al.load_model("reference")


@pytest.fixture(scope="module")
def pairs(model: al.HookedModel) -> al.PromptPairs:
    return al.sample_pairs(model, n=4, templates="symbols", counterfactual="operands")


HEADS = ["5.5", "4.3"]
USES: dict[str, Callable[[Any, Any], Any]] = {
    "answers": lambda model, pairs: al.keep_correct(model, pairs),
    "generation": lambda model, pairs: model.bridge.original_model.generate(
        pairs.reference, max_new_tokens=2, do_sample=False
    ),
    "sweep": lambda model, pairs: al.path_patch(model, pairs, progress=False),
    "hooks": lambda model, pairs: al.path_patch(
        model, pairs, senders=HEADS, paths="total", engine="hooks", progress=False
    ),
    "gradients": lambda model, pairs: al.attribute(model, pairs, method="relp", progress=False),
    "edges": lambda model, pairs: al.edge_effects(model, pairs, HEADS[:1], progress=False),
    "knockout": lambda model, pairs: al.knock_out(model, pairs, HEADS, progress=False),
    "keeping": lambda model, pairs: al.keep_only(model, pairs, HEADS, progress=False),
    "interchange": lambda model, pairs: al.interchange(model, pairs, al.Site(9)),
    "attention": lambda model, pairs: al.attention_by_role(model, pairs, HEADS),
    "probe": lambda model, pairs: al.mlp_probe(model, pairs),
    "lens": lambda model, pairs: al.logit_lens(model, pairs),
}


def state(model: al.HookedModel) -> dict[str, torch.Tensor]:
    """A copy of every parameter and buffer."""
    return {name: one.detach().clone() for name, one in model.bridge.state_dict().items()}


def changes(before: dict[str, torch.Tensor], model: al.HookedModel) -> list[str]:
    """The names of the parameters and buffers that are not the same, bit for bit."""
    now = state(model)
    assert now.keys() == before.keys()
    return [name for name, one in before.items() if not torch.equal(one, now[name])]


@pytest.mark.parametrize("use", USES)
def test_inference_changes_no_weight(
    model: al.HookedModel, pairs: al.PromptPairs, use: str
) -> None:
    before = state(model)
    USES[use](model, pairs)
    assert changes(before, model) == []
    assert all(one.grad is None for one in model.bridge.parameters()), "nor keeps a gradient"


def test_a_changed_weight_would_be_seen(model: al.HookedModel) -> None:
    before = state(model)
    weight = next(model.bridge.parameters()).data
    old = float(weight[0, 0])
    weight[0, 0] += 1e-6
    assert changes(before, model) != []
    weight[0, 0] = old
    assert changes(before, model) == []
