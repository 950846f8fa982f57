"""The same path patching in several ways. All patch every head and every MLP at END.

Each function takes a setting and senders, heads before MLPs, and returns the change of the answer's
logit, [sender pair]. `forward_each` runs the model once per sender; `end_only` is
the strong baseline; the others are this package's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import path_patch
from arith_lens.components import Component, Head, attn_out_name, mlp_out_name, resid_pre_name
from arith_lens.components import z_name as z_at
from arith_lens.model import record
from arith_lens.runs import installed
from laboratory.speed.shapes import Setting, twin

Effects: TypeAlias = Float[Tensor, "sender pair"]
AnswerLogits: TypeAlias = Float[Tensor, " pair"]
Recorded: TypeAlias = tuple[list[Tensor], list[Tensor], AnswerLogits]
"""What enters each output projection, what each MLP puts out, and the logits of the answers."""
Run: TypeAlias = Callable[..., AnswerLogits]
"""The reference's run with these inputs of the output projections, and with these MLPs at END."""
Way: TypeAlias = tuple[Callable[[Tensor], Recorded], Run]


def raw_transformers(setting: Setting, *, logits_at: int = 1) -> Way:
    """Torch's own hooks; logits at END, or at all positions (0)."""
    layers = setting.raw.model.layers

    def logits(tokens: Tensor, hooks: list[Any]) -> AnswerLogits:
        rows = torch.arange(len(tokens), device=tokens.device)
        output = setting.raw(tokens, use_cache=False, logits_to_keep=logits_at).logits
        for hook in hooks:
            hook.remove()
        return output[rows, -1, setting.answer]

    def recorded(tokens: Tensor) -> Recorded:
        z: list[Tensor] = []
        mlp: list[Tensor] = []
        hooks = []
        for layer in layers:
            o_proj = layer.self_attn.o_proj
            hooks.append(o_proj.register_forward_pre_hook(lambda _, put: z.append(put[0].clone())))
            hooks.append(layer.mlp.register_forward_hook(lambda _, __, out: mlp.append(out)))
        return z, mlp, logits(tokens, hooks)

    def run(z: Sequence[Any], mlps: Mapping[int, Tensor], hooks: Sequence[Any] = ()) -> Tensor:
        return logits(setting.reference, [*raw_hooks(setting, z, mlps), *hooks])

    return recorded, run


def raw_hooks(setting: Setting, z: Sequence[Any], mlps: Mapping[int, Tensor]) -> list[Any]:
    """Hooks that hold all heads, and replace some MLPs' outputs at the last positions.

    `z` has a value per layer, or a function of what the layer itself computes.
    """
    layers = setting.raw.model.layers

    def held(_: Any, put: tuple[Tensor], value: Any) -> tuple[Any]:
        return (value(put[0]) if callable(value) else value,)

    def end(_: Any, __: Any, out: Tensor, value: Tensor) -> Tensor:
        return torch.cat([out[:, : -value.shape[1]], value], dim=1)

    return [
        *(
            layer.self_attn.o_proj.register_forward_pre_hook(partial(held, value=value))
            for layer, value in zip(layers, z, strict=True)
        ),
        *(
            layers[layer].mlp.register_forward_hook(partial(end, value=value))
            for layer, value in mlps.items()
        ),
    ]


def transformer_lens(setting: Setting) -> Way:
    """TransformerLens alone: `run_with_cache`, then `run_with_hooks`."""
    bridge, answer = setting.model.bridge, setting.answer
    rows = torch.arange(len(answer), device=answer.device)
    options = {"use_cache": False, "logits_to_keep": 1}
    layers = range(bridge.cfg.n_layers)
    z_names = [f"blocks.{layer}.attn.hook_z" for layer in layers]
    mlp_names = [f"blocks.{layer}.hook_mlp_out" for layer in layers]

    def hold(_: Tensor, hook: object, *, value: Tensor) -> Tensor:
        return value

    def replace_end(out: Tensor, hook: object, *, value: Tensor) -> Tensor:
        return torch.cat([out[:, :-1], value], dim=1)

    def recorded(tokens: Tensor) -> Recorded:
        names = {*z_names, *mlp_names}
        logits, cache = bridge.run_with_cache(tokens, names_filter=names.__contains__, **options)
        z, mlp = ([cache[name] for name in some] for some in (z_names, mlp_names))
        return [value.flatten(-2) for value in z], mlp, logits[rows, -1, answer]

    def run(z: Sequence[Any], mlps: Mapping[int, Tensor]) -> AnswerLogits:
        heads = [value.unflatten(-1, (setting.shape.n_heads, -1)) for value in z]
        hooks = [
            *((mlp_names[k], partial(replace_end, value=value)) for k, value in mlps.items()),
            *((z_names[k], partial(hold, value=value)) for k, value in enumerate(heads)),
        ]
        logits = bridge.run_with_hooks(setting.reference, fwd_hooks=hooks, **options)
        return logits[rows, -1, answer]

    return recorded, run


def nnsight(setting: Setting) -> Way:
    """A trace per sender (https://nnsight.net; `pip install 'arith-lens[bench]'` brings it)."""
    from nnsight import NNsight, save  # pyright: ignore[reportMissingImports]

    model = NNsight(twin(setting.raw))
    layers, answer = model.model.layers, setting.answer
    rows = torch.arange(len(answer), device=answer.device)
    options = {"use_cache": False, "logits_to_keep": 1}

    def recorded(tokens: Tensor) -> Recorded:
        with model.trace(tokens, **options):
            z, mlp = save([]), save([])
            for layer in layers:
                z.append(layer.self_attn.o_proj.input.clone())
                mlp.append(layer.mlp.output.clone())
            logits = save(model.lm_head.output)
        return z, mlp, logits[rows, -1, answer]

    def run(z: Sequence[Any], mlps: Mapping[int, Tensor]) -> AnswerLogits:
        with model.trace(setting.reference, **options):
            for index, value in enumerate(z):
                layers[index].self_attn.o_proj.input = value
                if index in mlps:
                    layers[index].mlp.output[:, -1:] = mlps[index]
            logits = save(model.lm_head.output)
        return logits[rows, -1, answer]

    return recorded, run


@torch.no_grad()
def forward_each(
    way: Callable[[Setting], Way], setting: Setting, senders: Sequence[Component]
) -> Effects:
    """One run for each sender, every other head held."""
    recorded, run = way(setting)
    z, _, origin = recorded(setting.reference)
    other_z, other_mlp, _ = recorded(setting.counterfactual)

    def patched(sender: Component) -> AnswerLogits:
        values, layer = list(z), sender.layer
        if not isinstance(sender, Head):
            return run(values, {layer: other_mlp[layer][:, -1:]})
        part = columns(setting, sender)
        values[layer] = values[layer].clone()
        values[layer][:, -1, part] = other_z[layer][:, -1, part]
        return run(values, {})

    return torch.stack([patched(sender) for sender in senders]) - origin


def columns(setting: Setting, head: Head) -> slice:
    """Where a head is in the input of its output projection."""
    d_head = setting.shape.d_model // setting.shape.n_heads
    return slice(head.index * d_head, (head.index + 1) * d_head)


@torch.no_grad()
def end_only(setting: Setting, senders: Sequence[Component]) -> Effects:
    """Exact too, and END's residual stream alone, but one sender after the other."""
    model, pairs, answer = setting.model, setting.pairs, setting.answer
    layers = range(model.n_layers)
    names = [resid_pre_name(0)]
    names += [name(layer) for layer in layers for name in (z_at, attn_out_name, mlp_out_name)]
    end_rows, other = (
        {name: value[:, -1] for name, value in record(model, tokens, names, positions=-1).items()}
        for tokens in (pairs.reference, pairs.counterfactual)
    )
    streams = []  # after the attention of each layer
    stream = end_rows[resid_pre_name(0)]
    for layer in layers:
        streams.append(stream + end_rows[attn_out_name(layer)])
        stream = streams[-1] + end_rows[mlp_out_name(layer)]
    unembedding = model.W_U[:, answer]

    def through_mlp(row: Tensor, layer: int) -> Tensor:
        return row + model.blocks[layer].mlp(model.blocks[layer].ln2(row[None]))[0]

    def finish(row: Tensor, start: int) -> Tensor:
        for layer in range(start, model.n_layers):
            row = through_mlp(row + end_rows[attn_out_name(layer)], layer)
        return torch.einsum("pd,dp->p", model.ln_final(row[None])[0], unembedding)

    def patched(sender: Component) -> Tensor:
        layer = sender.layer
        if not isinstance(sender, Head):
            return finish(streams[layer] + other[mlp_out_name(layer)], layer + 1)
        change = (other[z_at(layer)] - end_rows[z_at(layer)])[:, sender.index]
        write = change @ model.blocks[layer].attn.W_O[sender.index]
        return finish(through_mlp(streams[layer] + write, layer), layer + 1)

    origin = finish(end_rows[resid_pre_name(0)], 0)
    return torch.stack([patched(sender) for sender in senders]) - origin


def this_package(
    setting: Setting, senders: Sequence[Component], *, engine: str = "sweep", certify: bool = True
) -> Effects:
    """`path_patch`, recording included."""
    options: dict[str, Any] = {"engine": engine, "certify": certify, "progress": False}
    effects = path_patch(setting.model, setting.pairs, senders=senders, metric="logit", **options)
    return torch.stack(
        [
            effects.heads.per_pair[sender.layer, sender.index]
            if isinstance(sender, Head)
            else effects.mlps.per_pair[sender.layer]
            for sender in senders
        ]
    )


@dataclass(frozen=True)
class Rival:
    """One way to compute the effects."""

    name: str
    compute: Callable[[Setting, Sequence[Component]], Effects]
    package: str | None = None
    """What must be installed for it, beside the dependencies of this project."""
    forwards: bool = False
    """Whether it runs the whole model for each sender."""
    engine: str | None = None
    """This package's, whose operations and memory `plan` predicts."""

    @property
    def missing(self) -> bool:
        return self.package is not None and installed(self.package) is None


RAW, SWEEP = "one forward per sender, raw Transformers", "sweep"
EVERY_LOGIT = partial(raw_transformers, logits_at=0)
RIVALS = (
    Rival(RAW, partial(forward_each, raw_transformers), forwards=True),
    Rival(
        "the same, with logits at every position",
        partial(forward_each, EVERY_LOGIT),
        forwards=True,
    ),
    Rival(
        "TransformerLens, run_with_hooks", partial(forward_each, transformer_lens), forwards=True
    ),
    Rival("nnsight, a trace a sender", partial(forward_each, nnsight), "nnsight", forwards=True),
    Rival("hook engine", partial(this_package, engine="hooks"), forwards=True, engine="hooks"),
    Rival("END alone, a sender at a time", end_only),
    Rival("sweep, with its certificate", this_package),
    Rival(SWEEP, partial(this_package, certify=False), engine="sweep"),
)
"""The first is what the others are compared with, in time and in numbers."""
