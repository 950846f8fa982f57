"""How fast is one call on a few prompts, beside plain Transformers? Lens, attribution, and more."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import attribute, logit_lens
from laboratory.speed.measure import beside
from laboratory.speed.shapes import SHAPES, Setting, setting_of

SIZES = ("tiny", "middle")
N_PAIRS = {"logit lens": (12,), "attribution": (1, 4, 12)}
"""The pairs of each call."""


@torch.no_grad()
def lens_by_hidden_states(setting: Setting) -> Float[Tensor, "layer measure=2 pair"]:
    """Transformers' hidden states, the final norm and the unembedding."""
    model = setting.raw
    streams = model.model(setting.reference, use_cache=False, output_hidden_states=True)
    *before, last = (stream[:, -1] for stream in streams.hidden_states[1:])  # the last has a norm
    logits = model.lm_head(torch.cat([model.model.norm(torch.stack(before)), last[None]]))
    answers = setting.answer.expand(len(logits), -1)[..., None]
    rank = (logits >= logits.gather(-1, answers)).sum(-1)
    probability = logits.log_softmax(-1).gather(-1, answers)[..., 0].exp()
    return torch.stack([rank.to(probability), probability], dim=1)


def lens_by_package(setting: Setting) -> Float[Tensor, "layer measure=2 pair"]:
    return logit_lens(setting.model, setting.pairs).per_pair


def attribution_by_autograd(setting: Setting) -> Float[Tensor, "component pair"]:
    """Torch's own hooks, two forwards and one backward; heads are cut off from what is before."""
    layers, n_heads = setting.raw.model.layers, setting.shape.n_heads

    def run(tokens: Tensor, leaves: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        outputs: list[Tensor] = []

        def with_leaf(value: Tensor) -> Tensor:
            outputs.append(value[:, -1].detach())
            leaves.append(torch.zeros_like(outputs[-1], requires_grad=torch.is_grad_enabled()))
            value = value.clone()
            value[:, -1] += leaves[-1]
            return value

        hooks = []
        for layer in layers:
            z = layer.self_attn.o_proj
            hooks.append(z.register_forward_pre_hook(lambda _, put: with_leaf(put[0].detach())))
            hooks.append(layer.mlp.register_forward_hook(lambda _, __, out: with_leaf(out)))
        logits = setting.raw(tokens, use_cache=False, logits_to_keep=1).logits[:, -1]
        for hook in hooks:
            hook.remove()
        return outputs, logits.gather(1, setting.answer[:, None])

    leaves: list[Tensor] = []
    with torch.no_grad():
        other, _ = run(setting.counterfactual, [])
    outputs, logit = run(setting.reference, leaves)
    slopes = torch.autograd.grad(logit.sum(), leaves)
    scores = [(a - b) * slope for a, b, slope in zip(other, outputs, slopes, strict=True)]
    heads = [score.unflatten(-1, (n_heads, -1)).sum(-1).T for score in scores[::2]]
    return torch.cat([*heads, torch.stack([score.sum(-1) for score in scores[1::2]])])


def attribution_by_package(setting: Setting) -> Float[Tensor, "component pair"]:
    options: dict[str, Any] = {"method": "atp", "metric": "logit", "progress": False}
    effects = attribute(setting.model, setting.pairs, **options)
    return torch.cat([effects.heads.per_pair.flatten(0, 1), effects.mlps.per_pair])


WAYS: dict[str, tuple[Callable[[Setting], Tensor], Callable[[Setting], Tensor]]] = {
    "logit lens": (lens_by_hidden_states, lens_by_package),
    "attribution": (attribution_by_autograd, attribution_by_package),
}
"""The rival's way, and this package's."""


def call_rows(**effort: Any) -> Iterator[dict[str, Any]]:
    """Processor time of both ways, by how much they differ, for each size and number of pairs."""
    for size in SIZES:
        for call, ways in WAYS.items():
            for n_pairs in N_PAIRS[call]:
                setting = setting_of(replace(SHAPES[size], n_pairs=n_pairs))
                compared = (partial(way, setting) for way in ways)
                row = beside(*compared, device=setting.device, **effort)
                yield {"call": call, "size": size, "pairs": n_pairs, **row}
