"""How fast is patching by position? The stream at each layer and token, beside a plain loop."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import path_patch
from laboratory.speed.measure import Rows, beside
from laboratory.speed.shapes import Setting, Shape, setting_of

SHAPE = Shape(8, 512, 16, 1376, 640, n_pairs=16, n_tokens=16)
"""With a small vocabulary, whose logits the loop computes at every token."""
STREAMS = ("resid_pre", "resid_post")
MOST_ROUNDS = 3

Patched = Float[Tensor, "layer pos pair"]


def by_package(setting: Setting, stream: str) -> Patched:
    """The change of the answer's logit, layer by layer and token by token."""
    options: dict[str, Any] = {"paths": "total", "positions": "each", "metric": "logit"}
    effects = path_patch(
        setting.model, setting.pairs, senders=stream, engine="hooks", progress=False, **options
    )
    assert effects.stream is not None
    return effects.stream.per_pair


@torch.no_grad()
def by_loop(setting: Setting, stream: str) -> Patched:
    """One run of the bridge for each layer and token, as TransformerLens' own loop does."""
    bridge, rows = setting.model.bridge, torch.arange(len(setting.pairs))
    names = [f"blocks.{layer}.hook_{stream}" for layer in range(setting.shape.n_layers)]
    _, cache = bridge.run_with_cache(setting.counterfactual, names_filter=lambda n: n in names)

    def put(value: Tensor, hook: Any, name: str, position: int) -> Tensor:
        value = value.clone()
        value[:, position] = cache[name][:, position]
        return value

    def logit(hooks: list[Any]) -> Tensor:
        logits = bridge.run_with_hooks(setting.reference, fwd_hooks=hooks)
        return logits[rows, -1, setting.answer]

    positions = range(setting.shape.n_tokens)
    patched = [
        [logit([(name, partial(put, name=name, position=at))]) for at in positions]
        for name in names
    ]
    return torch.stack([torch.stack(row) for row in patched]) - logit([])


def position_rows(*, repeats: int, budget: int | float, shape: Shape = SHAPE) -> Rows:
    """Processor time of both, stream by stream, and by how much they differ."""
    setting = setting_of(shape)
    effort: dict[str, Any] = {"repeats": repeats, "budget": budget, "device": setting.device}
    return [
        {"stream": stream}
        | beside(*(partial(way, setting, stream) for way in (by_loop, by_package)), **effort)
        for stream in STREAMS
    ]
