"""A model in training mode, whose dropout draws at random, is refused by every method."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.answers import Question
from arith_lens.components import every_head
from arith_lens.knockout import counterfactual_means
from arith_lens.model import HookedModel
from arith_lens.next_tokens import next_tokens

HEADS = [al.Head(0, 1), al.Head(2, 0)]
QUIET: dict[str, Any] = {"progress": False}


def evaluated(model: HookedModel, pairs: al.PromptPairs) -> Any:
    pytest.importorskip("lm_eval", reason="needs the extra `evaluation`")
    data = Path(__file__).parents[1] / "data"
    return al.evaluate(model, ("svamp",), data_dir=data, limit=1, hooks=al.scale_heads(HEADS, 0.5))


METHODS: dict[str, Callable[[HookedModel, al.PromptPairs], Any]] = {
    "sampling": lambda model, pairs: al.sample_pairs(model, "addition", n=4),
    "recording": lambda model, pairs: al.record(
        model, pairs.reference, "ln_final.hook_in", attention_mask=pairs.attention_mask
    ),
    "sweep": lambda model, pairs: al.path_patch(model, pairs, **QUIET),
    "sweep, not certified": lambda model, pairs: al.path_patch(
        model, pairs, certify=False, **QUIET
    ),
    "hooks": lambda model, pairs: al.path_patch(
        model, pairs, senders=HEADS, engine="hooks", **QUIET
    ),
    "knockout": lambda model, pairs: al.knock_out(model, pairs, HEADS, ablation="zero", **QUIET),
    "knockout curve": lambda model, pairs: al.knockout_curve(model, pairs, HEADS, ks=[1], **QUIET),
    "circuit": lambda model, pairs: al.keep_only(model, pairs, HEADS, **QUIET),
    "circuit curve": lambda model, pairs: al.circuit_curve(model, pairs, every_head(3, 4), **QUIET),
    "means": counterfactual_means,
    "attribution": lambda model, pairs: al.attribute(model, pairs, method="atp", **QUIET),
    "mediators": lambda model, pairs: al.mediators(model, pairs, HEADS[:1], **QUIET),
    "composition": lambda model, pairs: al.composition(model, pairs, [al.Head(2, 1)]),
    "edges": lambda model, pairs: al.edge_effects(model, pairs, [al.Head(2, 1)], **QUIET),
    "positions": lambda model, pairs: al.path_patch(
        model, pairs, senders=HEADS, paths="total", engine="hooks", positions="each", **QUIET
    ),
    "neurons": lambda model, pairs: al.neuron_effects(model, pairs, [1]),
    "probe": al.mlp_probe,
    "probe of heads": lambda model, pairs: al.head_probe(model, pairs, HEADS),
    "lens": al.logit_lens,
    "attention": lambda model, pairs: al.attention_by_role(model, pairs, HEADS),
    "pattern": lambda model, pairs: al.attention_view(model, "3 plus 5 equals to ", HEADS),
    "next tokens": lambda model, pairs: next_tokens(model, ["3 plus 5 equals to "]),
    "generation": lambda model, pairs: model.generate(pairs.reference[:1]),
    "answers": lambda model, pairs: al.answer_questions(model, [Question("3 plus 5 = ", "8")]),
    "answers by choice": lambda model, pairs: al.answer_questions(
        model, [Question("3 plus 5 = ", "8", choices=("8", "9"))]
    ),
    "evaluation": evaluated,
    "explorer": lambda model, pairs: al.explore(model, pairs, **QUIET),
}


@pytest.fixture(scope="module")
def dropping(make_model: Callable[..., HookedModel]) -> HookedModel:
    return make_model("llama", attention_dropout=0.3, max_position_embeddings=2048)


@pytest.fixture(scope="module")
def pairs(dropping: HookedModel) -> al.PromptPairs:
    return al.sample_pairs(dropping, "addition", n=4, keep="all", templates=["addition/0"])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_refuses_a_model_that_drops_activations(
    dropping: HookedModel, pairs: al.PromptPairs, method: str
) -> None:
    dropping.bridge.train()
    try:
        with pytest.raises(ValueError, match=r"expected a model in evaluation mode, found .*eval"):
            METHODS[method](dropping, pairs)
    finally:
        dropping.bridge.eval()


def test_one_part_in_training_mode_is_enough(dropping: HookedModel, pairs: al.PromptPairs) -> None:
    attention = dropping.blocks[1].attn
    options: dict[str, Any] = {"attention_mask": pairs.attention_mask}
    attention.train()
    try:
        runs = [dropping(pairs.reference, **options) for _ in range(2)]
        assert not torch.equal(*runs), "dropout acts, in a forward of one's own too"
        with pytest.raises(ValueError, match=r"found blocks\.1\.self_attn in training mode"):
            al.knock_out(dropping, pairs, HEADS, **QUIET)
        with pytest.raises(ValueError, match="in training mode"):
            al.path_patch(dropping.bridge, pairs, **QUIET)
    finally:
        attention.eval()
    assert torch.equal(*[dropping(pairs.reference, **options) for _ in range(2)])
    assert al.knock_out(dropping, pairs, HEADS, **QUIET).probability.isfinite().all()
