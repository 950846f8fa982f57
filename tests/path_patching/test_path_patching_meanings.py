"""Every metric under every meaning of paths, against raw Transformers and the metrics' formulas."""

from typing import Any

import pytest
import torch
from oracles import Raw, effect, make_pairs
from torch import Tensor
from torch.testing import assert_close

from arith_lens.components import Head, Mlp
from arith_lens.path_patching import path_patch

ROWS = torch.arange(5)


@pytest.fixture(params=["llama", "mistral", "deep"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def raw(request: pytest.FixtureRequest, model: Any, make_hf: Any) -> Any:
    """A Transformers model of the same weights that no bridge has touched."""
    cfg, family = model.cfg, request.node.callspec.params["model"]
    sizes = {"num_hidden_layers": cfg.n_layers, "num_attention_heads": cfg.n_heads}
    sizes |= {"hidden_size": cfg.d_model, "intermediate_size": cfg.d_mlp}
    hf = make_hf("mistral" if family == "mistral" else "llama", **sizes)
    for name, weight in model.bridge.original_model.named_parameters():
        hf.get_parameter(name.replace("._original_component", "")).data.copy_(weight.data)
    return hf


def expected(metric: str, patched: Tensor, origin: Tensor, answer: Tensor, foil: Tensor) -> Tensor:
    def read(logits: Tensor) -> Tensor:
        return {
            "relative_logit": lambda: logits[ROWS, answer],
            "logit": lambda: logits[ROWS, answer],
            "logprob": lambda: logits.log_softmax(-1)[ROWS, answer],
            "probability": lambda: logits.softmax(-1)[ROWS, answer],
            "logit_difference": lambda: logits[ROWS, answer] - logits[ROWS, foil],
        }[metric]()

    change = read(patched) - read(origin)
    return change / read(origin) if metric == "relative_logit" else change


@pytest.mark.parametrize("paths", ["via_mlps", "direct", "total"])
def test_every_metric_is_its_formula_on_raw_logits(model: Any, raw: Any, paths: str) -> None:
    """Padded prompts of unequal lengths; grouped queries; a head in a late layer."""
    pairs = make_pairs(model)
    oracle, last = Raw(raw, pairs), model.cfg.n_layers - 1
    senders: list[Head | Mlp] = [Head(0, 1), Head(last - 1, 0), Mlp(0), Mlp(last)]
    logits = {sender: oracle.patched(sender, paths) for sender in senders}
    foil = (pairs.answer + 1) % model.cfg.d_vocab
    engine = "hooks" if paths == "total" else "sweep"
    for metric in ("relative_logit", "logit", "logprob", "probability", "logit_difference"):
        given = foil if metric == "logit_difference" else None
        result = path_patch(
            model, pairs, senders=senders, paths=paths, metric=metric, engine=engine, foil=given
        )
        sizes = []
        for sender in senders:
            right = expected(metric, logits[sender], oracle.logits[0], pairs.answer, foil)
            assert_close(effect(result, sender), right, atol=oracle.tolerance, rtol=1e-4)
            sizes.append(float(right.abs().max()))
        assert max(sizes) > 20 * oracle.tolerance, "the test must be able to fail"


@pytest.mark.parametrize("paths", ["direct", "total"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_bfloat16_agrees_with_float32_of_the_same_weights(
    make_model: Any, family: str, paths: str
) -> None:
    model = make_model(family)
    model.bridge.original_model.to(torch.bfloat16).to(torch.float32)  # weights that bf16 can hold
    pairs = make_pairs(model)
    options: dict[str, Any] = {"metric": "logit", "paths": paths}
    options["engine"] = "hooks" if paths == "total" else "sweep"
    wide = path_patch(model, pairs, **options).heads.per_pair
    model.bridge.original_model.to(torch.bfloat16)
    narrow = path_patch(model, pairs, **options).heads.per_pair
    assert 0 < (wide - narrow).abs().max() < 0.1 * wide.abs().max()
