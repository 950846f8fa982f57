"""Forwards that begin at the first layer and token that hooks change, against whole forwards."""

from typing import Any

import pytest
import torch
from support.families import ADDITIVE, OWN_LAYERS
from torch.testing import assert_close

import arith_lens as al
from arith_lens.components import NamedHook, resid_pre_name
from arith_lens.hooks import Edit
from arith_lens.model import ResumedRuns

WIDTH = 9


def turned(layer: int, column: int) -> list[NamedHook]:
    """A hook that changes the stream of one token at the entry of a layer."""
    where = torch.zeros(3, WIDTH, dtype=torch.bool)
    where[:, column] = True
    return [(resid_pre_name(layer), Edit(lambda stream: 3 * stream.roll(1, -1), None, where))]


class Counted(torch.nn.Module):
    """An activation that notes its layer and the number of tokens."""

    def __init__(self, own: Any, number: int, widths: list[tuple[int, int]]) -> None:
        super().__init__()
        self.own, self.number, self.widths = own, number, widths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.widths.append((self.number, x.shape[1]))
        return self.own(x)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", ["Qwen3, 12 layers", "Gemma 2"])
def test_logits_are_those_of_whole_forwards_and_nothing_below_the_hooks_is_computed(
    family: str, padded: bool, tokenizer: Any
) -> None:
    """Padded prompts compute all tokens; without padding, those before the hook keep their keys."""
    hf = (ADDITIVE | OWN_LAYERS)[family].make(len(tokenizer))
    widths: list[tuple[int, int]] = []
    for number, layer in enumerate(hf.model.layers):
        layer.mlp.act_fn = Counted(layer.mlp.act_fn, number, widths)
    model, last = al.load_model((hf, tokenizer)), len(hf.model.layers) - 1
    tokens = torch.randint(3, len(tokenizer), (3, WIDTH), generator=torch.manual_seed(1))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, : 3 * padded] = False
    runs = ResumedRuns(model, tokens, mask)
    unchanged = model(tokens, attention_mask=mask)[:, -1]
    for layer, column in ((1, 4), (1, -1), (last, 5), (0, 6), (last, 4)):
        hooks = turned(layer, column)
        whole = model.run_with_hooks(tokens, fwd_hooks=hooks, attention_mask=mask)[:, -1]
        widths.clear()
        assert_close(runs.logits(hooks), whole, atol=2e-5, rtol=1e-4)
        kept = 0 if padded else column % WIDTH
        assert widths[layer - last - 1 :] == [(n, WIDTH - kept) for n in range(layer, last + 1)]
        assert not torch.allclose(whole, unchanged, atol=1e-3)
    widths.clear()
    runs.logits(turned(last, 4))
    assert len(widths) == 1, "the layers below are known"


def test_a_version_of_transformers_whose_cache_stays_empty_is_refused(
    make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under 5.24, where layers get the cache by a name that TransformerLens does not read."""
    from transformers import DynamicCache

    model = make_model()
    tokens = torch.arange(3, 12)[None]
    known = al.model.keys_and_values(model, tokens, torch.ones_like(tokens))
    assert known.get_seq_length() == 9
    monkeypatch.setattr(DynamicCache, "update", lambda self, keys, values, *_, **__: (keys, values))
    with pytest.raises(RuntimeError, match=r"of 9 tokens, found 0: .* 'transformers<5\.24'"):
        al.model.keys_and_values(model, tokens, torch.ones_like(tokens))
