"""The rival of another library: nnsight (https://nnsight.net), a trace for each sender.

It is no dependency: `pip install 'arith-lens[bench]'` brings it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens.components import Component, Head
from experiments.benchmark.shapes import Setting, twin


@torch.no_grad()
def by_nnsight(setting: Setting, senders: Sequence[Component]) -> Float[Tensor, "sender pair"]:
    """Every head held at the reference, one sender let in; logits at END alone."""
    from nnsight import NNsight, save  # pyright: ignore[reportMissingImports]

    model = NNsight(twin(setting.raw))
    layers, answer = model.model.layers, setting.answer
    rows = torch.arange(len(answer), device=answer.device)
    options = {"use_cache": False, "logits_to_keep": 1}

    def recorded(tokens: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        with model.trace(tokens, **options):
            z, mlp = save([]), save([])
            for layer in layers:
                z.append(layer.self_attn.o_proj.input.clone())
                mlp.append(layer.mlp.output[:, -1].clone())
            logits = save(model.lm_head.output)
        return z, mlp, logits[rows, -1, answer]

    def patched(values: list[Tensor], layer: int, mlp: Tensor | None) -> Tensor:
        with model.trace(setting.reference, **options):
            for index, value in enumerate(values):
                layers[index].self_attn.o_proj.input = value
                if index == layer and mlp is not None:
                    layers[index].mlp.output[:, -1] = mlp
            logits = save(model.lm_head.output)
        return logits[rows, -1, answer]

    z, _, origin = recorded(setting.reference)
    other_z, other_mlp, _ = recorded(setting.counterfactual)

    def effect(sender: Component) -> Tensor:
        values: list[Any] = list(z)
        if not isinstance(sender, Head):
            return patched(values, sender.layer, other_mlp[sender.layer]) - origin
        d_head = setting.shape.d_model // setting.shape.n_heads
        part = slice(sender.index * d_head, (sender.index + 1) * d_head)
        values[sender.layer] = values[sender.layer].clone()
        values[sender.layer][:, -1, part] = other_z[sender.layer][:, -1, part]
        return patched(values, sender.layer, None) - origin

    return torch.stack([effect(sender) for sender in senders])
