"""END run alone: the logits of whole forwards of plain Transformers with torch's own hooks."""

from functools import reduce
from typing import Any

import pytest
import torch
from oracles import Raw, logits_at_end, make_pairs
from support.families import ADDITIVE, OWN_LAYERS
from torch import Tensor

from arith_lens.components import Head, Mlp
from arith_lens.model import EndRuns, HookedModel, UnsupportedEndRuns, load_model
from arith_lens.pairs import PromptPairs

EVERY = ADDITIVE | OWN_LAYERS
NAMES = ("Gemma 2", "Gemma 3, 12 layers", "Qwen3, 12 layers", "GPT-2", "mistral", "one pair")
"""Soft caps and norms after; windows; two digits of layers; positions that are added; grouped
queries with a window that is shorter than the prompt; a batch of one."""


def subject(name: str, mistral: HookedModel, tokenizer: Any) -> tuple[HookedModel, Any, str]:
    """The model, its Transformers model, and the path of its blocks."""
    if name in ("mistral", "one pair"):
        return mistral, mistral.bridge.original_model, "model.layers"
    hf = EVERY[name].make(len(tokenizer))
    return load_model((hf, tokenizer)), hf, EVERY[name].places.blocks


def whole_forward(
    hf: Any, blocks: str, pairs: PromptPairs, layer: int, end: Tensor, *, column: int = -1
) -> Tensor:
    """END's logits if the exit of a layer is `end` at END, by a torch hook."""
    block = reduce(getattr, blocks.split("."), hf)[layer]

    def put(_: Any, __: Any, out: Any) -> Any:
        stream = (out[0] if isinstance(out, tuple) else out).clone()
        stream[:, column] = end
        return (stream, *out[1:]) if isinstance(out, tuple) else stream

    handle = block.register_forward_hook(put)
    try:
        return logits_at_end(hf, pairs.reference, pairs.attention_mask)
    finally:
        handle.remove()


@pytest.mark.parametrize("name", NAMES)
def test_end_alone_is_the_whole_forward_of_plain_transformers(
    name: str, mistral: HookedModel, tokenizer: Any
) -> None:
    model, hf, blocks = subject(name, mistral, tokenizer)
    pairs = make_pairs(model, (9,) if name == "one pair" else (9, 7, 9, 6, 8))
    ends = EndRuns.of(model, pairs.reference, pairs.attention_mask)
    assert ends.streams.shape == (model.n_layers + 1, len(pairs), model.d_model)
    generator = torch.Generator().manual_seed(0)
    for layer in {0, model.n_layers - 2, model.n_layers - 1}:
        own = ends.streams[layer + 1]
        other = own + torch.randn(own.shape, generator=generator)
        found = ends.logits(ends.advance(torch.stack([own, other]), layer + 1))
        plain = logits_at_end(hf, pairs.reference, pairs.attention_mask)
        torch.testing.assert_close(found[0], plain, rtol=1e-5, atol=1e-5)
        wanted = whole_forward(hf, blocks, pairs, layer, other)
        torch.testing.assert_close(found[1], wanted, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(found[1], plain, atol=1e-2)
    elsewhere = whole_forward(hf, blocks, pairs, 0, other, column=-2)
    assert not torch.allclose(elsewhere, whole_forward(hf, blocks, pairs, 0, other), atol=1e-2)


def test_edits_of_heads_and_mlps_are_those_of_plain_transformers(mistral: HookedModel) -> None:
    pairs = make_pairs(mistral)
    raw, ends = (
        Raw(mistral.bridge.original_model, pairs),
        EndRuns.of(mistral, pairs.reference, pairs.attention_mask),
    )
    width = mistral.d_head
    for sender in (Head(0, 3), Head(1, 0), Mlp(1), Mlp(2)):
        layer = sender.layer

        def edit(activation: Tensor, sender: Head | Mlp = sender) -> Tensor:
            if isinstance(sender, Mlp):
                return raw.mlp[1][sender.layer][:, -1][None]
            changed = activation.clone()
            part = slice(sender.index * width, (sender.index + 1) * width)
            changed[..., part] = raw.z[1][sender.layer][:, -1, part]
            return changed

        edits = {layer: {"mlp_out" if isinstance(sender, Mlp) else "z": edit}}
        streams = ends.advance(ends.streams[layer][None], layer, edits=edits)
        found, wanted = ends.logits(streams)[0], raw.patched(sender, "total")
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(found, raw.logits[0], atol=1e-3)


def test_gradients_are_those_of_differences(llama: HookedModel) -> None:
    pairs = make_pairs(llama)
    ends = EndRuns.of(llama, pairs.reference, pairs.attention_mask)
    own = ends.streams[1][None]

    def value(streams: Tensor) -> Tensor:
        return ends.logits(ends.advance(streams, 1)).square().sum()

    with torch.enable_grad():
        stream = own.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(value(stream), stream)
    step = 1e-2 * gradient / gradient.norm()
    with torch.no_grad():
        slope = (value(own + step) - value(own - step)) / 2
    expected = (gradient * step).sum()
    torch.testing.assert_close(slope, expected, rtol=1e-2, atol=1e-3)
    assert expected.abs() > 1e-2


def test_a_model_without_end_runs_is_refused_by_name(tokenizer: Any) -> None:
    model = load_model((EVERY["GPT-Neo"].make(len(tokenizer)), tokenizer))
    pairs = make_pairs(model)
    with pytest.raises(UnsupportedEndRuns, match="without a tested family"):
        EndRuns.of(model, pairs.reference, pairs.attention_mask)
