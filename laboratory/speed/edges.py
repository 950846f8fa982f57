"""How fast are edges? All edges into some receivers, and two forwards per edge by torch's hooks.

Each edge costs the hooks the same, so they compute some of the edges into one head.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import edge_effects, plan_edges
from arith_lens.components import Component, Head, Mlp
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
HOOKS, EDGES = "two forwards per edge, torch's hooks", "one head"
DIRECT, HEADS, MLPS = "one head, MLPs between held", "all heads of its layer", "the last three MLPs"
WAYS: dict[str, tuple[Callable[[Shape], Sequence[Component]], str]] = {
    EDGES: (lambda shape: [receiver_of(shape)], "via_mlps"),
    DIRECT: (lambda shape: [receiver_of(shape)], "direct"),
    HEADS: (lambda shape: [Head(shape.n_layers - 1, i) for i in range(shape.n_heads)], "via_mlps"),
    MLPS: (lambda shape: [Mlp(layer) for layer in range(shape.n_layers)[-3:]], "via_mlps"),
}
"""The receivers of each row of `edge_effects`, and `via`."""
EDGE_COLUMNS = {
    "method": Column("method"),
    "edges": Column("edges"),
    "of the processor": Column("cpu_seconds", ".3g"),
    "rounds": Column("rounds"),
    "ratio": Column("ratio", ".1f"),
    "largest difference": Column("difference", ".1e"),
    "FLOPs": Column("flops", ".3g"),
    "ratio of FLOPs": Column("flops_ratio", ".1f"),
    "of the floor": Column("reached", ".0%"),
}
MOST_ROUNDS = 5
HOOKED = 9
"""The hooks compute the edges of every ninth sender."""
GROWTH: dict[str, tuple[int, ...]] = {
    "n_layers": (4, 8, 16),
    "n_heads": (4, 8, 16),
    "n_tokens": (8, 16, 32),
}


def receiver_of(shape: Shape) -> Head:
    """The first head of the last layer, which has the most senders."""
    return Head(shape.n_layers - 1, 0)


def by_package(setting: Setting, way: str = EDGES) -> Float[Tensor, "receiver input sender pair"]:
    """All edges into the receivers but those of the embeddings; with the certificate."""
    receivers, via = WAYS[way]
    options: dict[str, Any] = {"metric": "logit", "via": via, "progress": False}
    into, senders = receivers(setting.shape), senders_of(setting, way)
    return edge_effects(setting.model, setting.pairs, into, senders=senders, **options).per_pair


def senders_of(setting: Setting, way: str = EDGES) -> list[Component]:
    """Every component that comes before the last receiver."""
    last = WAYS[way][0](setting.shape)[-1]
    heads_too = isinstance(last, Mlp)
    return [
        sender
        for sender in setting.senders
        if sender.layer < last.layer
        or (heads_too and isinstance(sender, Head) and sender.layer == last.layer)
    ]


@torch.no_grad()
def by_hooks(setting: Setting, senders: Sequence[Component]) -> EdgeRows:
    """Torch's own hooks. For each edge, one forward with the sender's counterfactual output, in
    which the receiver's projections are read; and one with the projection replaced.

    Three more forwards are for all edges: both prompts, and the reference without a change.
    """
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
    return torch.stack([torch.stack([edge(s, name) for s in senders]) for name in INPUTS]) - origin


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
    """Time, operations, and the share of the least possible time.

    That is two plain forwards, and the other operations at the rate of large matrix products.
    Numbers are of processor time. Ratios refer to two forwards for each of the same edges.
    """
    setting = setting_of(SHAPES[size])
    both = torch.cat([setting.reference, setting.counterfactual])
    some = senders_of(setting)[::HOOKED]
    methods: dict[str, Any] = {
        HOOKS: partial(by_hooks, setting, some),
        **{way: partial(by_package, setting, way) for way in WAYS},
        FORWARDS: lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        PRODUCTS: products(setting.device, setting.model.dtype),
    }
    timings = timed(methods, repeats=repeats, budget=budget, device=setting.device)
    rate = products_flops(setting.device) / timings[PRODUCTS].cpu
    slow, n_slow = timings[HOOKS], len(INPUTS) * len(some)
    of_edge = 2 * slow.cpu / (2 * n_slow + 3)
    flops_of_edge = 2 * len(setting.pairs) * forward_flops(setting.model, setting.shape.n_tokens)
    shared = {"matrix_products_per_second": rate}
    first = {"cpu_seconds": n_slow * of_edge, "flops": n_slow * flops_of_edge}
    rows: list[dict[str, Cell]] = [
        {"method": HOOKS, "edges": n_slow, "rounds": slow.rounds, **first, **shared}
    ]
    for way, (receivers, via) in WAYS.items():
        own: dict[str, Any] = {"senders": senders_of(setting, way), "via": via}
        plan = plan_edges(setting.model, setting.pairs, receivers(setting.shape), **own)
        floor = timings[FORWARDS].cpu + (plan.flops - plan.recording_flops) / rate
        timing = timings[way]
        rows.append(
            {
                "method": way,
                "edges": plan.n_edges,
                "cpu_seconds": timing.cpu,
                "rounds": timing.rounds,
                "ratio": plan.n_edges * of_edge / timing.cpu,
                "flops": plan.flops,
                "flops_ratio": plan.n_edges * flops_of_edge / plan.flops,
                "reached": floor / timing.cpu,
                **shared,
            }
        )
    own_values = timings[EDGES].result[0][:, ::HOOKED]
    rows[1]["difference"] = float((slow.result - own_values).abs().max())
    return SpeedTable(rows)


def save_csv(file: Path, table: SpeedTable, growth: SpeedTable, about: Mapping[str, Cell]) -> None:
    """Write both tables as one file, whose rows also have what the measurement was made on."""
    rows = [{**row, **about} for row in (*table.rows, *growth.rows)]
    SpeedTable(rows).to_dataframe().to_csv(file, index=False)


def growth_rows(*, repeats: int, budget: int | float) -> Iterator[dict[str, Any]]:
    """Time and operations of `edge_effects` as one size of the model grows."""
    base = replace(SHAPES["tiny"], n_layers=8, n_pairs=8)
    for factor, values in GROWTH.items():
        for value in values:
            setting = setting_of(replace(base, **{factor: value}))
            receiver, senders = receiver_of(setting.shape), senders_of(setting)
            methods = {EDGES: partial(by_package, setting)}
            timing = timed(methods, repeats=repeats, budget=budget, device=setting.device)[EDGES]
            plan = plan_edges(setting.model, setting.pairs, receiver, senders=senders)
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
