"""How fast are edges? All edges into some receivers, and two forwards per edge by torch's hooks.

Each edge costs the hooks the same, so they compute some of the edges into one head.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from arith_lens import edge_effects, plan_edges
from arith_lens.components import Component, Head, Mlp
from arith_lens.path_patching import forward_flops
from laboratory.speed.growth import exponents, growth_rows
from laboratory.speed.measure import Rows, products, products_flops, timed
from laboratory.speed.rivals import columns, raw_transformers
from laboratory.speed.shapes import SHAPES, Setting, Shape, setting_of

INPUTS = ("q", "k", "v")
HOOKS, EDGES = "two forwards per edge, torch's hooks", "one head"
DIRECT, HEADS, MLPS = "one head, MLPs between held", "all heads of its layer", "the last three MLPs"
CIRCUIT = "those of make circuit"


def circuit_of(shape: Shape) -> list[Component]:
    """Those that `make circuit` asks for `reference` and addition, or as deep in other shapes."""
    heads, mlps = ((4, 0), (4, 3), (5, 4), (5, 5), (6, 0)), (6, 10, 11)
    every = [
        *(Head(layer * shape.n_layers // 12, index % shape.n_heads) for layer, index in heads),
        *(Mlp(layer * shape.n_layers // 12) for layer in mlps),
    ]
    return [*dict.fromkeys(every)]


WAYS: dict[str, tuple[Callable[[Shape], Sequence[Component]], str]] = {
    EDGES: (lambda shape: [receiver_of(shape)], "via_mlps"),
    DIRECT: (lambda shape: [receiver_of(shape)], "direct"),
    HEADS: (lambda shape: [Head(shape.n_layers - 1, i) for i in range(shape.n_heads)], "via_mlps"),
    CIRCUIT: (circuit_of, "via_mlps"),
    MLPS: (lambda shape: [Mlp(layer) for layer in range(shape.n_layers)[-3:]], "via_mlps"),
}
"""The receivers of each row of `edge_effects`, and `via`."""
MOST_ROUNDS = 5
HOOKED = 9
"""The hooks compute the edges of every ninth sender."""
GROWTH = {"n_layers": (4, 8, 16), "n_heads": (4, 8, 16), "n_tokens": (8, 16, 32)}


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
def by_hooks(setting: Setting, senders: Sequence[Component]) -> Float[Tensor, "input sender pair"]:
    """Torch's own hooks. For each edge, one forward with the sender's counterfactual output, in
    which the receiver's projections are read; and one with the projection replaced.

    Three more forwards are for all edges: both prompts, and the reference without a change.
    """
    receiver = receiver_of(setting.shape)
    own = columns(setting, receiver)
    recorded, run = raw_transformers(setting)
    z, _, _ = recorded(setting.reference)
    other_z, other_mlp, _ = recorded(setting.counterfactual)
    attention = setting.raw.model.layers[receiver.layer].self_attn

    def with_own(computed: Tensor, *, base: Tensor, at: Any) -> Tensor:
        """A tensor in which the receiver's columns are those of another."""
        base = base.clone()
        base[(*at, own)] = computed[(*at, own)]
        return base

    held: list[Any] = list(z)
    held[-1] = partial(with_own, base=z[-1], at=(slice(None), -1))

    def edge(sender: Component, name: str) -> Tensor:
        projection, read = getattr(attention, f"{name}_proj"), []
        values, mlps, layer = list(held), {}, sender.layer
        if isinstance(sender, Head):
            values[layer] = z[layer].clone()
            part = columns(setting, sender)
            values[layer][..., part] = other_z[layer][..., part]
        else:
            mlps[layer] = other_mlp[layer]
        run(values, mlps, [projection.register_forward_hook(lambda _, __, out: read.append(out))])
        splice = projection.register_forward_hook(
            lambda _, __, out: with_own(read[0], base=out, at=(...,))
        )
        return run(held, {}, [splice])

    origin = run(held, {})
    return torch.stack([torch.stack([edge(s, name) for s in senders]) for name in INPUTS]) - origin


def edge_rows(*, repeats: int, budget: int | float) -> Rows:
    """Time, operations, and the share of the least possible time.

    That is two plain forwards, and the other operations at the rate of large matrix products.
    Numbers are of processor time. Ratios refer to two forwards for each of the same edges.
    """
    setting = setting_of(SHAPES["tiny"])
    both = torch.cat([setting.reference, setting.counterfactual])
    some = senders_of(setting)[::HOOKED]
    methods: dict[str, Any] = {
        HOOKS: partial(by_hooks, setting, some),
        **{way: partial(by_package, setting, way) for way in WAYS},
        "two forwards": lambda: setting.raw.model(both, use_cache=False).last_hidden_state,
        "products": products(setting.device, setting.model.dtype),
    }
    timings = timed(methods, repeats=repeats, budget=budget, device=setting.device)
    rate = products_flops(setting.device) / timings["products"].cpu
    slow, n_slow = timings[HOOKS], len(INPUTS) * len(some)
    of_edge = 2 * slow.cpu / (2 * n_slow + 3)
    flops_of_edge = 2 * len(setting.pairs) * forward_flops(setting.model, setting.shape.n_tokens)
    rows: Rows = [
        {"cpu_seconds": n_slow * of_edge, "flops": n_slow * flops_of_edge, "edges": n_slow}
    ]
    for way, (receivers, via) in WAYS.items():
        own: dict[str, Any] = {"senders": senders_of(setting, way), "via": via}
        plan = plan_edges(setting.model, setting.pairs, receivers(setting.shape), **own)
        floor = timings["two forwards"].cpu + (plan.flops - plan.recording_flops) / rate
        rows.append(
            {
                "cpu_seconds": timings[way].cpu,
                "flops": plan.flops,
                "edges": plan.n_edges,
                "ratio": plan.n_edges * of_edge / timings[way].cpu,
                "flops_ratio": plan.n_edges * flops_of_edge / plan.flops,
                "reached": floor / timings[way].cpu,
            }
        )
    own_values = timings[EDGES].result[0][:, ::HOOKED]
    rows[1]["difference"] = float((slow.result - own_values).abs().max())
    return [
        {"method": name, "rounds": timings[name].rounds, "matrix_products_per_second": rate, **row}
        for name, row in zip((HOOKS, *WAYS), rows, strict=True)
    ]


def edge_growth(*, repeats: int, budget: int | float) -> Rows:
    """The exponents of time, by layers, heads and tokens."""
    growth = replace(SHAPES["tiny"], n_layers=8, n_pairs=8), GROWTH

    def methods(setting: Setting) -> dict[str, Callable[[], Tensor]]:
        return {EDGES: partial(by_package, setting)}

    return exponents(growth_rows(growth, methods, repeats=repeats, budget=budget))
