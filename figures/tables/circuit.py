"""The table `circuit`: who writes what the strongest heads and MLPs read, and does that suffice?

Keys: operation; counterfactual; metric; kind (see `KINDS`); sender (a component, "embeddings", or
"together"), receiver, input ("q", "k", "v", or "mlp"); role, of the tokens at which a sender acts;
kept, which set is kept alone, and
positions, where all else is exchanged ("end" or "all"); method and via, of edge scores that are
graded by exact edges; strongest ("yes" or "no"), whether an edge is one of the fewest with 80% of
the sizes of all.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np
import torch

from arith_lens.edges import EMBEDDINGS, circuit_graph, shapley_shares
from arith_lens.effects import Effects, agreement
from arith_lens.metrics import METRICS
from arith_lens.runs import Run
from arith_lens.statistics import resampled_means
from experiments import results
from experiments.circuit import EVERYTHING, GRAPH, NOTHING, POSITIONS, RANDOM, keys
from figures.tables.number import PROBLEMS, Number, Unit, over_draws
from figures.tables.table import QuestionTable, Row, interval_numbers, n_problems, row

KINDS = ("model", "node", "edge", "part", "graph", "input", "kept", "score")
"""The model's layers; effects of components; of edges; of edges whose sender acts at the tokens of
one role alone, each with its `role`; counts of edges; shares of inputs; what is
left if a set of components is kept alone; how well gradients' scores agree with exact edges."""
EFFECT, HELD, LAYERS = "effect", "effect, norm held", "layers"
MEASURED_EDGES, CERTAIN_EDGES, BY_CHANCE, STRONGEST = (
    "edges measured",
    "edges whose interval excludes 0",
    "edges expected by chance",
    "edges with 80% of the sizes",
)
ACCURACY, OTHER, LEFT = "accuracy", "answers C'", "share of the metric that is left"
N_RESAMPLES, N_RECALLED = 1000, 50
STRONGEST_SHARE = 0.8
"""The share of the sizes of all edges that the strongest ones have."""
SCORE_MEASURES = ("pearson", "spearman", f"recall {N_RECALLED}")


def table(run: Run) -> QuestionTable:
    """The rows of a run of `circuit`. Edges are those whose interval excludes 0.

    Raises:
        RunError: the run is damaged.
    """
    n_layers = Number(run.manifest["provenance"]["model"]["n_layers"], unit="layers")
    rows = [row(LAYERS, n_layers, kind="model")]
    for key in keys(run.config):
        about = dict(zip(("operation", "counterfactual", "metric"), key, strict=True))
        makers = (_graph_rows, _part_rows, _input_rows, _kept_rows, _score_rows)
        parts = (one for make in makers for one in make(run, key))
        rows += [replace(one, keys={**about, **one.keys}) for one in parts]
    return QuestionTable.of("circuit", str(run.config["model"]), rows)


def _unit(metric: str) -> Unit:
    return "relative" if METRICS[metric].share_of else "logit"


def _graph_rows(run: Run, key: tuple[str, str, str]) -> Iterator[Row]:
    """Nodes, edges, and how many edges there are."""
    unit = _unit(key[-1])
    graph = circuit_graph(results.EDGES.load(run, *key), results.NODES.load(run, *key))
    for node in graph.nodes.to_dict("records"):
        if node["node"] == EMBEDDINGS:
            continue
        for name, mean, ends in ((EFFECT, "mean", ""), (HELD, "held", "held_")):
            low, high = node[f"{ends}low"], node[f"{ends}high"]
            number = Number(node[mean], low, high, PROBLEMS, node["n"], unit)
            yield row(name, number, kind="node", sender=str(node["node"]))
    strongest = graph.strongest(STRONGEST_SHARE).edges if len(graph.edges) else graph.edges
    flags = graph.edges.index.isin(strongest.index).tolist()
    for edge, is_strong in zip(graph.edges.to_dict("records"), flags, strict=True):
        names = {name: str(edge[name]) for name in ("sender", "receiver", "input")}
        names["strongest"] = "yes" if is_strong else "no"
        number = Number(edge["mean"], edge["low"], edge["high"], PROBLEMS, edge["n"], unit)
        yield row(EFFECT, number, kind="edge", **names)
    counts = {
        MEASURED_EDGES: graph.n_tested,
        CERTAIN_EDGES: len(graph.edges),
        BY_CHANCE: graph.expected_by_chance,
        STRONGEST: len(strongest),
    }
    yield from (row(name, Number(n, unit="count"), kind="graph") for name, n in counts.items())


def _part_rows(run: Run, key: tuple[str, str, str]) -> Iterator[Row]:
    """Edges whose sender acts at the tokens of one role. They are parts that need not add up."""
    if not results.EDGES_BY_ROLE.is_in(run, *key):
        return
    by_role, nodes = results.EDGES_BY_ROLE.load(run, *key), results.NODES.load(run, *key)
    labels = by_role.labels or {}
    parts = []
    for index, role in enumerate(labels["role"]):
        own = replace(
            by_role,
            per_pair=by_role.per_pair[:, :, :, index],
            axes=by_role.axes[:3],
            labels={name: labels[name] for name in by_role.axes[:3]},
            held_norm=None,
        )
        parts += [
            edge | {"role": str(role)}
            for edge in circuit_graph(own, nodes).edges.to_dict("records")
        ]
    parts.sort(key=lambda edge: -abs(edge["mean"]))
    whole, before = sum(abs(edge["mean"]) for edge in parts), 0.0
    for edge in parts:
        names = {name: str(edge[name]) for name in ("sender", "receiver", "input", "role")}
        names["strongest"] = "yes" if before < STRONGEST_SHARE * whole else "no"
        before += abs(edge["mean"])
        number = Number(
            edge["mean"], edge["low"], edge["high"], PROBLEMS, edge["n"], _unit(key[-1])
        )
        yield row(EFFECT, number, kind="part", **names)


def _input_rows(run: Run, key: tuple[str, str, str]) -> Iterator[Row]:
    """What enters each head by q, k and v: the shares of all senders together."""
    if not results.INPUT_EFFECTS.is_in(run, *key):
        return
    shares = shapley_shares(results.INPUT_EFFECTS.load(run, *key))
    labels = shares.labels or {}
    numbers = iter(interval_numbers(shares, _unit(key[-1])))
    for receiver in labels["receiver"]:
        for letter in labels["input"]:
            names = {"sender": "together", "receiver": receiver, "input": letter}
            yield row("Shapley share", next(numbers), kind="input", **names)


def _kept_rows(run: Run, key: tuple[str, str, str]) -> Iterator[Row]:
    """What is left if the graph alone is kept, nothing, everything, or random graphs."""
    for positions in POSITIONS:
        kept = results.KEPT.load(run, *key, positions)
        labels = kept.labels or {}
        metric = labels["measure"][-1]
        correct, other, _ = labels["measure"]
        measures: tuple[tuple[str, str, Unit], ...] = (
            (ACCURACY, correct, "share"),
            (OTHER, other, "share"),
            (f"mean of {metric}", metric, _unit(metric)),
        )
        for name, measure, unit in measures:
            numbers = interval_numbers(kept.measure(measure), unit)
            yield from _set_rows(name, numbers, positions, labels["set"])
        yield from _set_rows(LEFT, _left(kept), positions, labels["set"])


def _set_rows(
    measure: str, numbers: list[Number], positions: str, sets: tuple[str, ...]
) -> Iterator[Row]:
    """A measure of each set; random graphs have the mean and range over draws."""
    by_set = dict(zip(sets, numbers, strict=True))
    if any(isnan(number.value) for number in numbers):  # no counterfactual has another answer
        return
    sampled = [number.value for name, number in by_set.items() if name.startswith(RANDOM)]
    shown = {name: by_set[name] for name in (NOTHING, GRAPH, EVERYTHING)}
    if sampled:
        shown[RANDOM] = over_draws(sampled, unit=numbers[0].unit, what="random graphs")
    for name, number in shown.items():
        yield row(measure, number, kind="kept", kept=name, positions=positions)


def _left(kept: Effects) -> list[Number]:
    """The share of the metric that is left: 0 where nothing is kept, 1 where everything is."""
    names = (kept.labels or {})["set"]
    own = kept.measure((kept.labels or {})["measure"][-1])

    def left(means: torch.Tensor) -> np.ndarray:
        nothing, everything = means[names.index(NOTHING)], means[names.index(EVERYTHING)]
        return ((means - nothing) / (everything - nothing)).numpy()

    draws = left(resampled_means(own.sample(), slice(None), N_RESAMPLES, 0))
    low, high = np.nanquantile(draws, [0.025, 0.975], axis=-1)
    return [
        Number(float(m), float(lo), float(hi), PROBLEMS, n_problems(own), "relative")
        for m, lo, hi in zip(left(own.mean().double()), low, high, strict=True)
    ]


def _score_rows(run: Run, key: tuple[str, str, str]) -> Iterator[Row]:
    """How well the scores of each method agree with the exact edges."""
    for method in results.EDGE_SCORES.labels(run, *key, None):
        scores = results.EDGE_SCORES.load(run, *key, method)
        for via, stored in (("direct", results.DIRECT_EDGES), ("via_mlps", results.EDGES)):
            exact = stored.load(run, *key)
            graded: Any = agreement(scores, exact, ks=(N_RECALLED,))
            for one in graded.itertuples():
                if one.measure in SCORE_MEASURES:
                    unit: Unit = "share" if "recall" in one.measure else "correlation"
                    n = n_problems(exact)
                    number = Number(one.value, one.low, one.high, PROBLEMS, n, unit)
                    yield row(one.measure, number, kind="score", method=method, via=via)
