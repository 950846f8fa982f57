"""Every method on a model whose weights are all on disk: the numbers of the model in memory."""

import os

os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when datasets is imported

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.knockout import counterfactual_means, mask_greedily
from arith_lens.model import HookedModel

N_LAYERS = 4
HEADS = [al.Head(0, 1), al.Head(2, 3), al.Head(3, 0)]
BOTH = [*HEADS, al.Mlp(1)]
QUESTIONS = [Question("3 plus 5 = ", "8"), Question("John has 4 cups, gains 4 more. What is", "8")]
QUIET: dict[str, Any] = {"progress": False}
PLACES = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head",
          *(f"model.layers.{layer}" for layer in range(N_LAYERS)))  # fmt: skip


@pytest.fixture(scope="module", params=["llama", "mistral"])
def both(
    request: pytest.FixtureRequest,
    make_hf: Callable[..., Any],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[HookedModel, HookedModel]:
    """The model in memory, and the same with nothing there but the rotary angles."""
    folder = tmp_path_factory.mktemp(request.param) / "model"
    shape = {"num_hidden_layers": N_LAYERS, "max_position_embeddings": 2048}
    make_hf(request.param, **shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    places = {name: "cpu" if name == "model.rotary_emb" else "disk" for name in PLACES}
    disk = folder.parent / "disk"
    return al.load_model(folder, device="cpu"), al.load_model(
        folder, device_map=places, offload_folder=disk
    )


@pytest.fixture(scope="module")
def pairs(both: tuple[HookedModel, HookedModel]) -> al.PromptPairs:
    options: dict[str, Any] = {"n": 6, "keep": "all", "templates": ["addition/0"]}
    return al.sample_pairs(both[0], "addition", **options)


def generated(model: HookedModel, pairs: al.PromptPairs) -> torch.Tensor:
    return model.generate(pairs.reference[:1], max_new_tokens=3)


def evaluated(model: HookedModel, **options: Any) -> Any:
    pytest.importorskip("lm_eval", reason="needs the extra `evaluation`")
    data = Path(__file__).parents[1] / "data"
    settings = {"data_dir": data, "limit": 2, "shots": 1, "max_new_tokens": 4} | QUIET | options
    return al.evaluate(model, ("svamp", "commonsense_qa"), **settings)


METHODS: dict[str, Callable[[HookedModel, al.PromptPairs], Any]] = {
    "logits": lambda model, pairs: model(pairs.reference, attention_mask=pairs.attention_mask),
    "generation": generated,
    "sweep": lambda model, pairs: al.path_patch(model, pairs, metric="logit", **QUIET),
    "hooks": lambda model, pairs: al.path_patch(
        model, pairs, senders=HEADS, paths="total", metric="logit", engine="hooks", **QUIET
    ),
    "knockout": lambda model, pairs: al.knock_out(model, pairs, BOTH, **QUIET).effects(),
    "zero at END": lambda model, pairs: al.knock_out(
        model, pairs, BOTH, ablation="zero", positions="end", **QUIET
    ).effects(),
    "resampled": lambda model, pairs: al.knock_out(
        model, pairs, BOTH, ablation="resample", **QUIET
    ).effects(),
    "curve": lambda model, pairs: al.knockout_curve(model, pairs, BOTH, ks=[1, 2, 4], **QUIET),
    "iterative": lambda model, pairs: mask_greedily(model, pairs, BOTH, n=2, **QUIET).curve,
    "means": counterfactual_means,
    "attribution": lambda model, pairs: al.attribute(
        model, pairs, method="gim", paths="total", metric="logit", **QUIET
    ),
    "mediators": lambda model, pairs: al.mediators(model, pairs, HEADS, metric="logit", **QUIET),
    "probe of writes": lambda model, pairs: al.mlp_probe(model, pairs, read="write"),
    "probe of the stream": al.mlp_probe,
    "lens": al.logit_lens,
    "attention": lambda model, pairs: al.attention_by_role(model, pairs, HEADS),
    "answers": lambda model, pairs: al.answer_questions(model, QUESTIONS, whole_words=False),
    "answers with hooks": lambda model, pairs: al.answer_questions(
        model, QUESTIONS, hooks=al.scale_heads(HEADS, 0.0), whole_words=False
    ),
    "evaluation": lambda model, pairs: evaluated(model).answers,
    "evaluation with hooks": lambda model, pairs: (
        evaluated(model, hooks=al.scale_heads(HEADS, 0.0)).answers
    ),
}


def numbers(result: Any) -> dict[str, torch.Tensor]:
    """Whatever of a result is numbers; of answers, what the model wrote."""
    if isinstance(result, torch.Tensor):
        return {"": result}
    if isinstance(result, al.Answers):
        return {"said": torch.tensor([*"\n".join(result.said).encode()])}
    return dict(result if isinstance(result, Mapping) else result.to_arrays().tensors)


ROUNDED = ("probe of writes", "probe of the stream", "lens")
"""Methods whose last layer multiplies END's few rows, which round by where the weights lie."""


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], rtol: float = 0) -> bool:
    return a.keys() == b.keys() and all(
        a[key].shape == b[key].shape and torch.allclose(a[key], b[key], rtol, rtol, equal_nan=True)
        for key in a
    )


@pytest.mark.parametrize("method", METHODS)
def test_numbers_are_those_of_the_model_in_memory(both, pairs, method: str) -> None:
    whole, offloaded = both
    compute = METHODS[method]
    expected = numbers(compute(whole, pairs))
    rtol = 1e-6 if method in ROUNDED else 0
    assert expected and same(numbers(compute(offloaded, pairs)), expected, rtol)
    assert all(weight.is_meta for weight in offloaded.bridge.parameters()), "and on disk again"
    if not method.startswith(("answers", "evaluation")):
        assert not same(numbers(compute(whole, pairs[1:])), expected), "able to fail"


def test_answers_are_of_the_model_that_is_asked(both) -> None:
    """What is compared above tells a model from the same without some heads."""
    said = [
        numbers(METHODS[name](both[0], cast(Any, None)))["said"]
        for name in METHODS
        if "answers" in name
    ]
    assert not torch.equal(*said)


def test_tokens_go_where_the_embedding_computes(both) -> None:
    assert both[1].device == both[0].device == torch.device("cpu")
    assert both[1].embed.weight.is_meta
