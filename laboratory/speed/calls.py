"""How fast is one call on a few prompts, beside plain Transformers? Lens, attribution, one
head patched."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import attribute, logit_lens
from arith_lens.components import Head
from laboratory.speed.measure import beside
from laboratory.speed.rivals import forward_each, raw_transformers, this_package
from laboratory.speed.shapes import SHAPES, Setting, setting_of

Way = Callable[[Setting], Tensor]


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


def one_head(way: Callable[..., Tensor], setting: Setting) -> Float[Tensor, "sender=1 pair"]:
    """Path patching of the first head of the last layer. Transformers needs three forwards."""
    return way(setting, [Head(setting.shape.n_layers - 1, 0)])


def swept(setting: Setting, *, certify: bool) -> Float[Tensor, "sender pair"]:
    return this_package(setting, setting.senders, certify=certify)


@dataclass(frozen=True)
class Call:
    """One call, and what it is compared with."""

    name: str
    rival: Way
    own: Way
    n_pairs: tuple[int, ...]
    shapes: tuple[str, ...] = ("tiny", "middle")


CALLS = (
    Call("logit lens", lens_by_hidden_states, lens_by_package, (12,)),
    Call("attribution", attribution_by_autograd, attribution_by_package, (1, 4, 12)),
    Call(
        "one head",
        partial(one_head, partial(forward_each, raw_transformers)),
        partial(one_head, this_package),
        (1,),
    ),
    Call(
        "sweep beside itself without its certificate",
        partial(swept, certify=False),
        partial(swept, certify=True),
        (8,),
        ("256k",),
    ),
)
SIZES = SHAPES | {"256k": replace(SHAPES["middle"], d_vocab=256_000)}
"""`256k`: `middle` with a large vocabulary."""


def call_rows(**effort: Any) -> Iterator[dict[str, Any]]:
    """Processor time of both ways, and by how much they differ, call by call."""
    for call in CALLS:
        for size, n_pairs in product(call.shapes, call.n_pairs):
            setting = setting_of(replace(SIZES[size], n_pairs=n_pairs))
            ways = (partial(way, setting) for way in (call.rival, call.own))
            row = beside(*ways, device=setting.device, **effort)
            yield {"call": call.name, "size": size, "pairs": n_pairs, **row}
