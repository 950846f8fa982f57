"""A layer with NaN weights is named by every method, and nothing is computed from it."""

from collections.abc import Callable
from typing import Any

import pytest

import arith_lens as al
from arith_lens.knockout import counterfactual_means
from arith_lens.model import HookedModel, require_finite
from arith_lens.next_tokens import next_tokens

HEADS = [al.Head(0, 1), al.Head(2, 0)]
QUIET: dict[str, Any] = {"progress": False}
METHODS: dict[str, Callable[[HookedModel, al.PromptPairs], Any]] = {
    "sampling": lambda model, pairs: al.sample_pairs(
        model, "addition", n=4, templates=["addition/0"]
    ),
    "sweep": lambda model, pairs: al.path_patch(model, pairs, **QUIET),
    "hooks": lambda model, pairs: al.path_patch(
        model, pairs, senders=HEADS, engine="hooks", **QUIET
    ),
    "knockout": lambda model, pairs: al.knock_out(model, pairs, HEADS, **QUIET),
    "zero": lambda model, pairs: al.knock_out(model, pairs, HEADS, ablation="zero", **QUIET),
    "means": counterfactual_means,
    "mediators": lambda model, pairs: al.mediators(model, pairs, HEADS[:1], **QUIET),
    "attribution": lambda model, pairs: al.attribute(model, pairs, method="relp", **QUIET),
    "probe": al.mlp_probe,
    "writes": lambda model, pairs: al.mlp_probe(model, pairs, read="write"),
    "lens": al.logit_lens,
    "next tokens": lambda model, pairs: next_tokens(model, ["3 plus 5 equals to "]),
    "attention": lambda model, pairs: al.attention_by_role(model, pairs, [al.Head(2, 1)]),
}


@pytest.fixture(scope="module")
def pairs(llama: HookedModel) -> al.PromptPairs:
    return al.sample_pairs(llama, "addition", n=4, keep="all", templates=["addition/0"])


def broken(make_hf: Any, tokenizer: Any, part: str) -> HookedModel:
    hf_model = make_hf("llama")
    hf_model.get_submodule(part).weight.data[:] = float("nan")
    return al.load_model((hf_model, tokenizer))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_the_layer_that_is_not_finite(
    make_hf: Any, tokenizer: Any, pairs: al.PromptPairs, method: str
) -> None:
    model = broken(make_hf, tokenizer, "model.layers.1.mlp.down_proj")
    with pytest.raises(FloatingPointError, match=r"NaN or infinity first in layer 1 \("):
        METHODS[method](model, pairs)


@pytest.mark.parametrize("part", ["model.norm", "lm_head"])
@pytest.mark.parametrize("method", ["sampling", "sweep", "hooks", "zero", "mediators", "lens"])
def test_what_stands_after_the_layers_is_blamed_too(
    make_hf: Any, tokenizer: Any, pairs: al.PromptPairs, method: str, part: str
) -> None:
    with pytest.raises(FloatingPointError, match=r"NaN or infinity .*(unembed|W_U|reference run)"):
        METHODS[method](broken(make_hf, tokenizer, part), pairs)


def test_a_probe_blames_the_unembedding(
    make_hf: Any, tokenizer: Any, pairs: al.PromptPairs
) -> None:
    hf_model = make_hf("llama")
    hf_model.lm_head.weight.data[:, 3] = float("nan")
    model = al.load_model((hf_model, tokenizer))
    with pytest.raises(FloatingPointError, match="from W_U on"):
        al.mlp_probe(model, pairs)
    norm = broken(make_hf, tokenizer, "model.norm")
    with pytest.raises(FloatingPointError, match="from the final norm on"):
        al.mlp_probe(norm, pairs, final_norm=True)


def test_hooks_that_break_next_tokens_are_blamed(llama: HookedModel) -> None:
    def to_nan(value: Any, hook: Any) -> Any:
        return value * float("nan")

    hooks: Any = [("blocks.1.hook_mlp_out", to_nan)]
    with pytest.raises(FloatingPointError, match="under the hooks"):
        next_tokens(llama, "3 plus 5 equals to ", hooks=hooks)


def test_a_knockout_that_breaks_a_sound_model_is_blamed_itself(
    llama: HookedModel, pairs: al.PromptPairs
) -> None:
    require_finite(llama, pairs.reference, attention_mask=pairs.attention_mask)
    means = {
        name: value * float("inf") for name, value in counterfactual_means(llama, pairs).items()
    }
    with pytest.raises(FloatingPointError, match=r"under a knockout.*and the means"):
        al.knock_out(llama, pairs, HEADS, means=means, **QUIET)
