"""What heads and neurons add to the stream where a norm or a factor comes after them, by hand.

Everything is computed from what torch's hooks see in plain Transformers models: a part of the
output of `o_proj` or `down_proj`, times the norm's weight, divided by the root mean square of the
whole output, times the factor.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch
from oracles import logits_at_end
from support.families import SWEPT
from torch.testing import assert_close

import arith_lens as al
from arith_lens.model import PartWrites, load_model
from arith_lens.probes import digit_tokens

NORMS = {
    "Gemma 2, uncapped": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "Gemma 3, 12 layers": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "OLMo 2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "GLM-4": ("post_self_attn_layernorm", "post_mlp_layernorm"),
    "EXAONE 4": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "Granite": (None, None),
    "Llama-3": (None, None),
}
"""The norms after attention and MLP."""


class Plain:
    """One plain run: what each layer's parts are made of, at END."""

    def __init__(self, name: str, hf: Any, pairs: al.PromptPairs) -> None:
        self.hf, self.gemma, self.norms = hf, name.startswith("Gemma"), NORMS[name]
        self.read: dict[Any, torch.Tensor] = {}
        self.put: dict[Any, torch.Tensor] = {}
        modules: dict[Any, Any] = {"end": hf.model.norm}
        for layer, block in enumerate(hf.model.layers):
            modules[layer, 0], modules[layer, 1] = block.self_attn.o_proj, block.mlp.down_proj
        with ExitStack() as stack:
            for key, module in modules.items():
                seen = module.register_forward_hook(
                    lambda _, x, y, key=key: (
                        self.read.__setitem__(key, x[0][:, -1]),
                        self.put.__setitem__(key, y[:, -1]),
                    )[0]
                )
                stack.callback(seen.remove)
            logits_at_end(hf, pairs.reference, pairs.attention_mask)

    def _weight(self, norm: Any) -> torch.Tensor:
        return norm.weight + self.gemma

    @staticmethod
    def _scale(norm: Any, rows: torch.Tensor) -> torch.Tensor:
        eps = getattr(norm, "variance_epsilon", None) or norm.eps
        return (rows.square().mean(-1, keepdim=True) + eps).sqrt()

    def added(self, layer: int, kind: int, part: torch.Tensor) -> torch.Tensor:
        """What a part of an output adds to the stream."""
        if (name := self.norms[kind]) is not None:
            norm = getattr(self.hf.model.layers[layer], name)
            part = self._weight(norm) * part / self._scale(norm, self.put[layer, kind])
        return part * getattr(self.hf.config, "residual_multiplier", 1.0)

    def head(self, layer: int, index: int, n_heads: int) -> torch.Tensor:
        """What a head adds, [pair d_model]."""
        z, weight = self.read[layer, 0], self.hf.model.layers[layer].self_attn.o_proj.weight
        columns = slice(*(i * z.shape[-1] // n_heads for i in (index, index + 1)))
        return self.added(layer, 0, z[:, columns] @ weight[:, columns].T)

    def neuron(self, layer: int, index: int) -> torch.Tensor:
        """What a neuron adds, [pair d_model]."""
        weight = self.hf.model.layers[layer].mlp.down_proj.weight[:, index]
        return self.added(layer, 1, self.read[layer, 1][:, [index]] * weight)

    def logits(self, write: torch.Tensor, scale_of: torch.Tensor) -> torch.Tensor:
        """The final norm, with the scale of some rows, and W_U, [pair d_vocab]."""
        norm = self.hf.model.norm
        final = self._weight(norm) * write / self._scale(norm, scale_of)
        return final @ self.hf.lm_head.weight.T / getattr(self.hf.config, "logits_scaling", 1.0)


@pytest.fixture(params=NORMS)
def both(request: pytest.FixtureRequest, tokenizer: Any) -> tuple[Any, al.PromptPairs, Plain]:
    hf = SWEPT[request.param].make(len(tokenizer))
    model = load_model((hf, tokenizer))
    pairs = al.sample_pairs(
        model, "addition", keep="all", templates=["addition/0"], operands=range(1, 4)
    )
    return model, pairs, Plain(request.param, hf, pairs)


@torch.no_grad()
def test_a_head_is_read_as_what_it_adds_to_the_stream(both: tuple[Any, Any, Plain]) -> None:
    """`head_probe` and `logit_attribution` read the same write."""
    model, pairs, plain = both
    heads = [(layer, index) for layer in {0, model.n_layers - 1} for index in (1, 2)]
    digits = digit_tokens(model, pairs)
    probe = al.head_probe(model, pairs, heads, tokens="digits").per_pair
    parts = al.logit_attribution(model, pairs)
    names = (parts.labels or {})["component"]
    for row, (layer, index) in enumerate(heads):
        write = plain.head(layer, index, model.n_heads)
        assert_close(probe[row], plain.logits(write, write).gather(1, digits).T, **CLOSE)
        own = plain.logits(write, plain.read["end"]).gather(1, pairs.answer[:, None])[:, 0]
        assert_close(parts.per_pair[names.index(f"{layer}.{index}"), 0], own, **CLOSE)
        other = plain.head(layer, index - 1, model.n_heads)
        wrong = plain.logits(other, other).gather(1, digits).T
        assert not torch.allclose(probe[row], wrong, atol=1e-2), "another head would be seen"


@torch.no_grad()
def test_a_neurons_map_is_what_it_adds_to_the_contrast(both: tuple[Any, Any, Plain]) -> None:
    model, pairs, plain = both
    layer, digits = model.n_layers - 1, digit_tokens(model, pairs)
    maps = al.neuron_maps(model, pairs, range(1, 4), [0, layer], read="effect")
    cells = [tuple(int(n) - 1 for n in str(one).split(" + ")) for one in pairs.problem or ()]
    a, b = torch.tensor(cells).T
    is_answer = digits == pairs.answer[:, None]
    assert bool((is_answer.sum(1) == 1).all())
    for row, at in enumerate((0, layer)):
        for index in (0, 7):
            logits = plain.logits(plain.neuron(at, index), plain.read["end"]).gather(1, digits)
            contrast = logits[is_answer] - logits.masked_fill(is_answer, 0).sum(1) / 9
            assert_close(maps.values[row, index, a, b], -contrast, **CLOSE)
            assert contrast.abs().max() > 1e-4, "an effect of 0 would be seen"


CLOSE: Any = {"atol": 2e-5, "rtol": 1e-3}


@torch.no_grad()
def test_parts_that_do_not_add_up_are_refused(
    both: tuple[Any, Any, Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a family whose layers do something that the map does not know."""
    model, pairs, _ = both
    right: Any = PartWrites.of
    monkeypatch.setattr(PartWrites, "of", lambda *args: replace(right(*args), factor=3.0))
    shared: Any = {"match": "expected parts that add up to what .* adds to the stream"}
    with pytest.raises(ValueError, **shared):
        al.head_probe(model, pairs, ["0.1"])
    with pytest.raises(ValueError, **shared):
        al.logit_attribution(model, pairs)
    with pytest.raises(ValueError, **shared):
        al.neuron_maps(model, pairs, range(1, 4), [0], read="effect")
