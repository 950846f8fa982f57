"""Circuits in the JSON files of the MIB benchmark (Mueller et al., 2025), to read and to write.

A file has the model's shape, its nodes (`input`, heads `a0.h3`, MLPs `m0`, `logits`) and the edges
between them (`a0.h3->m1`, `m0->a5.h2<q>`), each with a score and whether it is in the circuit.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arith_lens.arrays import in_new_folder
from arith_lens.components import (
    Component,
    Components,
    Head,
    Mlp,
    as_components,
    every_component,
    in_forward_order,
)
from arith_lens.effects import ComponentEffects
from arith_lens.model import HookedLike
from arith_lens.untrusted import parse_json

INPUT, LOGITS = "input", "logits"


@dataclass(frozen=True)
class Scored:
    """A node or an edge of a circuit file."""

    score: float | None
    """None: not known."""
    in_graph: bool


@dataclass(frozen=True)
class CircuitFile:
    """A circuit, as MIB's files describe it."""

    n_layers: int
    n_heads: int
    """Heads per layer."""
    d_model: int
    parallel: bool
    """Whether attention and MLP of a layer read the same stream."""
    nodes: Mapping[str, Scored]
    edges: Mapping[str, Scored]

    @classmethod
    def of(
        cls,
        model: HookedLike,
        effects: ComponentEffects,
        circuit: Components,
        *,
        parallel: bool = False,
    ) -> "CircuitFile":
        """The file of a circuit of nodes.

        The score of a node is its mean effect with the sign turned, so that what helps the answer
        is positive. An edge is in the circuit if both of its ends are; its score is not known.

        Args:
            effects: the effects of all heads and MLPs, exact or approximate.
            circuit: the heads and MLPs in the circuit.
            parallel: whether attention and MLP of a layer read the same stream.
        """
        cfg = model.cfg
        inside = {*as_components(circuit)}
        heads, mlps = effects.heads.mean(), effects.mlps.mean()
        nodes = {INPUT: Scored(None, True)}
        for component in _components(cfg.n_layers, cfg.n_heads):
            effect = (
                heads[component.layer, component.index]
                if isinstance(component, Head)
                else mlps[component.layer]
            )
            score = None if effect.isnan() else -float(effect)
            nodes[node_name(component)] = Scored(score, component in inside)
        nodes[LOGITS] = Scored(None, True)
        edges = {
            f"{sender}->{reader}": Scored(
                None, nodes[sender].in_graph and nodes[reader.partition("<")[0]].in_graph
            )
            for sender, reader in _edges(cfg.n_layers, cfg.n_heads, parallel)
        }
        return cls(cfg.n_layers, cfg.n_heads, cfg.d_model, parallel, nodes, edges)

    @property
    def components(self) -> list[Component]:
        """The heads and MLPs of the circuit, in the order of the layers."""
        everything = _components(self.n_layers, self.n_heads)
        return [component for component in everything if self.nodes[node_name(component)].in_graph]

    def order(self, *, by_size: bool = False) -> list[Component]:
        """All heads and MLPs, the largest score first; for `circuit_curve(among="all")`.

        Args:
            by_size: whether the sign of a score is left out.

        Raises:
            ValueError: a head or an MLP has no score.
        """

        def score(component: Component) -> float:
            value = self.nodes[node_name(component)].score
            if value is None:
                raise ValueError(
                    f"expected a score of every node, found none of {node_name(component)}"
                )
            return -abs(value) if by_size else -value

        return sorted(_components(self.n_layers, self.n_heads), key=score)

    def save(self, path: str | Path) -> Path:
        """Write the file. Scores that are not known are left out."""
        cfg = {
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "parallel_attn_mlp": self.parallel,
            "d_model": self.d_model,
        }
        parts = {"nodes": _plain(self.nodes), "edges": _plain(self.edges)}
        path = in_new_folder(path)
        path.write_text(json.dumps({"cfg": cfg, **parts}), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path) -> "CircuitFile":
        """Read a file.

        Raises:
            ValueError: it is not a circuit file, or nodes do not fit the model's shape; the message
                has the file and what is wrong.
        """
        path = Path(path)
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
            cfg = content["cfg"]
            shape = (int(cfg["n_layers"]), int(cfg["n_heads"]), int(cfg["d_model"]))
            nodes, edges = (_scored(content[part]) for part in ("nodes", "edges"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"expected a circuit file with cfg, nodes and edges, found {path} without "
                f"({type(error).__name__}: {error})"
            ) from error
        expected = {INPUT, LOGITS, *map(node_name, _components(*shape[:2]))}
        if expected != nodes.keys():
            wrong = sorted(expected ^ nodes.keys())
            raise ValueError(
                f"expected the nodes of {shape[0]} layers with {shape[1]} heads in {path}, found "
                f"that {', '.join(wrong[:5])} differ"
            )
        ends = (re.fullmatch(r"(.+)->(.+?)(?:<[qkv]>)?", name) for name in edges)
        if not all(end is not None and {end[1], end[2]} <= expected for end in ends):
            raise ValueError(f"expected edges between nodes in {path}, found others")
        parallel = bool(cfg.get("parallel_attn_mlp", False))
        return cls(*shape, parallel, nodes, edges)


def node_name(component: Component) -> str:
    """`a0.h3` for a head, `m0` for an MLP."""
    if isinstance(component, Mlp):
        return f"m{component.layer}"
    return f"a{component.layer}.h{component.index}"


def _components(n_layers: int, n_heads: int) -> list[Component]:
    """The heads of a layer, then its MLP."""
    return in_forward_order(every_component(n_layers, n_heads))


def _edges(n_layers: int, n_heads: int, parallel: bool) -> Iterator[tuple[str, str]]:
    """Who may read whom. Heads read through queries, keys and values."""
    senders = [INPUT]
    for layer in range(n_layers):
        heads = [node_name(Head(layer, index)) for index in range(n_heads)]
        mlp = node_name(Mlp(layer))
        for head in heads:
            for part in "qkv":
                yield from ((sender, f"{head}<{part}>") for sender in senders)
        yield from ((sender, mlp) for sender in (senders if parallel else [*senders, *heads]))
        senders += [*heads, mlp]
    yield from ((sender, LOGITS) for sender in senders)


def _plain(parts: Mapping[str, Scored]) -> dict[str, Any]:
    return {
        name: {"in_graph": entry.in_graph} | ({} if entry.score is None else {"score": entry.score})
        for name, entry in parts.items()
    }


def _scored(parts: Mapping[str, Any]) -> dict[str, Scored]:
    scores = {name: entry.get("score") for name, entry in parts.items()}
    return {
        name: Scored(None if score is None else float(score), bool(parts[name]["in_graph"]))
        for name, score in scores.items()
    }
