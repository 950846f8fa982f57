"""Which circuit answers? The strongest heads and MLPs, and who writes what they read."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch

import arith_lens as al
from arith_lens.attribution import EDGE_METHODS
from arith_lens.components import Component, every_component, parse_component
from arith_lens.edges import SUBSETS, UnsupportedReceiver
from arith_lens.knockout import half_of_problems
from arith_lens.path_patching import matrix_rate, time_text
from arith_lens.runs import Run
from experiments.command import continue_after_part
from experiments.configs.effects import CircuitConfig
from experiments.results import (
    DIRECT_EDGES,
    EDGE_SCORES,
    EDGES,
    EDGES_BY_ROLE,
    INPUT_EFFECTS,
    KEPT,
    NODES,
)
from experiments.settings import (
    BEFORE_FILTER,
    Experiment,
    patch_and_store,
    sampled_operation,
    some_pairs,
)

POSITIONS = ("end", "all")
"""Where all but the graph is exchanged."""
GROUP = "head"
"""Each head reads a changed key or value alone: an edge belongs to one head, and counts once."""
GRAPH, RANDOM, NOTHING, EVERYTHING = "graph", "random", "nothing", "everything"
"""The sets that are kept: the graph, random ones with a number, and the two ends of the scale."""


def compute(run: Run, model: al.HookedModel, config: CircuitConfig) -> None:
    """Nodes, edges and tests of each operation, counterfactual and metric."""
    for operation, counterfactual in product(config.operations, config.counterfactuals):
        pairs = sampled_pairs(model, config, operation, counterfactual, keep=config.keep)
        for metric in config.metrics:
            with continue_after_part():
                _save_graph(run, model, config, pairs, (operation, counterfactual, metric))


def sampled_pairs(
    model: al.HookedModel, config: CircuitConfig, operation: str, counterfactual: str, *, keep: str
) -> al.PromptPairs:
    """The pairs of an operation and a counterfactual."""
    options = {"counterfactual": counterfactual, "keep": keep}
    pairs = sampled_operation(model, operation, config, problems=config.problems, **options)
    return some_pairs(pairs, config.drawn, config.seed)


def _save_graph(
    run: Run,
    model: al.HookedModel,
    config: CircuitConfig,
    pairs: al.PromptPairs,
    key: tuple[str, ...],
) -> None:
    """The effects of nodes and edges; the graph of one half, kept alone on the other half."""
    settings: dict[str, Any] = {"metric": key[-1], "run": run, "group": GROUP}
    effects = patch_and_store(run, model, pairs, NODES, *key, metric=key[-1])
    first = first_half(pairs, config.seed)
    receivers = chosen_receivers(config, selected(effects, first))
    edges = al.edge_effects(model, pairs, receivers, name=EDGES.name(*key), **settings)
    if config.by_role:
        name = EDGES_BY_ROLE.name(*key)
        al.edge_effects(model, pairs, receivers, positions="each", name=name, **settings)
    together: dict[str, Any] = {"senders": "together", "inputs": SUBSETS}
    heads = [one for one in receivers if isinstance(one, al.Head)]
    if heads:
        al.edge_effects(model, pairs, heads, name=INPUT_EFFECTS.name(*key), **together, **settings)
    if config.steps:
        al.edge_effects(
            model, pairs, receivers, via="direct", name=DIRECT_EDGES.name(*key), **settings
        )
        _save_scores(run, model, config, pairs, receivers, key)
    graph = al.circuit_graph(edges.select(first), selected(effects, first)).strongest(config.share)
    others = some_pairs(pairs[~first], config.kept_on, config.seed)
    sets = kept_sets(graph.components, model.n_layers, model.n_heads, config)
    for positions in POSITIONS:
        al.keep_each(
            model,
            others,
            sets,
            metric=config.measure,
            positions=positions,
            run=run,
            name=KEPT.name(*key, positions),
        )


def _save_scores(
    run: Run,
    model: al.HookedModel,
    config: CircuitConfig,
    pairs: al.PromptPairs,
    receivers: list[Component],
    key: tuple[str, ...],
) -> None:
    """The scores of gradients for the same edges, where the model's layers simply add."""
    how: dict[str, Any] = {"metric": key[-1], "steps": config.steps, "run": run, "group": GROUP}
    for method in EDGE_METHODS:
        name = EDGE_SCORES.name(*key, method)
        try:
            al.attribute_edges(model, pairs, receivers, method=method, name=name, **how)
        except UnsupportedReceiver as error:
            print(f"{method} is left out: {error}")


def first_half(pairs: al.PromptPairs | al.Effects, seed: int) -> torch.Tensor:
    """Which pairs are of the half of the problems on which components are chosen, [pair]."""
    return half_of_problems(pairs.problem or (), seed)


def selected(effects: al.ComponentEffects, mask: torch.Tensor) -> al.ComponentEffects:
    """The effects on some of the pairs."""
    parts = {"heads": effects.heads.select(mask), "mlps": effects.mlps.select(mask)}
    return replace(effects, **parts, logit=effects.logit[mask])


def chosen_receivers(config: CircuitConfig, effects: al.ComponentEffects) -> list[Component]:
    """The named heads, else the strongest ones; and the strongest MLPs."""
    named = [parse_component(name) for name in config.which_heads]
    return [*(named or effects.heads.top(config.heads)), *effects.mlps.top(config.mlps)]


def kept_sets(
    graph: list[Component], n_layers: int, n_heads: int, config: CircuitConfig
) -> dict[str, list[Component]]:
    """The graph, nothing, everything, and random graphs: other heads by chance, the same MLPs."""
    sets = {NOTHING: [], EVERYTHING: every_component(n_layers, n_heads), GRAPH: graph}
    mlps = [one for one in graph if not isinstance(one, al.Head)]
    layers = [one.layer for one in graph if isinstance(one, al.Head)]
    for seed in range(config.controls):
        generator = random.Random(f"{config.seed} {seed}")
        heads = [
            al.Head(layer, index)
            for layer in sorted({*layers})
            for index in generator.sample(range(n_heads), layers.count(layer))
        ]
        sets[f"{RANDOM} {seed}"] = [*heads, *mlps]
    return sets


def _plan(model: al.HookedModel, config: CircuitConfig) -> str:
    """The cost of nodes and edges with the last layers' receivers, which cost the most."""
    rate, flops, lines = matrix_rate(model), 0, []
    last = model.n_layers - 1
    heads: list[Component] = [al.Head(last, i % model.n_heads) for i in range(config.heads)]
    mlps: list[Component] = [al.Mlp(last - i) for i in range(min(config.mlps, model.n_layers))]
    receivers = [*([parse_component(name) for name in config.which_heads] or heads), *mlps]
    for operation, counterfactual in product(config.operations, config.counterfactuals):
        pairs = sampled_pairs(model, config, operation, counterfactual, keep="all")
        for metric in config.metrics:
            plan = al.plan_edges(model, pairs, receivers, metric=metric)
            direct = al.plan_edges(model, pairs, receivers, metric=metric, via="direct")
            by_role = al.plan_edges(model, pairs, receivers, metric=metric, positions="each")
            flops += (
                plan.flops
                + by_role.flops * config.by_role
                + direct.flops * bool(config.steps)
                + al.plan(model, pairs, metric=metric).flops
            )
            lines.append(f"{operation}, {counterfactual}, {metric}: {plan}{BEFORE_FILTER}")
    n_kept = len(lines) * len(POSITIONS) * (config.controls + 3)
    lines.append(f"nodes and edges in all: {time_text(flops, rate)}, at most")
    return "\n".join([*lines, f"graphs kept alone: {n_kept} forwards of {config.kept_on} pairs"])


def keys(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Operation, counterfactual and metric of each graph of a run."""
    yield from product(settings["operations"], settings["counterfactuals"], settings["metrics"])


main = Experiment("circuit", CircuitConfig, compute, _plan, figure="circuit", shares=True)
