"""How fast are edges? All edges into one head, against two forwards per edge by torch's hooks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import edge_effects, plan_edges
from arith_lens.components import Component, Head
from arith_lens.path_patching import forward_flops
from laboratory.speed.measure import (
    SHAPES,
    Cell,
    Column,
    Setting,
    Shape,
    SpeedTable,
    setting_of,
    timed,
)
from laboratory.speed.tables import FORWARDS, PRODUCTS, exponents, products, products_flops

EdgeRows = Float[Tensor, "input sender pair"]
INPUTS = ("q", "k", "v")
HOOKS, EDGES = "two forwards per edge, raw Transformers", "edge_effects"
DIRECT = "edge_effects, via=direct (MLPs between held)"
EDGE_COLUMNS = {
    "method": Column("method"),
    "edges": Column("edges"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "ratio": Column("ratio", ".1f"),
    "largest difference": Column("difference", ".1e"),
    "FLOPs": Column("flops", ".3g"),
    "of the floor": Column("reached", ".0%"),
}
MOST_ROUNDS = 3
"""More rounds would take minutes: two forwards for each of 297 edges."""
GROWTH: dict[str, tuple[int, ...]] = {
    "n_layers": (4, 8, 16),
    "n_heads": (4, 8, 16),
    "n_tokens": (8, 16, 32),
}


def receiver_of(shape: Shape) -> Head:
    """The first head of the last layer, which has the most senders."""
    return Head(shape.n_layers - 1, 0)


def by_package(setting: Setting, via: str = "via_mlps") -> EdgeRows:
    """All edges into the receiver but those of the embeddings; with the certificate."""
    receiver = receiver_of(setting.shape)
    senders = _senders(setting)
    options: dict[str, Any] = {"metric": "logit", "via": via, "progress": False}
    effects = edge_effects(setting.model, setting.pairs, receiver, senders=senders, **options)
    return effects.per_pair[0]


def _senders(setting: Setting) -> list[Component]:
    last = receiver_of(setting.shape).layer
    return [sender for sender in setting.senders if sender.layer < last]


@torch.no_grad()
def by_hooks(setting: Setting, senders: Sequence[Component] | None = None) -> EdgeRows:
    """Torch's own hooks. For each edge, one forward with the sender's counterfactual output, in
    which the receiver's projections are read; and one with the projection replaced."""
    receiver, layers = receiver_of(setting.shape), setting.raw.model.layers
    width = setting.shape.d_model // setting.shape.n_heads
    own = slice(receiver.index * width, (receiver.index + 1) * width)
    reference, other = (_record(setting, t) for t in (setting.reference, setting.counterfactual))
    rows = torch.arange(len(setting.answer))
    attention = layers[receiver.layer].self_attn
    projections = {name: getattr(attention, f"{name}_proj") for name in INPUTS}

    def held(layer: int) -> Any:
        def replace_z(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
            value = reference["z", layer]
            if layer == receiver.layer:
                value = value.clone()
                value[:, -1, own] = inputs[0][:, -1, own]
            return (value,)

        return replace_z

    def forward(hooks: list[Any]) -> Tensor:
        hooks += [
            block.self_attn.o_proj.register_forward_pre_hook(held(layer))
            for layer, block in enumerate(layers)
            if ("sender", layer) not in skipped
        ]
        logits = setting.raw(setting.reference, use_cache=False, logits_to_keep=1).logits
        for hook in hooks:
            hook.remove()
        return logits[rows, -1, setting.answer]

    skipped: set[tuple[str, int]] = set()

    def edge(sender: Component, name: str) -> Tensor:
        read: list[Tensor] = []
        layer = sender.layer
        if isinstance(sender, Head):
            columns = slice(sender.index * width, (sender.index + 1) * width)
            value = reference["z", layer].clone()
            value[..., columns] = other["z", layer][..., columns]
            skipped.add(("sender", layer))
            o_proj = layers[layer].self_attn.o_proj
            hooks = [o_proj.register_forward_pre_hook(lambda *_: (value,))]
        else:
            hooks = [layers[layer].mlp.register_forward_hook(lambda *_: other["mlp", layer])]
        hooks.append(projections[name].register_forward_hook(lambda _, __, out: read.append(out)))
        forward(hooks)
        skipped.clear()

        def splice(_: Any, __: Any, out: Tensor) -> Tensor:
            out = out.clone()
            out[..., own] = read[0][..., own]
            return out

        return forward([projections[name].register_forward_hook(splice)])

    origin = forward([])
    chosen = _senders(setting) if senders is None else senders
    return torch.stack([torch.stack([edge(s, name) for s in chosen]) for name in INPUTS]) - origin


@torch.no_grad()
def _record(setting: Setting, tokens: Tensor) -> dict[tuple[str, int], Tensor]:
    """The heads' and MLPs' outputs at every token."""
    seen: dict[tuple[str, int], Tensor] = {}
    hooks = []
    for k, layer in enumerate(setting.raw.model.layers):
        hooks += [
            layer.self_attn.o_proj.register_forward_pre_hook(
                lambda _, inputs, k=k: seen.update({("z", k): inputs[0].clone()})
            ),
            layer.mlp.register_forward_hook(
                lambda _, __, out, k=k: seen.update({("mlp", k): out.clone()})
            ),
        ]
    setting.raw(tokens, use_cache=False, logits_to_keep=1)
    for hook in hooks:
        hook.remove()
    return seen


def edge_table(*, repeats: int, budget: int | float, size: str = "tiny") -> SpeedTable:
    """Both ways into one head, and the share of the least possible time.

    That is two plain forwards, and the other operations at the rate of large matrix products.
    Numbers are of processor time.
    """
    setting = setting_of(SHAPES[size])
    both = torch.cat([setting.reference, setting.counterfactual])
    ways = {EDGES: "via_mlps", DIRECT: "direct"}
    methods: dict[str, Any] = {
        HOOKS: partial(by_hooks, setting),
        **{name: partial(by_package, setting, via) for name, via in ways.items()},
        FORWARDS: lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        PRODUCTS: products(setting.device, setting.model.dtype),
    }
    timings = timed(methods, repeats=repeats, budget=budget, device=setting.device)
    rate = products_flops(setting.device) / timings[PRODUCTS].cpu
    senders, slow = _senders(setting), timings[HOOKS]
    n_edges = len(INPUTS) * len(senders)
    forwards = 2 * n_edges * len(setting.pairs)
    first = {"cpu_seconds": slow.cpu, "ratio": 1.0}
    first["flops"] = forwards * forward_flops(setting.model, setting.shape.n_tokens)
    rows: list[dict[str, Cell]] = [{"method": HOOKS, "edges": n_edges, **first}]
    for name, via in ways.items():
        own = {"senders": senders, "via": via}
        plan = plan_edges(setting.model, setting.pairs, receiver_of(setting.shape), **own)
        floor = timings[FORWARDS].cpu + (plan.flops - plan.recording_flops) / rate
        spent = timings[name].cpu
        numbers = {"cpu_seconds": spent, "ratio": slow.cpu / spent, "reached": floor / spent}
        numbers["flops"] = plan.flops
        rows.append({"method": name, "edges": n_edges, **numbers})
    rows[1]["difference"] = float((slow.result - timings[EDGES].result).abs().max())
    return SpeedTable(rows)


def growth_rows(*, repeats: int, budget: int | float) -> Iterator[dict[str, Any]]:
    """Time and operations of `edge_effects` as one size of the model grows."""
    base = replace(SHAPES["tiny"], n_layers=8, n_pairs=8)
    for factor, values in GROWTH.items():
        for value in values:
            setting = setting_of(replace(base, **{factor: value}))
            receiver = receiver_of(setting.shape)
            methods = {EDGES: partial(by_package, setting)}
            timing = timed(methods, repeats=repeats, budget=budget, device=setting.device)[EDGES]
            plan = plan_edges(setting.model, setting.pairs, receiver, senders=_senders(setting))
            yield {
                "factor": factor,
                "value": value,
                "method": EDGES,
                "spent": timing.cpu,
                "flops": plan.flops,
            }


def edge_growth(*, repeats: int, budget: int | float) -> SpeedTable:
    """The exponents of time and of operations, by layers, heads and tokens."""
    return exponents(SpeedTable([*growth_rows(repeats=repeats, budget=budget)]))
