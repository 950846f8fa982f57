"""Knockout hooks on any text: against plain Transformers, in batches, and while generating."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import arith_lens as al
from arith_lens.components import Activations
from arith_lens.knockout import counterfactual_means, knockout_hooks
from arith_lens.model import HookedModel, left_pad

TEXTS = ("3 plus 5 equals to ", "Q: How much is 3 plus 5? A: ", "The sum of 3 and 5 is ")
KNOCKED_OUT = (al.Head(0, 1), al.Head(2, 3), al.Mlp(1))
FAMILIES = ("llama", "mistral")


@pytest.fixture(params=FAMILIES)
def both(request: pytest.FixtureRequest, make_hf: Any, make_model: Any) -> tuple[Any, HookedModel]:
    """The same random model in plain Transformers and loaded."""
    return make_hf(request.param), make_model(request.param)


@pytest.fixture
def means(both: tuple[Any, HookedModel]) -> Activations:
    pairs = al.sample_pairs(both[1], "addition", n=12, keep="all")
    return counterfactual_means(both[1], pairs, KNOCKED_OUT)


@contextmanager
def knocked_out(hf: Any, means: Activations, n_seen: int = 0) -> Iterator[None]:
    """KNOCKED_OUT replaced in plain Transformers, at every position but BOS (the text's first).

    A step of a generation with a cache starts at position `n_seen`.
    """
    d_head = hf.config.hidden_size // hf.config.num_attention_heads
    first = 0 if n_seen else 1
    handles = []
    for one in KNOCKED_OUT:
        layer = hf.model.layers[one.layer]
        if isinstance(one, al.Head):
            vector = means[f"blocks.{one.layer}.attn.hook_z"][one.index]
            part = slice(one.index * d_head, (one.index + 1) * d_head)

            def heads(_: Any, given: Any, part: slice = part, vector: Any = vector) -> Any:
                z = given[0].clone()
                z[:, first:, part] = vector
                return (z,)

            handles.append(layer.self_attn.o_proj.register_forward_pre_hook(heads))
        else:
            vector = means[f"blocks.{one.layer}.hook_mlp_out"]

            def mlps(_: Any, __: Any, out: Any, vector: Any = vector) -> Any:
                out = out.clone()
                out[:, first:] = vector
                return out

            handles.append(layer.mlp.register_forward_hook(mlps))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def raw_logits(hf: Any, ids: list[int], means: Any = None) -> torch.Tensor:
    tokens = torch.tensor([ids])
    if means is None:
        return hf(input_ids=tokens).logits[0, -1]
    with knocked_out(hf, means):
        return hf(input_ids=tokens).logits[0, -1]


@torch.no_grad()
def test_each_text_of_a_padded_batch_gives_what_it_gives_alone_in_plain_transformers(
    both: tuple[Any, HookedModel], means: Any, tokenizer: Any
) -> None:
    hf, model = both
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    tokens, mask = left_pad(rows)
    hooks = knockout_hooks(model, KNOCKED_OUT, means)
    logits = model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=mask)[:, -1]
    for row, ids in enumerate(rows):
        torch.testing.assert_close(logits[row], raw_logits(hf, ids, means), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(logits[row], raw_logits(hf, ids), atol=1e-3), "it must matter"


@torch.no_grad()
def test_bos_is_spared(both: tuple[Any, HookedModel], means: Any, tokenizer: Any) -> None:
    _, model = both
    tokens = torch.tensor([tokenizer(TEXTS[0])["input_ids"]])
    kept: dict[str, torch.Tensor] = {}
    hooks = knockout_hooks(model, KNOCKED_OUT, means) + al.capture(["blocks.0.attn.hook_z"], kept)
    model.run_with_hooks(tokens, fwd_hooks=hooks)
    plain = al.record(model, tokens, "blocks.0.attn.hook_z")["blocks.0.attn.hook_z"]
    seen = kept["blocks.0.attn.hook_z"]
    assert torch.equal(seen[:, 0], plain[:, 0])
    assert torch.equal(seen[:, 1:, 0], plain[:, 1:, 0]), "another head"
    expected = means["blocks.0.attn.hook_z"][1].expand_as(seen[:, 1:, 1])
    torch.testing.assert_close(seen[:, 1:, 1], expected)


@pytest.mark.parametrize("cache", [True, False])
def test_generation_is_that_of_a_greedy_loop_in_plain_transformers(
    both: tuple[Any, HookedModel], means: Any, tokenizer: Any, cache: bool
) -> None:
    hf, model = both
    rows = [tokenizer(text)["input_ids"] for text in TEXTS]
    tokens, mask = left_pad(rows)
    written = model.generate(
        tokens, fwd_hooks=knockout_hooks(model, KNOCKED_OUT, means), attention_mask=mask,
        max_new_tokens=4, use_past_kv_cache=cache, stop_at_eos=False,
    )[:, tokens.shape[1] :]  # fmt: skip
    for row, ids in enumerate(rows):
        expected = list(ids)
        for _ in range(4):
            expected.append(int(raw_logits(hf, expected, means).argmax()))
        assert written[row].tolist() == expected[len(ids) :]


@torch.no_grad()
def test_end_alone_belongs_to_the_prompt(
    both: tuple[Any, HookedModel], means: Any, tokenizer: Any
) -> None:
    _, model = both
    tokens = torch.tensor([tokenizer(TEXTS[1])["input_ids"]])
    hooks = knockout_hooks(model, KNOCKED_OUT, dict(means), positions="end")
    with pytest.raises(ValueError, match="hook_steps='prompt'"):
        model.generate(tokens, fwd_hooks=hooks, max_new_tokens=2)
    written = model.generate(tokens, fwd_hooks=hooks, hook_steps="prompt", max_new_tokens=1)
    first = model.run_with_hooks(tokens, fwd_hooks=hooks)[0, -1].argmax()
    assert int(written[0, -1]) == int(first)


@pytest.mark.parametrize("positions", ["all", "end"])
@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_hooks_knock_out_what_knock_out_does(
    both: tuple[Any, HookedModel], ablation: str, positions: str
) -> None:
    """BOS stays as it is; `ablate_heads` and `ablate_mlps` change it."""
    model = both[1]
    pairs = al.sample_pairs(model, "addition", n=6, keep="all")
    mean = None
    if ablation == "mean":
        mean = counterfactual_means(model, pairs, KNOCKED_OUT, positions=positions)
    settings: dict[str, Any] = {"ablation": ablation, "positions": positions, "progress": False}
    expected = al.knock_out(model, pairs, KNOCKED_OUT, means=mean, **settings).probability

    def probability(hooks: Any) -> torch.Tensor:
        logits = model.run_with_hooks(
            pairs.reference, fwd_hooks=hooks, attention_mask=pairs.attention_mask
        )[:, -1]
        return logits.softmax(-1)[torch.arange(len(pairs)), pairs.answer]

    hooks = al.knockout_hooks(model, KNOCKED_OUT, mean, ablation=ablation, positions=positions)
    torch.testing.assert_close(probability(hooks), expected, atol=1e-6, rtol=1e-3)
    heads, mlps = KNOCKED_OUT[:2], KNOCKED_OUT[2:]
    options: dict[str, Any] = {"ablation": ablation}
    options["positions"] = -1 if positions == "end" else None
    others = al.ablate_heads(heads, mean, **options) + al.ablate_mlps(mlps, mean, **options)
    alike = torch.allclose(probability(others), expected, atol=1e-6, rtol=1e-3)
    assert alike == (positions == "end")


def test_zero_needs_no_means_and_nothing_needs_no_hooks(llama: HookedModel) -> None:
    assert len(knockout_hooks(llama, KNOCKED_OUT, ablation="zero")) == 4  # with the watch of BOS
    assert knockout_hooks(llama, [], ablation="zero") == []


def test_what_foreign_text_cannot_have_is_refused(llama: HookedModel) -> None:
    pairs = al.sample_pairs(llama, "addition", n=6, keep="all", templates=["addition/0"])
    vectors = counterfactual_means(llama, pairs, KNOCKED_OUT)
    with pytest.raises(ValueError, match="aligned with nothing"):
        knockout_hooks(llama, KNOCKED_OUT, vectors, ablation="resample")
    with pytest.raises(ValueError, match="expected means with ablation='mean'"):
        knockout_hooks(llama, KNOCKED_OUT)
    with pytest.raises(ValueError, match="expected positions among all, end"):
        knockout_hooks(llama, KNOCKED_OUT, vectors, positions="all but BOS")
    with pytest.raises(KeyError, match=r"expected blocks\.1\.attn\.hook_z in the means"):
        knockout_hooks(llama, [al.Head(1, 0)], vectors)
    run = al.record(llama, pairs.counterfactual, ["blocks.0.attn.hook_z"])
    with pytest.raises(ValueError, match="means of positions"):
        knockout_hooks(llama, [al.Head(0, 1)], run)
