"""Who writes and who reads: the numbers of plain Transformers with torch's own hooks."""

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest
import torch
from oracles import logits_at_end
from torch import Tensor

import arith_lens as al
from arith_lens.interchanges import (
    InterchangePairs,
    projections,
    readers,
    without_writers,
    writers,
)
from arith_lens.model import HookedModel

SITE = al.Site(1)


@pytest.fixture(scope="module")
def drawn(tokenizer: Any) -> InterchangePairs:
    causal = al.causal_model("addition", "carry")
    return al.interchange_pairs(tokenizer, causal, n=12, templates=["addition/0", "addition/1"])


class Plain:
    """Runs of a Transformers model with END's z, MLP outputs and streams kept or replaced."""

    def __init__(self, model: HookedModel, pairs: al.PromptPairs) -> None:
        self.hf: Any = model.bridge.original_model
        self.layers, self.d_head = self.hf.model.layers, model.d_head
        self.mask = pairs.attention_mask

    def run(self, tokens: Tensor, put: dict[Any, Tensor]) -> tuple[Tensor, dict[Any, Tensor]]:
        """Logits, and what stood at END; `put` replaces some of it."""
        seen: dict[Any, Tensor] = {}

        def edited(name: Any, activation: Tensor) -> Tensor:
            end = activation[:, -1].clone()
            for head in range(end.shape[1] // self.d_head) if name[0] == "z" else ():
                part = slice(head * self.d_head, (head + 1) * self.d_head)
                if (name[1], head) in put:
                    end[:, part] = put[name[1], head]
                seen[name[1], head] = end[:, part]
            if name in put:
                end = put[name]
            seen[name] = end
            return torch.cat([activation[:, :-1], end[:, None]], dim=1)

        with ExitStack() as stack:
            for i, layer in enumerate(self.layers):
                hooks = (
                    layer.self_attn.o_proj.register_forward_pre_hook(
                        lambda _, x, i=i: (edited(("z", i), x[0]),)
                    ),
                    layer.mlp.register_forward_hook(lambda _, __, y, i=i: edited(("mlp", i), y)),
                    layer.register_forward_hook(
                        lambda _, __, y, i=i: (
                            (edited(("stream", i), y[0]), *y[1:])
                            if isinstance(y, tuple)
                            else edited(("stream", i), y)
                        )
                    ),
                )
                for hook in hooks:
                    stack.callback(hook.remove)
            return logits_at_end(self.hf, tokens, self.mask), seen


def key(component: Any) -> Any:
    if isinstance(component, al.Mlp):
        return ("mlp", component.layer)
    return (component.layer, component.index)


def test_writers_and_readers_are_those_of_plain_transformers(
    mistral: HookedModel, drawn: InterchangePairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("arith_lens.interchanges.writers"), "BATCH", 5)
    plain = Plain(mistral, drawn.pairs)
    reference, counterfactual = drawn.pairs.reference, drawn.pairs.counterfactual
    base, source = (plain.run(tokens, {})[1] for tokens in (reference, counterfactual))
    direction = torch.nn.functional.normalize(torch.randn(mistral.d_model, 1), dim=0)
    stream = ("stream", SITE.layer)
    sign = (drawn.values[:, 1] - drawn.values[:, 0]).float()
    change = sign * ((source[stream] - base[stream]) @ direction)[:, 0]
    found = projections(mistral, drawn, SITE, direction)
    torch.testing.assert_close(found[0], (base[stream] @ direction)[:, 0], rtol=1e-4, atol=1e-5)

    earlier = [al.Head(0, 1), al.Head(1, 2), al.Mlp(0), al.Mlp(1)]
    shares = writers(mistral, drawn, SITE, direction, earlier)
    for i, component in enumerate(earlier):
        held = plain.run(counterfactual, {key(component): base[key(component)]})[1]
        lost = sign * ((source[stream] - held[stream]) @ direction)[:, 0]
        wanted = lost / change.mean()
        torch.testing.assert_close(shares.per_pair[i], wanted, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(shares.per_pair[0], shares.per_pair[2], atol=1e-3)

    sets = {"nothing": [], "two": [al.Head(0, 1), al.Mlp(1)]}
    right = without_writers(mistral, drawn, SITE, sets)
    for i, components in enumerate(sets.values()):
        put = {key(one): base[key(one)] for one in components}
        held = plain.run(counterfactual, put)[1]
        logits = plain.run(reference, {stream: held[stream]})[0]
        assert torch.equal(right.per_pair[i], (logits.argmax(-1) == drawn.expected).float())

    later = [al.Head(2, 0), al.Mlp(2)]
    rest = readers(mistral, drawn, SITE, direction, later)
    moved = base[stream] + (source[stream] - base[stream]) @ direction @ direction.T
    for i, component in enumerate(later):
        put = {stream: moved, key(component): base[key(component)]}
        logits = plain.run(reference, put)[0]
        assert torch.equal(rest.per_pair[i], (logits.argmax(-1) == drawn.expected).float())


def test_components_on_the_wrong_side_are_refused(
    llama: HookedModel, drawn: InterchangePairs
) -> None:
    direction = torch.eye(llama.d_model)[:, :1]
    with pytest.raises(ValueError, match="up to that of stream 1 at END, found MLP 2"):
        writers(llama, drawn, SITE, direction, [al.Mlp(2)])
    with pytest.raises(ValueError, match=r"after that of stream 1 at END, found 1\.0"):
        readers(llama, drawn, SITE, direction, [al.Head(1, 0)])
