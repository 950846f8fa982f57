"""On a GPU every method gives the numbers of the CPU. Without a GPU these tests are skipped."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

import arith_lens as al

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RELATIVE = 1e-3
"""Of the largest number; in float32 the devices add in another order."""
HEADS = [(5, 5), (4, 3), (6, 0)]
Numbers: TypeAlias = Callable[[Any, al.PromptPairs], Tensor]


def _carry(model: Any, _: al.PromptPairs) -> Tensor:
    causal = al.causal_model("addition", "carry")
    pairs = al.interchange_pairs(model, causal, n=24, templates=["addition/0"], answers=range(100))
    return al.interchange(model, pairs, [al.Site(8), al.Site(9)], controls=False).iia


METHODS: dict[str, Numbers] = {
    "path_patch": lambda model, pairs: al.path_patch(model, pairs).heads.per_pair,
    "path_patch, hooks": lambda m, p: al.path_patch(m, p[:2], engine="hooks").heads.per_pair,
    "knock_out": lambda m, p: al.knock_out(m, p, HEADS).correct.float(),
    "keep_only": lambda m, p: al.keep_only(m, p, HEADS).correct.float(),
    "edge_effects": lambda m, p: al.edge_effects(m, p[:4], [(9, 0)]).per_pair,
    "attribute, relp": lambda m, p: al.attribute(m, p).heads.per_pair,
    "attribute, eap_ig": lambda m, p: al.attribute(m, p, method="eap_ig").heads.per_pair,
    "neuron_effects": lambda m, p: al.neuron_effects(m, p, [10], paths="via_mlps").per_pair,
    "mlp_probe": lambda m, p: al.mlp_probe(m, p).per_pair,
    "attention_by_role": lambda m, p: al.attention_by_role(m, p, HEADS).per_pair,
    "logit_attribution": lambda m, p: al.logit_attribution(m, p).per_pair,
    "interchange": _carry,
}


@pytest.fixture(scope="module")
def models(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {device: al.load_model(request.param, device=device) for device in ("cpu", "cuda")}


@pytest.mark.parametrize("models", ["reference", "reference-mistral"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_gives_the_numbers_of_the_cpu(method: str, models: dict[str, Any]):
    numbers = {}
    for device, model in models.items():
        pairs = al.sample_pairs(
            model, "addition", n=12, counterfactual="operands", templates=["addition/0"]
        )
        numbers[device] = METHODS[method](model, pairs).cpu()
    assert torch.equal(numbers["cpu"].isnan(), numbers["cuda"].isnan())
    of_cpu, of_gpu = (values[~values.isnan()] for values in numbers.values())
    assert of_cpu.abs().max() > 0
    assert (of_cpu - of_gpu).abs().max() <= RELATIVE * of_cpu.abs().max()


@pytest.mark.parametrize("models", ["reference"], indirect=True)
def test_other_problems_differ_by_more(models: dict[str, Any]):
    numbers = []
    for device, model in models.items():
        pairs = al.sample_pairs(model, "addition", n=12, seed=int(device == "cuda"))
        numbers.append(al.path_patch(model, pairs).heads.per_pair.cpu())
    assert (numbers[0] - numbers[1]).abs().max() > RELATIVE * numbers[0].abs().max()
