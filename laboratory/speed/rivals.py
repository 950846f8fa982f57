"""The same path patching in several ways. All patch every head and every MLP at END.

Each function takes a setting and senders, heads before MLPs, and returns the change of the answer's
logit, [sender pair]. The first two, TransformerLens' and nnsight's run the model once per sender;
`end_only` is the strong baseline; the last three are this package's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import path_patch
from arith_lens.components import Component, Head, attn_out_name, mlp_out_name, resid_pre_name
from arith_lens.components import z_name as z_at
from arith_lens.model import HookedModel, record
from arith_lens.path_patching import forward_flops, patch_settings, recording_operations, rows_flops
from arith_lens.runs import installed
from laboratory.speed.measure import Setting, twin

Effects: TypeAlias = Float[Tensor, "sender pair"]
SWEEP, CERTIFIED = "sweep", "sweep, with its certificate"
RAW = "one forward per sender, raw Transformers"
TWO_RUNS = 2  # the reference's and the counterfactual's, to record


@dataclass(frozen=True)
class Rival:
    """One way to compute the effects."""

    name: str
    compute: Callable[[Setting, Sequence[Component]], Effects]
    flops: Callable[[Setting], int] | None
    """Floating-point operations for all senders; None where they are not predicted."""
    package: str | None = None
    """What must be installed for it, beside the dependencies of this project."""
    forwards: bool = False
    """Whether it runs the whole model for each sender."""
    engine: str | None = None
    """This package's, whose memory `plan` predicts."""

    @property
    def missing(self) -> bool:
        return self.package is not None and installed(self.package) is None


def forward_a_sender(
    setting: Setting, senders: Sequence[Component], *, logits_at: int = 1
) -> Effects:
    """Torch's own hooks, every other head held; logits at END, or at all positions (0)."""
    hf, answer = setting.raw, setting.answer
    layers, rows = hf.model.layers, torch.arange(len(answer), device=answer.device)
    options = {"use_cache": False, "logits_to_keep": logits_at}
    z, _, logits = _recorded(setting, setting.reference, options)
    other_z, other_mlp, _ = _recorded(setting, setting.counterfactual, options)

    def patched(sender: Component) -> Tensor:
        values = list(z)
        hooks = []
        if isinstance(sender, Head):
            part = _columns(setting, sender)
            values[sender.layer] = values[sender.layer].clone()
            values[sender.layer][:, -1, part] = other_z[sender.layer][:, -1, part]
        else:
            hooks.append(
                layers[sender.layer].mlp.register_forward_hook(
                    lambda _, __, out: torch.cat(
                        [out[:, :-1], other_mlp[sender.layer][:, None]], dim=1
                    )
                )
            )
        hooks += [
            layer.self_attn.o_proj.register_forward_pre_hook(lambda _, __, value=value: (value,))
            for layer, value in zip(layers, values, strict=True)
        ]
        logits = hf(setting.reference, **options).logits
        for hook in hooks:
            hook.remove()
        return logits[rows, -1, answer]

    with torch.no_grad():
        return torch.stack([patched(sender) for sender in senders]) - logits[rows, -1, answer]


@torch.no_grad()
def _recorded(
    setting: Setting, tokens: Tensor, options: dict[str, int | bool]
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What enters each output projection, what each MLP puts out at END, and the logits."""
    z: list[Tensor] = []
    mlp: list[Tensor] = []
    hooks = []
    for layer in setting.raw.model.layers:
        o_proj = layer.self_attn.o_proj
        hooks.append(
            o_proj.register_forward_pre_hook(lambda _, inputs: z.append(inputs[0].clone()))
        )
        hooks.append(layer.mlp.register_forward_hook(lambda _, __, out: mlp.append(out[:, -1])))
    logits = setting.raw(tokens, **options).logits
    for hook in hooks:
        hook.remove()
    return z, mlp, logits


def _columns(setting: Setting, head: Head) -> slice:
    d_head = setting.shape.d_model // setting.shape.n_heads
    return slice(head.index * d_head, (head.index + 1) * d_head)


@torch.no_grad()
def by_transformer_lens(setting: Setting, senders: Sequence[Component]) -> Effects:
    """TransformerLens alone: `run_with_cache` twice, then `run_with_hooks` for each sender."""
    bridge, answer = setting.model.bridge, setting.answer
    rows = torch.arange(len(answer), device=answer.device)
    options = {"use_cache": False, "logits_to_keep": 1}

    def wanted(name: str) -> bool:
        return name.endswith(("attn.hook_z", "hook_mlp_out"))

    def take(_: Tensor, hook: object, *, value: Tensor) -> Tensor:
        return value

    def take_end(out: Tensor, hook: object, *, value: Tensor) -> Tensor:
        return torch.cat([out[:, :-1], value[:, -1:]], dim=1)

    logits, held = bridge.run_with_cache(setting.reference, names_filter=wanted, **options)
    _, other = bridge.run_with_cache(setting.counterfactual, names_filter=wanted, **options)

    def patched(sender: Component) -> Tensor:
        z_names = [f"blocks.{layer}.attn.hook_z" for layer in range(bridge.cfg.n_layers)]
        values = {name: held[name] for name in z_names}
        hooks = []
        if isinstance(sender, Head):
            name = z_names[sender.layer]
            values[name] = values[name].clone()
            values[name][:, -1, sender.index] = other[name][:, -1, sender.index]
        else:
            name = f"blocks.{sender.layer}.hook_mlp_out"
            hooks.append((name, partial(take_end, value=other[name])))
        hooks += [(name, partial(take, value=value)) for name, value in values.items()]
        return bridge.run_with_hooks(setting.reference, fwd_hooks=hooks, **options)[
            rows, -1, answer
        ]

    return torch.stack([patched(sender) for sender in senders]) - logits[rows, -1, answer]


@torch.no_grad()
def by_nnsight(setting: Setting, senders: Sequence[Component]) -> Effects:
    """nnsight (https://nnsight.net, no dependency: `pip install 'arith-lens[bench]'` brings it), a
    trace per sender: every other head held; logits at END alone."""
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
        part = _columns(setting, sender)
        values[sender.layer] = values[sender.layer].clone()
        values[sender.layer][:, -1, part] = other_z[sender.layer][:, -1, part]
        return patched(values, sender.layer, None) - origin

    return torch.stack([effect(sender) for sender in senders])


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
    columns = model.W_U[:, answer]

    def through_mlp(row: Tensor, layer: int) -> Tensor:
        return row + model.blocks[layer].mlp(model.blocks[layer].ln2(row[None]))[0]

    def finish(row: Tensor, start: int) -> Tensor:
        for layer in range(start, model.n_layers):
            row = through_mlp(row + end_rows[attn_out_name(layer)], layer)
        return torch.einsum("pd,dp->p", model.ln_final(row[None])[0], columns)

    def patched(sender: Component) -> Tensor:
        layer = sender.layer
        if not isinstance(sender, Head):
            return finish(streams[layer] + other[mlp_out_name(layer)], layer + 1)
        change = (other[z_at(layer)] - end_rows[z_at(layer)])[:, sender.index]
        write = change @ model.blocks[layer].attn.W_O[sender.index]
        return finish(through_mlp(streams[layer] + write, layer), layer + 1)

    origin = finish(end_rows[resid_pre_name(0)], 0)
    return torch.stack([patched(sender) for sender in senders]) - origin


def by_this_package(
    setting: Setting, senders: Sequence[Component], *, engine: str = "sweep", certify: bool = True
) -> Effects:
    """`path_patch`, recording included."""
    result = path_patch(
        setting.model,
        setting.pairs,
        senders=senders,
        metric="logit",
        engine=engine,
        certify=certify,
        progress=False,
    )
    return torch.stack(
        [
            result.heads.per_pair[sender.layer, sender.index]
            if isinstance(sender, Head)
            else result.mlps.per_pair[sender.layer]
            for sender in senders
        ]
    )


def forwards_flops(setting: Setting, *, logits_at: int = 1) -> int:
    """A forward for each sender, and the two that are recorded."""
    shape = setting.shape
    logits = 2 * (logits_at or shape.n_tokens) * shape.d_model * shape.d_vocab
    per_forward = forward_flops(setting.model, shape.n_tokens) + logits
    return (TWO_RUNS + len(setting.senders)) * shape.n_pairs * per_forward


def hooks_flops(setting: Setting) -> int:
    """One forward more than the others, but the two that are recorded compute no logits."""
    shape = setting.shape
    logits = 2 * shape.d_model * shape.d_vocab
    one_more = forward_flops(setting.model, shape.n_tokens)
    return forwards_flops(setting) + shape.n_pairs * (one_more - logits)


def sweep_flops(
    setting: Setting,
    *,
    recorded: Callable[[HookedModel, int], int] = lambda model, n: recording_operations(model)(n),
    readings: int = 2,
) -> int:
    """Of the sweep, and of END alone: the same rows in another order, after whole forwards.

    The sweep reads each row twice: with its own scale of the final norm, and with the reference's.
    """
    model, pairs = setting.model, setting.pairs
    patching = patch_settings(
        model, setting.senders, paths="via_mlps", metric="logit", foil=None, pairs=pairs
    )
    recording = TWO_RUNS * recorded(model, setting.shape.n_tokens)
    return setting.shape.n_pairs * (recording + rows_flops(model, patching, readings=readings))


RIVALS = (
    Rival(RAW, forward_a_sender, forwards_flops, forwards=True),
    Rival(
        "the same, with logits at every position",
        partial(forward_a_sender, logits_at=0),
        partial(forwards_flops, logits_at=0),
        forwards=True,
    ),
    Rival("TransformerLens, run_with_hooks", by_transformer_lens, forwards_flops, forwards=True),
    Rival("nnsight, a trace a sender", by_nnsight, forwards_flops, "nnsight", forwards=True),
    Rival(
        "hook engine",
        partial(by_this_package, engine="hooks"),
        hooks_flops,
        forwards=True,
        engine="hooks",
    ),
    Rival(
        "END alone, a sender at a time",
        end_only,
        partial(sweep_flops, recorded=forward_flops, readings=1),
    ),
    Rival(CERTIFIED, by_this_package, None),
    Rival(SWEEP, partial(by_this_package, certify=False), sweep_flops, engine="sweep"),
)
"""The first is what the others are compared with, in time and in numbers."""
